//! [`Nodes`]: membership of the processes on the same tables by heartbeats, and their claims.
//!
//! The clock of the database determines the age of heartbeats. A claim is valid while the heartbeat of its node is
//! younger than [`HEARTBEAT_EXPIRY`]. The node itself measures, by its own clock, from the time at which it *sent* the
//! last heartbeat that arrived, and considers its claims lost after [`CLAIM_TIMEOUT`].
//!
//! Heartbeats use a connection of their own, with the name of their node. When a process ends, for any reason, the
//! database observes the end of its connections, so that others can take its claims over when its last heartbeat is 1.5
//! s old. A live node whose connection ends creates a new one; if that takes longer than [`DISCONNECTED_CLAIM_TIMEOUT`]
//! it has lost its claims.
//!
//! Hence no claim is taken over while its holder considers it valid, unless the database loses heartbeats, its clock
//! jumps, as after a promotion, or it ends a connection without the node observing that. Claims only assign work, so
//! this costs duplicate work at worst. When the server is another one, or was restarted, every node has
//! [`HEARTBEAT_EXPIRY`] to send a heartbeat before its claims are taken over, and it detects the gap. A node that was
//! only unreachable for a while has current information again after its next heartbeat.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::members::{Claim, Members, Node, NodeId};
use settee_storage::{Result, StorageError};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_postgres::Row;

use crate::block::block_on;
use crate::connect::{Link, ServerState};
use crate::error::Failure;
use crate::nodes_sql::NodesSql;
use crate::notification::Notification;
use crate::pool::{Leased, Pool};
use crate::sql::Sql;

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Duration of a heartbeat after which the server is searched for among all hosts.
const HEARTBEAT_DELAY_MAX: Duration = Duration::from_millis(400);

/// Duration of that search after which the server is considered unresponsive and everything sent to it lost. A server
/// that is only slow with writes accepts a new connection within milliseconds. A request at any time since the last
/// answered heartbeat waits for [`HEARTBEAT_INTERVAL`] and these two durations, in total less than two seconds.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(700);

/// Time that a server under full load may need to read a request.
const READ_DELAY: Duration = Duration::from_millis(120);

/// As [`SEARCH_TIMEOUT`], once the server is unresponsive.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of a heartbeat, after which its connection is considered lost and the next heartbeat connects to the current
/// server.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// Age of a heartbeat after which a node is not listed as live. Only the assignment of work depends on it.
const LIVE_AGE_MAX_S: f64 = 2.0;

/// Time after which a node whose heartbeats do not arrive considers its claims lost; the statements define when others
/// may take them over.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(4);
const HEARTBEAT_EXPIRY: Duration = Duration::from_secs(5);

/// The same while it has no connection for heartbeats; the statements use 1.5 s.
const DISCONNECTED_CLAIM_TIMEOUT: Duration = Duration::from_millis(1200);

/// Time for which a restarted node waits for the expiry of its predecessor, which has its name.
const NAME_TIMEOUT: Duration = Duration::from_secs(6);
const NAME_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Number of heartbeats between two removals of expired rows.
const HEARTBEATS_PER_SWEEP: u32 = 120;

pub(crate) struct Nodes {
    id: NodeId,
    heartbeat_pool: Arc<Pool>,
    writers: Arc<Pool>,
    /// Held while the row of this node is changed.
    heartbeat_lock: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    announced: Option<(String, String)>,
    has_left: bool,
    live: Arc<[Node]>,
    /// Time at which the last heartbeat that arrived was sent, unless claims were lost since.
    last_heartbeat: Option<Instant>,
    /// Time from which on claims of others may be taken over.
    takeover_from: Option<Instant>,
    /// Start time of the server of the last heartbeat, in its notation. It identifies a server process.
    server: String,
    connections: u64,
    connection: Option<AbortHandle>,
    /// True while the server is searched for.
    is_searching: bool,
    /// Incremented whenever claims are lost.
    claim_generation: u64,
    claims: HashMap<String, u64>,
}

struct HeartbeatResponse {
    live: Vec<Node>,
    /// Time since the previous heartbeat, if there was one.
    gap: Option<Duration>,
    server: String,
}

