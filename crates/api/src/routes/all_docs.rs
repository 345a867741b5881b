//! `_all_docs` and `_design_docs`: documents in the order of the bytes of their ids.

use std::ops::ControlFlow;

use settee_database::{
    Bodies, DOCUMENTS_TOGETHER, Database, Direction, Head, IdRange, ReadView, Waiting, partition_range,
};
use settee_edge::bridge::Output;
use settee_model::json::{Json, Value, write_string};
use settee_views::Inclusion;

use super::local_docs;
use super::partition::check_place;
use super::queries::Queries;
use crate::bridge;
use crate::params::document::Extras;
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::reads::reader;
use crate::request::Request;
use crate::respond::Answer;
use crate::revision::attachments::Text;
use crate::revision::{self, Encoded};
use crate::{Error, sequence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Design,
}

const DESIGN_START: &[u8] = b"_design/";
/// End of the range of design document ids, exclusive.
const DESIGN_END: &[u8] = b"_design0";

pub(super) async fn get(request: Request) -> Answer {
    let params = ViewParams::from_query(&request.query, Source::Documents)?;
    list(&request, Queries::one(params), Scope::All).await
}

pub(super) async fn post(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    let params = ViewParams::from_body(body.value(), &request.query, Source::Documents)?;
    list(&request, Queries::one(params), Scope::All).await
}

pub(super) async fn queries(mut request: Request) -> Answer {
    let queries = Queries::parse(&request.read_called_json().await?, &request.query)?;
    list(&request, queries, Scope::All).await
}

pub(super) async fn get_design(request: Request) -> Answer {
    let params = ViewParams::from_query(&request.query, Source::Documents)?;
    list(&request, Queries::one(params), Scope::Design).await
}

pub(super) async fn post_design(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    let params = ViewParams::from_body(body.value(), &request.query, Source::Documents)?;
    list(&request, Queries::one(params), Scope::Design).await
}

pub(super) async fn queries_design(mut request: Request) -> Answer {
    let queries = Queries::parse(&request.read_called_json().await?, &request.query)?;
    list(&request, queries, Scope::Design).await
}

pub(super) fn direction(params: &ViewParams) -> Direction {
    if params.descending { Direction::Backward } else { Direction::Forward }
}

/// Without keys the ids apply, except in a partition. As in CouchDB a key that is not a string sorts before all ids.
pub(super) fn id_range(params: &ViewParams) -> IdRange {
    let bound = |key: &Option<Json>, docid: &Option<String>| match key {
        Some(key) => Some(key.value().as_str().map(|text| text.as_bytes().to_vec())),
        None if params.partition.is_some() => None,
        None => docid.as_ref().map(|id| Some(id.as_bytes().to_vec())),
    };
    let first = bound(&params.start, &params.startkey_docid);
    let last = bound(&params.end, &params.endkey_docid);
    let (low, high) = if params.descending { (last, first) } else { (first, last) };
    let excluded = params.inclusion() == Inclusion::Exclusive;
    let (skip_low, skip_high) = if params.descending { (excluded, false) } else { (false, excluded) };
    let start = low.flatten().map(|id| if skip_low { after(id) } else { id });
    let end = high.map(|id| match id {
        Some(id) if skip_high => id,
        Some(id) => after(id),
        None => Vec::new(),
    });
    IdRange { start, end }
}

pub(super) fn asked<'k>(params: &ViewParams, keys: &'k [Json]) -> &'k [Json] {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let keys = &keys[number(params.skip).min(keys.len())..];
    &keys[..number(params.limit.unwrap_or(u64::MAX)).min(keys.len())]
}

fn after(mut id: Vec<u8>) -> Vec<u8> {
    id.push(0);
    id
}

async fn list(request: &Request, mut queries: Queries, scope: Scope) -> Answer {
    let database = request.database()?;
    queries.check(ViewKind::Documents(database.layout()), request)?;
    if let (Queries::One(params), Scope::All) = (&queries, scope) {
        check_keys(&database, params)?;
    }
    let user = request.reader.clone();
    let is_short = scope == Scope::All && !queries.as_slice().iter().any(reads_ranks);
    let write = move |output: &mut Output, waiting: Waiting<'_>| -> Result<(), Error> {
        let view = database.read_as(&user, waiting)?.for_client(&reader(output.account()));
        queries.write(output, |output, params| {
            let mut list = List::new(output, &view, params, scope)?;
            match params.key_list() {
                Some(keys) => list.by_keys(&keys),
                None => list.by_range(),
            }
        })
    };
    bridge::answer_if(is_short, request.admit_response(), write).await
}

