//! [`RowSplitter`] cuts a stream of JSON text of a peer into rows, which are slices of the received bytes and not
//! validated. Only a row with white space is parsed ([`compacted`]).

use bytes::{Bytes, BytesMut};
use memchr::memchr2;
use settee_model::json::Json;

pub(crate) const MAX_ROW_BYTES: usize = 64 << 20;

/// Maximum length of the text around the rows, such as `last_seq`.
const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SplitError {
    #[error("a row is too long")]
    RowTooLong,
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
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    Plain,
    InString,
    Escaped,
}

#[derive(Debug)]
pub(crate) struct RowSplitter {
    /// Number of open brackets around a row.
    level: usize,
    buffer: BytesMut,
    /// Number of bytes of the buffer that were scanned.
    scanned: usize,
    state: ScanState,
    depth: usize,
    in_row: bool,
    /// True if this row contains white space outside of strings.
    has_white_space: bool,
    after_row: bool,
    frame: Vec<u8>,
}

impl RowSplitter {
    pub(crate) fn new(rows: Rows) -> Self {
        let level = match rows {
            Rows::InArray => 2,
            Rows::Lines => 0,
        };
        Self {
            level,
            buffer: BytesMut::new(),
            scanned: 0,
            state: ScanState::Plain,
            depth: 0,
            in_row: false,
            has_white_space: false,
            after_row: false,
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

    pub(crate) fn is_balanced(&self) -> bool {
        self.depth == 0 && self.state == ScanState::Plain
    }

    fn find_row(&mut self) -> Result<Option<Bytes>, SplitError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            match (self.state, byte) {
                (ScanState::Escaped, _) => self.state = ScanState::InString,
                (ScanState::InString, b'\\') => self.state = ScanState::Escaped,
                (ScanState::InString, b'"') => self.state = ScanState::Plain,
                (ScanState::InString, _) => {}
                (ScanState::Plain, b'"') => self.state = ScanState::InString,
                (ScanState::Plain, b'{') if self.depth == self.level => {
                    let _ = self.buffer.split_to(self.scanned);
                    self.depth += 1;
                    self.scanned = 1;
                    self.in_row = true;
                    return Ok(None);
                }
                (ScanState::Plain, b'{' | b'[') => self.depth += 1,
                (ScanState::Plain, b'}' | b']') => {
                    self.depth = self.depth.checked_sub(1).ok_or(SplitError::Unbalanced)?;
                }
                (ScanState::Plain, _) => {}
            }
            // Commas between rows are dropped.
            if !self.after_row || !matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r') {
                self.after_row = false;
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

    fn skip_row(&mut self) -> Result<Option<Bytes>, SplitError> {
        let text = &self.buffer[..];
        let (mut at, mut depth, mut state) = (self.scanned, self.depth, self.state);
        while at < text.len() {
            match state {
                ScanState::Escaped => {
                    state = ScanState::InString;
                    at += 1;
                }
                ScanState::InString => match memchr2(b'"', b'\\', &text[at..]) {
                    None => at = text.len(),
                    Some(distance) => {
                        at += distance;
                        state = if text[at] == b'"' { ScanState::Plain } else { ScanState::Escaped };
                        at += 1;
                    }
                },
                ScanState::Plain => {
                    let byte = text[at];
                    at += 1;
                    match byte {
                        b'"' => state = ScanState::InString,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            if depth == self.level {
                                (self.scanned, self.depth, self.state) = (0, depth, ScanState::Plain);
                                self.after_row = true;
                                self.in_row = false;
                                let row = self.buffer.split_to(at).freeze();
                                return Ok(Some(if std::mem::take(&mut self.has_white_space) {
                                    compacted(row)
                                } else {
                                    row
                                }));
                            }
                        }
                        b' ' | b'\t' | b'\n' | b'\r' => self.has_white_space = true,
                        _ => {}
                    }
                }
            }
        }
        (self.scanned, self.depth, self.state) = (at, depth, state);
        Ok(None)
    }
}

/// Removes white space outside of strings. Text that is not JSON is returned unchanged.
pub(crate) fn compacted(text: Bytes) -> Bytes {
    Json::parse_envelope(&text).map_or(text, |json| json.into_bytes().into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Value;

    use super::{RowSplitter, Rows};

    fn rows(text: &str, rows: Rows, piece: usize) -> (Vec<String>, String, bool) {
        let mut splitter = RowSplitter::new(rows);
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
        for piece in 1..20 {
            let (found, frame, balanced) = rows("{\"last_seq\":[[1,{}],{}]}", Rows::InArray, piece);
            assert_eq!((found.len(), frame.as_str(), balanced), (1, "{\"last_seq\":[[1,{}],]}", true));
        }
    }

    #[test]
    fn rows_are_compact() {
        let text = "{\"rows\":[ { \"a\" : [ 1 , \"x, \" ] , \"b\":{\"c\":\"\\\"}\"}\t}, {\"d\" 1}, {\"e\":\" \"} ]}";
        for piece in 1..text.len() {
            let (found, _, _) = rows(text, Rows::InArray, piece);
            let expected = ["{\"a\":[1,\"x, \"],\"b\":{\"c\":\"\\\"}\"}}", "{\"d\" 1}", "{\"e\":\" \"}"];
            assert_eq!(found, expected, "pieces of {piece}");
        }
    }

    /// A peer may send any text. No text may cause a panic.
    #[test]
    fn any_text_is_split() {
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
                let mut splitter = RowSplitter::new(kind);
                for piece in text.chunks(1 + round % 7) {
                    splitter.feed(piece);
                    while let Ok(Some(row)) = splitter.next() {
                        assert!(row.starts_with(b"{") && row.ends_with(b"}") | row.ends_with(b"]"));
                        Value::trusted(&row).members().for_each(|(_, value)| value.elements().for_each(drop));
                        Value::trusted(&row).get("a");
                    }
                }
            }
        }
    }
}
