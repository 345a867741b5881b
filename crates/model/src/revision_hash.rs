//! The hash of a new revision, equal to that of CouchDB 3.5 for the same edit: [`RevisionHasher`]. Servers that make
//! the same edit must compute the same revision id, because otherwise replication would report a conflict. The hash is
//! the MD5 of the Erlang external term format of `[Deleted, OldStart, OldRev, Body, Atts]`, written in one pass over
//! the text of the body. `1e1` and `10.0` have the same hash, and so do strings that differ only in escapes; lists of
//! small numbers have a shorter form, because they are Erlang strings.

use md5::{Digest, Md5};
use smallvec::SmallVec;

use crate::json::{Value, scan, unescape};
use crate::rev::Rev;

pub(crate) mod integer;
#[cfg(test)]
mod tests;

pub(crate) const VERSION: u8 = 131;
const NEW_FLOAT: u8 = 70;
const SMALL_INTEGER: u8 = 97;
const ATOM: u8 = 100;
pub(crate) const SMALL_TUPLE: u8 = 104;
pub(crate) const NIL: u8 = 106;
pub(crate) const STRING: u8 = 107;
pub(crate) const LIST: u8 = 108;
const BINARY: u8 = 109;

/// Properties of an attachment that are hashed.
#[derive(Clone, Copy, Debug)]
pub struct AttachmentDigest<'a> {
    /// Name.
    pub name: &'a str,
    /// Media type.
    pub content_type: &'a str,
    /// MD5 of the data as CouchDB would store it: text types are compressed.
    pub md5: [u8; 16],
}

