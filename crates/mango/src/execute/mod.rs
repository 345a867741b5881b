//! Execution of a plan: [`find`] passes documents to a [`DocumentSink`], [`explain`] describes the plan.

mod batch;
mod collector;
mod primary;
mod rows;
mod scan;
mod scope;
mod spans;
mod text;
mod union;

use std::sync::Arc;

use settee_database::{Database, DatabaseError, ReadClient, Reader, Waiting};
use settee_search::{SearchLimits, Searches};
use settee_views::Views;

use crate::error::Result;
use crate::index::{self, TextSearch};
use crate::options::{FindOptions, UseIndex};
use crate::planner::access::Access;
use crate::planner::usable::Source;
use crate::planner::{self, Plan, Purpose};
use collector::Collector;
pub use collector::{DocumentSink, Stats};
use scope::ReadScope;

const NO_INDEX: &str = "No matching index found, create an index to optimize query time.";

const MANY_EXAMINED: &str = "The number of documents examined is high in proportion to the number of results returned. \
                             Consider adding a more specific index to improve this.";

/// CouchDB's `index_scan_warning_threshold`.
const EXAMINED_PER_RESULT: u64 = 10;

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
    Found(Found),
}

#[derive(Clone, Copy)]
pub struct Readers<'a> {
    pub views: &'a Views,
    pub searches: &'a Arc<Searches>,
    pub limits: &'a SearchLimits,
    pub client: &'a ReadClient,
    pub search: TextSearch,
    /// The user on whose behalf documents are read. A member with per-document access uses no text index.
    pub reader: &'a Reader,
    pub waiting: Waiting<'a>,
}

/// Returns the text indexes that the reader can use.
fn searchable(search: TextSearch, reader: &Reader) -> TextSearch {
    match reader {
        Reader::Administrator => search,
        Reader::Member(_) => TextSearch { text: false, nouveau: false },
    }
}

/// Executes a query. After the first call of `sink`, only storage can cause an error.
pub fn find(
    readers: Readers<'_>,
    database: &Arc<Database>,
    options: &FindOptions,
    sink: &mut dyn DocumentSink,
) -> Result<Outcome> {
    let indexes = index::all(database, readers.waiting)?;
    let search = searchable(readers.search, readers.reader);
    let (plan, trace) = planner::plan(Purpose::Find, options, &indexes, search)?;
    let plan = plan.ok_or_else(|| options.no_sort_index(database.layout()))?;
    // A query that finds nothing does not validate its bookmark.
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

/// Returns the position of the last processed document, if only the index provides it.
fn run(
    readers: Readers<'_>,
    database: &Arc<Database>,
    plan: &Plan<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<String>> {
    let Readers { views, searches, limits, client, reader, waiting, .. } = readers;
    let scope = ReadScope { views, database, reader, client, waiting };
    match &plan.access {
        Access::Primary(ranges) if !scope.is_restricted() && plan.access.is_scan() && scan::is_possible(collector) => {
            scan::run(&scope.documents()?, ranges, collector)?;
        }
        Access::Primary(ranges) => primary::run(&scope.documents()?, ranges, collector)?,
        Access::Index(index, ranges) => rows::run(scope, index, ranges, plan.covering, collector)?,
        Access::Union(parts) => union::run(scope, parts, collector)?,
        Access::Text(text) => {
            // The time of a search is not bounded by the number of its reads.
            waiting.may_block().map_err(DatabaseError::from)?;
            return text::run(searches, limits, database, text, collector);
        }
    }
    Ok(None)
}

/// Describes the plan of [`find`] for this reader.
pub fn explain(
    database: &Arc<Database>,
    search: TextSearch,
    options: &FindOptions,
    reader: &Reader,
) -> Result<Vec<u8>> {
    let indexes = index::all(database, Waiting::Allowed)?;
    let search = searchable(search, reader);
    let (plan, trace) = planner::plan(Purpose::Explain, options, &indexes, search)?;
    Ok(planner::explain::explain((database, reader), options, plan.as_ref(), &trace, search)?)
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
    if matches!(plan.source, Source::Primary) {
        warnings.push(NO_INDEX.to_owned());
    }
    let examined = stats.docs_examined + stats.quorum_docs_examined;
    if examined > EXAMINED_PER_RESULT * stats.results_returned.max(1) {
        warnings.push(MANY_EXAMINED.to_owned());
    }
    (!warnings.is_empty()).then(|| warnings.join("\n"))
}
