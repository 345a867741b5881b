//! [`Csv`]: converts records of comma-separated values. The first line contains the names, possibly with types:
//! `price:number`.

use std::collections::HashSet;
use std::io::{self, BufRead};

use anyhow::{Context as _, bail, ensure};
use settee_model::json::{Json, Value, write_string};

use super::row::Row;

const COLUMNS_MAX: usize = 20_000;

const NAMES_BYTES: usize = 4 << 20;

const RECORD_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) id: Option<String>,
    pub(super) types: Vec<String>,
    pub(super) delimiter: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    String,
    Number,
    Boolean,
    Json,
    /// A number, `true`, `false` or `null` if the text is one; otherwise text.
    Auto,
}

impl Type {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "json" => Self::Json,
            "auto" => Self::Auto,
            _ => return None,
        })
    }

    /// The error is the reason why the value has the wrong type.
    fn write(self, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
        let json = || Json::parse(text.trim().as_bytes()).ok();
        let is_number = |json: &Json| json.value().as_f64().is_some();
        let is_word = |value: Value<'_>| value.as_bool().is_some() || value.is_null();
        match self {
            Self::String => write_string(out, text),
            Self::Number => match json().filter(is_number) {
                Some(json) => out.extend_from_slice(json.as_bytes()),
                None => return Err(format!("`{text}` is not a number")),
            },
            Self::Boolean => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" => out.extend_from_slice(b"true"),
                "false" | "0" | "no" => out.extend_from_slice(b"false"),
                _ => return Err(format!("`{text}` is neither true nor false")),
            },
            Self::Json => match json() {
                Some(json) => out.extend_from_slice(json.as_bytes()),
                None => return Err(format!("`{text}` is not JSON")),
            },
            Self::Auto => match json().filter(|json| is_number(json) || is_word(json.value())) {
                Some(json) => out.extend_from_slice(json.as_bytes()),
                None => write_string(out, text),
            },
        }
        Ok(())
    }
}

struct Column {
    name: String,
    of: Type,
}

pub(super) struct Csv<R> {
    records: Records<R>,
    columns: Vec<Column>,
}

impl<R: BufRead> Csv<R> {
    pub(super) fn new(input: R, options: &Options) -> anyhow::Result<Self> {
        let mut records =
            Records { input, delimiter: options.delimiter.unwrap_or(b','), line: 1, bytes_max: NAMES_BYTES };
        let header = records.next()?.context("the header line is missing")?.values;
        let header = header.map_err(|why| anyhow::anyhow!("the header line cannot be read: {why}"))?;
        let names: Vec<String> =
            header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
        let mut columns: Vec<Column> = names.into_iter().map(column).collect();
        for typed in &options.types {
            let Some((name, of)) = typed.rsplit_once(':').and_then(|(name, of)| Some((name, Type::of(of)?))) else {
                bail!("{typed}: invalid type: write it as COLUMN:string, :number, :boolean, :json or :auto")
            };
            let found = columns.iter_mut().find(|column| column.name == name);
            found.with_context(|| format!("there is no column {name}"))?.of = of;
        }
        if let Some(id) = &options.id {
            let found = columns.iter_mut().find(|column| column.name == *id);
            "_id".clone_into(&mut found.with_context(|| format!("there is no column {id}"))?.name);
        }
        let mut seen = HashSet::new();
        for (index, column) in columns.iter().enumerate() {
            ensure!(!column.name.is_empty(), "the column {} has no name", index + 1);
            ensure!(seen.insert(column.name.as_str()), "there are two columns {}", column.name);
        }
        records.bytes_max = RECORD_BYTES;
        Ok(Self { records, columns })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        let Some(Record { line, values }) = self.records.next()? else { return Ok(None) };
        Ok(Some(Row { line, content: values.and_then(|values| self.document(&values)) }))
    }

