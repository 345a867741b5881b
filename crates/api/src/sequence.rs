//! Update sequences on the wire: opaque texts `N-TERM`. Clients may only compare them and send them back, but many read
//! the leading number, and tools for CouchDB decode the rest: an Erlang term in base64, `[{Node, [Begin, End], {Seq,
//! Uuid, Node}}]`. A database here is one range. The uuid is the database's instance, which distinguishes a sequence of
//! this database from one of a deleted database of the same name.
//! In a feed of a member of a database with per-document access it also depends on the roles of the member: after a
//! change of roles, a sequence of an earlier feed means the start, so that the feed contains the documents that a new
//! role makes visible.

pub(crate) mod date;
mod term;

use settee_database::{Database, ReadView, Reader};

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    Seq(u64),
    Now,
    /// Before the changes since this time, in seconds since 1970.
    Time(u64),
}

impl Since {
    pub(crate) fn start(self, view: &ReadView<'_>) -> Result<u64, Error> {
        match self {
            Self::Seq(seq) => Ok(seq.min(view.update_seq()?)),
            Self::Now => Ok(view.update_seq()?),
            Self::Time(time_s) => Ok(view.seq_before(time_s)?),
        }
    }
}

pub(crate) fn write(out: &mut Vec<u8>, database: &Database, seq: u64) {
    write_for(out, (database, &Reader::Administrator), seq);
}

/// Writes a sequence of a feed of `reader`.
pub(crate) fn write_for(out: &mut Vec<u8>, feed: (&Database, &Reader), seq: u64) {
    out.push(b'"');
    append(out, instance_for(feed), seq);
    out.push(b'"');
}

pub(crate) fn text(database: &Database, seq: u64) -> String {
    text_for((database, &Reader::Administrator), seq)
}

pub(crate) fn text_for(feed: (&Database, &Reader), seq: u64) -> String {
    let mut out = Vec::new();
    append(&mut out, instance_for(feed), seq);
    String::from_utf8(out).expect("digits and base64 are ASCII")
}

fn instance_for((database, reader): (&Database, &Reader)) -> u64 {
    database.instance() ^ reader.fingerprint()
}

fn append(out: &mut Vec<u8>, instance: u64, seq: u64) {
    settee_model::json::write_u64(out, seq);
    out.push(b'-');
    term::write(out, instance, seq);
}

/// Parses the `since` of a request as CouchDB does: `0`, `now`, a date, or a sequence, with or without quotes. A
/// sequence of another instance means the start. Of a sequence of CouchDB the number applies, because migrated
/// documents keep their update order. Sequences `N-INSTANCE` of earlier versions are accepted.
pub(crate) fn parse(text: &str, feed: (&Database, &Reader)) -> Result<Since, Error> {
    match text {
        "now" => return Ok(Since::Now),
        "0" => return Ok(Since::Seq(0)),
        date if date::is_date(date) => {
            let invalid = || Error::bad_request("invalid_time_format");
            return date::parse(date).map(Since::Time).ok_or_else(invalid);
        }
        _ => {}
    }
    let malformed = || Error::bad_request("Malformed sequence supplied in 'since' parameter.");
    let text = text.strip_prefix('"').unwrap_or(text);
    let text = text.strip_suffix('"').unwrap_or(text);
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (number, opaque) = match text.split_once('-') {
        Some((digits, opaque)) if is_number(digits) => (Some(digits), opaque),
        _ => (None, text),
    };
    // CouchDB ignores the number. A number that exceeds the range of a sequence is ignored.
    let number = number.and_then(|digits| digits.parse().ok());
    let (instance, seq) = match (short_instance(opaque), number) {
        (Some(instance), Some(seq)) => (instance, seq),
        _ => match term::parse(opaque).ok_or_else(malformed)? {
            term::Origin::Settee { instance, seq } => (instance, seq),
            term::Origin::Couchdb => return Ok(Since::Seq(number.unwrap_or(0))),
        },
    };
    let is_own = instance == feed.0.instance() || instance == instance_for(feed);
    Ok(Since::Seq(if is_own { seq } else { 0 }))
}

fn short_instance(opaque: &str) -> Option<u64> {
    let is_hex = opaque.len() == 16 && opaque.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(opaque, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests;
