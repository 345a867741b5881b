//! The changes feed in its four forms.
//!
//! Rows are read in batches on threads that may block, and sent through a short channel: a slow reader holds
//! up nobody, and a feed that waits is one task without a thread.

mod filter_runner;
mod walk;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Method, header};
use settee_database::{Database, Direction, Leaves, ReadClient, ReadView};
use settee_model::json::{Json, Kind, write_string};
use settee_settings::chttpd;
use tokio::sync::{mpsc, oneshot, watch};

use walk::{Needs, Seen, Walk};

use super::live::{Gone, Listener, Woken};
use crate::bridge::pipe::Pipe;
use crate::node::Node;
use crate::params::changes::{ChangesParams, Feed};
use crate::params::document::Extras;
use crate::params::filter::{Filter, FunctionPath};
use crate::request::Request;
use crate::respond::{self, Aborted, Answer};
use crate::revision::attachments::Text;
use crate::sequence;
use crate::{Error, body, bridge, etag, revision};

/// About how many bytes a live feed reads before it sends.
const BATCH_BYTES: usize = 64 << 10;

/// The number of batches that may wait for a slow reader.
const BATCHES_WAITING: usize = 2;

/// `GET` and `POST /{db}/_changes`
pub(super) async fn feed(mut request: Request, stopping: watch::Receiver<bool>) -> Answer {
    let database = request.database()?;
    let body = if request.head.method == Method::POST { read_body(&mut request).await? } else { None };
    let timeout_ms = chttpd::CHANGES_TIMEOUT.of(&*request.node.settings);
    let mut params = ChangesParams::resolve(&request.query, request.header("last-event-id"), timeout_ms, &database)?;
    params.filter = match FunctionPath::of(&params.filter_name, &request.query)? {
        Some(path) => {
            let body = body.as_ref().map_or(&b""[..], Json::as_bytes);
            Filter::Function(filter_runner::function(&request, &database, path, body).await?)
        }
        None => Filter::resolve(&params.filter_name, &request.query, body.as_ref())?,
    };
    match params.feed {
        Feed::Normal => normal(&request, database, params).await,
        Feed::Longpoll | Feed::Continuous | Feed::EventSource => live(&request, database, params, stopping).await,
    }
}

/// The body of a POST has the arguments of filters; it may be absent.
async fn read_body(request: &mut Request) -> Result<Option<Json>, Error> {
    body::require_json(&request.headers)?;
    let bytes = request.read_body().await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let object = body::json(bytes).await?;
    if object.value().kind() == Kind::Object {
        Ok(Some(object))
    } else {
        Err(Error::bad_request("Request body must be a JSON object"))
    }
}