    fn document(&self, values: &[String]) -> Result<Vec<u8>, String> {
        if values.len() > self.columns.len() {
            return Err(format!("it has {} values for {} columns", values.len(), self.columns.len()));
        }
        let mut out = b"{".to_vec();
        for (column, text) in self.columns.iter().zip(values).filter(|(_, text)| !text.is_empty()) {
            if out.len() > 1 {
                out.push(b',');
            }
            write_string(&mut out, &column.name);
            out.push(b':');
            let of = if column.name == "_id" { Type::String } else { column.of };
            of.write(text, &mut out).map_err(|why| format!("{}: {why}", column.name))?;
        }
        out.push(b'}');
        Ok(out)
    }
}

/// Values as in RFC 4180: everything within quotation marks is text, and a doubled quotation mark is one character.
struct Records<R> {
    input: R,
    delimiter: u8,
    line: u64,
    bytes_max: usize,
}

struct Record {
    line: u64,
    values: Result<Vec<String>, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    /// At the start of a value, or in one without quotation marks.
    Plain,
    Quoted,
    /// After a quotation mark that either ends a value or is the first of two.
    BehindQuote,
}

impl<R: BufRead> Records<R> {
    fn next(&mut self) -> io::Result<Option<Record>> {
        let (mut values, mut value, mut within) = (Vec::new(), Vec::new(), ParseState::Plain);
        let (mut line, mut bytes, mut is_quoted) = (self.line, 0usize, false);
        loop {
            let piece = super::input::fill(&mut self.input)?;
            if piece.is_empty() {
                if values.is_empty() && value.is_empty() && !is_quoted {
                    return Ok(None);
                }
                let why = "the file ends within quotation marks".to_owned();
                values.push(value);
                return Ok(Some(Record {
                    line,
                    values: if within == ParseState::Quoted { Err(why) } else { texts(values) },
                }));
            }
            let mut end = None;
            for (at, &byte) in piece.iter().enumerate() {
                self.line += u64::from(byte == b'\n');
                match (within, byte) {
                    (ParseState::Plain, b'"') if value.is_empty() && !is_quoted => {
                        (within, is_quoted) = (ParseState::Quoted, true);
                    }
                    (ParseState::Quoted, b'"') => within = ParseState::BehindQuote,
                    (ParseState::BehindQuote, b'"') => {
                        value.push(b'"');
                        within = ParseState::Quoted;
                    }
                    (ParseState::Plain | ParseState::BehindQuote, b'\n') => {
                        if value.last() == Some(&b'\r') && within == ParseState::Plain {
                            value.pop();
                        }
                        if values.is_empty() && value.is_empty() && !is_quoted {
                            line = self.line;
                            continue;
                        }
                        values.push(std::mem::take(&mut value));
                        end = Some(at + 1);
                        break;
                    }
                    (ParseState::BehindQuote, b'\r') => {}
                    (ParseState::Plain | ParseState::BehindQuote, byte) if byte == self.delimiter => {
                        values.push(std::mem::take(&mut value));
                        (within, is_quoted) = (ParseState::Plain, false);
                        if values.len() > COLUMNS_MAX {
                            end = Some(at + 1);
                            break;
                        }
                    }
                    (_, byte) => value.push(byte),
                }
            }
            let length = end.unwrap_or(piece.len());
            self.input.consume(length);
            bytes += length;
            if end.is_some() && values.len() <= COLUMNS_MAX {
                return Ok(Some(Record { line, values: texts(values) }));
            }
            if bytes > self.bytes_max || values.len() > COLUMNS_MAX {
                return Err(io::Error::other(format!(
                    "the record at line {line} is too long (over {} bytes or {COLUMNS_MAX} values): is a quotation mark missing?",
                    self.bytes_max
                )));
            }
        }
    }
}

fn texts(values: Vec<Vec<u8>>) -> Result<Vec<String>, String> {
    let texts = values.into_iter().map(String::from_utf8).collect::<Result<_, _>>();
    texts.map_err(|_| "it is not UTF-8".to_owned())
}

