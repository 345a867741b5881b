//! [`Nodes`]: membership of the processes on the same tables by heartbeats, and their claims. The time rules are those
//! of [`Membership`]. Heartbeats use a connection of their own, with the name of their node. When a process ends, for
//! any reason, the database observes the end of its connections, so that others can take its claims over when its last
//! heartbeat is 1.5 s old. A live node whose connection ends creates a new one. A node that was only unreachable for a
//! while has current information again after its next heartbeat.

use std::mem::take;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_cluster::membership::{Attempt, Membership};
use settee_storage::members::{Claim, Members, Node, NodeId};
use settee_storage::{Result, StorageError};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::Row;

use crate::block::block_on;
use crate::connect::{PostgresConnection, ServerState};
use crate::error::Failure;
use crate::nodes_sql::NodesSql;
use crate::notification::Notification;
use crate::pool::{Pool, PooledConnection};
use crate::sql::Sql;

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// A slower heartbeat starts a search for the server among all hosts.
const HEARTBEAT_DELAY_MAX: Duration = Duration::from_millis(400);

/// Duration of that search after which the server is considered unresponsive and everything sent to it lost. A server
/// that is only slow with writes accepts a new connection within milliseconds. A request at any time since the last
/// answered heartbeat waits for [`HEARTBEAT_INTERVAL`] and these two durations, in total less than two seconds.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(700);

/// A server under full load may need this time to read a request.
const READ_DELAY: Duration = Duration::from_millis(120);

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection of a slower heartbeat is considered lost, and the next heartbeat connects to the current server.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// A node with an older heartbeat is not listed as live. Only the assignment of work depends on it.
const LIVE_AGE_MAX_S: f64 = 2.0;

/// Time for which a new writer waits for commits of its predecessor before it ends their transactions.
const FENCE_DELAY_MAX: Duration = Duration::from_millis(500);
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);
const FENCE_INTERVAL: Duration = Duration::from_millis(5);

const NAME_TIMEOUT: Duration = Duration::from_secs(6);
const NAME_RETRY_INTERVAL: Duration = Duration::from_millis(100);

const HEARTBEATS_PER_SWEEP: u32 = 120;

pub(crate) struct Nodes {
    id: NodeId,
    heartbeat_pool: Arc<Pool>,
    writers: Arc<Pool>,
    /// Held while the row of this node is changed.
    heartbeat_lock: tokio::sync::Mutex<()>,
    state: Mutex<State>,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    announced: Option<(String, String)>,
    has_left: bool,
    live: Arc<[Node]>,
    writers: Arc<[(Claim, NodeId)]>,
    membership: Membership,
    connection: Option<AbortHandle>,
    is_searching: bool,
}

struct HeartbeatResponse {
    live: Vec<Node>,
    writers: Vec<(Claim, NodeId)>,
    gap: Option<Duration>,
    server: String,
}

impl State {
    fn is_connected(&self) -> bool {
        !self.is_searching && self.connection.as_ref().is_some_and(|connection| !connection.is_finished())
    }
}

impl Nodes {
    /// The process has no name yet.
    pub(crate) async fn join(id: NodeId, heartbeat_pool: Arc<Pool>, writers: Arc<Pool>) -> Result<Arc<Self>> {
        let (heartbeat_lock, state) = (tokio::sync::Mutex::new(()), Mutex::default());
        let nodes = Self { id, heartbeat_pool, writers, heartbeat_lock, state, started: Instant::now() };
        // Under full load a first connection may exceed its timeout.
        if nodes.send_heartbeat().await.is_err() {
            nodes.send_heartbeat().await?;
        }
        Ok(Arc::new(nodes))
    }

    fn runtime(&self) -> &Handle {
        self.writers.connector().runtime()
    }

    /// A node whose heartbeat is too late re-enters without claims.
    async fn send_heartbeat(&self) -> Result<()> {
        let _lock = self.heartbeat_lock.lock().await;
        if self.state.lock().has_left {
            return Ok(());
        }
        let listening = tokio::time::timeout(PROBE_TIMEOUT, self.heartbeat_pool.connector().wait_responsive()).await;
        listening.map_err(|_| timed_out().into_error())?;
        let mut held = None;
        let answer = async {
            let leased: &PooledConnection =
                held.insert(self.heartbeat_pool.acquire().await.map_err(Failure::Permanent)?);
            self.send_heartbeat_over(leased).await
        };
        let answer = tokio::time::timeout(HEARTBEAT_TIMEOUT, self.with_failure_detection(answer))
            .await
            .unwrap_or_else(|_| Err(timed_out()));
        self.state.lock().is_searching = false;
        answer.map_err(|failure| {
            held.iter().for_each(PooledConnection::set_broken);
            failure.into_error()
        })
    }

