//! [`Nodes`]: the processes on the same tables, by heartbeats; and what each of them has claimed.
//!
//! Heartbeats are judged by the clock of the database. A claim is good while that of its node is younger than [`EXPIRY`]; the node itself
//! counts from when it *sent* the last one that arrived, by its own clock, and gives its claims up after [`LOST`].
//!
//! Heartbeats have a connection of their own, with the name of their node. When a process ends, however it does, the database sees its connections end,
//! and so others take its claims when its last heartbeat is 1.5 s old. A node whose connection ends while it lives makes a new one; if
//! that takes longer than [`PARTED`] it has lost its claims.
//!
//! So nobody takes a claim that another still believes to have, unless the database loses heartbeats, its clock jumps, as after a promotion, or it
//! ends a connection of which the node does not hear: claims only steer. When the server is another one, or has begun anew, every node has
//! [`EXPIRY`] to be heard of again before claims are taken from it, and it finds the gap. One that was merely out of reach for a while knows what there is to
//! know.

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
use crate::connect::{Link, Sight};
use crate::error::Failure;
use crate::nodes_sql::OfNodes;
use crate::notification::Said;
use crate::pool::{Leased, Pool};
use crate::sql::Sql;

/// Between two heartbeats.
const BEAT: Duration = Duration::from_millis(500);

/// When a heartbeat takes so long, the server is looked for among all hosts.
const SILENCE: Duration = Duration::from_millis(400);

/// Who does not find it in that time takes everything that is sent to it for lost. A new connection is made within milliseconds where the server is
/// merely slow with what it writes. Requests that come at any time since the last answered heartbeat wait for [`BEAT`] and these two: that is to be less
/// than two seconds.
const LOOK: Duration = Duration::from_millis(700);

/// A server whose processors are taken may need so long to read what it was asked.
const TO_READ: Duration = Duration::from_millis(120);

/// The same as [`LOOK`] once there is silence.
const LISTEN: Duration = Duration::from_secs(1);

/// The connection of a heartbeat that takes so long is taken for lost: the next one goes to whoever is the server then.
const LIMIT: Duration = Duration::from_secs(3);

/// Who was not heard of for so long is not shown any more. Nothing but where work is sent depends on it.
const MISSED_S: f64 = 2.0;

/// The time after which a node whose heartbeats do not arrive has no claims; the statements say when others may take them.
const LOST: Duration = Duration::from_secs(4);
const EXPIRY: Duration = Duration::from_secs(5);

/// The same while it has no connection for heartbeats; the statements say 1.5 s.
const PARTED: Duration = Duration::from_millis(1200);

/// A node that is started again waits so long for the end of the one before, which had its name.
const NAME_PATIENCE: Duration = Duration::from_secs(6);
const NAME_STEP: Duration = Duration::from_millis(100);

/// Heartbeats between two looks for what is long over.
const SWEEP: u32 = 120;

/// The nodes.
pub(crate) struct Nodes {
    id: NodeId,
    /// Of one connection.
    beats: Arc<Pool>,
    writers: Arc<Pool>,
    /// Held by who changes the row of this node.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The name and the address.
    announced: Option<(String, String)>,
    has_left: bool,
    live: Arc<[Node]>,
    /// When the last heartbeat was sent that arrived, if claims were not lost since.
    beaten: Option<Instant>,
    /// From when on claims are taken from others.
    takes_over: Option<Instant>,
    /// When the server began that the last heartbeat went to, in its own words. No two have that in common.
    server: String,
    /// The number of connections that they took, and the last one.
    connections: u64,
    connection: Option<AbortHandle>,
    /// Whether the server is looked for.
    is_in_doubt: bool,
    /// Goes up whenever claims are lost.
    life: u64,
    /// Their epochs.
    claims: HashMap<String, u64>,
}

/// What a heartbeat was answered.
struct Answer {
    live: Vec<Node>,
    /// Since the one before, if there was one.
    gap: Option<Duration>,
    server: String,
}

impl State {
    fn is_heard_of(&self) -> bool {
        let is_connected = self.connection.as_ref().is_some_and(|connection| !connection.is_finished());
        let limit = if is_connected && !self.is_in_doubt { LOST } else { PARTED };
        self.beaten.is_some_and(|beaten| beaten.elapsed() < limit)
    }

