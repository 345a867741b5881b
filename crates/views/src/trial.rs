//! [`Views::try_out`] maps some documents without an index, and returns results and costs.

use std::ops::ControlFlow;

use settee_design::{
    BailOuts, DesignDocument, Document, DocumentBatch, Emissions, Engine, Limits, MapSource, Program, RunError,
};
use settee_model::collate;
use settee_model::json::Value;

use crate::error::{Result, ViewError};
use crate::keys;
use crate::leaf::{Group, Leaf, Row};
use crate::shared::Core;
use crate::views::Views;

/// Limits of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialLimits {
    /// Limits of the functions.
    pub functions: Limits,
    /// Time limit of mapping, checked between documents.
    pub time_us: u64,
    /// Maximum number of returned rows, of failures, and of log lines.
    pub answers: usize,
    /// Limit of emitted bytes, checked between documents, because all rows are in memory for sorting and reducing.
    pub emitted_bytes: u64,
}

/// Result of a trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Engine of the map function, if the language has several.
    pub engine: Option<Engine>,
    /// Bail-outs of the engine by reason.
    pub bail_outs: Vec<BailOuts>,
    /// Number of mapped documents.
    pub documents: u64,
    /// Total size of these documents in bytes.
    pub document_bytes: u64,
    /// Number of emitted rows.
    pub rows: u64,
    /// Total size of emitted keys and values in bytes.
    pub emitted_bytes: u64,
    /// Time of the map function, including transport.
    pub map_us: u64,
    /// Time of the reduce function.
    pub reduce_us: u64,
    /// First rows in the order of the view: id, key and value.
    pub first_rows: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// Reduction of all rows.
    pub reduction: Option<Vec<u8>>,
    /// Ids of documents whose function threw an exception, and the exceptions.
    pub failures: Vec<(String, String)>,
    /// Lines that functions logged.
    pub log: Vec<String>,
    /// Reason for an early end: the time limit, or a failure, with the document if it could be identified.
    pub ended: Option<(Option<String>, ViewError)>,
    /// True if the time limit was reached.
    pub timed_out: bool,
}

type SortedRow = (Vec<u8>, usize, Vec<u8>, Vec<u8>);

const BATCH_DOCUMENTS: usize = 50;

impl Views {
    /// Maps `documents` by the only view of `ddoc`, and reduces the rows. Fails if a function does not compile or its
    /// language is unavailable.
    pub fn try_out(&self, ddoc: &DesignDocument, documents: &DocumentBatch, limits: TrialLimits) -> Result<Trial> {
        self.core().try_out(ddoc, documents, limits)
    }
}

impl Core {
    pub(crate) fn try_out(
        &self,
        ddoc: &DesignDocument,
        documents: &DocumentBatch,
        limits: TrialLimits,
    ) -> Result<Trial> {
        let view = ddoc.views.first().ok_or(ViewError::MissingView)?;
        let language = self.language(ddoc)?;
        let source = MapSource { functions: vec![view.map.clone()], library: ddoc.library.clone() };
        let mut program = language.program(&source, limits.functions)?;
        let mut trial = Trial { engine: program.engine(0), ..Trial::default() };
        let mut rows: Vec<SortedRow> = Vec::new();
        let mut first = 0;
        while first < documents.len() && trial.ended.is_none() && !trial.timed_out {
            let len = BATCH_DOCUMENTS.min(documents.len() - first);
            let (emissions, took_us) = self.map_some(&mut *program, documents, first..first + len, &mut trial, limits);
            trial.map_us += took_us;
            for row in emissions.rows() {
                let document = documents.get(first + row.document as usize);
                let mut row_key = Vec::new();
                collate::encode(Value::trusted(row.key), view.collation, &mut row_key);
                let sort_len = row_key.len();
                let number = u32::try_from(rows.len()).unwrap_or(u32::MAX);
                keys::finish_row_key(&mut row_key, document.id.as_bytes(), number);
                trial.emitted_bytes += (row.key.len() + row.value.len()) as u64;
                rows.push((row_key, sort_len, row.key.to_vec(), row.value.to_vec()));
            }
            let failures = emissions.failures.iter();
            trial.failures.extend(failures.map(|failure| {
                (documents.get(first + failure.document as usize).id.to_owned(), failure.message.clone())
            }));
            trial.log.extend(emissions.log.iter().cloned());
            first += len;
            trial.timed_out = first < documents.len() && trial.map_us > limits.time_us;
            if trial.emitted_bytes > limits.emitted_bytes {
                trial.ended = trial.ended.take().or(Some((None, too_much(limits.emitted_bytes))));
            }
        }
        trial.bail_outs = program.take_bail_outs();
        rows.sort();
        trial.rows = rows.len() as u64;
        let mut leaf = Leaf::default();
        for (row_key, sort_len, key, value) in &rows {
            leaf.push(Row { row_key, sort_len: *sort_len, key, value });
        }
        self.reduce_all(ddoc, &leaf, &mut trial)?;
        let first_rows = (0..leaf.len().min(limits.answers)).map(|index| leaf.row(index));
        trial.first_rows =
            first_rows.map(|row| (row.id().into_owned(), row.key.to_vec(), row.value.to_vec())).collect();
        trial.failures.truncate(limits.answers);
        trial.log.truncate(limits.answers);
        Ok(trial)
    }