    async fn send_heartbeat_over(&self, leased: &PooledConnection) -> Result<(), Failure> {
        let [_, _, connections, _] = self.heartbeat_pool.counts();
        let sent = self.now();
        let mut answer = self.try_heartbeat(leased.link()).await?;
        let is_late = self.state.lock().membership.is_late(sent, connections, answer.gap);
        if is_late {
            self.register_again(leased.link()).await?;
            answer = self.try_heartbeat(leased.link()).await?;
        }
        let mut state = self.state.lock();
        if state.membership.record_heartbeat(sent, connections, answer.server) {
            // The former server may no longer be the primary.
            self.heartbeat_pool.connector().close_others(leased.link().host());
            state.connection = Some(leased.link().task().clone());
        }
        (state.live, state.writers) = (answer.live.into(), answer.writers.into());
        Ok(())
    }

    /// Searches for the server when the response is late. If it is another one, or has no pending request and does not
    /// read it in time, the connections are closed, and their requests are retried. If no server is found, all requests
    /// are aborted.
    async fn with_failure_detection(&self, answer: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        let mut answer = std::pin::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(HEARTBEAT_DELAY_MAX, &mut answer).await {
            return answer;
        }
        self.state.lock().is_searching = true;
        let connector = self.heartbeat_pool.connector();
        let name = connection_name(self.id);
        let searching = async {
            let search = || tokio::time::timeout(SEARCH_TIMEOUT, connector.find_server(&name));
            let mut found = search().await;
            if matches!(found, Ok(Ok(ServerState::Idle))) {
                tokio::time::sleep(READ_DELAY).await;
                found = search().await;
            }
            match found {
                Err(_) => connector.set_unresponsive(),
                Ok(Ok(ServerState::Idle)) => connector.close_all(),
                // An error is a response.
                Ok(Ok(ServerState::Moved | ServerState::Busy) | Err(_)) => {}
            }
            self.state.lock().is_searching = false;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            answer = searching => answer,
        }
    }

    async fn try_heartbeat(&self, link: &PostgresConnection) -> Result<HeartbeatResponse, Failure> {
        let statement = link.statement(Sql::Nodes(NodesSql::Heartbeat)).await?;
        let rows = link.client.query(&statement, &[&self.key()]).await?;
        let mut answer = HeartbeatResponse { live: Vec::new(), writers: Vec::new(), gap: None, server: String::new() };
        for row in &rows {
            let gap: Option<f64> = row.try_get(5)?;
            answer.gap = gap.map(|gap| Duration::try_from_secs_f64(gap).unwrap_or_default());
            answer.server = row.try_get(6)?;
            answer.writers.extend(writers(node_id(row)?, row.try_get(7)?));
            let (node, age): (Option<Node>, f64) = (node(row)?, row.try_get(4)?);
            answer.live.extend(node.filter(|node| node.id == self.id || age < LIVE_AGE_MAX_S));
        }
        answer.live.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(answer)
    }

    /// Drops all claims, here and in the database, and enters this node again.
    async fn register_again(&self, link: &PostgresConnection) -> Result<(), Failure> {
        let announced = {
            let mut state = self.state.lock();
            state.membership.drop_claims();
            state.announced.clone()
        };
        let (name, address) = announced.unzip();
        let (free, enter) = (
            link.statement(Sql::Nodes(NodesSql::ReleaseAll)).await?,
            link.statement(Sql::Nodes(NodesSql::Register)).await?,
        );
        link.client.execute(&free, &[&self.key()]).await?;
        link.client.execute(&enter, &[&self.key(), &name, &address]).await?;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn key(&self) -> Vec<u8> {
        self.id.0.to_be_bytes().to_vec()
    }

    async fn try_announce(&self, name: &str, address: &str) -> Result<bool> {
        self.writers
            .with_retries(async |link| {
                let statement = link.statement(Sql::Nodes(NodesSql::Announce)).await?;
                // Of two nodes that announce a name concurrently, the second one sees the first.
                link.client.batch_execute("BEGIN; LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE").await?;
                let count = link.client.execute(&statement, &[&self.key(), &name, &address]).await?;
                link.client.batch_execute("COMMIT").await?;
                Ok(count > 0)
            })
            .await
    }

    async fn release_claim(&self, key: &str, epoch: u64) -> Result<()> {
        let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
        self.writers
            .with_retries(async |link| {
                let statement = link.statement(Sql::Nodes(NodesSql::Release)).await?;
                link.client.execute(&statement, &[&key, &self.key(), &epoch]).await?;
                Ok(())
            })
            .await
    }

    async fn try_claim(&self, key: &str, take_over_on: Option<&str>) -> Result<Option<u64>> {
        self.writers
            .with_retries(async |link| {
                let statement = link.statement(Sql::Nodes(NodesSql::Claim)).await?;
                let row = link.client.query_opt(&statement, &[&key, &self.key(), &take_over_on]).await?;
                let epoch: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
                Ok(epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default()))
            })
            .await
    }

