//! [`Rows`]: the rows of a file of any format, and [`detect`], which detects the format from the first bytes.

use std::io::{self, BufRead};

use super::Format;
use super::csv::{self, Csv};
use super::json::{ContainerState, Lines, Objects};
use super::row::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lines,
    /// Arrays, including those of couchbackup, whose first line is an object.
    Arrays,
    /// `{"docs":[…]}`, as couchdb-dump writes it and `_bulk_docs` accepts it.
    Docs,
    /// `{"rows":[{…,"doc":{…}}]}` or `{"results":[…]}`, as in responses of `_all_docs`, views and `_changes`.
    Rows,
    Csv,
}

impl Kind {
    pub(super) fn has_doc(self) -> bool {
        self == Self::Rows
    }

    pub(super) fn of(format: Option<Format>, head: &[u8]) -> Self {
        match format {
            Some(Format::Ndjson) => Self::Lines,
            Some(Format::Csv) => Self::Csv,
            Some(Format::Couchbackup) => Self::Arrays,
            Some(Format::Json) | None => detect(head),
        }
    }
}

fn detect(head: &[u8]) -> Kind {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match head.first() {
        Some(b'[') => Kind::Arrays,
        Some(b'{') => container(head),
        _ => Kind::Csv,
    }
}

/// The object is a container of all rows, the first line of couchbackup, or a document.
fn container(head: &[u8]) -> Kind {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line: Vec<u8> = line.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r')).collect();
    let holds = |name: &str| {
        let member = format!("\"{name}\":[");
        let Some(at) = line.windows(member.len()).position(|window| window == member.as_bytes()) else { return false };
        // In a response, only numbers, words and sequences precede the rows; they contain no object.
        !line[1..at].contains(&b'{')
            && !line[1..at].starts_with(b"\"_id\"")
            && matches!(line.get(at + member.len()), None | Some(b'{' | b']'))
    };
    match () {
        () if line.starts_with(b"{\"name\":\"@cloudant/couchbackup\"") => Kind::Arrays,
        () if holds("docs") => Kind::Docs,
        () if holds("rows") || holds("results") => Kind::Rows,
        () => Kind::Lines,
    }
}

pub(super) enum Rows<R> {
    Lines(Lines<R>),
    Objects(Objects<R>),
    Csv(Box<Csv<R>>),
}

impl<R: BufRead> Rows<R> {
    pub(super) fn new(input: R, kind: Kind, columns: &csv::Options) -> anyhow::Result<Self> {
        Ok(match kind {
            Kind::Lines => Self::Lines(Lines::new(input)),
            Kind::Arrays => Self::Objects(Objects::new(input, ContainerState::InArrays)),
            Kind::Docs | Kind::Rows => Self::Objects(Objects::new(input, ContainerState::InMember)),
            Kind::Csv => Self::Csv(Box::new(Csv::new(input, columns)?)),
        })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Objects(objects) => objects.next(),
            Self::Csv(csv) => csv.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_their_prefix() {
        for (head, expected) in [
            ("[{\"_id\":\"a\"}]", Kind::Arrays),
            ("\u{feff} [\n{}", Kind::Arrays),
            ("{\"name\":\"@cloudant/couchbackup\",\"version\":\"2.9.10\",\"mode\":\"full\"}\n[{}]", Kind::Arrays),
            ("{\"new_edits\":false,\"docs\":[\n{\"_id\":\"a\"}", Kind::Docs),
            ("{ \"docs\" : [ {\"_id\":\"a\"}", Kind::Docs),
            ("{\"total_rows\":2,\"offset\":0,\"rows\":[\r\n{\"id\":\"a\"", Kind::Rows),
            ("{\"results\":[\n{\"seq\":1", Kind::Rows),
            ("{\"_id\":\"a\",\"docs\":[{\"x\":1}]}\n", Kind::Lines),
            ("{\"a\":{\"rows\":[{}]}}\n", Kind::Lines),
            ("{\"docs\":[1,2]}\n", Kind::Lines),
            ("{\"name\":\"x\"}\n{\"name\":\"y\"}", Kind::Lines),
            ("{}", Kind::Lines),
            ("_id,name\na,b\n", Kind::Csv),
            ("\"_id\";x", Kind::Csv),
        ] {
            assert_eq!(detect(head.as_bytes()), expected, "{head}");
        }
    }
}