/// Returns true if the offset is computed from thousands of entries.
fn reads_ranks(params: &ViewParams) -> bool {
    let IdRange { start, end } = id_range(params);
    let is_bounded = start.is_some() || params.descending && end.is_some();
    (is_bounded || params.partition.is_some()) && params.key_list().is_none()
}

fn check_keys(database: &Database, params: &ViewParams) -> Result<(), Error> {
    let keys = params.key_list().unwrap_or_default();
    asked(params, &keys).iter().filter_map(|key| key.value().as_str()).try_for_each(|id| check_place(database, &id))
}

struct List<'a> {
    output: &'a mut Output,
    view: &'a ReadView<'a>,
    params: &'a ViewParams,
    scope: Scope,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// The reported number of documents: as in CouchDB that of the database, also for a partition.
    total: u64,
    first: bool,
}

impl<'a> List<'a> {
    fn new(
        output: &'a mut Output,
        view: &'a ReadView<'a>,
        params: &'a ViewParams,
        scope: Scope,
    ) -> Result<Self, Error> {
        let (IdRange { start, end }, total) = match scope {
            Scope::All => (IdRange::default(), view.doc_count()?),
            Scope::Design => {
                let range = IdRange { start: Some(DESIGN_START.to_vec()), end: Some(DESIGN_END.to_vec()) };
                (range, view.rank_of_id(DESIGN_END)? - view.rank_of_id(DESIGN_START)?)
            }
        };
        Ok(Self { output, view, params, scope, start: start.unwrap_or_default(), end, total, first: true })
    }

