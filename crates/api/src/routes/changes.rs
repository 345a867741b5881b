//! The changes feed in its four forms.
//!
//! Rows are read in batches on threads that may block, and sent through a short channel. A slow client
//! delays no other client, and a waiting feed is a task without a thread. A batch ends at the
//! latest after a time limit, so that rows are not delayed and the feed of a disconnected client ends.

mod filter_runner;
mod slice;
mod walk;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Method, StatusCode, header};
use settee_auth::UserContext;
use settee_database::{AccessControl, Database, Direction, Leaves, ReadClient, ReadView, Reader, Waiting};
use settee_edge::bridge::Head;
use settee_edge::bridge::pipe::Pipe;
use settee_edge::etag;
use settee_model::json::{Json, Kind, write_string};
use settee_settings::chttpd;
use tokio::sync::watch;

use slice::TimeSlice;
use walk::{ChangeScan, Next, RequiredData, ScannedChange};

use super::live::{ClientDisconnected, FeedSignals, Listener, Woken};
use crate::auth_policy::Handler;
use crate::node::Node;
use crate::params::changes::{ChangesParams, Feed};
use crate::params::document::Extras;
use crate::params::filter::{Filter, FunctionPath};
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::attachments::Text;
use crate::sequence;
use crate::{Error, body, bridge, reads, revision};

const BATCH_BYTES: usize = 64 << 10;

const BATCHES_WAITING: usize = 2;

pub(super) async fn feed(mut request: Request, stopping: watch::Receiver<bool>) -> Answer {
    let database = request.database()?;
    let body = if request.head.method == Method::POST { read_body(&mut request).await? } else { None };
    let timeout_ms = chttpd::CHANGES_TIMEOUT.of(&*request.node.settings);
    let mut params = ChangesParams::resolve(
        &request.query,
        request.header("last-event-id"),
        timeout_ms,
        (&database, &request.reader),
    )?;
    params.filter = match FunctionPath::of(&params.filter_name, &request.query)? {
        Some(_) if request.reader != Reader::Administrator => {
            return Err(Error::forbidden(
                "In a database with per-document access only administrators can use filter functions.",
            ));
        }
        Some(path) => {
            let body = body.as_ref().map_or(&b""[..], Json::as_bytes);
            Filter::Function(filter_runner::function(&request, &database, path, body).await?)
        }
        None => Filter::resolve(&params.filter_name, &request.query, body.as_ref())?,
    };
    match params.feed {
        Feed::Normal => normal(&request, database, params, stopping).await,
        Feed::Longpoll | Feed::Continuous | Feed::EventSource => {
            // The subscription starts before the first read, so that no change between them is missed.
            let signals = signals(&request, &database, stopping);
            let (reader, since) = (Arc::clone(&database), params.since);
            let start = bridge::read(&request.threads, move |waiting| {
                since.start(&reader.read_as(&Reader::Administrator, waiting)?)
            })
            .await?;
            let rows = Rows::new(params, start);
            live(&request, database, rows, None, signals).await
        }
    }
}

/// Feeds of members also observe the accounts, because a changed role changes the feed.
fn signals(request: &Request, database: &Arc<Database>, stopping: watch::Receiver<bool>) -> FeedSignals {
    let feeds = &request.node.feeds;
    let accounts = match database.access() {
        AccessControl::PerDatabase => None,
        AccessControl::PerDocument => Some(request.node.users.watch()),
    };
    FeedSignals { progress: feeds.watch(database), accounts, stopping }
}

async fn read_body(request: &mut Request) -> Result<Option<Json>, Error> {
    body::require_json(&request.headers)?;
    request.require_body()?;
    let bytes = request.read_body().await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let object = body::json(&request.threads, bytes).await?;
    if object.value().kind() == Kind::Object {
        Ok(Some(object))
    } else {
        Err(Error::bad_request("Request body must be a JSON object"))
    }
}

