//! JSON text of a peer, parsed without validation and without a tree: [`Splitter`] cuts a stream into rows, [`members`]
//! and [`elements`] walk over a row.
//!
//! Unlike `settee_model::json::Value` this module makes no assumptions: white space is allowed, and on text that is not
//! JSON the walk ends early. Copied text is validated by the peer that receives it.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

pub(crate) const MAX_ROW_BYTES: usize = 64 << 20;

/// Maximum length of the text around the rows, such as `last_seq`.
const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SplitError {
    /// A row exceeds [`MAX_ROW_BYTES`].
    #[error("a row is too long")]
    RowTooLong,
    /// The text around the rows exceeds its limit.
    #[error("the text around the rows is too long")]
    FrameTooLong,
    /// A closing bracket has no opening one.
    #[error("the brackets do not match")]
    Unbalanced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Objects in an array that is a member of the outer object: `{"results":[ROW,ROW],"last_seq":5}`.
    InArray,
    /// A sequence of objects.
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Plain,
    InString,
    Escaped,
}

/// Cuts a stream of JSON text into rows, each a complete object.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// Number of open brackets around a row.
    level: usize,
    buffer: BytesMut,
    /// Number of bytes of the buffer that were scanned.
    scanned: usize,
    place: Place,
    depth: usize,
    /// True if the buffer starts with a row whose end was not found yet.
    in_row: bool,
    /// True if only separators came since the last row.
    behind_row: bool,
    frame: Vec<u8>,
}

impl Splitter {
    pub(crate) fn new(rows: Rows) -> Self {
        let level = match rows {
            Rows::InArray => 2,
            Rows::Lines => 0,
        };
        Self {
            level,
            buffer: BytesMut::new(),
            scanned: 0,
            place: Place::Plain,
            depth: 0,
            in_row: false,
            behind_row: false,
            frame: Vec::new(),
        }
    }

