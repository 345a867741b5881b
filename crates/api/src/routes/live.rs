//! [`Listener`]: the client of a feed, and its heartbeats, which are sent while the feed waits for changes and
//! while it works without finding rows. The feed writes the rows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use settee_edge::budget::Account;
use settee_edge::respond::Aborted;
use settee_edge::shutdown::until_true;
use settee_service::Progress;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::Error;
use crate::params::changes::{Feed, IdlePolicy};

/// Minimum interval of heartbeats while a feed works, because a `timeout` may be zero.
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

/// Maximum interval of heartbeats while a normal feed works: CouchDB's 5 s, and a margin. `os_process_timeout` is 5 s
/// by default, and a filter that exceeds it is reported as the response if no heartbeat was sent before.
const HEARTBEAT_NORMAL_MAX: Duration = Duration::from_millis(5_500);

pub(super) struct Listener {
    account: Arc<Account>,
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    progress: watch::Receiver<Progress>,
    accounts: Option<watch::Receiver<u64>>,
    stopping: watch::Receiver<bool>,
    feed: Feed,
    quiet: IdlePolicy,
    prefix: &'static [u8],
    /// Completed at the first text, or with an error before that.
    begun: Option<oneshot::Sender<Result<(), Error>>>,
    has_sent_text: bool,
    sent: Instant,
}

pub(super) struct FeedSignals {
    pub(super) progress: watch::Receiver<Progress>,
    /// Changes of accounts, if the feed depends on them.
    pub(super) accounts: Option<watch::Receiver<u64>>,
    pub(super) stopping: watch::Receiver<bool>,
}

pub(super) struct FeedStart {
    begun: oneshot::Receiver<Result<(), Error>>,
    receiver: mpsc::Receiver<Result<Bytes, Aborted>>,
}

pub(super) enum Woken {
    Changed,
    /// The timeout expired, or the server or the database ends.
    End,
    Disconnected,
}

pub(super) struct ClientDisconnected;

impl Listener {
    /// At most `pieces` are buffered for a slow client.
    pub(super) fn new(
        account: Arc<Account>,
        signals: FeedSignals,
        feed: Feed,
        quiet: IdlePolicy,
        pieces: usize,
    ) -> (Self, FeedStart) {
        let (sender, receiver) = mpsc::channel(pieces);
        let (begin, begun) = oneshot::channel();
        let prefix: &[u8] = match feed {
            Feed::Normal | Feed::Longpoll => b"{\"results\":[\n",
            Feed::Continuous | Feed::EventSource => b"",
        };
        let FeedSignals { progress, accounts, stopping } = signals;
        let sent = Instant::now();
        let listener = Self {
            account,
            sender,
            progress,
            accounts,
            stopping,
            feed,
            quiet,
            prefix,
            begun: Some(begin),
            has_sent_text: false,
            sent,
        };
        (listener, FeedStart { begun, receiver })
    }

    pub(super) fn mark_unchanged(&mut self) {
        self.progress.mark_unchanged();
        self.accounts.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    /// Returns true if rows or heartbeats were sent, except by [`Self::sender`].
    pub(super) fn has_sent_text(&self) -> bool {
        self.has_sent_text
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(super) fn sender(&self) -> mpsc::Sender<Result<Bytes, Aborted>> {
        self.sender.clone()
    }

    pub(super) async fn room(&self) -> Result<(), ClientDisconnected> {
        tokio::select! {
            () = self.account.room() => Ok(()),
            () = self.sender.closed() => Err(ClientDisconnected),
        }
    }

    pub(super) async fn wait(&mut self) -> Woken {
        loop {
            let (pause, is_timeout) = match self.quiet {
                IdlePolicy::Timeout(pause) => (pause, true),
                IdlePolicy::Heartbeat(pause) => (pause, false),
            };
            tokio::select! {
                changed = self.progress.changed() => {
                    let lives = changed.is_ok() && *self.progress.borrow() != Progress::Deleted;
                    return if lives { Woken::Changed } else { Woken::End };
                }
                () = until_changed(self.accounts.as_mut()) => return Woken::Changed,
                () = until_true(&mut self.stopping) => return Woken::End,
                () = self.sender.closed() => return Woken::Disconnected,
                () = tokio::time::sleep(pause) => {
                    if is_timeout {
                        return Woken::End;
                    }
                    if self.send_heartbeat().await.is_err() {
                        return Woken::Disconnected;
                    }
                }
            }
        }
    }

    /// Sends heartbeats while `work` runs. Returns `ClientDisconnected` and drops the work if the client disconnects.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ClientDisconnected> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.sender.closed() => return Err(ClientDisconnected),
                () = tokio::time::sleep(self.time_until_heartbeat()) => self.send_heartbeat().await?,
            }
        }
    }

    pub(super) async fn send_heartbeat_if_due(&mut self) -> Result<(), ClientDisconnected> {
        if self.time_until_heartbeat().is_zero() { self.send_heartbeat().await } else { Ok(()) }
    }

    /// Like CouchDB, a feed that works uses `timeout` as the interval if no heartbeat is requested.
    fn time_until_heartbeat(&self) -> Duration {
        let (IdlePolicy::Timeout(pause) | IdlePolicy::Heartbeat(pause)) = self.quiet;
        let longest = if self.feed == Feed::Normal { HEARTBEAT_NORMAL_MAX } else { Duration::MAX };
        pause.clamp(HEARTBEAT_MIN, longest).saturating_sub(self.sent.elapsed())
    }

    async fn send_heartbeat(&mut self) -> Result<(), ClientDisconnected> {
        let text: &[u8] = if self.feed == Feed::EventSource { b"event: heartbeat\ndata: \n\n" } else { b"\n" };
        self.send(text.to_vec()).await
    }

    /// The first text is preceded by the head of the response and the prefix.
    pub(super) async fn send(&mut self, text: Vec<u8>) -> Result<(), ClientDisconnected> {
        if let Some(begun) = self.begun.take() {
            begun.send(Ok(())).map_err(|_| ClientDisconnected)?;
        }
        self.has_sent_text |= !text.is_empty();
        let prefix = std::mem::take(&mut self.prefix);
        let whole = if prefix.is_empty() { text } else { [prefix, &text].concat() };
        if whole.is_empty() {
            return Ok(());
        }
        self.sent = Instant::now();
        self.sender.send(Ok(self.account.unsent(Bytes::from(whole)))).await.map_err(|_| ClientDisconnected)
    }

    /// The error is the response if nothing was sent yet; otherwise the connection is aborted.
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

impl FeedStart {
    /// Waits for the first text. Returns the error if the feed ended before.
    pub(super) async fn body(self) -> Result<mpsc::Receiver<Result<Bytes, Aborted>>, Error> {
        self.begun.await.unwrap_or_else(|_| Err(Error::internal("the feed did not start")))?;
        Ok(self.receiver)
    }
}

async fn until_changed(accounts: Option<&mut watch::Receiver<u64>>) {
    let Some(accounts) = accounts else { return std::future::pending().await };
    if accounts.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
