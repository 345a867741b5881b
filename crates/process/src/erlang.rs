//! The Erlang query server of Settee: a script for `escript`, which is part of Debian's package `erlang-base`.
//!
//! It implements the line protocol, so it is an ordinary [`QueryServer`](crate::QueryServer). It offers functions the
//! same interface as CouchDB's native query server; see the head of the script.

use std::path::Path;

pub const SCRIPT: &str = include_str!("erlang/query_server.escript");

/// Returns the command that runs a copy of the script.
#[must_use]
pub fn command(copy: &Path) -> String {
    format!("escript {}", quote(&copy.to_string_lossy()))
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote("/a b/c"), "'/a b/c'");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }
}
