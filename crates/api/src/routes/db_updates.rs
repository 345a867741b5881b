//! `_db_updates`: events of databases, read from `_global_changes`. Without that database it does not exist.

use std::sync::Arc;

use hyper::header;
use settee_database::{Database, DatabaseEventKind, Direction, GLOBAL_CHANGES};
use settee_model::json::append_object;
use settee_settings::chttpd;
use tokio::sync::watch;

use super::live::{ClientDisconnected, FeedSignals, Listener, Woken};
use crate::params::changes::{ChangesParams, Feed};
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::sequence;
use crate::{Error, bridge};

const PIECES_WAITING: usize = 2;

const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of changes in a piece, because those of deleted databases have no row.
const PIECE_CHANGES: usize = 10_000;

pub(super) async fn feed(request: Request, stopping: watch::Receiver<bool>) -> Answer {
    let database = request.node.database(GLOBAL_CHANGES)?;
    let timeout_ms = chttpd::CHANGES_TIMEOUT.of(&*request.node.settings);
    let params = ChangesParams::of_updates(&request.query, request.header("last-event-id"), timeout_ms, &database)?;
    let is_event_stream = params.feed == Feed::EventSource;
    // The subscription starts before the first read, so that no change between them is missed.
    let progress = request.node.feeds.watch(&database);
    let (reader, since) = (Arc::clone(&database), params.since);
    let start = bridge::blocking(&request.threads, move || since.start(&reader.read()?)).await?;
    let rows = Rows { feed: params.feed, direction: params.direction, limit: params.limit, sent: 0, position: start };
    let account = Arc::clone(&request.head.account);
    let signals = FeedSignals { progress, accounts: None, stopping };
    let (listener, beginning) = Listener::new(account, signals, params.feed, params.quiet, PIECES_WAITING);
    tokio::spawn(LiveFeed { database, rows, listener }.run());
    let content_type = if is_event_stream { "text/event-stream" } else { "application/json" };
    let mut response = respond::streamed(content_type, beginning.body().await?);
    if is_event_stream {
        respond::set(response.headers_mut(), header::CACHE_CONTROL, "no-cache");
    }
    Ok(response)
}

#[derive(Clone, Copy)]
struct Rows {
    feed: Feed,
    direction: Direction,
    limit: Option<u64>,
    sent: u64,
    position: u64,
}

impl Rows {
    fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.sent >= limit)
    }

    fn resumed(&self) -> u64 {
        match self.direction {
            Direction::Backward if self.sent > 0 => self.position.saturating_sub(1),
            Direction::Forward | Direction::Backward => self.position,
        }
    }

    /// Returns the text, and true if more rows may exist.
    fn read(&mut self, database: &Arc<Database>) -> Result<(Vec<u8>, bool), Error> {
        let view = database.read()?;
        let mut changes = view.changes(self.resumed(), self.direction)?;
        let (mut out, mut read) = (Vec::new(), 0);
        while !self.is_full() && out.len() < PIECE_BYTES && read < PIECE_CHANGES {
            read += 1;
            let Some(change) = changes.next()? else {
                if self.direction == Direction::Forward {
                    self.position = self.position.max(view.update_seq()?);
                }
                return Ok((out, false));
            };
            self.position = change.seq;
            if let Some((happened, name)) = DatabaseEventKind::parse(change.id).filter(|_| !change.stored.deleted) {
                self.write(&mut out, database, happened, name);
            }
        }
        Ok((out, !self.is_full()))
    }

    fn write(&mut self, out: &mut Vec<u8>, database: &Database, happened: DatabaseEventKind, name: &str) {
        let separator: &[u8] = match self.feed {
            Feed::Normal | Feed::Longpoll if self.sent > 0 => b",\r\n",
            Feed::EventSource => b"data: ",
            Feed::Normal | Feed::Longpoll | Feed::Continuous => b"",
        };
        out.extend_from_slice(separator);
        append_object(out, |object| {
            object.string("db_name", name).string("type", happened.name());
            sequence::write(object.name("seq"), database, self.position);
        });
        match self.feed {
            Feed::Continuous => out.push(b'\n'),
            Feed::EventSource => {
                let id = sequence::text(database, self.position);
                out.extend_from_slice(format!("\nid: \"{id}\"\n\n").as_bytes());
            }
            Feed::Normal | Feed::Longpoll => {}
        }
        self.sent += 1;
    }
}

struct LiveFeed {
    database: Arc<Database>,
    rows: Rows,
    listener: Listener,
}

impl LiveFeed {
    async fn run(mut self) {
        if let Err(error) = self.send_all().await {
            self.listener.fail(error).await;
        }
    }

    async fn send_all(&mut self) -> Result<(), Error> {
        loop {
            self.listener.mark_unchanged();
            if self.send_rows().await?.is_err() || self.listener.send(Vec::new()).await.is_err() {
                return Ok(());
            }
            let is_over = match self.rows.feed {
                Feed::Normal => true,
                Feed::Longpoll => self.rows.sent > 0,
                // Descending feeds cannot be continued by new events.
                Feed::Continuous | Feed::EventSource => self.rows.direction == Direction::Backward,
            };
            if is_over || self.rows.is_full() {
                break;
            }
            match self.listener.wait().await {
                Woken::Changed => {}
                Woken::End => break,
                Woken::Disconnected => return Ok(()),
            }
        }
        let is_object = matches!(self.rows.feed, Feed::Normal | Feed::Longpoll);
        let mut out = Vec::new();
        if self.rows.feed != Feed::EventSource {
            out.extend_from_slice(if is_object { b"\n],\n\"last_seq\":" } else { b"{\"last_seq\":" });
            sequence::write(&mut out, &self.database, self.rows.position);
            // As in `_changes`, the second line feed is that of CouchDB's chunked answers.
            out.extend_from_slice(b"}\n\n");
            let _ = self.listener.send(out).await;
        }
        Ok(())
    }

    async fn send_rows(&mut self) -> Result<Result<(), ClientDisconnected>, Error> {
        loop {
            let (database, mut rows) = (Arc::clone(&self.database), self.rows);
            let read = settee_threads::run(move || {
                let (text, more) = rows.read(&database)?;
                Ok::<_, Error>((rows, text, more))
            });
            let Ok(read) = self.listener.during(read).await else { return Ok(Err(ClientDisconnected)) };
            let (rows, text, more) = read?;
            self.rows = rows;
            if !text.is_empty() && self.listener.send(text).await.is_err() {
                return Ok(Err(ClientDisconnected));
            }
            if !more {
                return Ok(Ok(()));
            }
        }
    }
}