async fn normal(request: &Request, database: Arc<Database>, params: ChangesParams) -> Answer {
    let client = request.head.account.reader();
    let (view, update_seq) = bridge::blocking(move || {
        let view = database.read()?.for_client(&client);
        let update_seq = view.update_seq()?;
        Ok((view, update_seq))
    })
    .await?;
    let tag = entity_tag(view.database(), update_seq, &params);
    if etag::knows(&request.headers, &tag) {
        let mut response = etag::not_modified();
        respond::set_etag(&mut response, &tag);
        return Ok(response);
    }
    let mut response = bridge::stream(request.outward(), move |output| {
        output.text().extend_from_slice(b"{\"results\":[\n");
        let since = params.start(update_seq);
        let mut rows = Rows::new(params, since);
        let filter = rows.params.filter.clone();
        let mut walk = Walk::open(&view, since, rows.params.direction, &filter, Needs::of(&rows.params))?;
        while !rows.is_full() {
            let Some(change) = walk.next()? else {
                rows.complete(&view)?;
                break;
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
        write_end(output.text(), view.database(), rows.position, pending);
        Ok(())
    })
    .await?;
    respond::set_etag(&mut response, &tag);
    Ok(response)
}

fn entity_tag(database: &Database, update_seq: u64, params: &ChangesParams) -> String {
    let mut hasher = DefaultHasher::new();
    (database.instance(), update_seq, format!("{params:?}")).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn write_end(out: &mut Vec<u8>, database: &Database, last_seq: u64, pending: u64) {
    out.extend_from_slice(b"\n],\n\"last_seq\":");
    sequence::write(out, database, last_seq);
    out.extend_from_slice(format!(",\"pending\":{pending}}}\n").as_bytes());
}

/// So many documents CouchDB looks up by their ids; for more it goes through all changes.
const LOOKED_UP: usize = 100;

/// The part of a feed that was sent.
struct Rows {
    params: ChangesParams,
    sent: u64,
    /// Where the feed began.
    since: u64,
    /// The sequence from which a client goes on.
    position: u64,
    /// Of a live feed: how many rows lie beyond the last one it may send.
    beyond: u64,
}

impl Rows {
    fn new(params: ChangesParams, since: u64) -> Self {
        Self { params, sent: 0, since, position: since, beyond: 0 }
    }

    fn is_full(&self) -> bool {
        self.params.limit.is_some_and(|limit| self.sent >= limit)
    }

    /// Where a walk goes on after the rows that were sent.
    fn resumed(&self) -> u64 {
        match self.params.direction {
            Direction::Backward if self.sent > 0 => self.position.saturating_sub(1),
            Direction::Forward | Direction::Backward => self.position,
        }
    }

    /// Whether documents are looked up by their ids, instead of found among all changes.
    fn looks_up(&self) -> bool {
        match &self.params.filter {
            Filter::DocIds(ids) => ids.len() <= LOOKED_UP,
            Filter::Design => true,
            Filter::None | Filter::Selector(_) | Filter::Function(_) => false,
        }
    }

    /// All changes were looked at: what did not pass need not be looked at again.
    fn complete(&mut self, view: &ReadView) -> Result<(), Error> {
        match self.params.direction {
            Direction::Forward => self.position = self.position.max(view.update_seq()?),
            Direction::Backward if self.looks_up() => {}
            Direction::Backward => {
                if let Some(first) = view.changes(0, Direction::Forward)?.next()? {
                    self.position = first.seq;
                }
            }
        }
        Ok(())
    }

    /// How many changes lie beyond those that were looked at.
    fn pending(&self, view: &ReadView) -> Result<u64, Error> {
        let beyond = |seq| {
            let after = view.changes_after(seq)?;
            let (live, deleted) = view.counts()?;
            Ok::<_, Error>(match self.params.direction {
                Direction::Forward => after,
                Direction::Backward => (live + deleted).saturating_sub(after),
            })
        };
        // Documents that are looked up are taken from all changes that there are.
        if self.looks_up() {
            return Ok(beyond(self.since)?.saturating_sub(self.sent));
        }
        if self.is_full() { beyond(self.resumed()) } else { Ok(0) }
    }

    fn write(
        &mut self,
        text: &mut impl Text,
        view: &ReadView,
        change: &Seen,
        write_doc: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let has_seq = self.params.has_seq(self.sent);
        self.sent += 1;
        self.position = change.seq;
        let out = text.text();
        out.extend_from_slice(b"{\"seq\":");
        if has_seq {
            sequence::write(out, view.database(), change.seq);
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

/// A feed that waits for changes.
async fn live(
    request: &Request,
    database: Arc<Database>,
    params: ChangesParams,
    stopping: watch::Receiver<bool>,
) -> Answer {
    // Watching begins before the first look, so that nothing is missed between them.
    let progress = request.node.feeds.watch(&database);
    let reader = Arc::clone(&database);
    let update_seq = bridge::blocking(move || Ok(reader.read()?.update_seq()?)).await?;
    let (sender, receiver) = mpsc::channel(BATCHES_WAITING);
    let (begun, beginning) = oneshot::channel();
    let content_type = match params.feed {
        Feed::EventSource => "text/event-stream",
        Feed::Normal | Feed::Longpoll | Feed::Continuous => "application/json",
    };
    let since = params.start(update_seq);
    let node = Arc::clone(&request.node);
    let prefix = if params.feed == Feed::Longpoll { b"{\"results\":[\n".to_vec() } else { Vec::new() };
    let is_source = params.feed == Feed::EventSource;
    let rows = Rows::new(params, since);
    let account = Arc::clone(&request.head.account);
    let listener = Listener { account, sender, progress, stopping };
    let live = Live { node, database, rows, begun: Some(begun), prefix, listener };
    tokio::spawn(live.run());
    // A filter that fails at the first documents is answered with its error.
    beginning.await.unwrap_or_else(|_| Err(Error::internal("the feed did not begin")))?;
    let mut response = respond::streamed(content_type, receiver);
    if is_source {
        respond::set(response.headers_mut(), header::CACHE_CONTROL, "no-cache");
    }
    Ok(response)
}

struct Live {
    node: Arc<Node>,
    database: Arc<Database>,
    rows: Rows,
    /// Hears when there is something to send, or that there never will be.
    begun: Option<oneshot::Sender<Result<(), Error>>>,
    /// The text before the first rows.
    prefix: Vec<u8>,
    listener: Listener,
}

impl Live {
    async fn run(mut self) {
        loop {
            self.listener.progress.mark_unchanged();
            match self.send_changes().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    if let Some(begun) = self.begun.take() {
                        // Who asked may have gone.
                        let _ = begun.send(Err(error));
                        return;
                    }
                    tracing::warn!(name = %error.name, reason = %error.reason, "a feed broke off");
                    let _ = self.listener.sender.send(Err(Aborted)).await;
                    return;
                }
            }
            if self.send(Vec::new()).await.is_err() {
                return;
            }
            if self.rows.is_full() || self.is_over() {
                break;
            }
            match self.listener.wait(self.rows.params.feed, self.rows.params.quiet).await {
                Woken::Changed => {}
                Woken::End => break,
                Woken::Gone => return,
            }
        }
        self.end().await;
    }

    /// Whether a feed that has sent everything waits for no more. New changes cannot follow in descending order.
    fn is_over(&self) -> bool {
        let Rows { params, sent, .. } = &self.rows;
        match params.feed {
            Feed::Longpoll => *sent > 0,
            Feed::Continuous | Feed::EventSource | Feed::Normal => params.direction == Direction::Backward,
        }
    }

    /// Sends everything that is there. `false` when nobody listens.
    async fn send_changes(&mut self) -> Result<bool, Error> {
        loop {
            tokio::select! {
                () = self.listener.account.room() => {}
                () = self.listener.sender.closed() => return Ok(false),
            }
            let (database, sender) = (Arc::clone(&self.database), self.listener.sender.clone());
            let client = self.listener.account.reader();
            let mut rows = Rows { params: self.rows.params.clone(), ..self.rows };
            let read = move |pipe| {
                let (text, more) = read_batch(&database, &mut rows, pipe, &client)?;
                Ok((rows, text, more))
            };
            let (rows, text, more) = if self.rows.params.shown.is_plain() {
                match &self.rows.params.filter {
                    Filter::Function(filter) => self.node.programs.calling(&filter.caller, move || read(None)).await?,
                    _ => bridge::blocking(move || read(None)).await?,
                }
            } else {
                // What is read is sent at once, so nothing must be missing before it.
                if self.send(Vec::new()).await.is_err() {
                    return Ok(false);
                }
                bridge::piping(self.node.outward(&self.listener.account), sender, move |pipe| read(Some(pipe))).await?
            };
            self.rows = rows;
            if !text.is_empty() && self.send(text).await.is_err() {
                return Ok(false);
            }
            if !more {
                return Ok(true);
            }
        }
    }

    async fn end(mut self) {
        let mut out = Vec::new();
        match self.rows.params.feed {
            Feed::EventSource => return,
            Feed::Longpoll => write_end(&mut out, &self.database, self.rows.position, self.rows.beyond),
            Feed::Continuous | Feed::Normal => {
                out.extend_from_slice(b"{\"last_seq\":");
                sequence::write(&mut out, &self.database, self.rows.position);
                out.extend_from_slice(format!(",\"pending\":{}}}\n", self.rows.beyond).as_bytes());
            }
        }
        // The feed is over either way.
        let _ = self.send(out).await;
    }

    /// Sends text, and before it what has to stand there.
    async fn send(&mut self, text: Vec<u8>) -> Result<(), Gone> {
        if let Some(begun) = self.begun.take() {
            begun.send(Ok(())).map_err(|_| Gone)?;
        }
        let whole = if self.prefix.is_empty() { text } else { [std::mem::take(&mut self.prefix), text].concat() };
        if whole.is_empty() {
            return Ok(());
        }
        self.listener.send(whole).await
    }
}

/// Text of a live feed. What is too much for one batch, which only attachments can be, goes out at once.
struct Batch {
    text: Vec<u8>,
    pipe: Option<Pipe>,
    flow: ControlFlow<()>,
}

impl Text for Batch {
    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// A batch has one document that is large, at most.
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

/// Reads rows until there are enough to send. Tells whether there are more.
fn read_batch(
    database: &Arc<Database>,
    rows: &mut Rows,
    pipe: Option<Pipe>,
    client: &ReadClient,
) -> Result<(Vec<u8>, bool), Error> {
    let view = database.read()?.for_client(client);
    let filter = rows.params.filter.clone();
    if rows.params.direction == Direction::Backward && rows.sent == 0 {
        // A feed that found nothing begins anew at the last change.
        rows.since = view.update_seq()?;
        rows.position = rows.since;
    }
    let mut walk = Walk::open(&view, rows.resumed(), rows.params.direction, &filter, Needs::of(&rows.params))?;
    let mut batch = Batch { text: Vec::new(), pipe, flow: ControlFlow::Continue(()) };
    while !rows.is_full() {
        let Some(change) = walk.next()? else {
            rows.complete(&view)?;
            rows.beyond = rows.pending(&view)?;
            return Ok((batch.text, false));
        };
        let separator: &[u8] = match rows.params.feed {
            Feed::Longpoll if rows.sent > 0 => b",\r\n",
            Feed::EventSource => b"data: ",
            Feed::Longpoll | Feed::Continuous | Feed::Normal => b"",
        };
        batch.text.extend_from_slice(separator);
        rows.write(&mut batch, &view, &change, |out| walk.write_document(out))?;
        if batch.flow.is_break() {
            return Err(Error::request_timeout("the client took nothing for too long"));
        }
        match rows.params.feed {
            Feed::EventSource => {
                let id = sequence::text(database, change.seq);
                batch.text.extend_from_slice(format!("\nid: \"{id}\"\n\n").as_bytes());
            }
            Feed::Continuous => batch.text.push(b'\n'),
            Feed::Longpoll | Feed::Normal => {}
        }
        if batch.text.len() >= BATCH_BYTES {
            return Ok((batch.text, true));
        }
    }
    rows.beyond = rows.pending(&view)?;
    Ok((batch.text, false))
}