    fn map_some(
        &self,
        program: &mut dyn Program,
        documents: &DocumentBatch,
        some: std::ops::Range<usize>,
        trial: &mut Trial,
        limits: TrialLimits,
    ) -> (Emissions, u64) {
        let started_us = self.clock().now_us();
        let mut emissions = Emissions::new();
        let batch = batch_of(some.clone().map(|index| documents.get(index)));
        let mut is_too_much = false;
        let mut take = |emissions: &mut Emissions| {
            is_too_much = emissions.size_bytes() as u64 > limits.emitted_bytes;
            if is_too_much { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut result = program.map_in_parts(&batch, &mut emissions, &mut take);
        if is_too_much {
            trial.ended = Some((None, too_much(limits.emitted_bytes)));
            return (emissions, self.clock().now_us() - started_us);
        }
        if result.is_ok() {
            (trial.documents, trial.document_bytes) =
                (trial.documents + batch.len() as u64, trial.document_bytes + json_bytes(&batch));
            return (emissions, self.clock().now_us() - started_us);
        }
        let mut all = Emissions::new();
        let mut culprit = None;
        for (place, index) in (0..).zip(some) {
            emissions.clear();
            let one = batch_of(std::iter::once(documents.get(index)));
            result = program.map(&one, &mut emissions);
            if result.is_err() {
                culprit = Some(documents.get(index).id.to_owned());
                break;
            }
            (trial.documents, trial.document_bytes) = (trial.documents + 1, trial.document_bytes + json_bytes(&one));
            emissions.rows().for_each(|row| all.push(place, row.function, row.key, row.value));
            if all.size_bytes() as u64 > limits.emitted_bytes {
                trial.ended = Some((None, too_much(limits.emitted_bytes)));
                break;
            }
            all.log.append(&mut emissions.log);
            all.failures.extend(
                emissions.failures.drain(..).map(|failure| settee_design::MapFailure { document: place, ..failure }),
            );
        }
        if let Err(error) = result {
            trial.ended = Some((culprit, error.into()));
        }
        (all, self.clock().now_us() - started_us)
    }

    fn reduce_all(&self, ddoc: &DesignDocument, leaf: &Leaf, trial: &mut Trial) -> Result<()> {
        let Some(reduce) = ddoc.views[0].reduce.as_ref() else { return Ok(()) };
        let mut aggregate = self.aggregate(ddoc, reduce)?;
        if leaf.is_empty() {
            return Ok(());
        }
        let started_us = self.clock().now_us();
        let reduced = aggregate.reduce(&[Group::whole(leaf)]).and_then(|stored| {
            let parts: Vec<Vec<&[u8]>> = stored.iter().map(|stored| vec![stored.as_slice()]).collect();
            aggregate.finalize(&parts)
        });
        trial.reduce_us = self.clock().now_us() - started_us;
        match reduced {
            Ok(stored) => {
                let mut out = Vec::new();
                stored.first().into_iter().for_each(|stored| aggregate.finish(stored, &mut out));
                trial.reduction = Some(out);
            }
            Err(ViewError::Compile(error)) => return Err(error.into()),
            Err(error) => trial.ended = trial.ended.take().or(Some((None, error))),
        }
        Ok(())
    }
}

fn too_much(limit: u64) -> ViewError {
    let reason = format!("the documents emit more than {limit} bytes together; try fewer");
    RunError::Fatal { name: "limit_exceeded".to_owned(), reason }.into()
}

fn batch_of<'a>(documents: impl Iterator<Item = Document<'a>>) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for Document { seq, id, json } in documents {
        let pushed = batch.push_with(seq, id, |out| {
            out.extend_from_slice(json);
            Ok::<_, std::convert::Infallible>(())
        });
        pushed.unwrap_or_else(|never| match never {});
    }
    batch
}

