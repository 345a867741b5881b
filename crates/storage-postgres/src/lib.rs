//! [`PostgresEngine`]: the engine on PostgreSQL, for servers whose data must survive the loss of any machine.
//!
//! Keyspaces are tables of keys and values, and a commit is a transaction that starts with a row in the table of
//! commits: its primary key, shard and version, is the fence. A snapshot is a transaction as well, on a connection that
//! it keeps until another caller needs it (the module `lease`). The interface is synchronous; connections are served by
//! threads of this crate. The crate does not interpret entries.
//!
//! Any number of processes can use the same tables concurrently. The primary key of the commits is sufficient for
//! correctness. Commits of other processes are observed by the module `follow`; membership is implemented by the module
//! `nodes`.

mod block;
mod commit;
mod connect;
mod cursor;
mod error;
mod fence;
mod follow;
mod joint;
mod keys;
mod lease;
mod line;
mod nodes;
mod nodes_sql;
mod notification;
mod options;
mod page;
mod pieces;
mod pool;
mod restore;
mod schema;
mod shape;
mod silence;
mod size;
mod snapshot;
mod sql;
mod sweep;
mod tls;
mod writable;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settee_storage::{
    Batch, CommitListener, CommitToken, Durability, Engine, Keyspace, Members, Outcome, ReadSet, Request, Result,
    Shard, ShardLock, ShardState, Snapshot, StorageError, Version, members::NodeId,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use block::block_on;
use commit::Commit;
use connect::Connector;
use error::Failure;
use follow::Follower;
use joint::Joint;
use lease::number;
use line::Line;
use nodes::Nodes;
pub use options::{CONNECTIONS, CONNECTIONS_MIN, Options};
use pool::Pool;
pub use schema::{Tables, VERSION};
use size::Sizes;
use snapshot::PostgresSnapshot;
use sql::Sql;
use writable::Refusal;

/// Divisor: a quarter of all connections is reserved for commits, so that readers cannot block writers.
const WRITERS: usize = 4;

/// Connections for observing commits and for heartbeats.
const OWN: usize = 2;

/// The server ends a reading transaction that is idle for this time. A reader with a slow client loses its connection
/// long before.
const IDLE_READER: Duration = Duration::from_secs(600);

/// The server ends a writing transaction that is idle for this time. A writer sends all statements at once, so other
/// writers of the shard wait at most this long if its machine or network fails in between.
const IDLE_WRITER: Duration = Duration::from_secs(1);

/// Reason why a database cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// No server answers.
    #[error("PostgreSQL cannot be reached ({place}): {text}")]
    Unreachable {
        /// Location of the database.
        place: String,
        /// Reason.
        text: String,
    },
    /// The role lacks a privilege.
    #[error(
        "PostgreSQL denies a privilege ({place}): {text}\nThe role must be able to log in and have CREATE on the database, or own \
         the schema. An administrator creates the tables for a role with: settee storage init URL --owner ROLE"
    )]
    Rights {
        /// Location of the database.
        place: String,
        /// Message of the server.
        text: String,
    },
    /// The statements failed.
    #[error("the tables cannot be used ({place}): {text}")]
    Failed {
        /// Location of the database.
        place: String,
        /// Message of the server.
        text: String,
    },
    /// The schema contains other tables.
    #[error("the schema {0} holds tables that are not Settee's; choose another one with ?schema=NAME in the URL")]
    ForeignSchema(String),
    /// The tables have another version.
    #[error(
        "the tables have version {found}, made by {made_by}, and this program requires version {known}: start a matching program"
    )]
    OtherVersion {
        /// Version of the tables.
        found: i32,
        /// Program that created them.
        made_by: String,
        /// Version of this program.
        known: i32,
    },
    /// The data have a later layout than this program supports.
    #[error(
        "the data have layout {found}, and this program supports {known} at most: start the version that wrote them, or a newer one"
    )]
    LaterLayout {
        /// Layout of the data.
        found: i64,
        /// Layout of this program.
        known: i64,
    },
    /// PostgreSQL is too old.
    #[error("PostgreSQL {found} is too old: at least {wanted} is required")]
    OldServer {
        /// Version of the server.
        found: i32,
        /// Required version.
        wanted: i32,
    },
    /// A server of version 1, which does not support several processes, uses the database.
    #[error("a server of an earlier version uses these tables ({0}): stop it first")]
    EarlierServer(String),
}