async fn normal(
    request: &Request,
    database: Arc<Database>,
    params: ChangesParams,
    stopping: watch::Receiver<bool>,
) -> Answer {
    if !needs_heartbeats(&params) {
        return all_rows(request, database, params).await;
    }
    let (store, client) = (Arc::clone(&database), reads::reader(&request.head.account));
    let (reader, asked) = (request.reader.clone(), params.clone());
    let open = move || FeedSnapshot::open(&store, (&reader, &client, Waiting::Allowed), &asked);
    let FeedSnapshot { view, start, tag } = bridge::blocking(&request.threads, open).await?;
    let mut response = if etag::is_known(request.header(header::IF_NONE_MATCH), &tag) {
        etag::not_modified()
    } else {
        let signals = signals(request, &database, stopping);
        live(request, database, Rows::new(params, start), Some(view), signals).await?
    };
    respond::set(response.headers_mut(), header::ETAG, &tag);
    Ok(response)
}

/// Snapshot from which all rows of a feed are read.
struct FeedSnapshot<'a> {
    view: ReadView<'a>,
    start: u64,
    /// Entity tag. It contains the start, because that of a date depends on the recorded times.
    tag: String,
}

impl<'a> FeedSnapshot<'a> {
    fn open(
        database: &Arc<Database>,
        (reader, client, waiting): (&Reader, &ReadClient, Waiting<'a>),
        params: &ChangesParams,
    ) -> Result<Self, Error> {
        let view = database.read_as(reader, waiting)?.for_client(client);
        let (update_seq, start) = (view.update_seq()?, params.since.start(&view)?);
        let mut hasher = DefaultHasher::new();
        (database.instance(), update_seq, start, format!("{params:?}"), reader).hash(&mut hasher);
        Ok(Self { view, start, tag: format!("\"{:016x}\"", hasher.finish()) })
    }
}

async fn all_rows(request: &Request, database: Arc<Database>, params: ChangesParams) -> Answer {
    let reader = request.reader.clone();
    let known = request.header(header::IF_NONE_MATCH).map(str::to_owned);
    let answer = bridge::answer(request.admit_response(), move |output, waiting| {
        let client = reads::reader(output.account());
        let FeedSnapshot { view, start, tag } = FeedSnapshot::open(&database, (&reader, &client, waiting), &params)?;
        output.add_header(header::ETAG, &tag);
        if etag::is_known(known.as_deref(), &tag) {
            output.set_head(Head::new(StatusCode::NOT_MODIFIED, etag::not_modified().headers().clone()));
            return Ok(());
        }
        let mut rows = Rows::new(params.clone(), start);
        output.text().extend_from_slice(b"{\"results\":[\n");
        let filter = rows.params.filter.clone();
        let (direction, needs) = (rows.params.direction, RequiredData::of(&rows.params));
        let mut walk = ChangeScan::open(&view, rows.position, direction, &filter, needs, TimeSlice::endless())?;
        while !rows.is_full() {
            let change = match walk.next()? {
                Next::Row(change) => change,
                Next::Pause(_) => continue,
                Next::End => {
                    rows.complete(&view)?;
                    break;
                }
            };
            if rows.sent > 0 {
                output.text().extend_from_slice(b",\r\n");
            }
            rows.write(output, &view, &change, |out| walk.write_document(out))?;
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        let pending = rows.pending(&view)?;
        write_end(output.text(), (view.database(), view.reader()), rows.position, pending);
        Ok(())
    });
    let mut response = answer.await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    Ok(response)
}

fn write_end(out: &mut Vec<u8>, feed: (&Database, &Reader), last_seq: u64, pending: u64) {
    out.extend_from_slice(b"\n],\n\"last_seq\":");
    sequence::write_for(out, feed, last_seq);
    // CouchDB ends each JSON answer that it sends in chunks with a line feed of its own.
    out.extend_from_slice(format!(",\"pending\":{pending}}}\n\n").as_bytes());
}

/// Maximum number of documents that are looked up by id. As in CouchDB, more are found by a scan of all changes.
const LOOKUPS_MAX: usize = 100;

struct Rows {
    params: ChangesParams,
    sent: u64,
    /// Start of the current scan. A live feed scans once per wake-up.
    since: u64,
    /// Rows sent by the current scan.
    scan_sent: u64,
    position: u64,
    /// The last sequence that this scan has read, with or without a row.
    walked: Option<u64>,
    /// Number of rows that a live feed may send beyond the last one.
    beyond: u64,
}

fn looks_up(filter: &Filter) -> bool {
    match filter {
        Filter::DocIds(ids) => ids.len() <= LOOKUPS_MAX,
        Filter::Design => true,
        Filter::None | Filter::Selector(_) | Filter::Function(_) => false,
    }
}

fn needs_heartbeats(params: &ChangesParams) -> bool {
    match &params.filter {
        Filter::None => false,
        Filter::DocIds(_) => !looks_up(&params.filter),
        Filter::Design | Filter::Selector(_) | Filter::Function(_) => true,
    }
}

impl Rows {
    fn new(params: ChangesParams, since: u64) -> Self {
        Self { params, sent: 0, since, scan_sent: 0, position: since, walked: None, beyond: 0 }
    }

    fn is_full(&self) -> bool {
        self.params.limit.is_some_and(|limit| self.sent >= limit)
    }

    fn resumed(&self) -> u64 {
        match (self.params.direction, self.walked) {
            (Direction::Backward, Some(walked)) => walked.saturating_sub(1),
            (Direction::Forward, Some(walked)) => walked,
            (_, None) => self.position,
        }
    }

    /// The client may skip the changes that did not pass the filter.
    fn complete(&mut self, view: &ReadView<'_>) -> Result<(), Error> {
        match self.params.direction {
            Direction::Forward => self.position = self.position.max(view.update_seq()?),
            Direction::Backward if looks_up(&self.params.filter) => {}
            Direction::Backward => {
                if let Some(first) = view.changes(0, Direction::Forward)?.next()? {
                    self.position = first.seq;
                }
            }
        }
        Ok(())
    }

    fn pending(&self, view: &ReadView<'_>) -> Result<u64, Error> {
        let beyond = |seq| {
            let after = view.changes_after(seq)?;
            if self.params.direction == Direction::Forward {
                return Ok::<_, Error>(after);
            }
            let (live, deleted) = view.counts()?;
            Ok((live + deleted).saturating_sub(after))
        };
        // Lookups by id are counted against all changes of the scan.
        if looks_up(&self.params.filter) {
            return Ok(beyond(self.since)?.saturating_sub(self.scan_sent));
        }
        if self.is_full() { beyond(self.resumed()) } else { Ok(0) }
    }

    fn write(
        &mut self,
        text: &mut impl Text,
        view: &ReadView<'_>,
        change: &ScannedChange,
        write_doc: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let has_seq = self.params.has_seq(self.sent);
        self.sent += 1;
        self.scan_sent += 1;
        self.position = change.seq;
        self.walked = Some(change.seq);
        let out = text.text();
        out.extend_from_slice(b"{\"seq\":");
        if has_seq {
            sequence::write_for(out, (view.database(), view.reader()), change.seq);
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b",\"id\":");
        write_string(out, &change.id);
        out.extend_from_slice(b",\"changes\":[");
        for (index, rev) in change.revs.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",{\"rev\":" } else { b"{\"rev\":" });
            rev.write_json(out);
            out.push(b'}');
        }
        out.push(b']');
        if change.deleted {
            out.extend_from_slice(b",\"deleted\":true");
        }
        if self.params.include_docs {
            out.extend_from_slice(b",\"doc\":");
            let conflicts = change.leaves == Leaves::Several && self.params.conflicts;
            let selects = matches!(self.params.filter, Filter::Selector(_));
            if !selects && (conflicts || !self.params.shown.is_plain()) {
                let extras = Extras { conflicts, ..Extras::default() };
                revision::write_winner(text, view, &change.id, extras, &self.params.shown)?;
            } else {
                text.expect(change.size)?;
                write_doc(text.text())?;
            }
        }
        text.text().push(b'}');
        Ok(())
    }
}