/// Returns the hash that CouchDB 3.5 computes. `body` must be a compact object without underscore members;
/// `attachments` must be in the order of the document.
pub fn revision_hash(
    deleted: bool,
    parent: Option<&Rev>,
    body: Value<'_>,
    attachments: &[AttachmentDigest<'_>],
) -> [u8; 16] {
    RevisionHasher::default().hash(deleted, parent, body, attachments)
}

/// Computes revision hashes with a reused buffer.
#[derive(Default, Debug)]
pub struct RevisionHasher {
    term: Vec<u8>,
}

impl RevisionHasher {
    /// A buffer that has grown beyond this size is freed.
    const KEEP: usize = 1 << 20;

    /// As [`revision_hash`].
    pub fn hash(
        &mut self,
        deleted: bool,
        parent: Option<&Rev>,
        body: Value<'_>,
        attachments: &[AttachmentDigest<'_>],
    ) -> [u8; 16] {
        self.hash_with(deleted, parent, body, |term| write_attachments(term, attachments))
    }

    /// Returns the hash of an edit that recreates a deleted document, in which CouchDB hashes only the number of
    /// attachments.
    pub fn hash_again(&mut self, deletion: &Rev, body: Value<'_>, attachments: usize) -> [u8; 16] {
        self.hash_with(false, Some(deletion), body, |term| write_unknown_attachments(term, attachments))
    }

    fn hash_with(
        &mut self,
        deleted: bool,
        parent: Option<&Rev>,
        body: Value<'_>,
        write_attachments: impl FnOnce(&mut Vec<u8>),
    ) -> [u8; 16] {
        self.term.clear();
        self.term.shrink_to(Self::KEEP);
        self.term.reserve(body.raw().len() * 2 + 64);
        let term = &mut self.term;
        term.extend_from_slice(&[VERSION, LIST, 0, 0, 0, 5]);
        write_atom(term, if deleted { b"true" } else { b"false" });
        match parent {
            Some(rev) => {
                integer::write(term, rev.generation.to_string().as_bytes());
                write_binary(term, rev.hash.as_bytes());
            }
            None => term.extend_from_slice(&[SMALL_INTEGER, 0, SMALL_INTEGER, 0]),
        }
        write_value(term, body.raw());
        write_attachments(term);
        term.push(NIL);
        Md5::digest(&self.term).into()
    }
}

pub(crate) fn write_atom(term: &mut Vec<u8>, word: &[u8]) {
    term.extend_from_slice(&[ATOM, 0, u8::try_from(word.len()).expect("atoms are short words")]);
    term.extend_from_slice(word);
}

pub(crate) fn write_count(term: &mut Vec<u8>, count: usize) {
    term.extend_from_slice(&count_bytes(count));
}

fn count_bytes(count: usize) -> [u8; 4] {
    u32::try_from(count).expect("documents are smaller than 4 GB").to_be_bytes()
}

pub(crate) fn write_binary(term: &mut Vec<u8>, bytes: &[u8]) {
    term.push(BINARY);
    write_count(term, bytes.len());
    term.extend_from_slice(bytes);
}

fn write_unknown_attachments(term: &mut Vec<u8>, count: usize) {
    if count > 0 {
        term.push(LIST);
        write_count(term, count);
        for _ in 0..count {
            term.extend_from_slice(&[SMALL_TUPLE, 3]);
            (0..3).for_each(|_| write_atom(term, b"undefined"));
        }
    }
    term.push(NIL);
}

fn write_attachments(term: &mut Vec<u8>, attachments: &[AttachmentDigest<'_>]) {
    if !attachments.is_empty() {
        term.push(LIST);
        write_count(term, attachments.len());
        for attachment in attachments.iter().rev() {
            term.extend_from_slice(&[SMALL_TUPLE, 3]);
            write_binary(term, attachment.name.as_bytes());
            write_binary(term, attachment.content_type.as_bytes());
            write_binary(term, &attachment.md5);
        }
    }
    term.push(NIL);
}

struct Open {
    start: usize,
    elements: usize,
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Array,
    /// An array that so far contains only integers from 0 to 255.
    Bytes,
}

pub(crate) fn write_value(term: &mut Vec<u8>, text: &[u8]) {
    let mut open: SmallVec<[Open; 16]> = SmallVec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'{' | b'[' => {
                count_element(&mut open, false);
                let shape = if byte == b'{' { Shape::Object } else { Shape::Bytes };
                if shape == Shape::Object {
                    // An object is a tuple of one element, the list of its members.
                    term.extend_from_slice(&[SMALL_TUPLE, 1]);
                }
                open.push(Open { start: term.len(), elements: 0, shape });
                term.extend_from_slice(&[LIST, 0, 0, 0, 0]);
                at += 1;
            }
            b'}' | b']' => {
                if let Some(container) = open.pop() {
                    close(term, &container);
                }
                at += 1;
            }
            b'"' => at = write_name_or_string(term, &mut open, text, at),
            b',' => at += 1,
            _ => {
                let end = scan::skip_scalar(text, at);
                count_element(&mut open, write_scalar(term, &text[at..end]));
                at = end.max(at + 1);
            }
        }
    }
}

/// Counts a value in an array. Members of objects are counted by their names.
#[inline]
fn count_element(open: &mut SmallVec<[Open; 16]>, is_byte: bool) {
    if let Some(container) = open.last_mut()
        && container.shape != Shape::Object
    {
        container.elements += 1;
        if !is_byte {
            container.shape = Shape::Array;
        }
    }
}

/// Returns the end of the literal at `at`, or the position of the colon after a name.
#[inline]
fn write_name_or_string(term: &mut Vec<u8>, open: &mut SmallVec<[Open; 16]>, text: &[u8], at: usize) -> usize {
    let (end, escaped) = scan::skip_noting_escapes(text, at);
    let is_name = text.get(end) == Some(&b':');
    match open.last_mut() {
        // A member is a tuple of two elements.
        Some(object) if is_name => {
            object.elements += 1;
            term.extend_from_slice(&[SMALL_TUPLE, 2]);
        }
        _ => count_element(open, false),
    }
    let inner = text.get(at + 1..end - 1).unwrap_or_default();
    if escaped {
        term.push(BINARY);
        let length_at = term.len();
        write_count(term, inner.len());
        unescape(inner, term);
        let length = term.len() - length_at - 4;
        term[length_at..length_at + 4].copy_from_slice(&count_bytes(length));
    } else {
        write_binary(term, inner);
    }
    end + usize::from(is_name)
}

#[inline]
fn write_scalar(term: &mut Vec<u8>, text: &[u8]) -> bool {
    match text {
        b"true" | b"false" | b"null" => {
            write_atom(term, text);
            false
        }
        _ if text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
            term.push(NEW_FLOAT);
            let number = Value::trusted(text).as_f64().unwrap_or(f64::NAN);
            term.extend_from_slice(&number.to_be_bytes());
            false
        }
        _ => integer::write(term, text),
    }
}

fn close(term: &mut Vec<u8>, container: &Open) {
    let Open { start, elements, shape } = *container;
    if elements == 0 {
        term.truncate(start);
        term.push(NIL);
    } else if let (Shape::Bytes, Ok(length)) = (shape, u16::try_from(elements)) {
        // Each element is a tag and a byte, so the bytes move towards the front.
        term[start] = STRING;
        term[start + 1..start + 3].copy_from_slice(&length.to_be_bytes());
        for index in 0..elements {
            term[start + 3 + index] = term[start + 5 + 2 * index + 1];
        }
        term.truncate(start + 3 + elements);
    } else {
        term[start + 1..start + 5].copy_from_slice(&count_bytes(elements));
        term.push(NIL);
    }
}
