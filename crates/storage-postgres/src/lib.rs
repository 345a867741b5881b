//! [`PostgresEngine`]: the engine on PostgreSQL, for servers whose data must survive the loss of any machine.
//!
//! Keyspaces are tables of keys and values, and a commit is a transaction that starts with a row in the table of
//! commits: its primary key, shard and version, is the fence. A snapshot is a transaction as well, on a connection that
//! it keeps until another caller needs it (the module `lease`). The interface is synchronous; threads of this crate
//! serve the connections.
//!
//! Any number of processes can use the same tables concurrently: the primary key of the commits is sufficient for
//! correctness. The module `observer` observes commits of other processes, and the module `nodes` implements the
//! membership.

mod block;
mod commit;
mod commit_batcher;
mod connect;
mod cursor;
mod error;
mod fence;
mod keys;
mod lease;
mod nodes;
mod nodes_sql;
mod notification;
mod observer;
mod options;
mod page;
mod pieces;
mod pool;
mod restore;
mod schema;
mod size;
mod snapshot;
mod sql;
mod statement_shape;
mod sweep;
mod tls;
mod unresponsive;
mod write_failure;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settee_storage::{
    Batch, CommitListener, CommitToken, Durability, Engine, Keyspace, Members, Outcome, Result, Shard, ShardState,
    Snapshot, StorageError, Version, members::NodeId,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use block::block_on;
use commit::Commit;
use commit_batcher::CommitBatcher;
use connect::Connector;
use error::Failure;
use lease::number;
use nodes::Nodes;
use observer::CommitObserver;
pub use options::{CONNECTIONS, CONNECTIONS_MIN, Options};
use pool::Pool;
pub use schema::{Tables, VERSION};
use size::Sizes;
use snapshot::PostgresSnapshot;
use sql::Sql;
use write_failure::WriteFailure;

/// A quarter of all connections is reserved for commits, so that readers cannot block writers.
const WRITER_DIVISOR: usize = 4;

const INTERNAL_CONNECTIONS: usize = 2;

/// The server ends a reading transaction that is idle for this time. A reader with a slow client loses its connection
/// long before.
const READER_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The server ends a writing transaction that is idle for this time. A writer sends all statements at once, so other
/// writers of the shard wait at most this long if its machine or network fails in between.
const WRITER_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("{0}")]
    Settings(String),
    #[error("PostgreSQL cannot be reached ({location}): {reason}")]
    Unreachable { location: String, reason: String },
    #[error(
        "PostgreSQL denies a privilege ({location}): {reason}\nThe role must be able to log in and have CREATE on the database, or own \
         the schema. An administrator creates the tables for a role with: settee storage init URL --owner ROLE"
    )]
    MissingPrivilege { location: String, reason: String },
    #[error("the tables cannot be used ({location}): {reason}")]
    Failed { location: String, reason: String },
    #[error("the schema {0} contains tables of another program: choose another schema with ?schema=NAME in the URL")]
    ForeignSchema(String),
    #[error(
        "the tables have version {found}, created by {made_by}, and this program requires version {supported}: start a matching program"
    )]
    OtherVersion { found: i32, made_by: String, supported: i32 },
    /// The data have a later layout than this program supports.
    #[error(
        "the data have layout {found}, and this program supports {supported} at most: start the version that wrote them, or a newer one"
    )]
    LaterLayout { found: i64, supported: i64 },
    #[error("PostgreSQL {found} is too old: at least {required} is required")]
    OldServer { found: i32, required: i32 },
    /// A server of version 1, which does not support several processes, uses the database.
    #[error("a server of an earlier version uses these tables ({0}): stop it first")]
    EarlierServer(String),
}

pub struct PostgresEngine {
    connector: Arc<Connector>,
    readers: Arc<Pool>,
    writers: Arc<Pool>,
    observer: Arc<CommitObserver>,
    nodes: Arc<Nodes>,
    batcher: Arc<CommitBatcher>,
    node: i64,
    sizes: Sizes,
    dropped: Arc<Notify>,
    write_failure: WriteFailure,
    commits: AtomicU64,
    conflicts: AtomicU64,
    written: AtomicU64,
}

