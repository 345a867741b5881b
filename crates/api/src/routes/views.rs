//! Views: single and multiple queries, temporary views, and index information.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::HeaderName;
use settee_database::{Bodies, DOCUMENTS_TOGETHER, Database, Head, ReadClient, ReadView, Reader, Waiting};
use settee_design::{Cancellation, DesignDocument, MapSource};
use settee_edge::bridge::Output;
use settee_model::Rev;
use settee_model::json::{self, Json, ObjectWriter, write_string};
use settee_views::{
    Answer as QueryAnswer, Header, LinkedDocument, MapRow, ReduceRow, RowSink, Stale, Urgency, ViewError, Views,
    design_documents, embed_modules, layout_of, overflow_reason,
};

use super::all_docs::write_winner;
use super::playground;
use super::queries::Queries;
use crate::bridge;
use crate::node::Node;
use crate::params::attachments::Shown;
use crate::params::document::Extras;
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::reads::reader;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::attachments::Text;
use crate::revision::{self, Encoded};
use crate::{Error, sequence};

pub(super) async fn get(request: Request) -> Answer {
    let design = named_design(&request).await?;
    let params = ViewParams::from_query(&request.query, Source::View)?;
    answer(&request, design, Queries::one(params)).await
}

pub(super) async fn post(mut request: Request) -> Answer {
    let design = named_design(&request).await?;
    let body = request.read_called_json().await?;
    if body.value().get("queries").is_some() {
        return Err(Error::bad_request("The `queries` parameter is no longer supported at this endpoint"));
    }
    let params = ViewParams::from_body(body.value(), &request.query, Source::View)?;
    answer(&request, design, Queries::one(params)).await
}

pub(super) async fn queries(mut request: Request) -> Answer {
    let design = named_design(&request).await?;
    let queries = Queries::parse(&request.read_called_json().await?, &request.query)?;
    answer(&request, design, queries).await
}

/// Serves a view without a design document, as in CouchDB 1.
pub(super) async fn temp_view(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let design = playground::design(body.value())?;
    playground::compile(&request, &design).await?;
    let params = ViewParams::of_temporary(body.value(), &request.query)?;
    run(&request, database, Arc::new(design), playground::VIEW.to_owned(), Queries::one(params)).await
}

/// All other methods of `_temp_view` and paths below it, which CouchDB answers alike for all methods.
pub(super) async fn temp_view_gone(_: Request) -> Answer {
    Err(Error::new(StatusCode::GONE, "gone", "Temporary views are not supported in CouchDB"))
}