/// `view` is set if all rows must be from one snapshot.
async fn live(
    request: &Request,
    database: Arc<Database>,
    rows: Rows,
    view: Option<ReadView<'static>>,
    signals: FeedSignals,
) -> Answer {
    let (feed, quiet) = (rows.params.feed, rows.params.quiet);
    let content_type = match feed {
        Feed::EventSource => "text/event-stream",
        Feed::Normal | Feed::Longpoll | Feed::Continuous => "application/json",
    };
    let account = Arc::clone(&request.head.account);
    let (listener, beginning) = Listener::new(account, signals, feed, quiet, BATCHES_WAITING);
    let has_account = matches!(request.head.handler, Some(Handler::Cookie | Handler::Default));
    let (node, user, reader) = (Arc::clone(&request.node), request.user.clone(), request.reader.clone());
    tokio::spawn(LiveFeed { node, database, user, has_account, reader, rows, view, listener }.run());
    // If the filter fails at the first documents, its error is the response.
    let mut response = respond::streamed(content_type, beginning.body().await?);
    if feed == Feed::EventSource {
        respond::set(response.headers_mut(), header::CACHE_CONTROL, "no-cache");
    }
    Ok(response)
}

struct LiveFeed {
    node: Arc<Node>,
    database: Arc<Database>,
    user: UserContext,
    /// True if the roles of the user are those of an account.
    has_account: bool,
    reader: Reader,
    rows: Rows,
    view: Option<ReadView<'static>>,
    listener: Listener,
}

