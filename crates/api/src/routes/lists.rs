//! `_list`: a design function transforms the rows of a view or of `_all_docs` into a response.
//!
//! Rows and output are streamed, so that neither the rows nor the response are held in memory as a whole.

use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{DOCUMENTS_TOGETHER, Database, Direction, Head as DocHead, ReadView, Reader, Waiting};
use settee_design::{
    CallError, Caller, Cancellation, DesignDocument, DesignProgram, ListSession, ListSink, ListState, MoreRows,
};
use settee_model::json::{self, Json, Value, append_object};
use settee_views::{Answer as Answered, Header, MapRow, ReduceRow, RowSink, Stale};

use super::all_docs::{bodies, direction, id_range, write_row};
use super::rendered::{Rendered, error_for};
use super::request_object::{Members, RequestObject};
use super::views;
use crate::bridge;
use crate::node::Node;
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::reads::reader;
use crate::request::Request;
use crate::respond::Answer;
use crate::{Error, body, sequence};
use settee_edge::bridge::Output;
use settee_service::Functions;

const BATCH_BYTES: usize = 64 << 10;

pub(super) async fn get(mut request: Request) -> Answer {
    let body = request.read_body().await?;
    run(request, None, &body).await
}

pub(super) async fn post(mut request: Request) -> Answer {
    body::require_json(&request.headers)?;
    request.require_body()?;
    let body = request.read_body().await?;
    let parsed = Json::parse(&body)?;
    run(request, Some(parsed), &body).await
}

pub(super) async fn invalid_path(request: Request) -> Answer {
    request.database()?;
    Err(Error::new(StatusCode::NOT_FOUND, "list_error", "Invalid path."))
}

async fn run(request: Request, posted: Option<Json>, body: &[u8]) -> Answer {
    let database = request.database()?;
    let object = RequestObject::new(&request, None, body)?;
    let caller = request.caller();
    bridge::stream(request.node.admit_list(caller.owner, &request.head.account), move |output| {
        let listed = write(output, &request, &database, (&object, posted.as_ref()), &caller);
        listed.map_err(|error| error_for(&request.reader, error))
    })
    .await
}

fn write(
    output: &mut Output,
    request: &Request,
    database: &Arc<Database>,
    (object, posted): (&RequestObject, Option<&Json>),
    caller: &Caller,
) -> Result<(), Error> {
    let captures = &request.captures;
    let client = reader(output.account());
    let view = database.read_as(&request.reader, Waiting::Allowed)?.for_client(&client);
    let functions = Functions::load(database, captures.get("ddoc"))?;
    let name = captures.get("function");
    functions.require(&["lists", name])?;
    let design = match (captures.get("other"), captures.get("view")) {
        ("", "_all_docs") => None,
        ("", _) => Some(views::design_document(database, captures.get("ddoc"), Waiting::Allowed)?),
        (other, _) => Some(views::design_document(database, other, Waiting::Allowed)?),
    };
    let mut params = match posted {
        None => ViewParams::from_query(&request.query, Source::List)?,
        Some(body) => ViewParams::from_body(body.value(), &request.query, Source::List)?,
    };
    let kind = match &design {
        None => ViewKind::Documents(database.layout()),
        Some(design) => views::kind_of(database, design, captures.get("view"))?,
    };
    params.check(kind, request.node.settings.as_ref())?;
    let mut program = functions.program(&request.node.programs, caller)?;
    let seen = object.to_json(database, Members::All)?;
    let list = List {
        node: &request.node,
        database,
        user: &request.reader,
        params: &params,
        name,
        request: &seen,
        output,
        stage: Stage::Before(program.as_mut()),
        rows: Vec::new(),
        ends: Vec::new(),
        documents: None,
        error: None,
    };
    let finished = match design {
        None => list.all_docs(&view),
        Some(design) => list.view(&design, captures.get("view")),
    };
    functions.log(database, program.as_mut());
    finished
}

