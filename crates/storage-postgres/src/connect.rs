//! [`PostgresConnection`]: a connection with its prepared statements; [`Connector`]: creates connections.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Statement};

use crate::error::ConnectError;
use crate::notification::Notifications;
use crate::options::Options;
use crate::sql::Sql;
use crate::tls::Tls;
use crate::unresponsive::Unresponsive;

/// The threads only copy values: one thread suffices for four processors, and idle additional threads cost wake-ups.
const THREADS_MAX: usize = 4;
const PROCESSORS_PER_THREAD: usize = 4;

/// All reads use the primary keys. Other plans may sort rows that the index has in order, and statements may be planned
/// repeatedly. A statement that waits for a key of another commit waits until that commit ends, which is soon. The
/// server detects within half a minute that the machine of a client has failed.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET default_transaction_isolation = 'read committed'; SET client_min_messages = error; SET statement_timeout = 0; SET lock_timeout = '30s'; \
     SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;";

const STATEMENTS_MAX: usize = 100;

/// Timeout for the greeting and authentication of a host that has accepted a connection.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which other hosts are tried in addition to one that does not answer.
const FALLBACK_DELAY: Duration = Duration::from_millis(400);

const FALLBACK_DELAY_UNRESPONSIVE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    Moved,
    Busy,
    /// The server has no pending request: the connection is lost, or the request was not read yet.
    Idle,
}

pub(crate) struct PostgresConnection {
    pub(crate) client: Client,
    statements: Mutex<HashMap<Sql, Statement>>,
    host: usize,
    task: AbortHandle,
}

struct NewConnection {
    client: Client,
    host: usize,
    task: AbortHandle,
}

type Attempt<'a> = Pin<Box<dyn Future<Output = Result<NewConnection, ConnectError>> + Send + 'a>>;

impl PostgresConnection {
    pub(crate) fn host(&self) -> usize {
        self.host
    }

    pub(crate) fn task(&self) -> &AbortHandle {
        &self.task
    }

    /// Preparing the statement on this connection costs a round trip.
    pub(crate) async fn statement(&self, sql: Sql) -> Result<Statement, Error> {
        if let Some(prepared) = self.statements.lock().get(&sql) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(&sql.text()).await?;
        self.statements.lock().insert(sql, prepared.clone());
        Ok(prepared)
    }

    pub(crate) fn prepared(&self, sql: Sql) -> Option<Statement> {
        self.statements.lock().get(&sql).cloned()
    }

    /// Returns true if an optional statement may be prepared: each takes memory in the server.
    pub(crate) fn can_prepare(&self, sql: Sql) -> bool {
        let statements = self.statements.lock();
        statements.len() < STATEMENTS_MAX || statements.contains_key(&sql)
    }

    pub(crate) async fn statements(&self, wanted: impl Iterator<Item = Sql>) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        for sql in wanted {
            statements.push(self.statement(sql).await?);
        }
        Ok(statements)
    }
}

pub(crate) struct Connector {
    options: Options,
    hosts: Vec<Config>,
    host: AtomicUsize,
    connections: Mutex<Vec<(usize, AbortHandle)>>,
    unresponsive: Unresponsive,
    notifications: Arc<Notifications>,
    tls: Tls,
    runtime: Handle,
    /// `None` during the drop.
    threads: Option<Runtime>,
}

impl Connector {
    pub(crate) fn new(options: Options, node: i64) -> Result<Self, String> {
        let tls = Tls::new(&options.verification)?;
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = processors.div_ceil(PROCESSORS_PER_THREAD).min(THREADS_MAX);
        let threads = Builder::new_multi_thread().worker_threads(threads).thread_name("postgres").enable_all().build();
        let threads = threads.map_err(|error| format!("cannot start threads: {error}"))?;
        let (hosts, runtime) = (options.hosts(), threads.handle().clone());
        let (host, connections) = (AtomicUsize::new(0), Mutex::default());
        let notifications = Arc::new(Notifications::new(&options.schema, node));
        let unresponsive = Unresponsive::default();
        Ok(Self {
            options,
            hosts,
            host,
            connections,
            unresponsive,
            notifications,
            tls,
            runtime,
            threads: Some(threads),
        })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Notifications of other processes arrive only if one of the connections listens.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Connects to the tables, with additional `settings`. Fails at once while the server is unresponsive.
    pub(crate) async fn connect(&self, settings: &str) -> Result<PostgresConnection, ConnectError> {
        tokio::select! {
            biased;
            () = self.unresponsive.wait() => Err(ConnectError::Unresponsive),
            link = self.link(settings) => link,
        }
    }

    async fn link(&self, settings: &str) -> Result<PostgresConnection, ConnectError> {
        let NewConnection { client, host, task } = self.connect_to_any(FALLBACK_DELAY).await?;
        let schema = &self.options.schema;
        let statements = format!("{SETTINGS} SET search_path = {schema}; {settings}");
        let set = tokio::time::timeout(GREETING_TIMEOUT, client.batch_execute(&statements)).await;
        set.map_err(|_| ConnectError::Timeout(GREETING_TIMEOUT))??;
        Ok(PostgresConnection { client, statements: Mutex::default(), host, task })
    }

    pub(crate) async fn connect_plain(&self) -> Result<Client, ConnectError> {
        Ok(self.connect_to_any(FALLBACK_DELAY).await?.client)
    }

    pub(crate) fn is_unresponsive(&self) -> bool {
        self.unresponsive.is_set()
    }

    /// Aborts all waits for the server, and all requests from now on: their clients get a response sooner from another
    /// node.
    pub(crate) fn set_unresponsive(&self) {
        self.unresponsive.set();
        self.close_all();
    }

    /// Waits until the server responds again, even with an error.
    pub(crate) async fn wait_responsive(&self) {
        if self.is_unresponsive() {
            drop(self.connect_to_any(FALLBACK_DELAY_UNRESPONSIVE).await);
            self.unresponsive.clear();
        }
    }

    /// Searches for the server because the connection with this name does not respond. If it is another host now, all
    /// requests to the former one fail and are retried there, because otherwise the loss of a machine is detected only
    /// after a TCP timeout.
    pub(crate) async fn find_server(&self, name: &str) -> Result<ServerState, ConnectError> {
        let before = self.host.load(Ordering::Relaxed);
        let NewConnection { client, host, .. } = self.connect_to_any(FALLBACK_DELAY_UNRESPONSIVE).await?;
        if host != before {
            self.close_others(host);
            return Ok(ServerState::Moved);
        }
        let busy = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND state = 'active')";
        Ok(if client.query_one(busy, &[&name]).await?.try_get(0)? { ServerState::Busy } else { ServerState::Idle })
    }