/// Creates the tables, and assigns them to `owner` if that is not the role of the URL.
pub fn init(options: &Options, owner: Option<&str>) -> Result<Tables, OpenError> {
    let connector = Connector::new(options.clone(), 0).map_err(OpenError::Settings)?;
    block_on(connector.runtime(), connect_and_ensure_tables(&connector, owner))
}

async fn connect_and_ensure_tables(connector: &Connector, owner: Option<&str>) -> Result<Tables, OpenError> {
    let options = connector.options();
    let client = connector.connect_plain().await.map_err(|error| schema::connect_error(&error, options))?;
    schema::ensure_tables(&client, options, owner).await
}

/// Reads the value of a short key without side effects: creates no tables, and does not join the membership.
pub fn read_value(options: &Options, shard: Shard, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, OpenError> {
    let connector = Connector::new(options.clone(), 0).map_err(OpenError::Settings)?;
    block_on(connector.runtime(), async {
        let client = connector.connect_plain().await.map_err(|error| schema::connect_error(&error, options))?;
        schema::read_value(&client, options, (shard, space, key)).await
    })
}

impl PostgresEngine {
    /// Connects, and creates the tables if none exist. The `id` must be unique among all processes ever, because it
    /// identifies commits and claims.
    pub fn open(options: &Options, id: [u8; 16]) -> Result<Self, OpenError> {
        let number = u128::from_be_bytes(id);
        // Half of the id is unique as well, and saves space in each commit.
        let node = i64::from_be_bytes(number.to_be_bytes()[8..].try_into().unwrap_or_default());
        let connector = Connector::new(options.clone(), node).map_err(OpenError::Settings)?;
        let connector = Arc::new(connector);
        let runtime = connector.runtime().clone();
        let connections = options.connections.max(CONNECTIONS_MIN) - INTERNAL_CONNECTIONS;
        let idle = |idle: Duration| format!("SET idle_in_transaction_session_timeout = {};", idle.as_millis());
        let pool = |size, settings| Pool::new(Arc::clone(&connector), size, settings);
        let writers =
            pool(connections / WRITER_DIVISOR, idle(WRITER_IDLE_TIMEOUT) + &nodes::writer_settings(NodeId(number)));
        let readers = pool(connections - connections / WRITER_DIVISOR, idle(READER_IDLE_TIMEOUT));
        let (observer, nodes) = block_on(&runtime, async {
            let client = connector.connect_plain().await.map_err(|error| schema::connect_error(&error, options))?;
            schema::ensure_tables(&client, options, None).await?;
            schema::record_layout(&client, options).await?;
            let failed =
                |error: StorageError| OpenError::Failed { location: options.location(), reason: error.to_string() };
            let observer = CommitObserver::start(pool(1, idle(READER_IDLE_TIMEOUT)), node).await.map_err(failed)?;
            let heartbeat_pool = pool(1, idle(WRITER_IDLE_TIMEOUT) + &nodes::settings(NodeId(number)));
            let nodes = Nodes::join(NodeId(number), heartbeat_pool, Arc::clone(&writers)).await.map_err(failed)?;
            Ok((observer, nodes))
        })?;
        let batcher = CommitBatcher::new(&writers);
        let dropped = Arc::new(Notify::new());
        runtime.spawn(sweep::sweep(Arc::downgrade(&writers), Arc::clone(&dropped)));
        runtime.spawn(observer::poll_periodically(
            Arc::downgrade(&observer),
            Arc::clone(connector.notifications().committed()),
        ));
        runtime.spawn(observer::notify_others(Arc::downgrade(&observer), Arc::downgrade(&writers)));
        runtime.spawn(nodes::send_heartbeats(Arc::downgrade(&nodes)));
        Ok(Self {
            connector,
            readers,
            writers,
            observer,
            nodes,
            batcher,
            node,
            sizes: Sizes::default(),
            dropped,
            write_failure: WriteFailure::default(),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    fn handle(&self) -> &Handle {
        self.connector.runtime()
    }

    async fn execute(pool: &Arc<Pool>, statement: &str) -> Result<()> {
        let leased = pool.acquire().await?;
        leased.link().client.batch_execute(statement).await.map_err(|error| {
            leased.set_broken();
            Failure::from(error).into_error()
        })
    }

    async fn size(&self, shard: Shard) -> Result<u64, Failure> {
        let leased = self.readers.acquire().await.map_err(Failure::Permanent)?;
        let statement = leased.link().statement(Sql::Size).await?;
        let row = leased.link().client.query_one(&statement, &[&number(shard)]).await?;
        let bytes: i64 = row.try_get(0)?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine").field("location", &self.connector.options().location()).finish_non_exhaustive()
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
        // Other processes observe a commit and keep what they have read under its version, so none may be lost.
        _durability: Durability,
    ) -> Result<Outcome> {
        batch.check()?;
        let size = batch.size_bytes();
        let commit = Commit { shard, expected, token, batch, node: self.node };
        let outcome = block_on(self.handle(), commit::commit(&self.batcher, commit));
        self.write_failure.record(&outcome);
        let outcome = outcome?;
        let counter = if matches!(outcome, Outcome::Conflict(_)) { &self.conflicts } else { &self.commits };
        counter.fetch_add(1, Ordering::Relaxed);
        if !matches!(outcome, Outcome::Conflict(_)) {
            self.observer.committed(shard);
        }
        self.written.fetch_add(size as u64, Ordering::Relaxed);
        self.sizes.add(shard, size);
        Ok(outcome)
    }

    fn refuses_present(&self) -> bool {
        true
    }

    fn check(&self) -> Result<()> {
        self.writers.fault().map_or(Ok(()), Err)
    }

    fn health(&self) -> Result<()> {
        self.check()?;
        self.write_failure.reason().map_or(Ok(()), Err)
    }

    fn maintain(&self) -> Result<()> {
        for pool in [&self.readers, &self.writers] {
            pool.maintain();
            // `check` returns the error.
            let _ = block_on(self.handle(), pool.reconnect());
        }
        if self.writers.fault().is_none() && !self.connector.is_unresponsive() {
            block_on(self.handle(), self.write_failure.probe(&self.writers));
        }
        self.health()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        block_on(self.handle(), commit::drop_shard(&self.writers, shard, self.node))?;
        self.observer.committed(shard);
        self.sizes.remove(shard);
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
        let started = Instant::now();
        if let Some(bytes) = self.sizes.get(shard, started) {
            return bytes;
        }
        let Ok(bytes) = block_on(self.handle(), self.size(shard)) else { return 0 };
        self.sizes.set(shard, bytes, started, Instant::now());
        bytes
    }

    fn subscribe(&self, listener: CommitListener) {
        self.observer.subscribe(listener);
    }

    fn catch_up(&self) -> Result<()> {
        block_on(self.handle(), self.observer.catch_up())
    }

    fn members(&self) -> &dyn Members {
        &*self.nodes
    }

    fn sync(&self) -> Result<()> {
        block_on(self.handle(), Self::execute(&self.writers, commit::SYNC))
    }

    fn checkpoint(&self, _directory: &Path) -> Result<()> {
        Err(StorageError::Io(
            "data in PostgreSQL are copied by its own programs, such as pg_basebackup and pg_dump".to_owned(),
        ))
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let [readers, reading, made_for_reading, reclaimed] = self.readers.counts();
        let [writers, writing, made_for_writing, _] = self.writers.counts();
        let [observing, _, made_for_observing, _] = self.observer.pool().counts();
        let [polls, observed] = self.observer.counts();
        let [shared, unfinished] = self.batcher.counts();
        vec![
            ("connections", readers + writers + observing + 1),
            ("connections_reading", reading),
            ("connections_writing", writing),
            ("connections_made", made_for_reading + made_for_writing + made_for_observing),
            ("snapshots_interrupted", reclaimed),
            ("commits", self.commits.load(Ordering::Relaxed)),
            ("commits_shared", shared),
            ("commits_unfinished", unfinished),
            ("conflicts", self.conflicts.load(Ordering::Relaxed)),
            ("polls", polls),
            ("commits_heard_of", observed),
            ("written_bytes", self.written.load(Ordering::Relaxed)),
        ]
    }
}
