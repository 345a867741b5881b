//! [`Link`]: one connection with its prepared statements; and [`Connector`], which makes them.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Statement};

use crate::error::Unreached;
use crate::notification::Heard;
use crate::options::Options;
use crate::silence::Silence;
use crate::sql::Sql;
use crate::tls::Tls;

/// Threads that talk to PostgreSQL, at most. Values are copied there, and nothing is thought about: one is enough for four processors, and with more
/// threads than work they wake each other.
const THREADS_MAX: usize = 4;
const PROCESSORS_A_THREAD: usize = 4;

/// What planners must know: all reads go through the primary keys. Without it they may sort what the index has in order, and
/// plan again each time. A row that waits for a key of another commit waits for its end, which is short. A client whose machine was switched off
/// is gone after half a minute.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET default_transaction_isolation = 'read committed'; SET client_min_messages = error; SET statement_timeout = 0; SET lock_timeout = '30s'; \
     SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;";

/// With so many statements a connection makes no more for commits of seldom shapes.
const STATEMENTS_MAX: usize = 100;

/// A host that has taken a connection is to serve it within this time: it greets, and asks for the password.
const GREETING: Duration = Duration::from_secs(5);

/// A host that does not answer for so long is not waited for alone: the others are asked as well.
const ALONE: Duration = Duration::from_millis(400);

/// The same for one that has been silent before.
const ALONE_SILENT: Duration = Duration::from_millis(100);

/// What [`Connector::look_around`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Another host is the server now.
    Elsewhere,
    /// It works on what it was asked.
    Busy,
    /// It knows of no question. The connection is lost, or it has not come to read it.
    Unasked,
}

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    statements: Mutex<HashMap<Sql, Statement>>,
    host: usize,
    task: AbortHandle,
    since: Instant,
}

/// What was connected to.
struct Connected {
    client: Client,
    host: usize,
    task: AbortHandle,
}

type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Connected, Unreached>> + Send + 'a>>;

impl Link {
    /// The place of its host among all.
    pub(crate) fn host(&self) -> usize {
        self.host
    }

    /// When it was made.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// What ends with the connection.
    pub(crate) fn task(&self) -> &AbortHandle {
        &self.task
    }

    /// A statement, which takes a trip when it is new to the connection.
    pub(crate) async fn statement(&self, sql: Sql) -> Result<Statement, Error> {
        if let Some(known) = self.statements.lock().get(&sql) {
            return Ok(known.clone());
        }
        let prepared = self.client.prepare(&sql.text()).await?;
        self.statements.lock().insert(sql, prepared.clone());
        Ok(prepared)
    }

    /// A statement that was used before.
    pub(crate) fn known(&self, sql: Sql) -> Option<Statement> {
        self.statements.lock().get(&sql).cloned()
    }

    /// Whether a statement may be made that others can do without: each takes memory in the server.
    pub(crate) fn has_room_for(&self, sql: Sql) -> bool {
        let statements = self.statements.lock();
        statements.len() < STATEMENTS_MAX || statements.contains_key(&sql)
    }

    /// Several statements, in their order.
    pub(crate) async fn statements(&self, wanted: impl Iterator<Item = Sql>) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        for sql in wanted {
            statements.push(self.statement(sql).await?);
        }
        Ok(statements)
    }
}

/// Makes connections.
pub(crate) struct Connector {
    options: Options,
    /// One for each host, of which there is one, and the place of the one that was connected to last.
    hosts: Vec<Config>,
    host: AtomicUsize,
    /// The connections that were made, with the places of their hosts.
    made: Mutex<Vec<(usize, AbortHandle)>>,
    silence: Silence,
    heard: Arc<Heard>,
    tls: Tls,
    runtime: Handle,
    /// None while it is being dropped.
    threads: Option<Runtime>,
}