    pub(crate) fn close_all(&self) {
        self.connections.lock().drain(..).for_each(|(_, task)| task.abort());
    }

    pub(crate) fn close_others(&self, host: usize) {
        self.connections.lock().retain(|(of, task)| {
            if *of != host {
                task.abort();
            }
            *of == host && !task.is_finished()
        });
    }

    /// Connects to the most recent host, or else to the first other one that accepts writes. Other hosts are tried
    /// after a delay.
    async fn connect_to_any(&self, fallback_delay: Duration) -> Result<NewConnection, ConnectError> {
        let last = self.host.load(Ordering::Relaxed);
        let failed = Notify::new();
        let last_host: Attempt<'_> = Box::pin(async {
            let answer = self.connect_to(last).await;
            if answer.is_err() {
                failed.notify_waiters();
            }
            answer
        });
        // Polled before the attempt at the last host, so that they observe its failure.
        let others = (1..self.hosts.len()).map(|step| -> Attempt<'_> {
            let at = (last + step) % self.hosts.len();
            let failed = &failed;
            Box::pin(async move {
                let _ = tokio::time::timeout(fallback_delay, failed.notified()).await;
                self.connect_to(at).await
            })
        });
        let connected = first_connected(others.chain([last_host]).collect()).await?;
        self.host.store(connected.host, Ordering::Relaxed);
        Ok(connected)
    }

    async fn connect_to(&self, at: usize) -> Result<NewConnection, ConnectError> {
        let host = &self.hosts[at];
        let limit = GREETING_TIMEOUT + host.get_connect_timeout().copied().unwrap_or_default();
        let connected = tokio::time::timeout(limit, host.connect(self.tls.clone())).await;
        let (client, mut connection) = connected.map_err(|_| ConnectError::Timeout(limit))??;
        let notifications = Arc::clone(&self.notifications);
        let task = self.runtime.spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message {
                    notifications.receive(notification.channel(), notification.payload());
                }
            }
        });
        let task = task.abort_handle();
        let mut connections = self.connections.lock();
        connections.retain(|(_, task)| !task.is_finished());
        connections.push((at, task.clone()));
        Ok(NewConnection { client, host: at, task })
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // A thread that serves tasks must not block on the end of threads, and the last owner of this may be a task
            // on one of them.
            threads.shutdown_background();
        }
    }
}

async fn first_connected(mut attempts: Vec<Attempt<'_>>) -> Result<NewConnection, ConnectError> {
    poll_fn(|context| {
        let mut at = 0;
        while at < attempts.len() {
            match attempts[at].as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(Err(_)) if attempts.len() > 1 => drop(attempts.remove(at)),
                Poll::Ready(answer) => return Poll::Ready(answer),
            }
        }
        Poll::Pending
    })
    .await
}

/// Sends all requests, in order, before it waits for the first response: one round trip.
pub(crate) async fn pipelined<T>(requests: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
    let mut waiting: Vec<_> = requests.into_iter().map(|request| (request, None)).collect();
    poll_fn(|context| {
        for (request, answer) in &mut waiting {
            if let Poll::Ready(ready) = request.as_mut().poll(context) {
                *answer = Some(ready);
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut answers = Vec::with_capacity(waiting.len());
    for (request, answer) in waiting {
        answers.push(match answer {
            Some(answer) => answer,
            None => request.await,
        });
    }
    answers
}
