//! Common parts of both search APIs. [`nouveau`] and [`clouseau`] write their responses.

pub(super) mod clouseau;
pub(super) mod nouveau;

use std::sync::Arc;

use settee_database::{Bodies, DOCUMENTS_TOGETHER, Database, ReadView, Reader, Waiting};
use settee_design::{DesignDocument, SearchKind};
use settee_edge::bridge::Output;
use settee_edge::budget::Account;
use settee_model::json::{self, ObjectWriter, append_object, write_array, write_object, write_string};
use settee_search::{
    Analyzer, Hit, Index, Locale, Nearest, Query as SearchQuery, Request as Search, SearchError, SearchLimits,
    Searches, StoredValue,
};
use settee_threads::Permit;
use settee_views::{ViewError, design_documents};

use super::views::{design_document, function_failed};
use crate::Error;
use crate::bridge;
use crate::node::Node;
use crate::params::search::SearchParams;
use crate::reads;
use crate::request::Request;
use crate::respond::Answer;
use crate::searching::Searches as Permitted;

struct Asked {
    node: Arc<Node>,
    user: Reader,
    database: Arc<Database>,
    design: Arc<DesignDocument>,
    kind: SearchKind,
    index: String,
}

struct Found {
    answer: settee_search::Answer,
    update_latency_ms: u64,
}

impl Asked {
    /// Must be called before parameters are validated.
    async fn open(request: &Request, kind: SearchKind) -> Result<Self, Error> {
        let (database, ddoc) = (request.database()?, request.captures.get("ddoc").to_owned());
        let (node, index) = (Arc::clone(&request.node), request.captures.get("index").to_owned());
        let user = request.reader.clone();
        bridge::blocking(&request.threads, move || {
            let design = design_document(&database, &ddoc, Waiting::Allowed)?;
            Ok(Self { node, user, database, design, kind, index })
        })
        .await
    }

    async fn answer(
        self,
        request: &Request,
        mut params: SearchParams,
        write: impl FnOnce(&mut Output, &Self, &SearchParams, &Found) -> Result<(), Error> + Send + 'static,
    ) -> Answer {
        let searches = Permitted::of(request);
        let permit = searches.permit().await?;
        let account = Arc::clone(&request.head.account);
        bridge::stream(request.admit_response(), move |output| {
            let limits = searches.limits(&account);
            let found = self.search(&mut params, (&searches, &account), permit, &limits)?;
            write(output, &self, &params, &found)
        })
        .await
    }

    /// Blocks.
    fn search(
        &self,
        params: &mut SearchParams,
        (permitted, account): (&Permitted, &Arc<Account>),
        permit: Permit,
        limits: &SearchLimits,
    ) -> Result<Found, Error> {
        let Self { node, user, database, design, kind, index } = self;
        let begun_us = (node.operation.monotonic_us)();
        let failed = |error| error_for(user, error);
        let opened = node.searches.open_now(database, design, *kind, index, params.freshness).map_err(failed)?;
        let (index, _permit) = match opened {
            Some(index) => (index, permit),
            None => {
                // The update runs without a permit, so that other clients may search concurrently.
                drop(permit);
                let index = node.searches.open(database, design, *kind, index, params.freshness, limits);
                (index.map_err(failed)?, permitted.permit_now(limits)?)
            }
        };
        let update_latency_ms = (node.operation.monotonic_us)().saturating_sub(begun_us) / 1000;
        let index = settee_search::visible_part(index, database, (user, &reads::reader(account)), limits)?;
        let answer = index.search(&search_of(&index, *kind, params, limits)?, limits)?;
        Ok(Found { answer, update_latency_ms })
    }
}

/// An error of a build can contain parts of documents that a member does not see.
fn error_for(user: &Reader, error: SearchError) -> Error {
    use settee_search::Error as Cause;
    match error {
        SearchError::Index(Cause::TypeConflict { .. } | Cause::BadField(_) | Cause::BadRequest(_))
        | SearchError::Build(ViewError::Run(_) | ViewError::Compile(_))
            if *user != Reader::Administrator =>
        {
            function_failed("search_function_failed")
        }
        error => error.into(),
    }
}

fn search_of(
    index: &Index,
    kind: SearchKind,
    params: &mut SearchParams,
    limits: &SearchLimits,
) -> Result<Search, Error> {
    let locale = || params.locale.as_deref().map_or_else(Locale::default, Locale::named);
    let parse = |text: &str| match kind {
        SearchKind::Nouveau => index.parse(text, locale(), limits),
        SearchKind::Clouseau => index.parse_classic(text, limits),
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
        drilldown: std::mem::take(&mut params.drilldown),
        group: params.group.clone(),
        highlight: params.highlight.clone(),
        include_fields: params.include_fields.clone(),
    })
}