impl Connector {
    pub(crate) fn new(options: Options, node: i64) -> Result<Self, String> {
        let tls = Tls::new(&options.trust)?;
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = processors.div_ceil(PROCESSORS_A_THREAD).min(THREADS_MAX);
        let threads = Builder::new_multi_thread().worker_threads(threads).thread_name("postgres").enable_all().build();
        let threads = threads.map_err(|error| format!("no threads: {error}"))?;
        let (hosts, runtime) = (options.hosts(), threads.handle().clone());
        let (host, made) = (AtomicUsize::new(0), Mutex::default());
        let heard = Arc::new(Heard::new(&options.schema, node));
        let silence = Silence::default();
        Ok(Self { options, hosts, host, made, silence, heard, tls, runtime, threads: Some(threads) })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// What others say, if one of the connections listens.
    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// A connection that uses the tables, with `settings` of its own. Nobody waits for one in silence.
    pub(crate) async fn connect(&self, settings: &str) -> Result<Link, Unreached> {
        tokio::select! {
            biased;
            () = self.silence.begun() => Err(Unreached::Swallowed),
            link = self.link(settings) => link,
        }
    }

    async fn link(&self, settings: &str) -> Result<Link, Unreached> {
        let Connected { client, host, task } = self.connect_to_any(ALONE).await?;
        let schema = &self.options.schema;
        let statements = format!("{SETTINGS} SET search_path = {schema}; {settings}");
        let set = tokio::time::timeout(GREETING, client.batch_execute(&statements)).await;
        set.map_err(|_| Unreached::Silent(GREETING))??;
        Ok(Link { client, statements: Mutex::default(), host, task, since: Instant::now() })
    }

    /// A connection as the server makes it.
    pub(crate) async fn connect_plain(&self) -> Result<Client, Unreached> {
        Ok(self.connect_to_any(ALONE).await?.client)
    }

    /// Whether nothing is answered.
    pub(crate) fn is_silent(&self) -> bool {
        self.silence.is_on()
    }

    /// Gives everything up that waits for the server, and whatever is wanted of it from now on: who asks elsewhere is served sooner.
    pub(crate) fn fall_silent(&self) {
        self.silence.begin();
        self.end_all();
    }

    /// Waits for the end of a silence: somebody answers, if only with an error.
    pub(crate) async fn listen(&self) {
        if self.is_silent() {
            drop(self.connect_to_any(ALONE_SILENT).await);
            self.silence.end();
        }
    }

    /// Looks for the server anew, because it does not answer over the connection with this name. If it is another host now, all that wait for the one
    /// before get an error, and try again there: nothing else tells them soon that a machine is gone without a word.
    pub(crate) async fn look_around(&self, name: &str) -> Result<Sight, Unreached> {
        let before = self.host.load(Ordering::Relaxed);
        let Connected { client, host, .. } = self.connect_to_any(ALONE_SILENT).await?;
        if host != before {
            self.keep_to(host);
            return Ok(Sight::Elsewhere);
        }
        let busy = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND state = 'active')";
        Ok(if client.query_one(busy, &[&name]).await?.try_get(0)? { Sight::Busy } else { Sight::Unasked })
    }

    /// Ends all connections; what waits for them gets an error.
    pub(crate) fn end_all(&self) {
        self.made.lock().drain(..).for_each(|(_, task)| task.abort());
    }

    /// Ends the connections to all other hosts.
    pub(crate) fn keep_to(&self, host: usize) {
        self.made.lock().retain(|(of, task)| {
            if *of != host {
                task.abort();
            }
            *of == host && !task.is_finished()
        });
    }

    /// Connects to the host that was there last, or else to the first other one that takes writes. They are asked after a time.
    async fn connect_to_any(&self, alone: Duration) -> Result<Connected, Unreached> {
        let last = self.host.load(Ordering::Relaxed);
        let failed = Notify::new();
        let at_last: Attempt<'_> = Box::pin(async {
            let answer = self.connect_to(last).await;
            if answer.is_err() {
                failed.notify_waiters();
            }
            answer
        });
        // They hear of a failure from before it can happen: they are polled first.
        let others = (1..self.hosts.len()).map(|step| -> Attempt<'_> {
            let at = (last + step) % self.hosts.len();
            let failed = &failed;
            Box::pin(async move {
                let _ = tokio::time::timeout(alone, failed.notified()).await;
                self.connect_to(at).await
            })
        });
        let connected = first(others.chain([at_last]).collect()).await?;
        self.host.store(connected.host, Ordering::Relaxed);
        Ok(connected)
    }

    async fn connect_to(&self, at: usize) -> Result<Connected, Unreached> {
        let host = &self.hosts[at];
        let limit = GREETING + host.get_connect_timeout().copied().unwrap_or_default();
        let connected = tokio::time::timeout(limit, host.connect(self.tls.clone())).await;
        let (client, mut connection) = connected.map_err(|_| Unreached::Silent(limit))??;
        let heard = Arc::clone(&self.heard);
        let task = self.runtime.spawn(async move {
            // Its end is noticed by who uses the client.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(said) = message {
                    heard.take(said.channel(), said.payload());
                }
            }
        });
        let task = task.abort_handle();
        let mut made = self.made.lock();
        made.retain(|(_, task)| !task.is_finished());
        made.push((at, task.clone()));
        Ok(Connected { client, host: at, task })
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Where tasks are served nobody may wait for threads; and the last one to have this may be a task of its own.
            threads.shutdown_background();
        }
    }
}

/// The first connection that is made, or the error of the last attempt.
async fn first(mut attempts: Vec<Attempt<'_>>) -> Result<Connected, Unreached> {
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

/// Sends all requests before it waits for the first answer: one trip. They are sent in their order.
pub(crate) async fn together<T>(requests: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
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
        // Answers come in the order of the requests.
        answers.push(match answer {
            Some(answer) => answer,
            None => request.await,
        });
    }
    answers
}
