//! The Erlang query server that comes with Settee: a script for `escript`, which Debian's package `erlang-base` brings.
//!
//! It speaks the line protocol, so it is a [`QueryServer`](crate::QueryServer) like any other. What it offers to functions is
//! what CouchDB's native query server does; how, is said at the head of the script.

use std::io;
use std::path::{Path, PathBuf};

/// The script.
const SCRIPT: &str = include_str!("erlang/query_server.escript");

/// Writes the script into `directory`; answers the command that runs it.
///
/// # Errors
/// When it cannot be written.
pub fn install(directory: &Path) -> io::Result<String> {
    std::fs::create_dir_all(directory)?;
    let path: PathBuf = directory.join("query_server.escript");
    // Replaced as a whole: a server that was killed may have left half of it, and another one may be reading it.
    let fresh = directory.join("query_server.escript.new");
    std::fs::write(&fresh, SCRIPT)?;
    std::fs::rename(&fresh, &path)?;
    Ok(format!("escript {}", quote(&path.to_string_lossy())))
}

/// Quotes a word for the shell.
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