async fn clean_up(request: &Request) -> Result<(), Error> {
    let database = request.database()?;
    let searches: Arc<Searches> = Arc::clone(&request.node.searches);
    bridge::blocking(&request.threads, move || {
        let designs = design_documents(&database)?;
        searches.cleanup(&database, &designs, 0)?;
        Ok(())
    })
    .await
}

/// The snapshot is opened with the first document, so it is at least as recent as the index.
struct Documents<'a> {
    asked: &'a Asked,
    opened: Option<ReadView<'static>>,
}

impl<'a> Documents<'a> {
    fn of(asked: &'a Asked) -> Self {
        Self { asked, opened: None }
    }

    /// Calls `write_document` only if `include_docs` is set. Documents are read in batches.
    fn write_hits(
        &mut self,
        output: &mut Output,
        hits: &[Hit],
        include_docs: bool,
        mut write: impl FnMut(&mut ObjectWriter<'_>, &Hit),
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
                append_object(output.text(), |object| write(object, hit));
                if include_docs {
                    output.text().pop();
                    output.text().extend_from_slice(b",\"doc\":");
                    self.write(output, &hit.id)?;
                    output.text().push(b'}');
                }
                if output.row_done().is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn view(&mut self) -> Result<&ReadView<'_>, Error> {
        Ok(match &mut self.opened {
            Some(view) => view,
            opened => opened.insert(self.asked.database.read_as(&self.asked.user, Waiting::Allowed)?),
        })
    }

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

/// Appends counts: `{"field":{"value":3,…},…}`.
fn write_counts(output: &mut Output, counts: &[(String, Vec<(String, u64)>)]) -> Result<(), Error> {
    let bytes = |(value, _): &(String, u64)| value.len() + 24;
    let all = counts.iter().map(|(field, counted)| field.len() + counted.iter().map(bytes).sum::<usize>());
    output.expect(all.sum())?;
    let out = output.text();
    let fields = counts.iter().map(|(field, counted)| (field, counted));
    write_object(out, fields, |out, counted| {
        write_object(out, counted.iter().map(|(value, count)| (value, *count)), json::write_u64);
    });
    Ok(())
}

/// Appends the stored fields of a hit, several values of a field as an array, and the fragments around its matches.
fn write_fields(object: &mut ObjectWriter<'_>, hit: &Hit) {
    let fields = hit.fields.iter().map(|(name, values)| (name, values));
    write_object(object.name("fields"), fields, |out, values| match &values[..] {
        [value] => write_stored(out, value),
        values => write_array(out, values, write_stored),
    });
    if !hit.highlights.is_empty() {
        object.object("highlights", |fields| {
            hit.highlights.iter().for_each(|highlight| _ = fields.strings(&highlight.field, &highlight.fragments));
        });
    }
}

fn write_stored(out: &mut Vec<u8>, value: &StoredValue) {
    match value {
        StoredValue::String(text) => write_string(out, text),
        StoredValue::Double(number) => write_double(out, *number),
        StoredValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
    }
}

/// Appends a number, always with a fraction or an exponent, in Java's format of doubles.
fn write_double(out: &mut Vec<u8>, number: f64) {
    match number.is_finite() {
        true => out.extend_from_slice(format!("{number:?}").as_bytes()),
        false => out.extend_from_slice(b"null"),
    }
}

/// Answers with the terms that an analyzer produces from a text: 200 with `{"tokens":[…]}`.
async fn analyzed(
    request: &Request,
    text: String,
    analyzer: impl FnOnce() -> Result<Analyzer, Error> + Send + 'static,
) -> Answer {
    let searches = Permitted::of(request);
    let permit = searches.permit().await?;
    let account = Arc::clone(&request.head.account);
    bridge::stream(request.admit_response(), move |output| {
        let _permit = permit;
        let limits = searches.limits(&account);
        let terms = analyzer()?.analyze(&text, &limits)?;
        output.text().extend_from_slice(b"{\"tokens\":[");
        for (number, term) in terms.iter().enumerate() {
            if number > 0 {
                output.text().push(b',');
            }
            write_string(output.text(), term);
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(b"]}\n");
        Ok(())
    })
    .await
}