pub(super) async fn info(request: Request) -> Answer {
    let database = request.database()?;
    let name = request.captures.get("ddoc").to_owned();
    let node = Arc::clone(&request.node);
    let out = bridge::blocking(&request.threads, move || {
        let design = design_document(&database, &name, Waiting::Allowed)?;
        let info = node.views.info(&database, &design)?;
        // Inner nodes and the entries by document take about an eighth of the index.
        let active_bytes = info.file_bytes - info.file_bytes / 8;
        let is_end = |error: &ViewError| matches!(error, ViewError::Stopped | ViewError::Paused | ViewError::Cancelled);
        Ok(json::object(|object| {
            object.string("name", &name);
            object.object("view_index", |index| {
                index.string("signature", &info.signature).string("language", &info.language);
                index.strings("collator_versions", [settee_model::collate::version()]);
                index.value("updater_running", info.updater_running).value("compact_running", info.compact_running);
                index.value("waiting_commit", false).value("waiting_clients", info.waiting_clients);
                index.value("update_seq", info.update_seq).value("purge_seq", info.purge_seq);
                index.object("sizes", |sizes| {
                    sizes.value("file", info.file_bytes).value("active", active_bytes);
                    sizes.value("external", info.external_bytes);
                });
                index.object("updates_pending", |pending| {
                    let pending = pending.value("minimum", info.updates_pending);
                    pending.value("preferred", info.updates_pending).value("total", info.updates_pending);
                });
            });
            write_engines(&node, &design, object);
            write_build_error(info.failure.filter(|error| !is_end(error)), object);
        }))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

/// This member is an extension of CouchDB's response.
pub(super) fn write_build_error(failure: Option<impl Into<Error>>, object: &mut ObjectWriter<'_>) {
    if let Some(failure) = failure {
        object.object("build_error", |object| failure.into().write_members(object));
    }
}

/// These members are an extension of CouchDB's response; the reason is given if an engine is not the fastest.
fn write_engines(node: &Node, design: &DesignDocument, object: &mut ObjectWriter<'_>) {
    let functions = design.views.iter().map(|view| Arc::clone(&view.map)).collect();
    let source = MapSource { functions, library: design.library.clone() };
    let engines =
        node.programs.language(&design.language).map(|language| language.engines(&source)).unwrap_or_default();
    let engines = || design.views.iter().zip(&engines);
    if engines().next().is_some() {
        object.object("engines", |object| {
            engines().for_each(|(view, engine)| _ = object.string(&view.name, engine.name));
        });
    }
    let reasons = || engines().filter_map(|(view, engine)| Some((&view.name, engine.reason?)));
    if reasons().next().is_some() {
        object.object("engine_reasons", |object| {
            reasons().for_each(|(view, reason)| _ = object.string(view, reason));
        });
    }
}

pub(super) async fn cleanup(request: Request) -> Answer {
    let database = request.database()?;
    let views = Arc::clone(&request.node.views);
    bridge::blocking(&request.threads, move || {
        let designs = design_documents(&database)?;
        Ok(views.cleanup(&database, &designs, 0)?)
    })
    .await?;
    Ok(respond::ok(StatusCode::ACCEPTED))
}

/// Must be called before parameters are validated.
async fn named_design(request: &Request) -> Result<Arc<DesignDocument>, Error> {
    let (database, ddoc) = (request.database()?, request.captures.get("ddoc").to_owned());
    bridge::read(&request.threads, move |waiting| design_document(&database, &ddoc, waiting)).await
}

async fn answer(request: &Request, design: Arc<DesignDocument>, queries: Queries) -> Answer {
    let (database, view) = (request.database()?, request.captures.get("view").to_owned());
    run(request, database, design, view, queries).await
}

async fn run(
    request: &Request,
    database: Arc<Database>,
    design: Arc<DesignDocument>,
    view: String,
    mut queries: Queries,
) -> Answer {
    queries.check(kind_of(&database, &design, &view)?, request)?;
    let (views, reader) = (Arc::clone(&request.node.views), request.reader.clone());
    bridge::answer(request.admit_response(), move |output, waiting| {
        let source = (&database, &reader, waiting);
        queries.write(output, |output, params| one(output, &views, source, &design, &view, params))
    })
    .await
}

pub(super) fn kind_of(database: &Database, design: &DesignDocument, view: &str) -> Result<ViewKind, Error> {
    let view = design.view(view).ok_or(ViewError::MissingView)?;
    let layout = layout_of(database.layout(), design);
    Ok(if view.reduce.is_some() { ViewKind::Reducing(layout) } else { ViewKind::Map(layout) })
}

fn one(
    output: &mut Output,
    views: &Arc<Views>,
    (database, user, waiting): ReadSource<'_>,
    design: &Arc<DesignDocument>,
    view: &str,
    params: &ViewParams,
) -> Result<ControlFlow<()>, Error> {
    let client = reader(output.account());
    let mut rows = Rows::new(output, (database, user, waiting), params);
    let answer = views
        .query_as(database, (user, &client, waiting), design, view, &params.view_query(), &mut rows)
        .map_err(|error| error_for(user, error))?;
    if rows.error.is_none() && rows.flow.is_continue() {
        let _ = rows.write_waiting();
    }
    if let Some(error) = rows.error {
        return Err(error);
    }
    rows.output.text().extend_from_slice(b"\r\n]}");
    let flow = rows.flow;
    if answer == QueryAnswer::UpdateWanted {
        update_later(views, database, design);
    }
    Ok(flow)
}

/// The message of a function can contain parts of documents that a member does not see.
pub(super) fn error_for(user: &Reader, error: ViewError) -> Error {
    match error {
        ViewError::Run(_) | ViewError::Compile(_) if *user != Reader::Administrator => {
            function_failed("view_function_failed")
        }
        error => error.into(),
    }
}

pub(super) fn function_failed(name: &'static str) -> Error {
    Error::new(StatusCode::INTERNAL_SERVER_ERROR, name, FUNCTION_FAILED)
}

const FUNCTION_FAILED: &str =
    "A function of the design document failed. Administrators receive the cause as the answer to the same query.";

pub(super) fn update_later(views: &Arc<Views>, database: &Arc<Database>, design: &Arc<DesignDocument>) {
    let (views, database, design) = (Arc::clone(views), Arc::clone(database), Arc::clone(design));
    tokio::task::spawn_blocking(move || {
        match views.update(&database, &design, Urgency::Background) {
            // The build was stopped on request.
            Ok(()) | Err(ViewError::Stopped | ViewError::Paused | ViewError::Cancelled) => {}
            Err(error) => {
                tracing::warn!(%error, database = database.name(), ddoc = %design.id, "an index was not updated");
            }
        }
    });
}

/// A database, its reader, and whether the reads may wait.
type ReadSource<'a> = (&'a Arc<Database>, &'a Reader, Waiting<'a>);

struct Rows<'a> {
    output: &'a mut Output,
    source: ReadSource<'a>,
    params: &'a ViewParams,
    documents: Option<ReadView<'a>>,
    waiting: Vec<WaitingRow>,
    waiting_bytes: usize,
    sent: u64,
    flow: ControlFlow<()>,
    error: Option<Error>,
}

/// Adds a header that marks the rows as those of the previous version of the view.
pub(super) fn write_stale(output: &mut Output, stale: &Stale) {
    let progress = stale.progress.map(|percent| format!("; progress={percent}")).unwrap_or_default();
    let value = format!("stale; building={}{progress}", stale.building);
    output.add_header(HeaderName::from_static("settee-index"), &value);
}

/// Appends `{"id":…,"key":…,"value":…`, which a document may follow.
pub(super) fn begin_map_row(out: &mut Vec<u8>, row: MapRow<'_>) {
    out.extend_from_slice(b"{\"id\":");
    write_string(out, row.id);
    out.extend_from_slice(b",\"key\":");
    out.extend_from_slice(row.key);
    out.extend_from_slice(b",\"value\":");
    out.extend_from_slice(row.value);
}

pub(super) fn write_reduce_row(out: &mut Vec<u8>, row: ReduceRow<'_>) {
    if let Some(reason) = overflow_reason(row.value) {
        out.extend_from_slice(b"{\"key\":null,\"error\":\"reduce_overflow_error\",\"reason\":\"");
        out.extend_from_slice(reason);
        return out.extend_from_slice(b"\"}");
    }
    out.extend_from_slice(b"{\"key\":");
    out.extend_from_slice(row.key);
    out.extend_from_slice(b",\"value\":");
    out.extend_from_slice(row.value);
    out.push(b'}');
}

impl RowSink for Rows<'_> {
    fn cancellation(&self) -> Cancellation {
        self.output.cancellation().clone()
    }

    fn stale(&mut self, stale: &Stale) {
        write_stale(self.output, stale);
    }

    fn header(&mut self, header: Header) -> ControlFlow<()> {
        let out = self.output.text();
        out.push(b'{');
        let update_seq = match header {
            Header::Map { total_rows, offset, update_seq } => {
                out.extend_from_slice(format!("\"total_rows\":{total_rows},\"offset\":{offset},").as_bytes());
                update_seq
            }
            Header::Reduce { update_seq } => update_seq,
        };
        if self.params.update_seq {
            out.extend_from_slice(b"\"update_seq\":");
            sequence::write(out, self.source.0, update_seq);
            out.push(b',');
        }
        out.extend_from_slice(b"\"rows\":[\r\n");
        ControlFlow::Continue(())
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        if !self.params.include_docs {
            self.separate();
            begin_map_row(self.output.text(), row);
            self.output.text().push(b'}');
            return self.row_done();
        }
        let mut text = Vec::with_capacity(row.id.len() + row.key.len() + row.value.len() + 32);
        begin_map_row(&mut text, row);
        let LinkedDocument { id, rev } = row.document();
        self.waiting_bytes += text.len();
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let document = LinkedDocument { id: id.map(owned), rev: rev.map(owned) };
        self.waiting.push(WaitingRow { text, document });
        if self.waiting.len() < DOCUMENTS_TOGETHER && self.waiting_bytes < WAITING_BYTES {
            return ControlFlow::Continue(());
        }
        self.write_waiting()
    }

    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()> {
        self.separate();
        write_reduce_row(self.output.text(), row);
        self.row_done()
    }
}