impl State {
    fn has_recent_heartbeat(&self) -> bool {
        let is_connected = self.connection.as_ref().is_some_and(|connection| !connection.is_finished());
        let limit = if is_connected && !self.is_searching { CLAIM_TIMEOUT } else { DISCONNECTED_CLAIM_TIMEOUT };
        self.last_heartbeat.is_some_and(|last_heartbeat| last_heartbeat.elapsed() < limit)
    }

    fn lose_claims(&mut self) {
        self.claims.clear();
        self.claim_generation += 1;
        (self.last_heartbeat, self.takeover_from) = (None, None);
    }
}

impl Nodes {
    /// Enters this process without a name.
    pub(crate) async fn join(id: NodeId, heartbeat_pool: Arc<Pool>, writers: Arc<Pool>) -> Result<Arc<Self>> {
        let (heartbeat_lock, state) = (tokio::sync::Mutex::new(()), Mutex::default());
        let nodes = Self { id, heartbeat_pool, writers, heartbeat_lock, state };
        // Under full load a first connection may exceed its timeout.
        if nodes.send_heartbeat().await.is_err() {
            nodes.send_heartbeat().await?;
        }
        Ok(Arc::new(nodes))
    }

    fn runtime(&self) -> &Handle {
        self.writers.connector().runtime()
    }

    /// Sends a heartbeat. If it was too late this node re-enters without claims.
    async fn send_heartbeat(&self) -> Result<()> {
        let _lock = self.heartbeat_lock.lock().await;
        if self.state.lock().has_left {
            return Ok(());
        }
        let listening = tokio::time::timeout(PROBE_TIMEOUT, self.heartbeat_pool.connector().wait_responsive()).await;
        listening.map_err(|_| timed_out().into_error())?;
        let mut held = None;
        let answer = async {
            let leased: &Leased = held.insert(self.heartbeat_pool.acquire().await.map_err(Failure::Permanent)?);
            self.send_heartbeat_over(leased).await
        };
        let answer = tokio::time::timeout(HEARTBEAT_TIMEOUT, self.with_failure_detection(answer))
            .await
            .unwrap_or_else(|_| Err(timed_out()));
        self.state.lock().is_searching = false;
        answer.map_err(|failure| {
            held.iter().for_each(Leased::set_broken);
            failure.into_error()
        })
    }

