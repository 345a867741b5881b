//! [`Link`]: one connection with its prepared statements; and [`Connector`], which makes them.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Statement};

use crate::error::Unreached;
use crate::notification::is_news;
use crate::options::Options;
use crate::sql::Sql;
use crate::tls::Tls;

/// Threads that talk to PostgreSQL. Values are copied there, and nothing is thought about.
const THREADS: usize = 2;

/// What planners must know: all reads go through the primary keys. Without it they may sort what the index has in order, and
/// plan again each time. A row that waits for a key of another commit waits for its end, which is short. A client whose machine was switched off
/// is gone after half a minute.
const SETTINGS: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; \
     SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SET default_transaction_isolation = 'read committed'; SET client_min_messages = error; SET statement_timeout = 0; SET lock_timeout = '30s'; \
     SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;";

/// A host that has taken a connection is to serve it within this time: it greets, and asks for the password.
const GREETING: Duration = Duration::from_secs(5);

/// A connection.
pub(crate) struct Link {
    pub(crate) client: Client,
    statements: Mutex<HashMap<Sql, Statement>>,
}

impl Link {
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
    /// By which this process knows its notifications.
    node: i64,
    heard: Arc<Notify>,
    tls: Tls,
    runtime: Handle,
    /// None while it is being dropped.
    threads: Option<Runtime>,
}

impl Connector {
    pub(crate) fn new(options: Options, node: i64) -> Result<Self, String> {
        let tls = Tls::new(&options.trust)?;
        let threads = Builder::new_multi_thread().worker_threads(THREADS).thread_name("postgres").enable_all().build();
        let threads = threads.map_err(|error| format!("no threads: {error}"))?;
        let (hosts, runtime) = (options.hosts(), threads.handle().clone());
        let (host, heard) = (AtomicUsize::new(0), Arc::new(Notify::new()));
        Ok(Self { options, hosts, host, node, heard, tls, runtime, threads: Some(threads) })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Wakes when others have committed, for who has a connection that listens.
    pub(crate) fn heard(&self) -> Arc<Notify> {
        Arc::clone(&self.heard)
    }

    /// A connection that uses the tables. The server ends transactions that wait for their client for longer than `idle`.
    pub(crate) async fn connect(&self, idle: Duration) -> Result<Link, Unreached> {
        let client = self.connect_plain().await?;
        let schema = &self.options.schema;
        let idle_ms = idle.as_millis();
        client
            .batch_execute(&format!(
                "{SETTINGS} SET search_path = {schema}; SET idle_in_transaction_session_timeout = {idle_ms}"
            ))
            .await?;
        Ok(Link { client, statements: Mutex::default() })
    }

    /// A connection as the server makes it, to the host that was there last, or else to another one.
    pub(crate) async fn connect_plain(&self) -> Result<Client, Unreached> {
        let last = self.host.load(Ordering::Relaxed);
        let failure = match self.connect_to(&self.hosts[last]).await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        for at in (1..self.hosts.len()).map(|step| (last + step) % self.hosts.len()) {
            if let Ok(client) = self.connect_to(&self.hosts[at]).await {
                self.host.store(at, Ordering::Relaxed);
                return Ok(client);
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, host: &Config) -> Result<Client, Unreached> {
        let limit = GREETING + host.get_connect_timeout().copied().unwrap_or_default();
        let connected = tokio::time::timeout(limit, host.connect(self.tls.clone())).await;
        let (client, mut connection) = connected.map_err(|_| Unreached::Silent(limit))??;
        let (heard, schema, node) = (self.heard(), self.options.schema.clone(), self.node);
        self.runtime.spawn(async move {
            // Its end is noticed by who uses the client.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(news) = message
                    && is_news(news.channel(), news.payload(), &schema, node)
                {
                    heard.notify_one();
                }
            }
        });
        Ok(client)
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