    fn lose_claims(&mut self) {
        self.claims.clear();
        self.life += 1;
        (self.beaten, self.takes_over) = (None, None);
    }
}

impl Nodes {
    /// Enters this process, which has no name yet.
    pub(crate) async fn begin(id: NodeId, beats: Arc<Pool>, writers: Arc<Pool>) -> Result<Arc<Self>> {
        let (turn, state) = (tokio::sync::Mutex::new(()), Mutex::default());
        let nodes = Self { id, beats, writers, turn, state };
        // Where processors are taken, a first connection may take so long that it is given up.
        if nodes.beat().await.is_err() {
            nodes.beat().await?;
        }
        Ok(Arc::new(nodes))
    }

    fn runtime(&self) -> &Handle {
        self.writers.connector().runtime()
    }

    /// A heartbeat. After one that came too late this node begins anew, without claims.
    async fn beat(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        if self.state.lock().has_left {
            return Ok(());
        }
        let listening = tokio::time::timeout(LISTEN, self.beats.connector().listen()).await;
        listening.map_err(|_| silent().into_error())?;
        let mut held = None;
        let answer = async {
            let leased: &Leased = held.insert(self.beats.take().await.map_err(Failure::Refused)?);
            self.beat_over(leased).await
        };
        let answer = tokio::time::timeout(LIMIT, self.watched(answer)).await.unwrap_or_else(|_| Err(silent()));
        self.state.lock().is_in_doubt = false;
        answer.map_err(|failure| {
            held.iter().for_each(Leased::set_broken);
            failure.into_error()
        })
    }

    async fn beat_over(&self, leased: &Leased) -> Result<(), Failure> {
        let [_, _, connections, _] = self.beats.counts();
        let sent = Instant::now();
        let mut answer = self.try_beat(leased.link()).await?;
        let (is_late, before) = {
            let state = self.state.lock();
            let limit = if state.connections == connections { LOST } else { PARTED };
            let own = state.beaten.is_none_or(|beaten| sent.saturating_duration_since(beaten) >= limit);
            (own || answer.gap.is_none_or(|gap| gap >= limit), state.connections)
        };
        if is_late {
            self.begin_anew(leased.link()).await?;
            answer = self.try_beat(leased.link()).await?;
        }
        let mut state = self.state.lock();
        if before != connections {
            // Whoever was the server before may be it no more.
            self.beats.connector().keep_to(leased.link().host());
            state.connections = connections;
            state.connection = Some(leased.link().task().clone());
        }
        state.beaten = Some(sent);
        // Another server may know of earlier heartbeats only, of this node and of others. Who has just begun does not know of another server: if that was
        // replaced a moment ago as well, some work is done twice.
        let is_another = state.server != answer.server;
        if is_another {
            state.takes_over = None;
            state.server = answer.server;
        }
        state.takes_over.get_or_insert(if is_another && before != 0 { sent + EXPIRY } else { sent });
        state.live = answer.live.into();
        Ok(())
    }

    /// Looks for the server when there is no answer for a while. If it is another one, or knows of no question and does not come to know of it,
    /// connections end: those who wait for them try again. If there is none, everything is given up.
    async fn watched(&self, answer: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        let mut answer = std::pin::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(SILENCE, &mut answer).await {
            return answer;
        }
        self.state.lock().is_in_doubt = true;
        let connector = self.beats.connector();
        let name = name_of(self.id);
        let looking = async {
            let look = || tokio::time::timeout(LOOK, connector.look_around(&name));
            let mut sight = look().await;
            if matches!(sight, Ok(Ok(Sight::Unasked))) {
                tokio::time::sleep(TO_READ).await;
                sight = look().await;
            }
            match sight {
                Err(_) => connector.fall_silent(),
                Ok(Ok(Sight::Unasked)) => connector.end_all(),
                // An error is an answer.
                Ok(Ok(Sight::Elsewhere | Sight::Busy) | Err(_)) => {}
            }
            self.state.lock().is_in_doubt = false;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            answer = looking => answer,
        }
    }