    /// Waits until all transactions of commits that started before this call have ended, also those of this node under
    /// an earlier claim. Ends those that take too long, because their node has probably failed.
    async fn wait_for_earlier_commits(&self) -> Result<()> {
        let now = async |link: &PostgresConnection| {
            Ok(link.client.query_one("SELECT clock_timestamp()::text", &[]).await?.try_get::<_, String>(0)?)
        };
        let now = self.writers.with_retries(now).await?;
        let started = Instant::now();
        loop {
            let is_late = started.elapsed() > FENCE_DELAY_MAX;
            let which = if is_late { NodesSql::EndEarlierCommits } else { NodesSql::EarlierCommits };
            let count = async |link: &PostgresConnection| {
                let statement = link.statement(Sql::Nodes(which)).await?;
                Ok(link.client.query_one(&statement, &[&now]).await?.try_get::<_, i64>(0)?)
            };
            if self.writers.with_retries(count).await? == 0 {
                return Ok(());
            }
            if started.elapsed() > FENCE_TIMEOUT {
                return Err(StorageError::Unreached("commits of an earlier writer do not end".to_owned()));
            }
            tokio::time::sleep(FENCE_INTERVAL).await;
        }
    }

    async fn is_alive(&self, node: NodeId) -> Result<bool> {
        self.writers
            .with_retries(async |link| {
                let statement = link.statement(Sql::Nodes(NodesSql::IsAlive)).await?;
                let id = node.0.to_be_bytes().to_vec();
                Ok(link.client.query_one(&statement, &[&id]).await?.try_get(0)?)
            })
            .await
    }

    async fn sweep(&self) -> Result<()> {
        self.writers
            .with_retries(async |link| {
                // This commit need not wait for a standby.
                let [nodes, claims] = [NodesSql::SweepNodes, NodesSql::SweepClaims].map(NodesSql::text);
                let statements = format!("BEGIN; SET LOCAL synchronous_commit TO off; {nodes}; {claims}; COMMIT");
                Ok(link.client.batch_execute(&statements).await?)
            })
            .await
    }
}

fn timed_out() -> Failure {
    Failure::Lost("PostgreSQL does not respond".to_owned())
}

/// The name of the connection for heartbeats shows other processes that this one lives.
fn connection_name(id: NodeId) -> String {
    format!("settee node {:032x}", id.0)
}

/// Heartbeats need not be durable, and a slow standby must not delay them. A node that sends none, because its machine
/// or network has failed, must have no connection when claims are checked 1.5 s later: PostgreSQL 14 and later ends
/// idle connections, not counting the time for which the server itself is slow; otherwise TCP keepalives do so a little
/// later.
pub(crate) fn settings(id: NodeId) -> String {
    format!(
        "SET application_name = '{}'; SET synchronous_commit = off; \
         SET tcp_keepalives_idle = 1; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 1; \
         SELECT set_config(name, '1400', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
        connection_name(id)
    )
}

/// [`Members::fence`] finds the transactions of commits by the name of their connections.
pub(crate) fn writer_settings(id: NodeId) -> String {
    format!("SET application_name = 'settee writer {:032x}';", id.0)
}

fn node(row: &Row) -> Result<Option<Node>, Failure> {
    let (name, address): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
    let started: i64 = row.try_get(3)?;
    let (Some(name), Some(address)) = (name, address) else { return Ok(None) };
    Ok(Some(Node { id: node_id(row)?, name, address, started_ms: u64::try_from(started).unwrap_or_default() }))
}

fn node_id(row: &Row) -> Result<NodeId, Failure> {
    let id: &[u8] = row.try_get(0)?;
    let id = id.try_into().map(u128::from_be_bytes);
    id.map(NodeId).map_err(|_| Failure::Permanent(StorageError::Corrupt("a node has no id".to_owned())))
}

fn writers(node: NodeId, claims: Option<&str>) -> impl Iterator<Item = (Claim, NodeId)> {
    let claims = claims.unwrap_or_default().split(',').filter_map(|claim| claim.split_once(' '));
    claims.filter_map(move |(key, epoch)| Some((Claim { key: key.to_owned(), epoch: epoch.parse().ok()? }, node)))
}