/// An engine on a schema of a PostgreSQL database.
pub struct PostgresEngine {
    connector: Arc<Connector>,
    readers: Arc<Pool>,
    writers: Arc<Pool>,
    follower: Arc<Follower>,
    nodes: Arc<Nodes>,
    line: Arc<Line>,
    joint: Arc<Joint>,
    /// Identifies the commits of this process.
    node: i64,
    sizes: Sizes,
    /// Notified when a shard was dropped.
    dropped: Arc<Notify>,
    /// Reason why the server has rejected writes.
    refusal: Refusal,
    commits: AtomicU64,
    conflicts: AtomicU64,
    written: AtomicU64,
}

/// Creates the tables, and assigns them to `owner` if that is not the role of the URL.
///
/// # Errors
/// If the tables do not exist afterwards.
pub fn init(options: &Options, owner: Option<&str>) -> Result<Tables, OpenError> {
    let connector = Connector::new(options.clone(), 0).map_err(OpenError::Settings)?;
    block_on(connector.runtime(), provide(&connector, owner))
}

async fn provide(connector: &Connector, owner: Option<&str>) -> Result<Tables, OpenError> {
    let options = connector.options();
    let client = connector.connect_plain().await.map_err(|error| schema::unreached(&error, options))?;
    schema::provide(&client, options, owner).await
}

/// Reads the value of a short key without side effects: creates no tables, and does not join the membership.
///
/// # Errors
/// If the database cannot be used.
pub fn look_up(options: &Options, shard: Shard, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
    let connector = Connector::new(options.clone(), 0).map_err(OpenError::Settings)?;
    block_on(connector.runtime(), async {
        let client = connector.connect_plain().await.map_err(|error| schema::unreached(&error, options))?;
        schema::read(&client, options, (shard, space, key)).await
    })
}

