//! The header of a database file: [`Header::find`].
//!
//! A commit appends a header: it pads the file with zeros to the next block and writes the byte 1, the length (four
//! bytes) of the rest, a checksum of 16 bytes, and an uncompressed term, the tuple `db_header`:
//!
//! | element | versions 7 and 8 | version 6, if different |
//! |---|---|---|
//! | 2 | disk version | |
//! | 3 | update sequence | |
//! | 4 | position of the times of sequences, or unused | |
//! | 5, 6, 7 | roots of the trees by id, by sequence, and of local documents | |
//! | 8, 9 | roots of the trees of purges by UUID and by sequence | number of purges; position of the last purge |
//! | 10 | position of the security object | |
//! | 11 | limit of revisions | |
//! | 12, 13 | UUID of the file, nodes that wrote it | missing in early versions |
//! | 14 | update sequence of the last compaction | |
//! | 15 | limit of purges | missing |
//! | 16 | position of the properties, in version 8 | missing |
//!
//! The root of a tree is `nil`, or a tuple of the position of its root node, a reduction and the size of the tree. The
//! reduction of the tree by id starts with the numbers of documents and of deleted documents.
//!
//! Only the newest header is valid. The search proceeds block by block from the end of the file.

use crate::error::FileError;
use crate::source::{BLOCK, BlockReader, CHECKSUM, HEADER_MARK, Source, has_checksum};
use crate::term::{Tape, Term};

/// Usual headers have some hundred bytes. Each node that wrote the file adds some.
const MAX_HEADER_LEN: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub disk_version: u64,
    pub update_seq: u64,
    /// Number of documents that are not deleted, as recorded in the file.
    pub doc_count: Option<u64>,
    pub deleted_count: Option<u64>,
    pub revs_limit: u64,
    pub purge_infos_limit: u64,
    pub position: u64,
    /// Number of uncommitted bytes after the header.
    pub tail: u64,
    pub(crate) id_tree: Option<u64>,
    pub(crate) seq_tree: Option<u64>,
    pub(crate) local_tree: Option<u64>,
    pub(crate) purges: Purges,
    pub(crate) security: Option<u64>,
    pub(crate) props: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purges {
    None,
    Tree(u64),
    /// Version 6 stores the documents of the last purge only.
    Last {
        position: u64,
        seq: u64,
    },
}

impl Header {
    pub fn find(source: &dyn Source) -> Result<Header, FileError> {
        let blocks = source.size().div_ceil(BLOCK);
        for block in (0..blocks).rev() {
            if let Some(tape_and_end) = read(source, block * BLOCK)? {
                let (tape, end) = tape_and_end;
                match parse(tape.root()) {
                    Ok(header) => {
                        return Ok(Header { position: block * BLOCK, tail: source.size() - end, ..header });
                    }
                    Err(Some(version)) => return Err(FileError::DiskVersion(version)),
                    Err(None) => {}
                }
            }
        }
        Err(FileError::NoHeader)
    }
}

/// Returns the term of the header at `position` and the position after it, or `None` if no valid header starts there.
fn read(source: &dyn Source, position: u64) -> Result<Option<(Tape, u64)>, FileError> {
    let head_len = 5;
    if source.size() - position < head_len {
        return Ok(None);
    }
    let mut head = [0; 5];
    source.read_exact_at(&mut head, position).map_err(|error| FileError::Io { position, error })?;
    let [mark, len @ ..] = head;
    let len = u64::from(u32::from_be_bytes(len));
    if mark != HEADER_MARK || !(CHECKSUM..=MAX_HEADER_LEN).contains(&len) {
        return Ok(None);
    }
    let mut run = BlockReader::new(source, position + head_len);
    let mut bytes = match run.read(len) {
        Ok(bytes) => bytes,
        Err(FileError::Io { position, error }) => return Err(FileError::Io { position, error }),
        Err(_) => return Ok(None),
    };
    let term = bytes.split_off(CHECKSUM as usize);
    if !has_checksum(&term, &bytes) {
        return Ok(None);
    }
    Ok(Tape::decode(term).ok().map(|tape| (tape, run.position())))
}

/// Returns an error if the term is not a header; it contains the disk version if that is the only reason.
fn parse(term: Term<'_>) -> Result<Header, Option<u64>> {
    let fields: Vec<Term<'_>> = term.tuple().ok_or(None)?.take(32).collect();
    let unsigned = |index: usize| fields.get(index).and_then(|field| field.unsigned());
    if !fields.first().is_some_and(|name| name.is_atom("db_header")) {
        return Err(None);
    }
    let disk_version = unsigned(1).ok_or(None)?;
    if !(6..=8).contains(&disk_version) {
        return Err(Some(disk_version));
    }
    if fields.len() < 10 {
        return Err(None);
    }
    let id_tree = Root::of(fields[4]).ok_or(None)?;
    let counts = id_tree.reduction.and_then(Term::tuple).map(|counts| counts.map(Term::unsigned).collect::<Vec<_>>());
    let count = |index: usize| match id_tree.position {
        None => Some(0),
        Some(_) => counts.as_ref().and_then(|counts| counts.get(index).copied().flatten()),
    };
    Ok(Header {
        disk_version,
        update_seq: unsigned(2).ok_or(None)?,
        doc_count: count(0),
        deleted_count: count(1),
        revs_limit: unsigned(10).unwrap_or(1000),
        purge_infos_limit: unsigned(14).unwrap_or(1000),
        position: 0,
        tail: 0,
        id_tree: id_tree.position,
        seq_tree: Root::of(fields[5]).ok_or(None)?.position,
        local_tree: Root::of(fields[6]).ok_or(None)?.position,
        purges: purges(fields[7], fields[8]).ok_or(None)?,
        security: unsigned(9),
        props: unsigned(15),
    })
}

fn purges(by_uuid: Term<'_>, by_seq: Term<'_>) -> Option<Purges> {
    match (by_uuid.unsigned(), by_seq.unsigned()) {
        (Some(seq), Some(position)) => Some(Purges::Last { position, seq }),
        (Some(_), None) => Some(Purges::None),
        _ => Some(Root::of(by_seq)?.position.map_or(Purges::None, Purges::Tree)),
    }
}

struct Root<'t> {
    position: Option<u64>,
    reduction: Option<Term<'t>>,
}

impl<'t> Root<'t> {
    fn of(term: Term<'t>) -> Option<Root<'t>> {
        if term.is_atom("nil") {
            return Some(Root { position: None, reduction: None });
        }
        let mut state = term.tuple()?;
        let position = state.next()?.unsigned()?;
        Some(Root { position: Some(position), reduction: state.next() })
    }
}