fn column(name: String) -> Column {
    match name.rsplit_once(':').and_then(|(name, of)| Some((name.to_owned(), Type::of(of)?))) {
        Some((name, of)) => Column { name, of },
        None => Column { name, of: Type::String },
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, options: &Options, expected: &[&str]) {
        let mut csv = Csv::new(text.as_bytes(), options).unwrap();
        let mut found = Vec::new();
        while let Some(Row { line, content }) = csv.next().unwrap() {
            let content = content.map(|text| String::from_utf8(text).unwrap());
            found.push(format!("{line}:{}", content.unwrap_or_else(|why| format!("!{why}"))));
        }
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn records_are_documents() {
        let plain = Options::default();
        check("_id,n\na,007\nb,\n", &plain, &["2:{\"_id\":\"a\",\"n\":\"007\"}", "3:{\"_id\":\"b\"}"]);
        check(
            "\u{feff}_id,t\na,\"x,\"\"\ny\"\nb,z",
            &plain,
            &["2:{\"_id\":\"a\",\"t\":\"x,\\\"\\ny\"}", "4:{\"_id\":\"b\",\"t\":\"z\"}"],
        );
        check(
            "n:number,b:boolean,j:json\n1.50,yes,\"{\"\"x\"\":[1]}\"\n",
            &plain,
            &["2:{\"n\":1.50,\"b\":true,\"j\":{\"x\":[1]}}"],
        );
        check("n:number\nx\n1e3\n", &plain, &["2:!n: `x` is not a number", "3:{\"n\":1e3}"]);
        check("a\n1,2\n", &plain, &["2:!it has 2 values for 1 columns"]);
        check(
            "_id,t\r\na,\"x\r\ny\"\r\n\r\nb,\"\"\r\n",
            &plain,
            &["2:{\"_id\":\"a\",\"t\":\"x\\r\\ny\"}", "5:{\"_id\":\"b\"}"],
        );
        check("a,b\n\"x\",1 \"2\"", &plain, &["2:{\"a\":\"x\",\"b\":\"1 \\\"2\\\"\"}"]);
        check("a\n\"x\ny", &plain, &["2:!the file ends within quotation marks"]);
        check("a,b\n1\n", &plain, &["2:{\"a\":\"1\"}"]);
        let types = |types: &[&str]| types.iter().map(|of| (*of).to_owned()).collect();
        let options =
            Options { id: Some("sku".to_owned()), types: types(&["p:auto", "sku:number"]), delimiter: Some(b';') };
        check(
            "sku;p\n12;1.5\n13;x\n14;null\n",
            &options,
            &["2:{\"_id\":\"12\",\"p\":1.5}", "3:{\"_id\":\"13\",\"p\":\"x\"}", "4:{\"_id\":\"14\",\"p\":null}"],
        );
    }

    #[test]
    fn columns_and_records_are_bounded() {
        let error = |text: String| Csv::new(text.as_bytes(), &Options::default()).err().unwrap().to_string();
        let names: Vec<String> = (0..500_000).map(|number| format!("c{number}")).collect();
        assert!(error(names.join(",")).contains("over 4194304 bytes or 20000 values"));
        assert!(error(" ".repeat(NAMES_BYTES + 1_000_000)).contains("is too long"));
        assert!(error("\n".repeat(NAMES_BYTES + 1_000_000)).contains("is too long"));
        Csv::new(names[..COLUMNS_MAX].join(",").as_bytes(), &Options::default()).unwrap();
        let text = format!("a,b\n{}\n", ",".repeat(COLUMNS_MAX + 10));
        let mut csv = Csv::new(text.as_bytes(), &Options::default()).unwrap();
        assert!(csv.next().unwrap_err().to_string().contains("line 2 is too long"));
    }

    #[test]
    fn invalid_settings() {
        let wrong = |text: &str, options: &Options| Csv::new(text.as_bytes(), options).err().unwrap().to_string();
        assert_eq!(wrong("a,a\n", &Options::default()), "there are two columns a");
        assert_eq!(wrong("a,\n", &Options::default()), "the column 2 has no name");
        let options = Options { types: vec!["a:date".to_owned()], ..Options::default() };
        assert!(wrong("a\n", &options).starts_with("a:date: invalid type: write it as"));
        let options = Options { id: Some("b".to_owned()), ..Options::default() };
        assert_eq!(wrong("a\n", &options), "there is no column b");
    }
}