impl LiveFeed {
    async fn run(mut self) {
        loop {
            self.listener.mark_unchanged();
            match self.send_changes().await {
                Ok(Ok(())) => {}
                Ok(Err(ClientDisconnected)) => return,
                Err(error) => return self.listener.fail(error).await,
            }
            let text = if self.is_idle() { b"\n".to_vec() } else { Vec::new() };
            if self.listener.send(text).await.is_err() {
                return;
            }
            if self.rows.is_full() || self.is_over() {
                break;
            }
            match self.listener.wait().await {
                Woken::Changed => {}
                Woken::End => break,
                Woken::Disconnected => return,
            }
        }
        self.end().await;
    }

    /// Before an idle feed waits, CouchDB sends a line feed.
    fn is_idle(&self) -> bool {
        let may_wait = match self.rows.params.feed {
            Feed::Normal => false,
            Feed::Longpoll => true,
            Feed::Continuous | Feed::EventSource => !self.rows.is_full() && !self.rows.params.never_waits(),
        };
        may_wait && self.rows.sent == 0 && !self.listener.has_sent_text()
    }

    /// Descending feeds cannot be continued by new changes.
    fn is_over(&self) -> bool {
        let Rows { params, sent, .. } = &self.rows;
        match params.feed {
            Feed::Normal => true,
            Feed::Longpoll => *sent > 0,
            Feed::Continuous | Feed::EventSource => params.direction == Direction::Backward || params.never_waits(),
        }
    }

    /// Applies changed rights of the user to the rest of the feed. With other roles the feed restarts at the first
    /// change, because documents that a new role makes visible can have any sequence.
    async fn update_reader(&mut self) -> Result<(), Error> {
        if self.database.access() == AccessControl::PerDatabase {
            return Ok(());
        }
        if let Some(name) = self.user.name.as_ref().filter(|_| self.has_account) {
            let account = self.node.users.account(name).await?;
            self.user = account.map_or_else(UserContext::anonymous, |account| account.context());
        }
        let reader = settee_service::reader(&self.database, &self.user)?;
        if self.reader != reader {
            self.reader = reader;
            if self.rows.params.direction == Direction::Forward {
                (self.rows.since, self.rows.position, self.rows.walked) = (0, 0, None);
                self.rows.scan_sent = 0;
            }
        }
        Ok(())
    }

    async fn send_changes(&mut self) -> Result<Result<(), ClientDisconnected>, Error> {
        self.rows.walked = None;
        self.rows.since = self.rows.position;
        self.rows.scan_sent = 0;
        loop {
            if self.listener.room().await.is_err() {
                return Ok(Err(ClientDisconnected));
            }
            if self.view.is_none() {
                self.update_reader().await?;
            }
            let (database, view) = (Arc::clone(&self.database), self.view.take());
            let (client, reader) = (reads::reader(self.listener.account()), self.reader.clone());
            let mut rows = Rows { params: self.rows.params.clone(), ..self.rows };
            let read = move |pipe| {
                let (view, keeps) = match view {
                    Some(view) => (view, true),
                    None => (database.read_as(&reader, Waiting::Allowed)?.for_client(&client), false),
                };
                let (text, more) = read_batch(&view, &mut rows, pipe, TimeSlice::start())?;
                Ok::<_, Error>((rows, text, more, keeps.then_some(view)))
            };
            let done = if self.rows.params.shown.is_plain() {
                let share = self.listener.account().share();
                let work = async {
                    match &self.rows.params.filter {
                        Filter::Function(filter) => {
                            self.node.programs.calling(&filter.caller, move || read(None)).await
                        }
                        _ => self.node.client_threads.scan(share, move || read(None)).await?,
                    }
                };
                match self.listener.during(work).await {
                    Ok(done) => done?,
                    Err(ClientDisconnected) => return Ok(Err(ClientDisconnected)),
                }
            } else {
                // The rows are sent while they are read, so preceding text must be sent first and no heartbeat
                // may be inserted.
                if self.listener.send(Vec::new()).await.is_err() || self.listener.send_heartbeat_if_due().await.is_err()
                {
                    return Ok(Err(ClientDisconnected));
                }
                let admission = self.node.admit_response(self.listener.account());
                settee_edge::bridge::piping(admission, self.listener.sender(), move |pipe| read(Some(pipe))).await??
            };
            let (rows, text, more, view) = done;
            (self.rows, self.view) = (rows, view);
            if !text.is_empty() && self.listener.send(text).await.is_err() {
                return Ok(Err(ClientDisconnected));
            }
            if !more {
                return Ok(Ok(()));
            }
        }
    }

