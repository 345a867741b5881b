//! [`FilterRunner`]: the rows of a feed for which a function of a design document returns true. Documents are filtered
//! in batches, ahead of the next row. The batch size depends on the speed of the function, so that a slow function
//! delays no row. The program is acquired only while documents are filtered, so that a waiting feed holds none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use settee_database::{Bodies, Changes, Database, Direction, ReadView, Stored};
use settee_design::{DesignProgram, DocumentBatch};
use settee_model::Rev;
use tokio::time::Instant;

use super::slice::TimeSlice;
use super::walk::{Next, RequiredData, ScannedChange};
use crate::params::changes::Style;
use crate::params::filter::{FunctionFilter, FunctionPath};
use crate::request::Request;
use crate::routes::request_object::{Members, RequestObject};
use crate::{Error, bridge};
use settee_service::Functions;
use settee_service::revisions::{write_leaves, write_revisions};

const BATCH_DOCUMENTS: usize = 200;

/// Number of documents in the first batch, which is small because the speed of the function is unknown.
const FIRST_DOCUMENTS: usize = 4;

/// The next batch is [`GROWTH`] times larger if it is expected to be faster, and half as large after a slower one.
const BATCH_TIME: Duration = Duration::from_millis(100);

const GROWTH: u32 = 8;

const BATCH_BYTES: usize = 1 << 20;

pub(super) async fn function(
    request: &Request,
    database: &Arc<Database>,
    path: FunctionPath,
    body: &[u8],
) -> Result<Arc<FunctionFilter>, Error> {
    let object = RequestObject::new(request, None, body)?;
    let caller = request.caller();
    let (programs, database, user) = (Arc::clone(&request.node.programs), Arc::clone(database), request.user.clone());
    let target = request.head.uri.to_string();
    bridge::blocking(&request.threads, move || {
        let functions = Functions::load(&database, path.ddoc())?;
        functions.require(&path.names())?;
        let request = object.to_json(&database, Members::All)?;
        let inputs = format!("{} {target} {user:?}", functions.rev());
        Ok(Arc::new(FunctionFilter { programs, caller, functions, path, request, inputs }))
    })
    .await
}

struct Passed {
    seen: ScannedChange,
    rev: Rev,
    stored: Stored,
}

pub(super) struct FilterRunner<'a> {
    view: &'a ReadView<'a>,
    changes: Changes<'a>,
    filter: &'a FunctionFilter,
    needs: RequiredData,
    slice: TimeSlice,
    size: usize,
    filtered: Option<u64>,
    program: Option<Box<dyn DesignProgram>>,
    batch: DocumentBatch,
    ahead: VecDeque<Passed>,
    passed: VecDeque<Passed>,
    current: Option<(String, Rev, Stored)>,
}

impl<'a> FilterRunner<'a> {
    pub(super) fn new(
        view: &'a ReadView<'a>,
        since: u64,
        direction: Direction,
        filter: &'a FunctionFilter,
        needs: RequiredData,
        slice: TimeSlice,
    ) -> Result<Self, Error> {
        Ok(Self {
            view,
            changes: view.changes(since, direction)?,
            filter,
            needs,
            slice,
            size: FIRST_DOCUMENTS,
            filtered: None,
            program: None,
            batch: DocumentBatch::new(),
            ahead: VecDeque::new(),
            passed: VecDeque::new(),
            current: None,
        })
    }

    pub(super) fn next(&mut self) -> Result<Next, Error> {
        loop {
            if let Some(row) = self.passed.pop_front() {
                self.current = Some((row.seen.id.clone(), row.rev, row.stored));
                return Ok(Next::Row(row.seen));
            }
            if let Some(filtered) = self.filtered.filter(|_| self.slice.is_over()) {
                return Ok(Next::Pause(filtered));
            }
            if !self.run()? {
                self.current = None;
                return Ok(Next::End);
            }
        }
    }

    pub(super) fn write_document(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some((id, rev, stored)) = &self.current {
            self.view.write_document(out, id, rev, *stored, |_| {})?;
        }
        Ok(())
    }