    /// Adds bytes. The caller must take all rows before it adds more.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next row; `None` if more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, SplitError> {
        loop {
            let end = if self.in_row { self.skip_row()? } else { self.find_row()? };
            match end {
                Some(row) => return Ok(Some(row)),
                None if self.scanned < self.buffer.len() => {}
                None if self.buffer.len() > MAX_ROW_BYTES => return Err(SplitError::RowTooLong),
                None => return Ok(None),
            }
        }
    }

    /// Returns the text around the rows: `{"results":[],"last_seq":5}`.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns true if all brackets and strings are closed.
    pub(crate) fn is_balanced(&self) -> bool {
        self.depth == 0 && self.place == Place::Plain
    }

    /// Searches for the start of a row; the text before it is added to the frame.
    fn find_row(&mut self) -> Result<Option<Bytes>, SplitError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            match (self.place, byte) {
                (Place::Escaped, _) => self.place = Place::InString,
                (Place::InString, b'\\') => self.place = Place::Escaped,
                (Place::InString, b'"') => self.place = Place::Plain,
                (Place::InString, _) => {}
                (Place::Plain, b'"') => self.place = Place::InString,
                (Place::Plain, b'{') if self.depth == self.level => {
                    let _ = self.buffer.split_to(self.scanned);
                    self.depth += 1;
                    self.scanned = 1;
                    self.in_row = true;
                    return Ok(None);
                }
                (Place::Plain, b'{' | b'[') => self.depth += 1,
                (Place::Plain, b'}' | b']') => self.depth = self.depth.checked_sub(1).ok_or(SplitError::Unbalanced)?,
                (Place::Plain, _) => {}
            }
            // Commas between rows are dropped.
            if !self.behind_row || !matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r') {
                self.behind_row = false;
                self.frame.push(byte);
            }
            self.scanned += 1;
        }
        if self.frame.len() > MAX_FRAME_BYTES {
            return Err(SplitError::FrameTooLong);
        }
        if self.level == 0 {
            self.frame.clear();
        }
        self.buffer.clear();
        self.scanned = 0;
        Ok(None)
    }

    /// Searches for the end of the row at the start of the buffer.
    fn skip_row(&mut self) -> Result<Option<Bytes>, SplitError> {
        let text = &self.buffer[..];
        let (mut at, mut depth, mut place) = (self.scanned, self.depth, self.place);
        while at < text.len() {
            match place {
                Place::Escaped => {
                    place = Place::InString;
                    at += 1;
                }
                Place::InString => match memchr2(b'"', b'\\', &text[at..]) {
                    None => at = text.len(),
                    Some(distance) => {
                        at += distance;
                        place = if text[at] == b'"' { Place::Plain } else { Place::Escaped };
                        at += 1;
                    }
                },
                Place::Plain => {
                    let byte = text[at];
                    at += 1;
                    match byte {
                        b'"' => place = Place::InString,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            if depth == self.level {
                                (self.scanned, self.depth, self.place) = (0, depth, Place::Plain);
                                self.behind_row = true;
                                self.in_row = false;
                                return Ok(Some(self.buffer.split_to(at).freeze()));
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        (self.scanned, self.depth, self.place) = (at, depth, place);
        Ok(None)
    }
}

/// Returns the names (with quotation marks) and values of an object's members.
pub(crate) fn members(object: &[u8]) -> Walk<'_> {
    Walk { text: object, at: skip_space(object, 0), named: true, begun: false }
}

/// Returns the elements of an array; names are empty.
pub(crate) fn elements(array: &[u8]) -> Walk<'_> {
    Walk { text: array, at: skip_space(array, 0), named: false, begun: false }
}

/// Returns the value of the member with this name, which must need no escaping.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(object).find(|(key, _)| key.get(1..key.len() - 1) == Some(name.as_bytes())).map(|(_, value)| value)
}

/// Iterator of [`members`] and [`elements`].
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    named: bool,
    begun: bool,
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let expected = match (self.begun, self.named) {
            (false, true) => b'{',
            (false, false) => b'[',
            (true, _) => b',',
        };
        if *self.text.get(self.at)? != expected {
            return None;
        }
        self.begun = true;
        let start = skip_space(self.text, self.at + 1);
        let (name, value_at) = if self.named {
            if *self.text.get(start)? != b'"' {
                return None;
            }
            let end = skip_string(self.text, start)?;
            let colon = skip_space(self.text, end);
            if *self.text.get(colon)? != b':' {
                return None;
            }
            (&self.text[start..end], skip_space(self.text, colon + 1))
        } else {
            (&self.text[..0], start)
        };
        let value_end = skip_value(self.text, value_at)?;
        self.at = skip_space(self.text, value_end);
        Some((name, &self.text[value_at..value_end]))
    }
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// Returns the position after the closing quotation mark; `at` is at the opening one.
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    match *text.get(at)? {
        b'"' => skip_string(text, at),
        b'{' | b'[' => {
            let (mut at, mut depth) = (at, 0usize);
            loop {
                match *text.get(at)? {
                    b'"' => at = skip_string(text, at)?,
                    byte => {
                        at += 1;
                        match byte {
                            b'{' | b'[' => depth += 1,
                            b'}' | b']' => depth -= 1,
                            _ => {}
                        }
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                }
            }
        }
        b',' | b':' | b'}' | b']' => None,
        _ => {
            let rest = &text[at..];
            let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n'));
            Some(at + length.unwrap_or(rest.len()))
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{Rows, Splitter, elements, member, members};

    fn rows(text: &str, rows: Rows, piece: usize) -> (Vec<String>, String, bool) {
        let mut splitter = Splitter::new(rows);
        let mut found = Vec::new();
        for bytes in text.as_bytes().chunks(piece) {
            splitter.feed(bytes);
            while let Some(row) = splitter.next().unwrap() {
                found.push(String::from_utf8(row.to_vec()).unwrap());
            }
        }
        (found, String::from_utf8(splitter.frame().to_vec()).unwrap(), splitter.is_balanced())
    }

    #[test]
    fn rows_are_cut_wherever_pieces_end() {
        let text = "{\"results\":[\n{\"id\":\"a]}\\\"\\\\\",\"x\":[{},[]]},\n{\"id\":\"b\"}\n],\n\"last_seq\":[5,\"-[\"],\"pending\":0}\n";
        for piece in 1..text.len() {
            let (found, frame, balanced) = rows(text, Rows::InArray, piece);
            assert_eq!(found, ["{\"id\":\"a]}\\\"\\\\\",\"x\":[{},[]]}", "{\"id\":\"b\"}"], "pieces of {piece}");
            assert_eq!(frame.replace('\n', ""), "{\"results\":[],\"last_seq\":[5,\"-[\"],\"pending\":0}");
            assert!(balanced);
            let (found, _, _) = rows("\n\n{\"a\":1}\n\n{\"b\":\"}\"}\n{", Rows::Lines, piece);
            assert_eq!(found, ["{\"a\":1}", "{\"b\":\"}\"}"]);
        }
        assert!(!rows("{\"results\":[{\"id\":\"a\"},", Rows::InArray, 5).2);
        // An array is not a row, for any division into pieces.
        for piece in 1..20 {
            let (found, frame, balanced) = rows("{\"last_seq\":[[1,{}],{}]}", Rows::InArray, piece);
            assert_eq!((found.len(), frame.as_str(), balanced), (1, "{\"last_seq\":[[1,{}],]}", true));
        }
    }

    #[test]
    fn walks_pass_over_white_space() {
        let text = b" { \"a\" : [ 1 , \"x,\" , { } ] , \"b\":{\"c\":\"\\\"}\"} , \"d\":-1.5e3 } ";
        let found: Vec<(&[u8], &[u8])> = members(text).collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"\"a\"", b"[ 1 , \"x,\" , { } ]"), (b"\"b\"", b"{\"c\":\"\\\"}\"}"), (b"\"d\"", b"-1.5e3")];
        assert_eq!(found, expected);
        let found: Vec<&[u8]> = elements(found[0].1).map(|(_, value)| value).collect();
        let expected: [&[u8]; 3] = [b"1", b"\"x,\"", b"{ }"];
        assert_eq!(found, expected);
        assert_eq!(member(text, "d"), Some(&b"-1.5e3"[..]));
        assert_eq!(member(text, "e"), None);
    }

    #[test]
    fn walks_end_where_text_is_no_json() {
        let cases: [&[u8]; 9] =
            [b"", b"{", b"{\"a", b"{\"a\"", b"{\"a\":", b"{\"a\":}", b"{\"a\":[", b"[1]", b"{\"a\":\"\\"];
        for text in cases {
            assert_eq!(members(text).count(), 0, "{}", String::from_utf8_lossy(text));
        }
    }

    /// A peer may send any text. No text may cause a panic, and a row for the splitter is also one for the walks.
    #[test]
    fn anything_can_be_looked_at() {
        let mut random = 0x5e77_ee00_u64;
        for round in 0..20_000 {
            let mut text = Vec::new();
            for _ in 0..round % 60 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                text.push(b"{}[]\",\\:a1 \n"[(random % 12) as usize]);
            }
            for kind in [Rows::InArray, Rows::Lines] {
                let mut splitter = Splitter::new(kind);
                for piece in text.chunks(1 + round % 7) {
                    splitter.feed(piece);
                    while let Ok(Some(row)) = splitter.next() {
                        assert!(row.starts_with(b"{") && row.ends_with(b"}") | row.ends_with(b"]"));
                        members(&row).for_each(|(name, value)| {
                            assert!(name.len() > 1);
                            elements(value).for_each(drop);
                        });
                        member(&row, "a");
                    }
                }
            }
            members(&text).for_each(drop);
            elements(&text).for_each(drop);
        }
    }
}