    fn by_range(&mut self) -> Result<ControlFlow<()>, Error> {
        let range = self.clamp(id_range(self.params));
        let direction = direction(self.params);
        let update_seq = if self.params.update_seq { Some(self.view.update_seq()?) } else { None };
        let offset = self.offset(&range, direction)?;
        self.head(Some(offset), update_seq);
        let empty = matches!((&range.start, &range.end), (Some(start), Some(end)) if start >= end);
        let mut left = if empty { 0 } else { self.params.limit.unwrap_or(u64::MAX) };
        let mut rows = self.view.all_docs(&range, direction)?;
        if left > 0 {
            rows.skip(self.params.skip)?;
        }
        if !self.params.include_docs {
            while left > 0
                && let Some(row) = rows.next()?
            {
                left -= 1;
                self.row(row.id, &row.head)?;
                if self.output.row_done().is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        while self.params.include_docs && left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let together = rows.together(most, bodies(self.params))?;
            if together.is_empty() {
                break;
            }
            left -= together.len() as u64;
            for (id, head) in &together {
                self.row(id, head)?;
                if self.output.row_done().is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        self.tail();
        Ok(ControlFlow::Continue(()))
    }

    fn offset(&self, range: &IdRange, direction: Direction) -> Result<u64, Error> {
        let before_start = || self.rank(range.start.as_deref().unwrap_or_default());
        let before_end = || -> Result<u64, Error> {
            match range.end.as_deref() {
                Some(end) => self.rank(end),
                None => Ok(self.view.doc_count()?),
            }
        };
        let rows_before = match direction {
            Direction::Forward => before_start()?,
            Direction::Backward => self.view.doc_count()?.saturating_sub(before_end()?),
        };
        // Within a partition CouchDB counts only the rows that it has skipped.
        let skipped = match self.params.partition {
            Some(_) => self.params.skip.min(before_end()?.saturating_sub(before_start()?)),
            None => self.params.skip,
        };
        Ok(rows_before.saturating_add(skipped).min(self.total))
    }

    fn by_keys(&mut self, keys: &[Json]) -> Result<ControlFlow<()>, Error> {
        self.head(None, None);
        let keys = asked(self.params, keys);
        for (index, key) in keys.iter().enumerate() {
            if index % DOCUMENTS_TOGETHER == 0 {
                self.read_ahead(&keys[index..keys.len().min(index + DOCUMENTS_TOGETHER)])?;
            }
            self.row_of_key(key)?;
            if self.output.row_done().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.tail();
        Ok(ControlFlow::Continue(()))
    }

    /// A list of design documents has no rows for other ids; a list of all documents also finds local documents.
    /// The partition does not restrict keys.
    fn row_of_key(&mut self, key: &Json) -> Result<(), Error> {
        let id = key.value().as_str();
        let contained = id.as_deref().filter(|id| self.contains(id));
        if self.scope == Scope::Design && contained.is_none() {
            return Ok(());
        }
        let Some(id) = contained else {
            self.missing_row(key);
            return Ok(());
        };
        if id.starts_with(local_docs::PREFIX) {
            match self.view.local(id)? {
                Some(local) => {
                    self.separate();
                    local_docs::write_row(self.output.text(), id, &local, self.params);
                }
                None => self.missing_row(key),
            }
            return Ok(());
        }
        match self.view.head(id)? {
            Some(head) => self.row(id, &head)?,
            None => self.missing_row(key),
        }
        Ok(())
    }

    fn read_ahead(&self, keys: &[Json]) -> Result<(), Error> {
        let ids: Vec<_> = keys.iter().filter_map(|key| key.value().as_str()).filter(|id| self.contains(id)).collect();
        let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
        Ok(self.view.read_ahead(&ids, bodies(self.params))?)
    }

    /// Returns the number of documents before `id`. Offsets count all documents, also in a list of some, which
    /// limits them to its own number.
    fn rank(&self, id: &[u8]) -> Result<u64, Error> {
        if id.is_empty() { Ok(0) } else { Ok(self.view.rank_of_id(id)?) }
    }

    fn contains(&self, id: &str) -> bool {
        id.as_bytes() >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| id.as_bytes() < end)
    }

    fn clamp(&self, range: IdRange) -> IdRange {
        let list = IdRange { start: Some(self.start.clone()).filter(|start| !start.is_empty()), end: self.end.clone() };
        let partition = self.params.partition.as_deref().map(partition_range).unwrap_or_default();
        let ends = [range.end, list.end, partition.end];
        IdRange {
            start: [range.start, list.start, partition.start].into_iter().flatten().max(),
            end: ends.into_iter().flatten().min(),
        }
    }

    /// Lists of keys have neither an offset nor a sequence.
    fn head(&mut self, offset: Option<u64>, update_seq: Option<u64>) {
        let offset = offset.map_or_else(|| "null".to_owned(), |offset| offset.to_string());
        let out = self.output.text();
        out.extend_from_slice(format!("{{\"total_rows\":{},\"offset\":{offset}", self.total).as_bytes());
        if self.params.update_seq {
            out.extend_from_slice(b",\"update_seq\":");
            match update_seq {
                Some(seq) => sequence::write(out, self.view.database(), seq),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"rows\":[\r\n");
    }

    fn tail(&mut self) {
        self.output.text().extend_from_slice(b"\r\n]}");
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.output.text().extend_from_slice(b",\r\n");
        }
    }

    fn row(&mut self, id: &str, head: &Head) -> Result<(), Error> {
        self.separate();
        write_row(self.output, self.view, id, head, self.params)
    }

    fn missing_row(&mut self, key: &Json) {
        self.separate();
        let out = self.output.text();
        out.extend_from_slice(b"{\"key\":");
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b",\"error\":\"not_found\"}");
    }
}

pub(super) fn bodies(params: &ViewParams) -> Bodies {
    match (params.include_docs, params.conflicts()) {
        (false, _) => Bodies::None,
        (true, false) => Bodies::Winners,
        // Reading the winner with its leaves also returns their revisions.
        (true, true) => Bodies::Leaves,
    }
}

pub(super) fn write_row(
    out: &mut impl Text,
    view: &ReadView<'_>,
    id: &str,
    head: &Head,
    params: &ViewParams,
) -> Result<(), Error> {
    let text = out.text();
    for name in ["{\"id\":", ",\"key\":"] {
        text.extend_from_slice(name.as_bytes());
        write_string(text, id);
    }
    text.extend_from_slice(b",\"value\":{\"rev\":");
    head.rev.write_json(text);
    text.extend_from_slice(if head.stored.deleted { b",\"deleted\":true}" } else { b"}" });
    if params.include_docs {
        text.extend_from_slice(b",\"doc\":");
        if head.stored.deleted {
            text.extend_from_slice(b"null");
        } else {
            write_winner(out, view, id, head, params)?;
        }
    }
    out.text().push(b'}');
    Ok(())
}

/// Appends `_conflicts` only if requested and not empty. Returns false if a compaction has removed the revision.
pub(super) fn write_winner(
    out: &mut impl Text,
    view: &ReadView<'_>,
    id: &str,
    head: &Head,
    params: &ViewParams,
) -> Result<bool, Error> {
    let shown = params.shown();
    let conflicts = params.conflicts() && head.has_conflicts;
    if shown.is_plain() && !conflicts {
        out.expect(head.stored.size as usize)?;
        return Ok(view.write_document(out.text(), id, &head.rev, head.stored, |_| {})?);
    }
    let extras = Extras { conflicts, ..Extras::default() };
    Ok(revision::write_winner(out, view, id, extras, &shown)? != Encoded::Gone)
}

pub(super) fn text(value: Value<'_>) -> Option<String> {
    value.as_str().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests;