const WAITING_BYTES: usize = 1 << 20;

struct WaitingRow {
    text: Vec<u8>,
    document: LinkedDocument<'static>,
}

impl<'a> Rows<'a> {
    fn new(output: &'a mut Output, source: ReadSource<'a>, params: &'a ViewParams) -> Self {
        let (flow, waiting) = (ControlFlow::Continue(()), Vec::new());
        Self { output, source, params, documents: None, waiting, waiting_bytes: 0, sent: 0, flow, error: None }
    }

    fn linked(&mut self) -> (&mut Output, Linked<'_, 'a>) {
        let (database, user, waiting) = self.source;
        let client = reader(self.output.account());
        (&mut *self.output, Linked { database, user, client, waiting, opened: &mut self.documents })
    }

    fn write_waiting(&mut self) -> ControlFlow<()> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let (_, mut linked) = self.linked();
        if let Err(error) = linked.read_ahead(waiting.iter().map(|row| &row.document)) {
            return self.fail(error);
        }
        for row in waiting {
            self.separate();
            self.output.text().extend_from_slice(&row.text);
            self.output.text().extend_from_slice(b",\"doc\":");
            let params = self.params;
            let (output, mut linked) = self.linked();
            if let Err(error) = linked.write(output, &row.document, params) {
                return self.fail(error);
            }
            self.output.text().push(b'}');
            self.row_done()?;
        }
        ControlFlow::Continue(())
    }

    fn fail(&mut self, error: Error) -> ControlFlow<()> {
        self.error = Some(error);
        ControlFlow::Break(())
    }

    fn separate(&mut self) {
        if self.sent > 0 {
            self.output.text().extend_from_slice(b",\r\n");
        }
        self.sent += 1;
    }

    fn row_done(&mut self) -> ControlFlow<()> {
        self.flow = self.output.row_done();
        self.flow
    }
}