impl PostgresEngine {
    /// Connects, and creates the tables if there are none. The `id` must be unique among all processes ever: it
    /// identifies commits and claims.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub fn open(options: &Options, id: [u8; 16]) -> Result<Self, OpenError> {
        let number = u128::from_be_bytes(id);
        // Half of it is unique as well, and saves space in each commit.
        let node = i64::from_be_bytes(number.to_be_bytes()[8..].try_into().unwrap_or_default());
        let connector = Connector::new(options.clone(), node).map_err(OpenError::Settings)?;
        let connector = Arc::new(connector);
        let runtime = connector.runtime().clone();
        let connections = options.connections.max(CONNECTIONS_MIN) - OWN;
        // The server ends transactions that are idle for longer.
        let idle = |idle: Duration| format!("SET idle_in_transaction_session_timeout = {};", idle.as_millis());
        let pool = |size, settings| Pool::new(Arc::clone(&connector), size, settings);
        let writers = pool(connections / WRITERS, idle(IDLE_WRITER));
        let readers = pool(connections - connections / WRITERS, idle(IDLE_READER));
        let (follower, nodes) = block_on(&runtime, async {
            let client = connector.connect_plain().await.map_err(|error| schema::unreached(&error, options))?;
            schema::provide(&client, options, None).await?;
            schema::mark(&client, options).await?;
            let failed = |error: StorageError| OpenError::Failed { place: options.place(), text: error.to_string() };
            let follower = Follower::begin(pool(1, idle(IDLE_READER)), node).await.map_err(failed)?;
            let beats = pool(1, idle(IDLE_WRITER) + &nodes::settings(NodeId(number)));
            let nodes = Nodes::begin(NodeId(number), beats, Arc::clone(&writers)).await.map_err(failed)?;
            Ok((follower, nodes))
        })?;
        let line = Line::new(&writers, options);
        let joint = Joint::new(&writers);
        let dropped = Arc::new(Notify::new());
        runtime.spawn(sweep::sweep(Arc::downgrade(&writers), Arc::clone(&dropped)));
        runtime.spawn(follow::follow(Arc::downgrade(&follower), Arc::clone(connector.heard().committed())));
        runtime.spawn(follow::notify_others(Arc::downgrade(&follower), Arc::downgrade(&writers)));
        runtime.spawn(nodes::keep(Arc::downgrade(&nodes)));
        Ok(Self {
            connector,
            readers,
            writers,
            follower,
            nodes,
            line,
            joint,
            node,
            sizes: Sizes::default(),
            dropped,
            refusal: Refusal::default(),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    fn handle(&self) -> &Handle {
        self.connector.runtime()
    }

    /// Executes one idempotent statement.
    async fn simply(pool: &Arc<Pool>, statement: &str) -> Result<()> {
        let leased = pool.take().await?;
        leased.link().client.batch_execute(statement).await.map_err(|error| {
            leased.set_broken();
            Failure::from(error).into_error()
        })
    }

    async fn size(&self, shard: Shard) -> Result<u64, Failure> {
        let leased = self.readers.take().await.map_err(Failure::Refused)?;
        let statement = leased.link().statement(Sql::Size).await?;
        let row = leased.link().client.query_one(&statement, &[&number(shard)]).await?;
        let bytes: i64 = row.try_get(0)?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine").field("place", &self.connector.options().place()).finish_non_exhaustive()
    }
}

impl Engine for PostgresEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(PostgresSnapshot::new(Arc::clone(&self.readers), shard)))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        batch.check()?;
        let size = batch.size_bytes();
        let commit = Commit { shard, expected, token, batch, node: self.node, durability };
        let made = block_on(self.handle(), commit::commit(&self.joint, self.line.take(shard), commit));
        self.refusal.note(&made);
        let outcome = made?;
        let counter = if matches!(outcome, Outcome::Conflict(_)) { &self.conflicts } else { &self.commits };
        counter.fetch_add(1, Ordering::Relaxed);
        if !matches!(outcome, Outcome::Conflict(_)) {
            self.follower.committed(shard);
        }
        self.written.fetch_add(size as u64, Ordering::Relaxed);
        self.sizes.add(shard, size);
        Ok(outcome)
    }

    fn refuses_present(&self) -> bool {
        true
    }

    fn line_up(&self, shard: Shard, wanted: &[Request<'_>]) -> ShardLock {
        block_on(self.handle(), Line::up(&self.line, &self.writers, shard, wanted))
    }

    fn check(&self) -> Result<()> {
        self.writers.fault().map_or(Ok(()), Err)
    }

    fn health(&self) -> Result<()> {
        self.check()?;
        self.refusal.reason().map_or(Ok(()), Err)
    }

    fn maintain(&self) -> Result<()> {
        for pool in [&self.readers, &self.writers] {
            pool.maintain();
            // `check` returns the error.
            let _ = block_on(self.handle(), pool.try_again());
        }
        if self.writers.fault().is_none() && !self.connector.is_silent() {
            block_on(self.handle(), self.refusal.probe(&self.writers));
        }
        self.health()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        block_on(self.handle(), commit::drop_shard(&self.writers, shard, self.node))?;
        self.follower.committed(shard);
        self.sizes.forget(shard);
        self.dropped.notify_one();
        Ok(())
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        batch.check()?;
        block_on(self.handle(), restore::restore(&self.writers, shard, state, &batch))?;
        self.sizes.add(shard, batch.size_bytes());
        Ok(())
    }

    /// PostgreSQL reclaims space by itself, for all shards together (autovacuum).
    fn reclaim(&self, _shard: Shard) -> Result<()> {
        Ok(())
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        let begun = Instant::now();
        if let Some(bytes) = self.sizes.get(shard, begun) {
            return bytes;
        }
        let Ok(bytes) = block_on(self.handle(), self.size(shard)) else { return 0 };
        self.sizes.set(shard, bytes, begun, Instant::now());
        bytes
    }

    fn subscribe(&self, listener: CommitListener) {
        self.follower.subscribe(listener);
    }

    fn catch_up(&self) -> Result<()> {
        block_on(self.handle(), self.follower.catch_up())
    }

    fn read_set(&self, shards: &[Shard]) -> Option<ReadSet> {
        Some(self.follower.read_set(shards))
    }

    fn members(&self) -> &dyn Members {
        &*self.nodes
    }

    fn sync(&self) -> Result<()> {
        // A synced commit, which makes all preceding commits in the log durable.
        block_on(self.handle(), Self::simply(&self.writers, "UPDATE settee_schema SET synced = synced + 1"))
    }

    fn checkpoint(&self, _directory: &Path) -> Result<()> {
        Err(StorageError::Io(
            "data in PostgreSQL are copied by its own programs, such as pg_basebackup and pg_dump".to_owned(),
        ))
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let [readers, reading, made_for_reading, taken_away] = self.readers.counts();
        let [writers, writing, made_for_writing, _] = self.writers.counts();
        let [following, _, made_for_following, _] = self.follower.pool().counts();
        let [polls, heard] = self.follower.counts();
        let [shared, unfinished] = self.joint.counts();
        vec![
            ("connections", readers + writers + following + 1),
            ("connections_reading", reading),
            ("connections_writing", writing),
            ("connections_made", made_for_reading + made_for_writing + made_for_following),
            ("snapshots_interrupted", taken_away),
            ("commits", self.commits.load(Ordering::Relaxed)),
            ("commits_shared", shared),
            ("commits_unfinished", unfinished),
            ("conflicts", self.conflicts.load(Ordering::Relaxed)),
            ("polls", polls),
            ("commits_heard_of", heard),
            ("written_bytes", self.written.load(Ordering::Relaxed)),
        ]
    }
}
