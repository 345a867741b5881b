//! Execution of a plan: [`find`] passes documents to a [`DocumentSink`], [`explain`] only describes the plan.

mod batch;
mod collector;
mod primary;
mod rows;
mod scan;
mod spans;
mod text;
mod union;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_database::{Database, ReadClient};
use settee_search::{SearchLimits, Searches};
use settee_views::Views;

use crate::error::Result;
use crate::index::{self, TextSearch};
use crate::options::{FindOptions, UseIndex};
use crate::planner::access::Access;
use crate::planner::usable::Source;
use crate::planner::{self, Plan};
use collector::Collector;

/// CouchDB's warning for a query that reads all documents.
const NO_INDEX: &str = "No matching index found, create an index to optimize query time.";

/// CouchDB's warning for a query that examines many documents and returns few.
const MANY_EXAMINED: &str = "The number of documents examined is high in proportion to the number of results returned. \
                             Consider adding a more specific index to improve this.";

/// Number of examined documents per result that causes a warning: CouchDB's `index_scan_warning_threshold`.
const EXAMINED_PER_RESULT: u64 = 10;

/// Receiver of the documents found, in order. It may block.
pub trait DocumentSink {
    /// Receives a document as JSON text, projected to the requested fields. `Break` ends the query without an error.
    fn document(&mut self, json: &[u8]) -> ControlFlow<()>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub keys_examined: u64,
    /// Number of documents that were read and tested.
    pub docs_examined: u64,
    /// The same, for queries that request several copies of each; only one exists here.
    pub quorum_docs_examined: u64,
    pub results_returned: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub bookmark: String,
    pub stats: Stats,
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The conditions exclude each other. CouchDB's response then has no bookmark.
    Nothing,
    /// All documents of the page were passed to the sink.
    Found(Found),
}

#[derive(Clone, Copy)]
pub struct Readers<'a> {
    pub views: &'a Views,
    pub searches: &'a Arc<Searches>,
    pub limits: &'a SearchLimits,
    pub client: &'a ReadClient,
    pub search: TextSearch,
}

/// Executes a query.
///
/// # Errors
/// Before the first call of `sink` for all detectable errors; after it only if storage fails.
pub fn find(
    readers: Readers<'_>,
    database: &Arc<Database>,
    options: &FindOptions,
    sink: &mut dyn DocumentSink,
) -> Result<Outcome> {
    let indexes = index::all(database)?;
    let (plan, trace) = planner::plan(options, &indexes, readers.search)?;
    let plan = plan.ok_or_else(|| options.no_sort_index(database.layout()))?;
    // A query that finds nothing does not read its bookmark.
    if plan.is_noop {
        return Ok(Outcome::Nothing);
    }
    let plan = planner::resume(plan, &trace, options)?;
    options.check_layout(database.layout())?;
    options.check_names()?;
    let mut collector = Collector::new(options, sink);
    let mut place = None;
    if options.limit > 0 || options.execution_stats {
        place = run(readers, database, &plan, &mut collector)?;
    }
    let warning = warning(options, &plan, collector.stats);
    let bookmark = collector.bookmark(&plan.access, place).map(|bookmark| bookmark.to_text());
    let bookmark = bookmark.or_else(|| options.bookmark_text.clone()).unwrap_or_else(|| "nil".to_owned());
    Ok(Outcome::Found(Found { bookmark, stats: collector.stats, warning }))
}

/// Reads documents. Returns the position of the last processed one, if only the index provides it.
fn run(
    readers: Readers<'_>,
    database: &Arc<Database>,
    plan: &Plan<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<String>> {
    let Readers { views, searches, limits, client, .. } = readers;
    match &plan.access {
        Access::Primary(ranges) if plan.access.is_scan() && scan::is_possible(collector) => {
            scan::run(&database.read()?.for_client(client), ranges, collector)?;
        }
        Access::Primary(ranges) => primary::run(&database.read()?.for_client(client), ranges, collector)?,
        Access::Index(index, ranges) => rows::run((views, client), database, index, ranges, plan.covering, collector)?,
        Access::Union(parts) => union::run((views, client), database, parts, collector)?,
        Access::Text(text) => return text::run(searches, limits, database, text, collector),
    }
    Ok(None)
}

/// Returns the plan of a query as JSON text.
///
/// # Errors
/// If the query is invalid or the design documents could not be read.
pub fn explain(database: &Arc<Database>, search: TextSearch, options: &FindOptions) -> Result<Vec<u8>> {
    let indexes = index::all(database)?;
    let (plan, trace) = planner::plan(options, &indexes, search)?;
    Ok(planner::explain::explain(database, options, plan.as_ref(), &trace, search)?)
}

fn warning(options: &FindOptions, plan: &Plan<'_>, stats: Stats) -> Option<String> {
    let mut warnings = Vec::new();
    if let Some(wanted) = options.use_index.as_ref().filter(|_| !plan.source.is_named_by(options)) {
        warnings.push(match wanted {
            UseIndex { design, name: None, .. } => {
                format!("{design} was not used because it does not contain a valid index for this query.")
            }
            UseIndex { design, name: Some(name), .. } => {
                format!("{design}, {name} was not used because it is not a valid index for this query.")
            }
        });
    }
    // Independent of the actual access path: an index would be better.
    if matches!(plan.source, Source::Primary) {
        warnings.push(NO_INDEX.to_owned());
    }
    let examined = stats.docs_examined + stats.quorum_docs_examined;
    if examined > EXAMINED_PER_RESULT * stats.results_returned.max(1) {
        warnings.push(MANY_EXAMINED.to_owned());
    }
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}