    async fn try_beat(&self, link: &Link) -> Result<Answer, Failure> {
        let statement = link.statement(Sql::Nodes(OfNodes::Beat)).await?;
        let rows = link.client.query(&statement, &[&self.key()]).await?;
        let mut answer = Answer { live: Vec::new(), gap: None, server: String::new() };
        for row in &rows {
            let gap: Option<f64> = row.try_get(5)?;
            // A clock that was set back tells nothing.
            answer.gap = gap.map(|gap| Duration::try_from_secs_f64(gap).unwrap_or_default());
            answer.server = row.try_get(6)?;
            let (node, age): (Option<Node>, f64) = (node(row)?, row.try_get(4)?);
            answer.live.extend(node.filter(|node| node.id == self.id || age < MISSED_S));
        }
        answer.live.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(answer)
    }

    /// Forgets all claims, here and in the database, and enters this node again.
    async fn begin_anew(&self, link: &Link) -> Result<(), Failure> {
        let announced = {
            let mut state = self.state.lock();
            state.lose_claims();
            state.announced.clone()
        };
        let (name, address) = announced.unzip();
        let (free, enter) =
            (link.statement(Sql::Nodes(OfNodes::FreeAll)).await?, link.statement(Sql::Nodes(OfNodes::Enter)).await?);
        link.client.execute(&free, &[&self.key()]).await?;
        link.client.execute(&enter, &[&self.key(), &name, &address]).await?;
        Ok(())
    }

    fn key(&self) -> Vec<u8> {
        self.id.0.to_be_bytes().to_vec()
    }

    /// Whether the name was free.
    async fn try_announce(&self, name: &str, address: &str) -> Result<bool> {
        self.writers
            .repeatedly(async |link| {
                let statement = link.statement(Sql::Nodes(OfNodes::Announce)).await?;
                // Of two who take a name at the same time, the second one sees the first.
                link.client.batch_execute("BEGIN; LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE").await?;
                let count = link.client.execute(&statement, &[&self.key(), &name, &address]).await?;
                link.client.batch_execute("COMMIT").await?;
                Ok(count > 0)
            })
            .await
    }

    async fn give_back(&self, key: &str, epoch: u64) -> Result<()> {
        let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
        self.writers
            .repeatedly(async |link| {
                let statement = link.statement(Sql::Nodes(OfNodes::Free)).await?;
                link.client.execute(&statement, &[&key, &self.key(), &epoch]).await?;
                Ok(())
            })
            .await
    }

    /// The epoch in which this node has a claim now.
    async fn try_claim(&self, key: &str, may_take_over: bool) -> Result<Option<u64>> {
        self.writers
            .repeatedly(async |link| {
                let statement = link.statement(Sql::Nodes(OfNodes::Claim)).await?;
                let row = link.client.query_opt(&statement, &[&key, &self.key(), &may_take_over]).await?;
                let epoch: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
                Ok(epoch.map(|epoch| u64::try_from(epoch).unwrap_or_default()))
            })
            .await
    }

    async fn is_heard_of(&self, node: NodeId) -> Result<bool> {
        self.writers
            .repeatedly(async |link| {
                let statement = link.statement(Sql::Nodes(OfNodes::IsHeardOf)).await?;
                let id = node.0.to_be_bytes().to_vec();
                Ok(link.client.query_one(&statement, &[&id]).await?.try_get(0)?)
            })
            .await
    }

    /// Removes what is long over.
    async fn sweep(&self) -> Result<()> {
        self.writers
            .repeatedly(async |link| {
                // Nobody needs a standby for that.
                let [nodes, claims] = [OfNodes::SweepNodes, OfNodes::SweepClaims].map(OfNodes::text);
                let statements = format!("BEGIN; SET LOCAL synchronous_commit TO off; {nodes}; {claims}; COMMIT");
                Ok(link.client.batch_execute(&statements).await?)
            })
            .await
    }
}

/// What a heartbeat without an answer means.
fn silent() -> Failure {
    Failure::Lost("PostgreSQL does not answer".to_owned())
}

/// The name of connections for heartbeats, by which others find that a process lives.
fn name_of(id: NodeId) -> String {
    format!("settee node {:032x}", id.0)
}

/// What connections for heartbeats begin with. Whether a heartbeat lasts does not matter, and a standby that is slow must not delay it. And who
/// sends none, because its machine or the way from it is gone without a word, is to have no connection when claims are looked at 1.5 s later: PostgreSQL
/// ends it where it knows how (14 and later), without counting the time for which it is itself slow; else TCP does so a little later.
pub(crate) fn settings(id: NodeId) -> String {
    format!(
        "SET application_name = '{}'; SET synchronous_commit = off; \
         SET tcp_keepalives_idle = 1; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 1; \
         SELECT set_config(name, '1400', false) FROM pg_settings WHERE name = 'idle_session_timeout'",
        name_of(id)
    )
}

