//! Searches, both forms: what they have in common. How answers look is in [`nouveau`] and [`clouseau`].

pub(super) mod clouseau;
pub(super) mod nouveau;

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Bodies, DOCUMENTS_TOGETHER, Database, ReadView};
use settee_design::{DesignDocument, SearchKind};
use settee_model::json::{self, write_array, write_object, write_string};
use settee_search::{
    Highlight, Hit, Index, Locale, Nearest, Query as SearchQuery, Request as Search, Searches, StoredValue,
};
use settee_views::design_documents;

use super::views::design_document;
use crate::bridge::{self, Output};
use crate::node::Node;
use crate::params::search::SearchParams;
use crate::request::Request;
use crate::{Error, respond};

/// A search of an index of a design document that was found.
struct Asked {
    node: Arc<Node>,
    database: Arc<Database>,
    design: Arc<DesignDocument>,
    kind: SearchKind,
    index: String,
}

/// About how much memory a hit takes with its stored fields.
const HIT_BYTES: usize = 512;

/// What an index answered.
struct Found {
    answer: settee_search::Answer,
    /// How long it took to bring the index up to date, in milliseconds.
    update_latency_ms: u64,
}

impl Asked {
    /// Opens the design document that the path names: before anything else is looked at.
    async fn open(request: &Request, kind: SearchKind) -> Result<Self, Error> {
        let (database, ddoc) = (request.database()?, request.captures.get("ddoc").to_owned());
        let (node, index) = (Arc::clone(&request.node), request.captures.get("index").to_owned());
        bridge::blocking(move || {
            let design = design_document(&database, &ddoc)?;
            Ok(Self { node, database, design, kind, index })
        })
        .await
    }

    /// Blocks while the index is brought up to date, while there is no memory for so many hits, and while it is asked.
    fn search(&self, output: &mut Output, params: &SearchParams) -> Result<Found, Error> {
        let Self { node, database, design, kind, index } = self;
        let begun_us = (node.operation.monotonic_us)();
        let index = node.searches.open(database, design, *kind, index, params.freshness)?;
        let update_latency_ms = (node.operation.monotonic_us)().saturating_sub(begun_us) / 1000;
        output.expect(params.limit.saturating_mul(HIT_BYTES))?;
        let answer = index.search(&search_of(&index, *kind, params)?)?;
        Ok(Found { answer, update_latency_ms })
    }
}

fn search_of(index: &Index, kind: SearchKind, params: &SearchParams) -> Result<Search, Error> {
    let parse = |text: &str| match kind {
        SearchKind::Nouveau => index.parse(text, params.locale.as_deref().map_or_else(Locale::default, Locale::named)),
        SearchKind::Clouseau => index.parse_classic(text),
    };
    let query = match &params.knn {
        None => parse(params.query.as_deref().unwrap_or_default())?,
        Some(knn) => {
            let near = Nearest {
                field: knn.field.clone(),
                vector: knn.vector.clone(),
                count: knn.k,
                candidates: knn.candidates,
                filter: knn.filter.as_deref().map(parse).transpose()?.map(Box::new),
            };
            let near = SearchQuery::Boost(Box::new(SearchQuery::Nearest(near)), knn.boost);
            match &params.query {
                Some(text) => SearchQuery::any_of(vec![parse(text)?, near]),
                None => near,
            }
        }
    };
    Ok(Search {
        query,
        partition: params.partition.clone(),
        limit: params.limit,
        sort: params.sort.clone(),
        bookmark: params.bookmark.clone(),
        counts: params.counts.clone(),
        top_n: params.top_n,
        ranges: params.ranges.clone(),
        drilldown: params.drilldown.clone(),
        group: params.group.clone(),
        highlight: params.highlight.clone(),
        include_fields: params.include_fields.clone(),
    })
}

/// Removes the search indexes that no design document needs.
async fn clean_up(request: &Request) -> Result<(), Error> {
    let database = request.database()?;
    let searches: Arc<Searches> = Arc::clone(&request.node.searches);
    bridge::blocking(move || {
        let designs = design_documents(&database)?;
        searches.cleanup(&database, &designs, 0)?;
        Ok(())
    })
    .await
}

