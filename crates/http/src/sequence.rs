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
/// means the beginning; of one of CouchDB the number counts.
pub(crate) fn parse(text: &str, database: &Database) -> Result<Since, Error> {
    let text = text.trim().trim_matches(['"', '[', ']']);
    if text == "now" {
        return Ok(Since::Now);
    }
    let (digits, suffix) = text.split_once(['-', ',']).map_or((text, None), |(digits, rest)| (digits, Some(rest)));
    let malformed = || Error::bad_request("Malformed sequence supplied in 'since' parameter.");
    let seq = digits.parse().map_err(|_| malformed())?;
    match suffix.map(|suffix| suffix.trim_matches('"')) {
        Some(suffix) if is_of_couchdb(suffix) => Ok(Since::Seq(seq)),
        Some(suffix) if suffix.len() == 16 => match u64::from_str_radix(suffix, 16) {
            Ok(instance) if instance == database.instance() => Ok(Since::Seq(seq)),
            Ok(_) => Ok(Since::Seq(0)),
            Err(_) => Err(malformed()),
        },
        Some(_) => Err(malformed()),
        None => Ok(Since::Seq(seq)),
    }
}

/// Whether this may be an Erlang term in base64, which the sequences of a cluster end with, or what is left of one.
fn is_of_couchdb(suffix: &str) -> bool {
    let is_symbol = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=');
    suffix.is_empty() || suffix.len() > 5 && suffix.starts_with('g') && suffix.bytes().all(is_symbol)
}

#[cfg(test)]
mod tests;