    async fn end(mut self) {
        let mut out = Vec::new();
        let feed = (&*self.database, &self.reader);
        match self.rows.params.feed {
            Feed::EventSource => return,
            Feed::Normal | Feed::Longpoll => write_end(&mut out, feed, self.rows.position, self.rows.beyond),
            Feed::Continuous => {
                out.extend_from_slice(b"{\"last_seq\":");
                sequence::write_for(&mut out, feed, self.rows.position);
                out.extend_from_slice(format!(",\"pending\":{}}}\n\n", self.rows.beyond).as_bytes());
            }
        }
        let _ = self.listener.send(out).await;
    }
}

/// Text beyond the size of a batch, which requires attachments, is sent immediately.
struct Batch {
    text: Vec<u8>,
    pipe: Option<Pipe>,
    flow: ControlFlow<()>,
}

impl Text for Batch {
    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// A batch contains at most one large document.
    fn expect(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn piece_done(&mut self) -> ControlFlow<()> {
        match &mut self.pipe {
            Some(pipe) if self.text.len() >= BATCH_BYTES && self.flow.is_continue() => {
                self.flow = pipe.send(Bytes::from(std::mem::take(&mut self.text)));
            }
            _ => {}
        }
        self.flow
    }
}

/// Returns the text, and true if more rows may exist.
fn read_batch(
    view: &ReadView<'_>,
    rows: &mut Rows,
    pipe: Option<Pipe>,
    slice: TimeSlice,
) -> Result<(Vec<u8>, bool), Error> {
    let filter = rows.params.filter.clone();
    if rows.params.direction == Direction::Backward && rows.walked.is_none() {
        // A feed without rows so far restarts at the last change.
        rows.since = view.update_seq()?;
        rows.position = rows.since;
    }
    let mut walk =
        ChangeScan::open(view, rows.resumed(), rows.params.direction, &filter, RequiredData::of(&rows.params), slice)?;
    let mut batch = Batch { text: Vec::new(), pipe, flow: ControlFlow::Continue(()) };
    while !rows.is_full() {
        let change = match walk.next()? {
            Next::Row(change) => change,
            Next::Pause(walked) => {
                rows.walked = Some(walked);
                return Ok((batch.text, true));
            }
            Next::End => {
                rows.complete(view)?;
                rows.beyond = rows.pending(view)?;
                return Ok((batch.text, false));
            }
        };
        let separator: &[u8] = match rows.params.feed {
            Feed::Normal | Feed::Longpoll if rows.sent > 0 => b",\r\n",
            Feed::EventSource => b"data: ",
            Feed::Normal | Feed::Longpoll | Feed::Continuous => b"",
        };
        batch.text.extend_from_slice(separator);
        rows.write(&mut batch, view, &change, |out| walk.write_document(out))?;
        if batch.flow.is_break() {
            return Err(settee_edge::Error::request_timeout("the client took nothing for too long").into());
        }
        match rows.params.feed {
            Feed::EventSource => {
                let id = sequence::text_for((view.database(), view.reader()), change.seq);
                batch.text.extend_from_slice(format!("\nid: \"{id}\"\n\n").as_bytes());
            }
            Feed::Continuous => batch.text.push(b'\n'),
            Feed::Longpoll | Feed::Normal => {}
        }
        if batch.text.len() >= BATCH_BYTES {
            return Ok((batch.text, true));
        }
    }
    rows.beyond = rows.pending(view)?;
    Ok((batch.text, false))
}

#[cfg(test)]
mod tests;
