//! [`Objects`] at one place of a JSON text, and [`Lines`], as streams. Objects are not validated.

use std::io::{self, BufRead, Read as _};

use super::row::Row;

const ROW_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// `[{…},{…}]`, possibly several arrays; objects outside of them are no rows.
    InArrays,
    /// `{"docs":[{…},{…}]}`
    InMember,
}

impl ContainerState {
    fn brackets(self) -> &'static [u8] {
        match self {
            Self::InArrays => b"[",
            Self::InMember => b"{[",
        }
    }
}

pub(super) struct Objects<R> {
    input: R,
    place: ContainerState,
    open: Vec<u8>,
    line: u64,
}

impl<R: BufRead> Objects<R> {
    pub(super) fn new(input: R, place: ContainerState) -> Self {
        Self { input, place, open: Vec::new(), line: 1 }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        loop {
            let Some(byte) = self.peek()? else {
                if self.open.is_empty() {
                    return Ok(None);
                }
                self.open.clear();
                return Ok(Some(Row::wrong(self.line, "the file is truncated")));
            };
            let is_among_rows = self.open == self.place.brackets();
            match byte {
                b'{' if is_among_rows => return self.value().map(Some),
                b'{' | b'[' if !is_among_rows => {
                    if self.open.len() == usize::from(u8::MAX) {
                        return Err(io::Error::other("the nesting is too deep"));
                    }
                    self.open.push(byte);
                    self.take();
                }
                b'}' | b']' => {
                    self.take();
                    if self.open.pop().is_none() {
                        return Ok(Some(Row::wrong(self.line, "a closing bracket has no opening one")));
                    }
                }
                b'\n' => {
                    self.line += 1;
                    self.take();
                }
                b',' | b':' | b' ' | b'\t' | b'\r' => self.take(),
                _ => {
                    let row = self.value()?;
                    if is_among_rows {
                        return Ok(Some(Row::wrong(row.line, "this is not an object")));
                    }
                }
            }
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(super::input::fill(&mut self.input)?.first().copied())
    }

    fn take(&mut self) {
        self.input.consume(1);
    }

    fn value(&mut self) -> io::Result<Row> {
        let line = self.line;
        let (mut text, mut depth, mut in_string, mut escaped) = (Vec::new(), 0usize, false, false);
        let mut is_too_long = false;
        loop {
            let bytes = super::input::fill(&mut self.input)?;
            if bytes.is_empty() {
                self.open.clear();
                return Ok(Row::wrong(line, "the file ends within it"));
            }
            let (mut end, mut is_over) = (bytes.len(), false);
            for (at, byte) in bytes.iter().enumerate() {
                match byte {
                    b'\n' => self.line += 1,
                    _ if escaped => {
                        escaped = false;
                        continue;
                    }
                    b'\\' if in_string => escaped = true,
                    b'"' => {
                        in_string = !in_string;
                        is_over = !in_string && depth == 0;
                    }
                    _ if in_string => {}
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth > 0 => {
                        depth -= 1;
                        is_over = depth == 0;
                    }
                    _ => {}
                }
                if is_over {
                    end = at + 1;
                    break;
                }
                if depth == 0 && !in_string && matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b':') {
                    (end, is_over) = (at, true);
                    self.line -= u64::from(*byte == b'\n');
                    break;
                }
            }
            is_too_long |= text.len() + end > ROW_BYTES;
            if is_too_long {
                text = Vec::new();
            } else {
                text.extend_from_slice(&bytes[..end]);
            }
            self.input.consume(end);
            if is_over {
                let content = if is_too_long { Err("it is too long".to_owned()) } else { Ok(text) };
                return Ok(Row { line, content });
            }
        }
    }
}

pub(super) struct Lines<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 0 }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        loop {
            let mut text = Vec::new();
            (&mut self.input).take(ROW_BYTES as u64).read_until(b'\n', &mut text)?;
            if text.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if text.len() == ROW_BYTES && !text.ends_with(b"\n") {
                self.pass_line()?;
                return Ok(Some(Row::wrong(self.line, "it is too long")));
            }
            if !text.trim_ascii().is_empty() {
                return Ok(Some(Row { line: self.line, content: Ok(text) }));
            }
        }
    }

    fn pass_line(&mut self) -> io::Result<()> {
        loop {
            let bytes = super::input::fill(&mut self.input)?;
            let (length, is_over) = match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), bytes.is_empty()),
            };
            self.input.consume(length);
            if is_over {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[track_caller]
    fn check(place: ContainerState, text: &str, expected: &[&str]) {
        for piece in [1, 2, 3, 7, 1000] {
            let mut objects = Objects::new(BufReader::with_capacity(piece, text.as_bytes()), place);
            let mut found = Vec::new();
            while let Some(Row { line, content }) = objects.next().unwrap() {
                let content = content.map(|text| String::from_utf8(text).unwrap());
                found.push(format!("{line}:{}", content.unwrap_or_else(|why| format!("!{why}"))));
            }
            assert_eq!(found, expected, "{text} in pieces of {piece}");
        }
    }

    #[test]
    fn objects_of_arrays_and_members() {
        use ContainerState::{InArrays, InMember};
        check(InArrays, "[]", &[]);
        check(InArrays, "", &[]);
        check(InArrays, "[\n{\"a\":\"]}\\\"\"},\n{\"b\":[{}]}]\n", &["2:{\"a\":\"]}\\\"\"}", "3:{\"b\":[{}]}"]);
        check(
            InArrays,
            "{\"name\":\"x\",\"n\":[1]}\n[{\"a\":1},{}]\n[]\n[{\"b\":2}]",
            &["2:{\"a\":1}", "2:{}", "4:{\"b\":2}"],
        );
        check(
            InArrays,
            "[1, \"x\", null,\n{}]",
            &["1:!this is not an object", "1:!this is not an object", "1:!this is not an object", "2:{}"],
        );
        check(InArrays, "[{\"a\":1},\n{\"b\"", &["1:{\"a\":1}", "2:!the file ends within it"]);
        check(InArrays, "[{}]]\n[{}]", &["1:{}", "1:!a closing bracket has no opening one", "2:{}"]);
        check(InArrays, "[{}", &["1:{}", "1:!the file is truncated"]);
        check(InMember, "{\"new_edits\":false,\"docs\":[\n{\"a\":1}\n,{}]}", &["2:{\"a\":1}", "3:{}"]);
        check(InMember, "{\"total_rows\":1,\"offset\":0,\"rows\":[\r\n{\"id\":\"a\"}\r\n]}", &["2:{\"id\":\"a\"}"]);
    }

    #[test]
    fn lines_are_counted() {
        let mut lines = Lines::new(&b"{}\n\n \n{\"a\"\nx"[..]);
        let mut found = Vec::new();
        while let Some(row) = lines.next().unwrap() {
            found.push((row.line, String::from_utf8(row.content.unwrap()).unwrap()));
        }
        assert_eq!(found, [(1, "{}\n".to_owned()), (4, "{\"a\"\n".to_owned()), (5, "x".to_owned())]);
    }
}