    async fn send_heartbeat_over(&self, leased: &Leased) -> Result<(), Failure> {
        let [_, _, connections, _] = self.heartbeat_pool.counts();
        let sent = Instant::now();
        let mut answer = self.try_heartbeat(leased.link()).await?;
        let (is_late, before) = {
            let state = self.state.lock();
            let limit = if state.connections == connections { CLAIM_TIMEOUT } else { DISCONNECTED_CLAIM_TIMEOUT };
            let is_overdue = state
                .last_heartbeat
                .is_none_or(|last_heartbeat| sent.saturating_duration_since(last_heartbeat) >= limit);
            (is_overdue || answer.gap.is_none_or(|gap| gap >= limit), state.connections)
        };
        if is_late {
            self.rejoin(leased.link()).await?;
            answer = self.try_heartbeat(leased.link()).await?;
        }
        let mut state = self.state.lock();
        if before != connections {
            // The former server may no longer be the primary.
            self.heartbeat_pool.connector().close_others(leased.link().host());
            state.connections = connections;
            state.connection = Some(leased.link().task().clone());
        }
        state.last_heartbeat = Some(sent);
        // Another server may have older heartbeats, of this node and of others. A node that has just started cannot
        // detect another server: if it was replaced just before, some work is done twice.
        let is_another = state.server != answer.server;
        if is_another {
            state.takeover_from = None;
            state.server = answer.server;
        }
        state.takeover_from.get_or_insert(if is_another && before != 0 { sent + HEARTBEAT_EXPIRY } else { sent });
        state.live = answer.live.into();
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

    async fn try_heartbeat(&self, link: &Link) -> Result<HeartbeatResponse, Failure> {
        let statement = link.statement(Sql::Nodes(NodesSql::Heartbeat)).await?;
        let rows = link.client.query(&statement, &[&self.key()]).await?;
        let mut answer = HeartbeatResponse { live: Vec::new(), gap: None, server: String::new() };
        for row in &rows {
            let gap: Option<f64> = row.try_get(5)?;
            // A gap is meaningless if the clock was set back.
            answer.gap = gap.map(|gap| Duration::try_from_secs_f64(gap).unwrap_or_default());
            answer.server = row.try_get(6)?;
            let (node, age): (Option<Node>, f64) = (node(row)?, row.try_get(4)?);
            answer.live.extend(node.filter(|node| node.id == self.id || age < LIVE_AGE_MAX_S));
        }
        answer.live.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(answer)
    }

    /// Drops all claims, here and in the database, and enters this node again.
    async fn rejoin(&self, link: &Link) -> Result<(), Failure> {
        let announced = {
            let mut state = self.state.lock();
            state.lose_claims();
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

    fn key(&self) -> Vec<u8> {
        self.id.0.to_be_bytes().to_vec()
    }

    /// Announces the name and returns true if it was available.
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

    /// Returns the epoch of the claim if this node holds it now.
    async fn try_claim(&self, key: &str, may_take_over: bool) -> Result<Option<u64>> {
        self.writers
            .with_retries(async |link| {
                let statement = link.statement(Sql::Nodes(NodesSql::Claim)).await?;
                let row = link.client.query_opt(&statement, &[&key, &self.key(), &may_take_over]).await?;
                let epoch: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
                Ok(epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default()))
            })
            .await
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

/// Failure of a heartbeat without a response.
fn timed_out() -> Failure {
    Failure::Lost("PostgreSQL does not respond".to_owned())
}

/// Returns the name of the connection for heartbeats, by which others detect that the process lives.
fn connection_name(id: NodeId) -> String {
    format!("settee node {:032x}", id.0)
}

/// Returns the settings of connections for heartbeats. Heartbeats need not be durable, and a slow standby must not
/// delay them. A node that sends none, because its machine or network has failed, must have no connection when claims
/// are checked 1.5 s later: PostgreSQL 14 and later ends idle connections, not counting the time for which the server
/// itself is slow; otherwise TCP keepalives do so a little later.
pub(crate) fn settings(id: NodeId) -> String {
    format!(
        "SET application_name = '{}'; SET synchronous_commit = off; \
         SET tcp_keepalives_idle = 1; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 1; \
         SELECT set_config(name, '1400', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
        connection_name(id)
    )
}

/// Decodes a row of [`NodesSql::Heartbeat`], if the node has a name.
fn node(row: &Row) -> Result<Option<Node>, Failure> {
    let (id, name, address): (&[u8], Option<String>, Option<String>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let started: i64 = row.try_get(3)?;
    let id = id.try_into().map(u128::from_be_bytes);
    let id = id.map_err(|_| Failure::Permanent(StorageError::Corrupt("a node has no id".to_owned())))?;
    let (Some(name), Some(address)) = (name, address) else { return Ok(None) };
    Ok(Some(Node { id: NodeId(id), name, address, started_ms: u64::try_from(started).unwrap_or_default() }))
}

pub(crate) async fn send_heartbeats(nodes: Weak<Nodes>) {
    let mut count = 0_u32;
    loop {
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        // The engine ends when its last user drops it.
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
                state.lose_claims();
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
        let claim = |epoch| Some(Claim { key: key.to_owned(), epoch });
        let (claim_generation, may_take_over) = {
            let state = self.state.lock();
            if !state.has_recent_heartbeat() {
                return Ok(None);
            }
            if let Some(epoch) = state.claims.get(key) {
                return Ok(claim(*epoch));
            }
            (state.claim_generation, state.takeover_from.is_some_and(|from| from <= Instant::now()))
        };
        let Some(epoch) = block_on(self.runtime(), self.try_claim(key, may_take_over))? else { return Ok(None) };
        {
            let mut state = self.state.lock();
            if state.claim_generation == claim_generation && state.has_recent_heartbeat() {
                state.claims.insert(key.to_owned(), epoch);
                return Ok(claim(epoch));
            }
        }
        block_on(self.runtime(), self.release_claim(key, epoch))?;
        Ok(None)
    }

    fn holds(&self, claim: &Claim) -> bool {
        let state = self.state.lock();
        state.has_recent_heartbeat() && state.claims.get(&claim.key) == Some(&claim.epoch)
    }

    fn release(&self, claim: &Claim) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.claims.get(&claim.key) != Some(&claim.epoch) {
                return Ok(());
            }
            state.claims.remove(&claim.key);
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