/// Documents beside hits, from a view that is opened with the first of them: it is then at least as new as the index.
struct Documents<'a> {
    database: &'a Arc<Database>,
    opened: Option<ReadView>,
}

impl Documents<'_> {
    /// Calls `write` for each hit, and `write_document` for that of each, if `include_docs`. Documents are read together.
    fn write_hits(
        &mut self,
        output: &mut Output,
        hits: &[Hit],
        include_docs: bool,
        mut write: impl FnMut(&mut Vec<u8>, &Hit),
    ) -> Result<(), Error> {
        let mut is_first = true;
        for some in hits.chunks(DOCUMENTS_TOGETHER) {
            if include_docs {
                let ids: Vec<&str> = some.iter().map(|hit| hit.id.as_str()).collect();
                self.view()?.read_ahead(&ids, Bodies::Winners)?;
            }
            for hit in some {
                if !std::mem::take(&mut is_first) {
                    output.text().push(b',');
                }
                output.text().extend_from_slice(b"\r\n");
                write(output.text(), hit);
                if include_docs {
                    output.text().extend_from_slice(b",\"doc\":");
                    self.write(output, &hit.id)?;
                }
                output.text().push(b'}');
                if output.row_done().is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn view(&mut self) -> Result<&ReadView, Error> {
        Ok(match &mut self.opened {
            Some(view) => view,
            opened => opened.insert(self.database.read()?),
        })
    }

    /// Appends a document; `null` if it went since it was found.
    fn write(&mut self, output: &mut Output, id: &str) -> Result<(), Error> {
        let view = self.view()?;
        let written = match view.head(id)?.filter(|head| !head.stored.deleted) {
            Some(head) => {
                output.expect(head.stored.size as usize)?;
                view.write_document(output.text(), id, &head.rev, head.stored, |_| {})?
            }
            None => false,
        };
        if !written {
            output.text().extend_from_slice(b"null");
        }
        Ok(())
    }
}

/// Appends what is counted: `{"field":{"value":3,…},…}`.
fn write_counts(out: &mut Vec<u8>, counts: &[(String, Vec<(String, u64)>)]) {
    let fields = counts.iter().map(|(field, counted)| (field, counted));
    write_object(out, fields, |out, counted| {
        write_object(out, counted.iter().map(|(value, count)| (value, *count)), json::write_u64);
    });
}

/// Appends the stored fields of a hit: values of a field that has several are an array.
fn write_fields(out: &mut Vec<u8>, fields: &[(String, Vec<StoredValue>)]) {
    let fields = fields.iter().map(|(name, values)| (name, values));
    write_object(out, fields, |out, values| match &values[..] {
        [value] => write_stored(out, value),
        values => write_array(out, values, write_stored),
    });
}

fn write_stored(out: &mut Vec<u8>, value: &StoredValue) {
    match value {
        StoredValue::String(text) => write_string(out, text),
        StoredValue::Double(number) => write_double(out, *number),
        StoredValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
    }
}

/// Appends the fragments of a hit: `{"field":["…",…],…}`.
fn write_highlights(out: &mut Vec<u8>, highlights: &[Highlight]) {
    let fields = highlights.iter().map(|highlight| (&highlight.field, &highlight.fragments));
    write_object(out, fields, |out, fragments| write_texts(out, fragments));
}

fn write_texts(out: &mut Vec<u8>, texts: &[String]) {
    write_array(out, texts, |out, text| write_string(out, text));
}

/// A number, always with a fraction or an exponent, as Java writes doubles.
fn write_double(out: &mut Vec<u8>, number: f64) {
    match number.is_finite() {
        true => out.extend_from_slice(format!("{number:?}").as_bytes()),
        false => out.extend_from_slice(b"null"),
    }
}

/// 200 with `{"tokens":[…]}`.
fn tokens(tokens: &[String]) -> respond::Response {
    let mut out = b"{\"tokens\":".to_vec();
    write_texts(&mut out, tokens);
    out.push(b'}');
    respond::json(StatusCode::OK, out)
}