    /// Returns false at the end.
    fn run(&mut self) -> Result<bool, Error> {
        self.batch.clear();
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        let mut rows = Vec::with_capacity(self.ahead.len());
        // Conflicting revisions may be much larger than the winners.
        while self.batch.size_bytes() < BATCH_BYTES
            && let Some(row) = self.ahead.pop_front()
        {
            let leaves = add_leaves(&mut self.batch, self.view, &row.seen, self.needs)?;
            rows.push((row, leaves));
        }
        if rows.is_empty() {
            return Ok(false);
        }
        let start = Instant::now();
        let verdicts = self.ask()?;
        let size = match start.elapsed() {
            time if time * GROWTH <= BATCH_TIME => self.size * GROWTH as usize,
            time if time <= BATCH_TIME => self.size,
            _ => self.size / 2,
        };
        self.size = size.clamp(1, BATCH_DOCUMENTS);
        self.filtered = rows.last().map(|(row, _)| row.seen.seq);
        let mut verdicts = verdicts.into_iter();
        for (mut row, leaves) in rows {
            let revs = leaves.into_iter().zip(verdicts.by_ref()).filter_map(|(rev, passes)| passes.then_some(rev));
            row.seen.revs = revs.collect();
            if !row.seen.revs.is_empty() {
                self.passed.push_back(row);
            }
        }
        if self.needs.documents && self.ahead.is_empty() {
            let stored: Vec<Stored> = self.passed.iter().map(|row| row.stored).collect();
            self.view.read_bodies_ahead(&stored)?;
        }
        Ok(true)
    }

    fn read_ahead(&mut self) -> Result<(), Error> {
        let mut bytes = 0;
        while self.ahead.len() < self.size && bytes < BATCH_BYTES {
            let Some(change) = self.changes.next()? else { break };
            bytes += change.stored.size as usize;
            let row =
                Passed { rev: change.rev.clone(), stored: change.stored, seen: ScannedChange::of_change(&change) };
            self.ahead.push_back(row);
        }
        let ids: Vec<&str> = self.ahead.iter().map(|row| row.seen.id.as_str()).collect();
        if !ids.is_empty() {
            // Functions also filter deletions, which are leaves.
            self.view.read_ahead(&ids, Bodies::Leaves)?;
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<Vec<bool>, Error> {
        let FunctionFilter { programs, caller, functions, path, request, .. } = self.filter;
        let program = match &mut self.program {
            Some(program) => program,
            None => self.program.insert(functions.program(programs, caller)?),
        };
        let verdicts = program.filter(&path.names(), &self.batch, Some(request));
        functions.log(self.view.database(), program.as_mut());
        Ok(verdicts?)
    }
}

/// Returns the ids of the added revisions, the winner first. As in CouchDB, `_revisions` contains only the
/// revision itself, and `_conflicts` is added only to winners and only on request.
fn add_leaves(
    batch: &mut DocumentBatch,
    view: &ReadView<'_>,
    change: &ScannedChange,
    needs: RequiredData,
) -> Result<Vec<Rev>, Error> {
    let Some(record) = view.record(&change.id)? else { return Ok(Vec::new()) };
    let leaves = record.tree.leaves_by_rank(|stored| stored.deleted);
    let (count, conflicts) = match needs.style {
        // Each leaf is passed as if it were the only one.
        Style::AllDocs => (leaves.len(), false),
        Style::MainOnly => (1, needs.seen_conflicts),
    };
    let mut names = Vec::new();
    for leaf in leaves.into_iter().take(count) {
        let node = record.tree.node(leaf);
        let Some(stored) = node.value else { continue };
        let members = |out: &mut Vec<u8>| {
            write_revisions(out, &record, leaf, 1);
            if conflicts {
                write_leaves(out, "_conflicts", &record, leaf, |stored| !stored.deleted);
            }
        };
        let added = batch.push_with(change.seq, &change.id, |out| {
            match view.write_document(out, &change.id, &node.rev, stored, members) {
                Ok(true) => Ok(()),
                Ok(false) => Err(None),
                Err(error) => Err(Some(error)),
            }
        });
        match added {
            Ok(()) => names.push(node.rev.clone()),
            // The body was removed by a compaction.
            Err(None) => {}
            Err(Some(error)) => return Err(error.into()),
        }
    }
    Ok(names)
}