fn json_bytes(batch: &DocumentBatch) -> u64 {
    batch.iter().map(|document| document.json.len() as u64).sum()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::{core, ddoc, settings};

    fn documents(texts: &[&str]) -> DocumentBatch {
        let mut batch = DocumentBatch::new();
        for text in texts {
            let id = Value::trusted(text.as_bytes()).get("_id").unwrap().as_str().unwrap().into_owned();
            batch
                .push_with(1, &id, |out| {
                    out.extend_from_slice(text.as_bytes());
                    Ok::<_, ()>(())
                })
                .unwrap();
        }
        batch
    }

    fn try_out(view: &str, texts: &[&str], answers: usize) -> Result<Trial> {
        let limits = TrialLimits { functions: Limits::default(), time_us: 1, answers, emitted_bytes: 1 << 20 };
        core(settings(1, 1 << 20)).try_out(&ddoc(&format!(r#""v": {view}"#)), &documents(texts), limits)
    }

    #[test]
    fn rows_come_in_the_order_of_the_view_and_are_reduced() {
        let texts =
            [r#"{"_id":"b","k":[2],"v":10}"#, r#"{"_id":"a","k":[10],"v":20}"#, r#"{"_id":"c","k":null,"v":30}"#];
        let trial = try_out(r#"{"map": "value k v", "reduce": "_sum"}"#, &texts, 2).unwrap();
        let first_rows: Vec<_> = trial.first_rows.iter().map(|(id, key, _)| (id.as_str(), key.as_slice())).collect();
        assert_eq!(first_rows, [("c", &b"null"[..]), ("b", b"[2]")]);
        assert_eq!((trial.documents, trial.rows, trial.reduction.as_deref()), (3, 3, Some(&b"60"[..])));
        assert_eq!(trial.document_bytes, texts.iter().map(|text| text.len() as u64).sum::<u64>());
        assert_eq!(trial.emitted_bytes, 11 + 6);
        assert!(trial.ended.is_none() && !trial.timed_out);
    }

    #[test]
    fn failures_name_their_documents() {
        let trial = try_out(r#"{"map": "throw"}"#, &[r#"{"_id":"a"}"#, r#"{"_id":"b","t":1}"#], 9).unwrap();
        assert_eq!((trial.rows, trial.failures), (1, vec![("b".to_owned(), "thrown".to_owned())]));
        let texts = [r#"{"_id":"a"}"#, r#"{"_id":"b"}"#, r#"{"_id":"c","f":1}"#, r#"{"_id":"d"}"#];
        let trial = try_out(r#"{"map": "fatal"}"#, &texts, 9).unwrap();
        let (culprit, error) = trial.ended.unwrap();
        assert_eq!((culprit.as_deref(), trial.documents), (Some("c"), 2));
        assert!(matches!(error, ViewError::Run(_)));
        assert!(matches!(try_out(r#"{"map": "wrong"}"#, &[], 9), Err(ViewError::Compile(_))));
        assert!(matches!(try_out(r#"{"map": "none", "reduce": "_no"}"#, &[], 9), Err(ViewError::Compile(_))));
    }
}
