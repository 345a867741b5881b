//! [`Input`]: converts rows into documents, and documents into batches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_string};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::super::format::{Kind, Rows};
use super::super::row::Row;
use super::super::{Format, csv, input};
use super::refused::RejectedRows;
use super::tally::Tally;

const BATCH_BYTES: usize = 2 << 20;

pub(super) struct Options {
    pub(super) format: Option<Format>,
    pub(super) columns: csv::Options,
    pub(super) drops_revisions: bool,
    pub(super) batch: usize,
}

#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) first: u64,
    pub(super) is_replicated: bool,
    pub(super) documents: Vec<Document>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) line: u64,
    pub(super) id: String,
    pub(super) text: Vec<u8>,
}

pub(super) struct Input {
    rows: Rows<Box<dyn std::io::BufRead + Send>>,
    options: Options,
    kind: Kind,
    pub(super) name: String,
    pub(super) read: Arc<AtomicU64>,
    pub(super) length: Option<u64>,
    since_row: Arc<AtomicU64>,
}

pub(super) fn open(path: &Path, options: Options) -> anyhow::Result<Input> {
    let mut input = input::open(path)?;
    let head = input::fill(&mut *input.content).with_context(|| format!("{} cannot be read", path.display()))?;
    let beginning = &head[..head.len().min(4096)];
    let kind = Kind::of(options.format, beginning);
    let digest = Sha256::digest(beginning);
    let name = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let rows = Rows::new(input.content, kind, &options.columns)?;
    Ok(Input { rows, options, kind, name, read: input.read, length: input.length, since_row: input.since_row })
}

impl Input {
    /// Reads all rows after `past`, on the calling thread. Ends early if the receiver of batches is closed.
    pub(super) fn read_all(
        mut self,
        past: u64,
        tally: &Tally,
        rejected_rows: &RejectedRows,
        batches: &mpsc::Sender<Batch>,
    ) -> anyhow::Result<()> {
        let mut open = [Batch::default(), Batch { is_replicated: true, ..Batch::default() }];
        for number in 1.. {
            self.since_row.store(0, Ordering::Relaxed);
            let Some(row) = self.rows.next().context("the file cannot be read")? else { break };
            if number <= past {
                continue;
            }
            let (document, is_replicated) = match self.document(number, &row) {
                Ok(found) => found,
                Err(why) => {
                    refuse(&row, &why, tally, rejected_rows)?;
                    tally.read(number, false);
                    continue;
                }
            };
            let batch = &mut open[usize::from(is_replicated)];
            tally.read(number, batch.documents.is_empty());
            if batch.documents.is_empty() {
                batch.first = number;
            }
            batch.bytes += document.text.len();
            batch.documents.push(document);
            if batch.documents.len() >= self.options.batch || batch.bytes >= BATCH_BYTES {
                let full = std::mem::replace(batch, Batch { is_replicated, ..Batch::default() });
                if batches.blocking_send(full).is_err() {
                    return Ok(());
                }
            }
        }
        for batch in open.into_iter().filter(|batch| !batch.documents.is_empty()) {
            let _ = batches.blocking_send(batch);
        }
        Ok(())
    }

    /// Returns true if the revision of the document is kept. The error is the reason why the row contains no document.
    fn document(&self, number: u64, row: &Row) -> Result<(Document, bool), String> {
        let text = row.content.as_ref().map_err(Clone::clone)?;
        let json = Json::parse(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let document = match json.value() {
            value if !self.kind.has_doc() => value,
            value => value.get("doc").ok_or("the row has no `doc`: lists require include_docs=true")?,
        };
        if !document.is_object() {
            return Err(if document.is_null() { "its document was deleted" } else { "it is not an object" }.to_owned());
        }
        let has_stubs = document.get("_attachments").into_iter().flat_map(Value::members);
        if has_stubs.into_iter().any(|(_, stub)| stub.get("data").is_none()) {
            return Err("the file contains only stubs of its attachments, without their content".to_owned());
        }
        let is_replicated = !self.options.drops_revisions && document.get("_rev").is_some();
        let id = match document.get("_id") {
            Some(id) => id.as_str().ok_or("its _id is not a string")?.into_owned(),
            None => format!("{}{number:016x}", self.name),
        };
        let text = self.text(&id, document);
        Ok((Document { line: row.line, id, text }, is_replicated))
    }

    fn text(&self, id: &str, document: Value<'_>) -> Vec<u8> {
        const OF_ANSWERS: [&str; 6] =
            ["_conflicts", "_deleted_conflicts", "_local_seq", "_revs_info", "_db_updates", "_id"];
        let mut out = b"{\"_id\":".to_vec();
        out.reserve(document.raw().len() + 48);
        write_string(&mut out, id);
        let drops = |name: Value<'_>| {
            let is_revision = ["_rev", "_revisions"].iter().any(|known| name.is_string(known));
            OF_ANSWERS.iter().any(|known| name.is_string(known)) || self.options.drops_revisions && is_revision
        };
        for (name, value) in document.members().filter(|(name, _)| !name.raw().starts_with(b"\"_") || !drops(*name)) {
            out.push(b',');
            out.extend_from_slice(name.raw());
            out.push(b':');
            out.extend_from_slice(value.raw());
        }
        out.push(b'}');
        out
    }
}

fn refuse(row: &Row, why: &str, tally: &Tally, rejected_rows: &RejectedRows) -> anyhow::Result<()> {
    tally.refuse();
    let document = row.content.as_ref().ok().filter(|text| Json::parse(text).is_ok());
    rejected_rows.add(row.line, why, document.map(Vec::as_slice))
}
