//! [`Columns`]: members of documents as columns of CSV. Text is written as it is, other values as JSON.

use std::collections::HashSet;
use std::io::{self, Write};

use anyhow::ensure;
use settee_model::json::Value;

const COLUMNS_MAX: usize = 5000;

#[derive(Debug, Default)]
pub(super) struct Columns {
    names: Vec<String>,
    known: HashSet<String>,
}

impl Columns {
    pub(super) fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), known: HashSet::new() }
    }

    pub(super) fn add(&mut self, document: Value<'_>) -> anyhow::Result<()> {
        for (name, _) in document.members().filter(|(name, _)| !name.is_string("_attachments")) {
            let name = name.as_str().unwrap_or_default();
            if !self.known.contains(&*name) {
                ensure!(
                    self.names.len() < COLUMNS_MAX,
                    "there are more than {COLUMNS_MAX} columns: choose with --columns"
                );
                self.known.insert(name.clone().into_owned());
                self.names.push(name.into_owned());
            }
        }
        Ok(())
    }

    pub(super) fn write_names(&self, out: &mut dyn Write) -> io::Result<()> {
        write_record(self.names.iter().map(|name| name.clone().into()), out)
    }

    pub(super) fn write(&self, document: Value<'_>, out: &mut dyn Write) -> io::Result<()> {
        let value = |name: &String| match document.get(name) {
            None => "".into(),
            Some(value) => match value.as_str() {
                Some(text) => text,
                None => String::from_utf8_lossy(value.raw()),
            },
        };
        write_record(self.names.iter().map(value), out)
    }
}

fn write_record<'a>(values: impl Iterator<Item = std::borrow::Cow<'a, str>>, out: &mut dyn Write) -> io::Result<()> {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        let is_plain = !value.contains(['"', ',', '\n', '\r']) && value.trim().len() == value.len();
        match is_plain {
            true => out.write_all(value.as_bytes())?,
            false => write!(out, "\"{}\"", value.replace('"', "\"\""))?,
        }
    }
    out.write_all(b"\r\n")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn members_are_columns() {
        let documents = [
            r#"{"_id":"a","_rev":"1-a","n":1.50,"t":"x,\"y\"","_attachments":{}}"#,
            r#"{"_id":"b","_rev":"1-b","o":{"k":[1,2]},"s":" z"}"#,
        ];
        let documents = documents.map(|text| Json::parse(text.as_bytes()).unwrap());
        let mut all = Columns::default();
        documents.iter().for_each(|document| all.add(document.value()).unwrap());
        for (columns, expected) in [
            (all, "_id,_rev,n,t,o,s\r\na,1-a,1.50,\"x,\"\"y\"\"\",,\r\nb,1-b,,,\"{\"\"k\"\":[1,2]}\",\" z\"\r\n"),
            (Columns::of(["n".to_owned(), "_id".to_owned()]), "n,_id\r\n1.50,a\r\n,b\r\n"),
        ] {
            let mut out = Vec::new();
            columns.write_names(&mut out).unwrap();
            documents.iter().for_each(|document| columns.write(document.value(), &mut out).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