pub(crate) async fn send_heartbeats(nodes: Weak<Nodes>) {
    let mut count = 0_u32;
    loop {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        let Some(nodes) = nodes.upgrade() else { return };
        count = count.wrapping_add(1);
        // A lost connection is replaced at once. A holder detects the loss of claims after the error; expired rows can
        // be removed later.
        let is_sent = nodes.send_heartbeat().await.is_ok() || nodes.send_heartbeat().await.is_ok();
        if is_sent && count % HEARTBEATS_PER_SWEEP == 1 {
            // Heartbeats must not wait for anything else.
            tokio::spawn(async move { nodes.sweep().await });
        }
    }
}

impl Members for Nodes {
    fn this(&self) -> NodeId {
        self.id
    }

    fn announce(&self, name: &str, address: &str) -> Result<()> {
        block_on(self.runtime(), async {
            let has_left = take(&mut self.state.lock().has_left);
            if has_left {
                self.send_heartbeat().await?;
            }
            let started = Instant::now();
            while !self.try_announce(name, address).await? {
                if started.elapsed() > NAME_TIMEOUT {
                    return Err(StorageError::Io(format!("another live node on this database has the name {name}")));
                }
                tokio::time::sleep(NAME_RETRY_INTERVAL).await;
            }
            self.state.lock().announced = Some((name.to_owned(), address.to_owned()));
            self.send_heartbeat().await
        })
    }

    fn leave(&self) -> Result<()> {
        block_on(self.runtime(), async {
            let _lock = self.heartbeat_lock.lock().await;
            {
                let mut state = self.state.lock();
                state.membership.drop_claims();
                (state.has_left, state.announced) = (true, None);
                state.live = Arc::default();
            }
            self.writers
                .with_retries(async |link| {
                    for which in [NodesSql::ReleaseAll, NodesSql::Leave] {
                        let statement = link.statement(Sql::Nodes(which)).await?;
                        link.client.execute(&statement, &[&self.key()]).await?;
                    }
                    Ok(())
                })
                .await
        })
    }

    fn live(&self) -> Arc<[Node]> {
        Arc::clone(&self.state.lock().live)
    }

    fn is_gone(&self, node: NodeId) -> Result<bool> {
        block_on(self.runtime(), self.is_alive(node)).map(|is_alive| !is_alive)
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        let attempt = {
            let state = self.state.lock();
            state.membership.claim(self.now(), state.is_connected())
        };
        let Some(Attempt { generation, take_over_on }) = attempt else { return Ok(None) };
        let claimed = block_on(self.runtime(), self.try_claim(key, take_over_on.as_deref()))?;
        let Some(epoch) = claimed else { return Ok(None) };
        let claim = Claim { key: key.to_owned(), epoch };
        let is_held = {
            let mut state = self.state.lock();
            let is_connected = state.is_connected();
            state.membership.claimed(self.now(), is_connected, &claim, generation)
        };
        if is_held {
            return Ok(Some(claim));
        }
        block_on(self.runtime(), self.release_claim(key, epoch))?;
        Ok(None)
    }

    fn holds(&self, claim: &Claim) -> bool {
        let state = self.state.lock();
        state.membership.holds(self.now(), state.is_connected(), claim)
    }

    fn is_exclusive(&self, claim: &Claim) -> bool {
        self.state.lock().membership.is_exclusive(self.now(), claim)
    }

    fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        Arc::clone(&self.state.lock().writers)
    }

    fn refresh(&self) -> Result<()> {
        block_on(self.runtime(), self.send_heartbeat())
    }

    fn fence(&self, _claim: &Claim) -> Result<()> {
        block_on(self.runtime(), self.wait_for_earlier_commits())
    }

    fn release(&self, claim: &Claim) -> Result<()> {
        if !self.state.lock().membership.release(claim) {
            return Ok(());
        }
        self.writers.connector().notifications().clear_waiters(&claim.key);
        block_on(self.runtime(), self.release_claim(&claim.key, claim.epoch))
    }

    fn announce_wait(&self, key: &str) -> Result<()> {
        let notifications = self.writers.connector().notifications();
        let notify = async || {
            self.writers
                .with_retries(async |link| Ok(notifications.send(link, Notification::Awaited(key)).await?))
                .await
        };
        block_on(self.runtime(), notify())
    }

    fn is_awaited(&self, claim: &Claim) -> bool {
        self.writers.connector().notifications().is_awaited(&claim.key)
    }
}
