//! The Erlang query server of Settee: a script for `escript` (Debian package `erlang-base`). Its head describes it.

use std::path::Path;

pub const SCRIPT: &str = include_str!("erlang/query_server.escript");

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
