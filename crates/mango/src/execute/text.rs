//! Documents by a text index, in its order.

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_database::Database;
use settee_design::SearchKind;
use settee_search::{Freshness, Request, SearchError, SearchLimits, Searches, Sort, SortBy};

use super::batch::Batch;
use super::collector::Collector;
use crate::bookmark::Bookmark;
use crate::error::{MangoError, Refusal, Result};
use crate::planner::access::TextAccess;
use crate::sort::Order;
use crate::text::search::Translator;

/// Minimum and maximum number of hits per search. Each page costs a search, each hit memory.
const PAGE: (usize, usize) = if cfg!(test) { (2, 5) } else { (32, 4_096) };

pub(super) fn run(
    searches: &Arc<Searches>,
    limits: &SearchLimits,
    database: &Arc<Database>,
    access: &TextAccess<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<String>> {
    // CouchDB does not query the index in this case.
    if access.clause.is_empty() {
        return Ok(None);
    }
    let options = collector.options;
    let TextAccess { index: text_index, clause, sort } = access;
    let freshness = if options.updates() { Freshness::Current } else { Freshness::Any };
    let kind = text_index.definition.kind;
    let index =
        searches.open(database, &text_index.design, kind, &text_index.name, freshness, limits).map_err(refuse)?;
    let mut request =
        Request::new(Translator::new(&index, &text_index.definition, limits).query(clause).map_err(refused)?);
    request.partition = options.partition.clone();
    let descending = options.sort.order == Order::Descending;
    let by = |field: &str, is_number| match is_number {
        true => SortBy::NumberField(field.to_owned()),
        false => SortBy::StringField(field.to_owned()),
    };
    request.sort = sort.iter().map(|key| Sort { by: by(&key.field, key.is_number), descending }).collect();
    request.bookmark = match &options.bookmark {
        Some(Bookmark::Text { place, .. }) => Some(place.clone()),
        _ => None,
    };
    request.limit = usize::try_from(collector.remaining()).unwrap_or(PAGE.1).clamp(PAGE.0, PAGE.1);
    let mut place = None;
    loop {
        let answer = index.search(&request, &limits.scope()).map_err(refused)?;
        if answer.hits.is_empty() {
            return Ok(place);
        }
        // The database is opened after the search, so that it is at least as recent as the index.
        let view = database.read()?;
        let mut batch = Batch::new(collector);
        answer.hits.iter().for_each(|hit| batch.add(&hit.id, b""));
        let processed = batch.process(&view, collector)?;
        if kind == SearchKind::Clouseau {
            // For CouchDB, hits of Nouveau are not keys.
            collector.stats.keys_examined += processed.rows;
        }
        if let Some(last) = collector.last_id()
            && let Some(hit) = answer.hits.iter().rev().find(|hit| hit.id == last)
        {
            place = Some(hit.bookmark());
        }
        if processed.flow == ControlFlow::Break(()) {
            return Ok(place);
        }
        request.bookmark = Some(answer.bookmark);
        request.limit = (4 * request.limit).min(PAGE.1);
    }
}

fn refuse(error: SearchError) -> MangoError {
    match error {
        SearchError::Index(error) => refused(error),
        error => MangoError::Search(error),
    }
}

/// As in CouchDB, a defect of the query is reported to the client.
fn refused(error: settee_search::Error) -> MangoError {
    use settee_search::Error as Cause;
    match error {
        Cause::Syntax { .. } | Cause::BadRequest(_) | Cause::TooLarge(_) => {
            Refusal::TextSearch(error.to_string()).into()
        }
        error => MangoError::Search(error.into()),
    }
}
