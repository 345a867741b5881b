//! [`Scripted`]: a language for tests of callers of functions.

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::json::Value;

use crate::{
    CallError, CompileError, DesignProgram, DesignSource, DocumentBatch, Language, Limits, ListSession, ListSink,
    ListState, MoreRows,
};

type Answers = dyn Fn(&DesignSource, &[&str], &[&[u8]]) -> Result<Vec<u8>, CallError> + Send + Sync;

/// The language `javascript` without JavaScript, for calls of functions with any source. It has no views, and one list
/// function, `rows`, which sends its head and its rows.
#[derive(Clone)]
pub struct Scripted(Arc<Answers>);

impl Scripted {
    /// `answers` serves calls, given the design document, the path of the function and its arguments.
    pub fn new<F>(answers: F) -> Self
    where
        F: Fn(&DesignSource, &[&str], &[&[u8]]) -> Result<Vec<u8>, CallError> + Send + Sync + 'static,
    {
        Self(Arc::new(answers))
    }
}

impl Language for Scripted {
    fn name(&self) -> &str {
        "javascript"
    }

    fn design_program(&self, source: &DesignSource, _: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(Call { language: self.clone(), source: source.clone() }))
    }
}

struct Call {
    language: Scripted,
    source: DesignSource,
}

impl DesignProgram for Call {
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        (self.language.0)(&self.source, path, arguments)
    }

    /// `everything` passes all documents, `conflicted` those with `_conflicts`, `single` those with one of
    /// `_revisions`.
    fn filter(&mut self, path: &[&str], batch: &DocumentBatch, _: Option<&[u8]>) -> Result<Vec<bool>, CallError> {
        let documents = || (0..batch.len()).map(|index| Value::trusted(batch.get(index).json));
        let revisions = |document: Value<'_>| Some(document.get("_revisions")?.get("ids")?.elements().count());
        match path.last() {
            Some(&"everything") => Ok(vec![true; batch.len()]),
            Some(&"conflicted") => Ok(documents().map(|document| document.get("_conflicts").is_some()).collect()),
            Some(&"single") => Ok(documents().map(|document| revisions(document) == Some(1)).collect()),
            _ => Err(CallError::NotFound("no filters".to_owned())),
        }
    }

    fn list<'a>(
        &'a mut self,
        name: &str,
        head: &[u8],
        _: &[u8],
        sink: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError> {
        if name != "rows" {
            return Err(CallError::NotFound("no such list".to_owned()));
        }
        sink.response(b"{}");
        let _ = sink.chunk(head);
        Ok(Box::new(SentRows))
    }

    fn take_log(&mut self) -> Vec<String> {
        Vec::new()
    }
}

struct SentRows;

impl ListSession for SentRows {
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError> {
        let is_sent = rows.iter().all(|row| sink.chunk(&[b"\n", *row].concat()) == ControlFlow::Continue(()));
        Ok(if is_sent && more == MoreRows::Perhaps { ListState::Waiting } else { ListState::Ended })
    }
}