/// The node of a row of [`OfNodes::Beat`], if it has a name.
fn node(row: &Row) -> Result<Option<Node>, Failure> {
    let (id, name, address): (&[u8], Option<String>, Option<String>) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let started: i64 = row.try_get(3)?;
    let id = id.try_into().map(u128::from_be_bytes);
    let id = id.map_err(|_| Failure::Refused(StorageError::Corrupt("a node has no id".to_owned())))?;
    let (Some(name), Some(address)) = (name, address) else { return Ok(None) };
    Ok(Some(Node { id: NodeId(id), name, address, started_ms: u64::try_from(started).unwrap_or_default() }))
}

/// Sends heartbeats.
pub(crate) async fn keep(nodes: Weak<Nodes>) {
    let mut beats = 0_u32;
    loop {
        tokio::time::sleep(BEAT).await;
        // The engine ends when nobody else has it.
        let Some(nodes) = nodes.upgrade() else { return };
        beats = beats.wrapping_add(1);
        // A connection that was lost is replaced at once. Whoever has a claim finds that it is lost after an error; and what is over can be removed later.
        let is_heard = nodes.beat().await.is_ok() || nodes.beat().await.is_ok();
        if is_heard && beats % SWEEP == 1 {
            // Heartbeats wait for nothing else.
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
                self.beat().await?;
            }
            let begun = Instant::now();
            while !self.try_announce(name, address).await? {
                if begun.elapsed() > NAME_PATIENCE {
                    return Err(StorageError::Io(format!("another node on this database is called {name}")));
                }
                tokio::time::sleep(NAME_STEP).await;
            }
            self.state.lock().announced = Some((name.to_owned(), address.to_owned()));
            self.beat().await
        })
    }

    fn leave(&self) -> Result<()> {
        block_on(self.runtime(), async {
            let _turn = self.turn.lock().await;
            {
                let mut state = self.state.lock();
                state.lose_claims();
                (state.has_left, state.announced) = (true, None);
                state.live = Arc::default();
            }
            self.writers
                .repeatedly(async |link| {
                    for which in [OfNodes::FreeAll, OfNodes::Leave] {
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
        block_on(self.runtime(), self.is_heard_of(node)).map(|is_heard_of| !is_heard_of)
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        let claim = |epoch| Some(Claim { key: key.to_owned(), epoch });
        let (life, may_take_over) = {
            let state = self.state.lock();
            if !state.is_heard_of() {
                return Ok(None);
            }
            if let Some(epoch) = state.claims.get(key) {
                return Ok(claim(*epoch));
            }
            (state.life, state.takes_over.is_some_and(|from| from <= Instant::now()))
        };
        let Some(epoch) = block_on(self.runtime(), self.try_claim(key, may_take_over))? else { return Ok(None) };
        {
            let mut state = self.state.lock();
            if state.life == life && state.is_heard_of() {
                state.claims.insert(key.to_owned(), epoch);
                return Ok(claim(epoch));
            }
        }
        block_on(self.runtime(), self.give_back(key, epoch))?;
        Ok(None)
    }

    fn holds(&self, claim: &Claim) -> bool {
        let state = self.state.lock();
        state.is_heard_of() && state.claims.get(&claim.key) == Some(&claim.epoch)
    }

    fn release(&self, claim: &Claim) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.claims.get(&claim.key) != Some(&claim.epoch) {
                return Ok(());
            }
            state.claims.remove(&claim.key);
        }
        self.writers.connector().heard().forget(&claim.key);
        block_on(self.runtime(), self.give_back(&claim.key, claim.epoch))
    }

    fn say_awaited(&self, key: &str) -> Result<()> {
        let heard = self.writers.connector().heard();
        let say = async || self.writers.repeatedly(async |link| Ok(heard.say(link, Said::Awaited(key)).await?)).await;
        block_on(self.runtime(), say())
    }

    fn is_awaited(&self, claim: &Claim) -> bool {
        self.writers.connector().heard().is_awaited(&claim.key)
    }
}