enum Stage<'a> {
    Before(&'a mut dyn DesignProgram),
    Running(Box<dyn ListSession + 'a>),
    After,
}

struct List<'a> {
    node: &'a Arc<Node>,
    database: &'a Arc<Database>,
    user: &'a Reader,
    params: &'a ViewParams,
    name: &'a str,
    request: &'a [u8],
    output: &'a mut Output,
    stage: Stage<'a>,
    /// Concatenated rows that are not passed to the function yet, and their end positions.
    rows: Vec<u8>,
    ends: Vec<usize>,
    documents: Option<ReadView<'static>>,
    error: Option<Error>,
}

impl List<'_> {
    fn view(mut self, design: &Arc<DesignDocument>, view: &str) -> Result<(), Error> {
        let (indexes, database) = (Arc::clone(&self.node.views), self.database);
        let query = self.params.view_query();
        let (user, client) = (self.user, reader(self.output.account()));
        let answer = indexes
            .query_as(database, (user, &client, Waiting::Allowed), design, view, &query, &mut self)
            .map_err(|error| views::error_for(user, error))?;
        self.finish()?;
        if answer == Answered::UpdateWanted {
            views::update_later(&indexes, database, design);
        }
        Ok(())
    }

    fn all_docs(mut self, view: &ReadView<'_>) -> Result<(), Error> {
        let total = view.doc_count()?;
        match self.params.key_list() {
            Some(keys) => {
                self.start(&json::object(|object| _ = object.value("total_rows", total).json("offset", b"null")))?;
                self.rows_of_keys(view, &keys)?;
            }
            None => self.rows_of_range(view, total)?,
        }
        self.finish()
    }

    fn rows_of_range(&mut self, view: &ReadView<'_>, total: u64) -> Result<(), Error> {
        let (range, direction) = (id_range(self.params), direction(self.params));
        let before = match direction {
            Direction::Forward => view.rank_of_id(range.start.as_deref().unwrap_or_default())?,
            Direction::Backward => match range.end.as_deref() {
                Some(end) => total - view.rank_of_id(end)?.min(total),
                None => 0,
            },
        };
        let offset = before.saturating_add(self.params.skip).min(total);
        self.start(&json::object(|object| _ = object.value("total_rows", total).value("offset", offset)))?;
        let mut rows = view.all_docs(&range, direction)?;
        rows.skip(self.params.skip)?;
        let mut left = self.params.limit.unwrap_or(u64::MAX);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let together = rows.together(most, bodies(self.params))?;
            if together.is_empty() {
                break;
            }
            left -= together.len() as u64;
            for (id, head) in &together {
                if self.document_row(view, id, head)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn rows_of_keys(&mut self, view: &ReadView<'_>, keys: &[Json]) -> Result<(), Error> {
        let skip = usize::try_from(self.params.skip).unwrap_or(usize::MAX);
        let limit = usize::try_from(self.params.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let keys = &keys[skip.min(keys.len())..];
        let keys = &keys[..limit.min(keys.len())];
        for (index, key) in keys.iter().enumerate() {
            if index % DOCUMENTS_TOGETHER == 0 {
                let next = &keys[index..keys.len().min(index + DOCUMENTS_TOGETHER)];
                let ids: Vec<_> = next.iter().filter_map(|key| key.value().as_str()).collect();
                view.read_ahead(&ids.iter().map(AsRef::as_ref).collect::<Vec<_>>(), bodies(self.params))?;
            }
            let id = key.value().as_str();
            let head = id.as_deref().map(|id| view.head(id)).transpose()?.flatten();
            let flow = match (id, head) {
                (Some(id), Some(head)) => self.document_row(view, &id, &head)?,
                _ => {
                    // CouchDB passes functions the representation of its internal row for a missing key.
                    append_object(&mut self.rows, |row| {
                        row.string("id", "error").json("key", key.as_bytes()).string("value", "not_found");
                    });
                    self.row_done()
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn document_row(&mut self, view: &ReadView<'_>, id: &str, head: &DocHead) -> Result<ControlFlow<()>, Error> {
        write_row(&mut self.rows, view, id, head, self.params)?;
        Ok(self.row_done())
    }

    fn start(&mut self, head: &[u8]) -> Result<(), Error> {
        match std::mem::replace(&mut self.stage, Stage::After) {
            Stage::Before(program) => {
                let mut sink = Sink { node: self.node, output: self.output, error: None };
                let session = program.list(self.name, head, self.request, &mut sink);
                self.stage = Stage::Running(sink.check(session)?);
            }
            called => self.stage = called,
        }
        Ok(())
    }

    fn give(&mut self, more: MoreRows) -> Result<ControlFlow<()>, Error> {
        let Stage::Running(session) = &mut self.stage else {
            return Ok(ControlFlow::Break(()));
        };
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let rows: Vec<&[u8]> = starts.zip(&self.ends).map(|(start, end)| &self.rows[start..*end]).collect();
        let mut sink = Sink { node: self.node, output: self.output, error: None };
        let given = session.rows(&rows, more, &mut sink);
        let state = sink.check(given)?;
        self.rows.clear();
        self.ends.clear();
        if state == ListState::Ended {
            self.stage = Stage::After;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn row_done(&mut self) -> ControlFlow<()> {
        if self.output.cancellation().is_cancelled() {
            return ControlFlow::Break(());
        }
        self.ends.push(self.rows.len());
        if self.rows.len() < BATCH_BYTES {
            return ControlFlow::Continue(());
        }
        self.give(MoreRows::Perhaps).unwrap_or_else(|error| {
            self.error = Some(error);
            ControlFlow::Break(())
        })
    }

    fn finish(mut self) -> Result<(), Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.start(b"{}")?;
        self.give(MoreRows::No).map(|_| ())
    }
}

impl RowSink for List<'_> {
    fn cancellation(&self) -> Cancellation {
        self.output.cancellation().clone()
    }

    fn stale(&mut self, stale: &Stale) {
        views::write_stale(self.output, stale);
    }

    fn header(&mut self, header: Header) -> ControlFlow<()> {
        let head = json::object(|object| {
            let (Header::Map { update_seq, .. } | Header::Reduce { update_seq }) = header;
            if let Header::Map { total_rows, offset, .. } = header {
                object.value("total_rows", total_rows).value("offset", offset);
            }
            if self.params.update_seq {
                sequence::write(object.name("update_seq"), self.database, update_seq);
            }
        });
        match self.start(&head) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        let out = &mut self.rows;
        views::begin_map_row(out, row);
        if self.params.include_docs {
            out.extend_from_slice(b",\"doc\":");
            let mut linked = views::Linked {
                database: self.database,
                user: self.user,
                client: reader(self.output.account()),
                waiting: Waiting::Allowed,
                opened: &mut self.documents,
            };
            if let Err(error) = linked.write(out, &row.document(), self.params) {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        self.rows.push(b'}');
        self.row_done()
    }

    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()> {
        views::write_reduce_row(&mut self.rows, row);
        self.row_done()
    }
}

struct Sink<'a> {
    node: &'a Node,
    output: &'a mut Output,
    error: Option<Error>,
}

impl Sink<'_> {
    /// An invalid response takes precedence over the result of the call.
    fn check<T>(self, called: Result<T, CallError>) -> Result<T, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(called?),
        }
    }
}

impl ListSink for Sink<'_> {
    fn response(&mut self, response: &[u8]) {
        match Rendered::parse(Value::trusted(response), StatusCode::OK) {
            Ok(rendered) => self.output.set_head(rendered.sandbox(self.node).into_head()),
            Err(error) => self.error = Some(error),
        }
    }

    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        if self.error.is_some() {
            return ControlFlow::Break(());
        }
        self.output.text().extend_from_slice(chunk);
        self.output.row_done()
    }
}
