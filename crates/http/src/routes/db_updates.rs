//! What happens to databases: `_db_updates`, read from the database `_global_changes`, without which it is not there.

use std::sync::Arc;

use bytes::Bytes;
use settee_database::{Database, Direction, GLOBAL_CHANGES, Happened};
use settee_model::json::write_string;
use settee_settings::chttpd;
use tokio::sync::{mpsc, watch};

use crate::budget::Account;
use crate::params::changes::{ChangesParams, Feed, Quiet};
use crate::request::Request;
use crate::respond::{self, Aborted, Answer};
use crate::sequence::{self, Since};
use crate::shutdown::until_true;
use crate::{Error, bridge};
use settee_service::Progress;

/// How many pieces may wait for a slow reader.
const PIECES_WAITING: usize = 2;

/// About how many bytes are read before they are sent.
const PIECE_BYTES: usize = 64 << 10;

/// `GET /_db_updates`
pub(super) async fn feed(request: Request, stopping: watch::Receiver<bool>) -> Answer {
    let database = request.node.database(GLOBAL_CHANGES)?;
    let timeout_ms = chttpd::CHANGES_TIMEOUT.of(&*request.node.settings);
    let params = ChangesParams::resolve(&request.query, request.header("last-event-id"), timeout_ms, &database)?;
    let content_type = if params.feed == Feed::EventSource { "text/event-stream" } else { "application/json" };
    // From before the first look, so that nothing is missed in between.
    let progress = request.node.feeds.watch(&database);
    let since = match params.since {
        Since::Seq(seq) => seq,
        Since::Now => {
            let database = Arc::clone(&database);
            bridge::blocking(move || Ok(database.read()?.update_seq()?)).await?
        }
    };
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let rows = Rows { feed: params.feed, direction: params.direction, limit: params.limit, sent: 0, position: since };
    let account = Arc::clone(&request.line.account);
    let live = Live { account, database, rows, quiet: params.quiet, sender, progress, stopping };
    tokio::spawn(live.run());
    Ok(respond::streamed(content_type, receiver))
}

/// What was sent.
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

    /// Reads rows until there are enough to send. Tells whether there may be more.
    fn read(&mut self, database: &Arc<Database>) -> Result<(Vec<u8>, bool), Error> {
        let view = database.read()?;
        let mut changes = view.changes(self.position, self.direction)?;
        let mut out = Vec::new();
        while !self.is_full() && out.len() < PIECE_BYTES {
            let Some(change) = changes.next()? else {
                if self.direction == Direction::Forward {
                    self.position = self.position.max(view.update_seq()?);
                }
                return Ok((out, false));
            };
            self.position = change.seq;
            if let Some((happened, name)) = Happened::parse(change.id).filter(|_| !change.stored.deleted) {
                self.write(&mut out, database, happened, name);
            }
        }
        // Backwards a second look would begin at the end again.
        Ok((out, !self.is_full() && self.direction == Direction::Forward))
    }

    fn write(&mut self, out: &mut Vec<u8>, database: &Database, happened: Happened, name: &str) {
        let separator: &[u8] = match self.feed {
            Feed::Normal | Feed::Longpoll if self.sent > 0 => b",\n",
            Feed::EventSource => b"data: ",
            Feed::Normal | Feed::Longpoll | Feed::Continuous => b"",
        };
        out.extend_from_slice(separator);
        out.extend_from_slice(b"{\"db_name\":");
        write_string(out, name);
        out.extend_from_slice(format!(",\"type\":\"{}\",\"seq\":", happened.name()).as_bytes());
        sequence::write(out, database, self.position);
        out.push(b'}');
        match self.feed {
            Feed::Continuous => out.push(b'\n'),
            Feed::EventSource => {
                let id = sequence::text(database, self.position);
                out.extend_from_slice(format!("\nid: {id}\n\n").as_bytes());
            }
            Feed::Normal | Feed::Longpoll => {}
        }
        self.sent += 1;
    }
}

struct Live {
    account: Arc<Account>,
    database: Arc<Database>,
    rows: Rows,
    quiet: Quiet,
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    progress: watch::Receiver<Progress>,
    stopping: watch::Receiver<bool>,
}

/// Nobody listens.
struct Gone;

impl Live {
    async fn run(mut self) {
        if let Err(error) = self.send_all().await {
            tracing::warn!(name = %error.name, reason = %error.reason, "a feed broke off");
            let _ = self.sender.send(Err(Aborted)).await;
        }
    }

    async fn send_all(&mut self) -> Result<(), Error> {
        let is_object = matches!(self.rows.feed, Feed::Normal | Feed::Longpoll);
        if is_object && self.send(b"{\"results\":[\n".to_vec()).await.is_err() {
            return Ok(());
        }
        loop {
            self.progress.mark_unchanged();
            if self.send_rows().await?.is_err() {
                return Ok(());
            }
            let is_over = match self.rows.feed {
                Feed::Normal => true,
                Feed::Longpoll => self.rows.sent > 0,
                Feed::Continuous | Feed::EventSource => false,
            };
            if is_over || self.rows.is_full() {
                break;
            }
            match self.wait().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(Gone) => return Ok(()),
            }
        }
        let mut out = Vec::new();
        if self.rows.feed != Feed::EventSource {
            out.extend_from_slice(if is_object { b"\n],\n\"last_seq\":" } else { b"{\"last_seq\":" });
            sequence::write(&mut out, &self.database, self.rows.position);
            out.extend_from_slice(b"}\n");
            // The feed is over either way.
            let _ = self.send(out).await;
        }
        Ok(())
    }

    async fn send_rows(&mut self) -> Result<Result<(), Gone>, Error> {
        loop {
            let (database, mut rows) = (Arc::clone(&self.database), self.rows);
            let (rows, text, more) = bridge::blocking(move || {
                let (text, more) = rows.read(&database)?;
                Ok((rows, text, more))
            })
            .await?;
            self.rows = rows;
            if !text.is_empty() && self.send(text).await.is_err() {
                return Ok(Err(Gone));
            }
            if !more {
                return Ok(Ok(()));
            }
        }
    }

    /// Waits for news, sending signs of life meanwhile. `false` when the feed is over.
    async fn wait(&mut self) -> Result<bool, Gone> {
        loop {
            let (pause, is_timeout) = match self.quiet {
                Quiet::Timeout(pause) => (pause, true),
                Quiet::Heartbeat(pause) => (pause, false),
            };
            tokio::select! {
                changed = self.progress.changed() => {
                    return Ok(changed.is_ok() && *self.progress.borrow() != Progress::Deleted);
                }
                () = until_true(&mut self.stopping) => return Ok(false),
                () = self.sender.closed() => return Err(Gone),
                () = tokio::time::sleep(pause) => {
                    if is_timeout {
                        return Ok(false);
                    }
                    let beat: &[u8] =
                        if self.rows.feed == Feed::EventSource { b"event: heartbeat\ndata: \n\n" } else { b"\n" };
                    self.send(beat.to_vec()).await?;
                }
            }
        }
    }

    async fn send(&self, text: Vec<u8>) -> Result<(), Gone> {
        self.sender.send(Ok(self.account.unsent(Bytes::from(text)))).await.map_err(|_| Gone)
    }
}
