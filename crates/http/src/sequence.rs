//! Update sequences on the wire: opaque texts `N-instance`.
//!
//! Clients may only compare them and give them back, but many read the leading number, and scripts for
//! version 1 send bare numbers. The instance tells a sequence of this database from one of another that had
//! its name.

use settee_database::Database;
use settee_model::json;

use crate::Error;

/// Where a feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// After this update sequence.
    Seq(u64),
    /// After everything that there is.
    Now,
}

/// Appends a sequence as a JSON string.
pub(crate) fn write(out: &mut Vec<u8>, database: &Database, seq: u64) {
    json::write_string(out, &text(database, seq));
}

/// A sequence as clients see it.
pub(crate) fn text(database: &Database, seq: u64) -> String {
    format!("{seq}-{:016x}", database.instance())
}

/// Reads what clients send as `since`: a sequence, a bare number, `now`, any of them in quotes, or the
/// array form `[N,"…"]` of old clusters. A sequence of another database, which may have had this one's name,
/// means the beginning.
pub(crate) fn parse(text: &str, database: &Database) -> Result<Since, Error> {
    let text = text.trim().trim_matches(['"', '[', ']']);
    if text == "now" {
        return Ok(Since::Now);
    }
    let (digits, suffix) = text.split_once(['-', ',']).unwrap_or((text, ""));
    let other =
        suffix.len() == 16 && u64::from_str_radix(suffix, 16).is_ok_and(|instance| instance != database.instance());
    match digits.parse() {
        Ok(_) if other => Ok(Since::Seq(0)),
        Ok(seq) => Ok(Since::Seq(seq)),
        Err(_) => Err(Error::bad_request("Malformed sequence supplied in 'since' parameter.")),
    }
}

#[cfg(test)]
mod tests;
