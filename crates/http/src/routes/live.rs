//! [`Listener`]: the client of a feed, and the bytes that show it that the feed lives: heartbeats while the feed waits for changes, and
//! while it works without finding any. The rows are up to the feed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use settee_service::Progress;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Error;
use crate::budget::Account;
use crate::params::changes::{Feed, Quiet};
use crate::respond::Aborted;
use crate::shutdown::until_true;

/// Shortest interval of heartbeats while a feed works: a `timeout` may be zero.
const MIN_BEAT: Duration = Duration::from_millis(10);

/// Longest time without a byte of a normal feed that works, as in CouchDB.
const NORMAL_BEAT: Duration = Duration::from_secs(5);

/// The client of a feed.
pub(super) struct Listener {
    account: Arc<Account>,
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    progress: watch::Receiver<Progress>,
    stopping: watch::Receiver<bool>,
    feed: Feed,
    quiet: Quiet,
    /// The text before the first rows.
    prefix: &'static [u8],
    /// Notified when there is something to send, or of an error before that.
    begun: Option<oneshot::Sender<Result<(), Error>>>,
    /// The time of the last byte.
    sent: Instant,
}

/// What feeds are notified of.
pub(super) struct Signals {
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// The answer of a feed: whether it starts, then its body.
pub(super) struct Beginning {
    begun: oneshot::Receiver<Result<(), Error>>,
    receiver: mpsc::Receiver<Result<Bytes, Aborted>>,
}

/// Why a feed stops waiting.
pub(super) enum Woken {
    /// There may be something to send.
    Changed,
    /// Nothing came in time, or the server or the database ends.
    End,
    /// The client has disconnected.
    Gone,
}

/// The client has disconnected.
pub(super) struct Gone;

impl Listener {
    /// A listener, and what it will receive. `pieces` may wait for a slow client.
    pub(super) fn new(
        account: Arc<Account>,
        signals: Signals,
        feed: Feed,
        quiet: Quiet,
        pieces: usize,
    ) -> (Self, Beginning) {
        let (sender, receiver) = mpsc::channel(pieces);
        let (begin, begun) = oneshot::channel();
        let prefix: &[u8] = match feed {
            Feed::Normal | Feed::Longpoll => b"{\"results\":[\n",
            Feed::Continuous | Feed::EventSource => b"",
        };
        let Signals { progress, stopping } = signals;
        let sent = Instant::now();
        let listener = Self { account, sender, progress, stopping, feed, quiet, prefix, begun: Some(begin), sent };
        (listener, Beginning { begun, receiver })
    }

    /// From now on the feed is notified of new changes.
    pub(super) fn mark_unchanged(&mut self) {
        self.progress.mark_unchanged();
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The channel to the client, for work that sends text itself.
    pub(super) fn sender(&self) -> mpsc::Sender<Result<Bytes, Aborted>> {
        self.sender.clone()
    }

    /// Waits until the client may be sent more.
    pub(super) async fn room(&self) -> Result<(), Gone> {
        tokio::select! {
            () = self.account.room() => Ok(()),
            () = self.sender.closed() => Err(Gone),
        }
    }

    /// Waits for new changes, sending heartbeats meanwhile.
    pub(super) async fn wait(&mut self) -> Woken {
        loop {
            let (pause, is_timeout) = match self.quiet {
                Quiet::Timeout(pause) => (pause, true),
                Quiet::Heartbeat(pause) => (pause, false),
            };
            tokio::select! {
                changed = self.progress.changed() => {
                    let lives = changed.is_ok() && *self.progress.borrow() != Progress::Deleted;
                    return if lives { Woken::Changed } else { Woken::End };
                }
                () = until_true(&mut self.stopping) => return Woken::End,
                () = self.sender.closed() => return Woken::Gone,
                () = tokio::time::sleep(pause) => {
                    if is_timeout {
                        return Woken::End;
                    }
                    if self.beat().await.is_err() {
                        return Woken::Gone;
                    }
                }
            }
        }
    }

    /// Waits for `work`, which finds rows, sending heartbeats meanwhile. `Gone` if the client has disconnected before: then the work
    /// is dropped.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.sender.closed() => return Err(Gone),
                () = tokio::time::sleep(self.until_beat()) => self.beat().await?,
            }
        }
    }

    /// Sends a heartbeat if one is due.
    pub(super) async fn beat_if_due(&mut self) -> Result<(), Gone> {
        if self.until_beat().is_zero() { self.beat().await } else { Ok(()) }
    }

    /// The time until the next heartbeat of a feed that works. CouchDB sends one each `timeout` where no heartbeat is asked for.
    fn until_beat(&self) -> Duration {
        let (Quiet::Timeout(pause) | Quiet::Heartbeat(pause)) = self.quiet;
        let longest = if self.feed == Feed::Normal { NORMAL_BEAT } else { Duration::MAX };
        pause.clamp(MIN_BEAT, longest).saturating_sub(self.sent.elapsed())
    }

    async fn beat(&mut self) -> Result<(), Gone> {
        let beat: &[u8] = if self.feed == Feed::EventSource { b"event: heartbeat\ndata: \n\n" } else { b"\n" };
        self.send(beat.to_vec()).await
    }

    /// Sends text, and before the first one the head of the answer and its prefix.
    pub(super) async fn send(&mut self, text: Vec<u8>) -> Result<(), Gone> {
        if let Some(begun) = self.begun.take() {
            begun.send(Ok(())).map_err(|_| Gone)?;
        }
        let prefix = std::mem::take(&mut self.prefix);
        let whole = if prefix.is_empty() { text } else { [prefix, &text].concat() };
        if whole.is_empty() {
            return Ok(());
        }
        self.sent = Instant::now();
        self.sender.send(Ok(self.account.unsent(Bytes::from(whole)))).await.map_err(|_| Gone)
    }

    /// Ends a feed with an error: the answer, if nothing was sent yet, otherwise the connection breaks.
    pub(super) async fn fail(mut self, error: Error) {
        if let Some(begun) = self.begun.take() {
            // The client may have disconnected.
            let _ = begun.send(Err(error));
            return;
        }
        tracing::warn!(name = %error.name, reason = %error.reason, "a feed broke off");
        let _ = self.sender.send(Err(Aborted)).await;
    }
}

impl Beginning {
    /// Waits until the feed has something to send, and returns its body.
    ///
    /// # Errors
    /// The error with which the feed ended before.
    pub(super) async fn body(self) -> Result<mpsc::Receiver<Result<Bytes, Aborted>>, Error> {
        self.begun.await.unwrap_or_else(|_| Err(Error::internal("the feed did not begin")))?;
        Ok(self.receiver)
    }
}