/// The snapshot is opened with the first document, so it is at least as recent as the index.
pub(super) struct Linked<'a, 'v> {
    pub(super) database: &'a Arc<Database>,
    pub(super) user: &'a Reader,
    pub(super) client: ReadClient,
    pub(super) waiting: Waiting<'v>,
    pub(super) opened: &'a mut Option<ReadView<'v>>,
}

impl<'v> Linked<'_, 'v> {
    fn read_ahead<'r>(&mut self, documents: impl Iterator<Item = &'r LinkedDocument<'r>>) -> Result<(), Error> {
        let mut ids: Vec<&str> = documents.filter_map(|document| document.id.as_deref()).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(self.view()?.read_ahead(&ids, Bodies::Winners)?)
    }

    fn view(&mut self) -> Result<&ReadView<'v>, Error> {
        Ok(match self.opened {
            Some(view) => view,
            None => self.opened.insert(self.database.read_as(self.user, self.waiting)?.for_client(&self.client)),
        })
    }

    /// Appends the document of a row or the one that its value links to, or `null` if it does not exist.
    pub(super) fn write(
        &mut self,
        out: &mut impl Text,
        linked: &LinkedDocument<'_>,
        params: &ViewParams,
    ) -> Result<(), Error> {
        let view = self.view()?;
        let written = match (linked.id.as_deref(), linked.rev.as_deref().map(Rev::parse)) {
            (None, _) | (_, Some(Err(_))) => false,
            (Some(id), Some(Ok(rev))) => write_rev(out, view, id, &rev, &params.shown())?,
            (Some(id), None) => match view.head(id)?.filter(|head| !head.stored.deleted) {
                Some(head) => write_winner(out, view, id, &head, params)?,
                None => false,
            },
        };
        if !written {
            out.text().extend_from_slice(b"null");
        }
        Ok(())
    }
}

fn write_rev(out: &mut impl Text, view: &ReadView<'_>, id: &str, rev: &Rev, shown: &Shown) -> Result<bool, Error> {
    let Some(record) = view.record(id)? else { return Ok(false) };
    let Some(node) = record.tree.find(rev) else { return Ok(false) };
    Ok(revision::write_with(out, view, id, &record, node, Extras::default(), shown)? != Encoded::Gone)
}

pub(super) fn design_document(
    database: &Arc<Database>,
    name: &str,
    waiting: Waiting<'_>,
) -> Result<Arc<DesignDocument>, Error> {
    database.of_designs(name, waiting, |view| {
        let id = format!("_design/{name}");
        let head = view.head(&id)?.ok_or_else(|| Error::not_found("missing"))?;
        if head.stored.deleted {
            return Err(Error::not_found("deleted"));
        }
        parse(view, &id, &head)
    })
}

fn parse(view: &ReadView<'_>, id: &str, head: &Head) -> Result<(DesignDocument, usize), Error> {
    let mut body = Vec::with_capacity(head.stored.size as usize);
    if !view.read_body(head.stored, &mut body)? {
        return Err(Error::not_found("missing"));
    }
    let body = Json::trusted(body);
    let mut design = DesignDocument::parse(id, body.value())
        .map_err(|error| Error::new(StatusCode::BAD_REQUEST, "invalid_design_doc", error.to_string()))?;
    embed_modules(view, head.stored, &mut design)?;
    let functions: usize = design.views.iter().map(|view| view.map.len()).sum();
    let bytes = body.as_bytes().len() + functions + design.library.as_ref().map_or(0, |library| library.len());
    Ok((design, bytes))
}
