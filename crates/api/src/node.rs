//! [`Node`]: the components that serve requests.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::StatusCode;
use parking_lot::Mutex;
use settee_auth::{Authenticator, SeenTokens};
use settee_cluster::{Groups, Writers};
use settee_database::tasks::Tasks;
use settee_database::{Catalog, CommitClock, Database};
use settee_edge::bridge::permits::{Admission, ClientThreads, PermitCounts};
use settee_edge::budget::{Account, Budget};
use settee_edge::rate::Rates;
use settee_replication::Replicator;
use settee_search::Searches;
use settee_service::{
    Access, Counted, Databases, DatabasesDependencies, Feeds, Hashers, Programs, Users, UsersDependencies, Writer,
};
use settee_settings::{Derived, Settings, cluster, couchdb};
use settee_threads::{GiveWay, Owner, SlowLane};
use settee_views::{Languages, Views};
use tokio::sync::watch;

use crate::Error;
use crate::auth_policy::AuthPolicy;
use crate::authentication::jwt::{KeyReader, Keys};
use crate::authentication::{Authentication, Caller, NodeTokens, Secrets};
use crate::catch_up::CatchUp;
use crate::failures::Failures;
use crate::metrics::history::{self, History, Sample};
use crate::metrics::table::{Figures, stats};
use crate::metrics::{Count, Measure, Metrics, SlowRequest};
use crate::nodes::Nodes;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::respond::Response;
use crate::search_permits::SearchPermits;

#[derive(Clone, Debug)]
pub struct Identity {
    /// The version of CouchDB whose interface is served; clients compare it.
    pub couchdb_version: String,
    pub version: String,
    /// The name of the node in `/_membership` and `/_node`.
    pub node: String,
    pub uuid: String,
}

pub(crate) type UuidSource = Box<dyn Fn(usize) -> Vec<String> + Send + Sync>;

pub struct Platform {
    /// Number of processors. Half as many threads hash passwords.
    pub processors: usize,
    /// Lowers the priority of the calling thread: one that hashes passwords or whose work turns out to be long.
    pub give_way: GiveWay,
    pub read_keys: KeyReader,
    /// Memory limit for all bodies and responses in flight.
    pub request_memory_bytes: usize,
}

impl Default for Platform {
    fn default() -> Self {
        let read_keys: KeyReader = Arc::new(|_| Box::pin(async { Err("no keys can be read here".to_owned()) }));
        Self { processors: 1, give_way: Arc::new(|| {}), read_keys, request_memory_bytes: 256 << 20 }
    }
}

/// Maximum duration of each step of a handover. A node that ends before another one is the writer closes the connections of
/// forwarded writes, and their outcome is unknown.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);
const HANDOVER_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub struct NodeDependencies {
    pub catalog: Arc<Catalog>,
    pub views: Arc<Views>,
    pub searches: Arc<Searches>,
    pub languages: Languages,
    pub tasks: Tasks,
    pub settings: Arc<dyn Settings>,
    pub authenticator: Authenticator,
    pub uuids: Box<dyn Fn(usize) -> Vec<String> + Send + Sync>,
    pub identity: Identity,
    pub clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    pub entropy: Box<dyn Fn() -> u64 + Send + Sync>,
    pub platform: Platform,
    pub operation: Operation,
}

pub struct Node {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) views: Arc<Views>,
    pub(crate) searches: Arc<Searches>,
    pub(crate) programs: Arc<Programs>,
    pub(crate) tasks: Tasks,
    pub(crate) settings: Arc<dyn Settings>,
    pub(crate) authenticator: Authenticator,
    pub(crate) uuids: UuidSource,
    pub(crate) identity: Identity,
    pub(crate) clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Tokens of received messages of other engines.
    pub(crate) peer_tokens: SeenTokens,
    pub(crate) entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) feeds: Feeds,
    pub(crate) users: Arc<Users>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) access: Access,
    pub(crate) databases: Arc<Databases>,
    /// Held while the secret of session cookies is created.
    pub(crate) making_secret: Mutex<()>,
    pub(crate) authentication: Authentication,
    pub(crate) client_threads: Arc<ClientThreads>,
    pub(crate) search_permits: SearchPermits,
    pub(crate) slow_lane: SlowLane,
    pub(crate) budget: Arc<Budget>,
    policy: Derived<Policy>,
    pub(crate) rates: Rates,
    /// Empty until replication has started.
    pub(crate) replicator: Arc<OnceLock<Arc<Replicator>>>,
    pub(crate) operation: Arc<Operation>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) history: History,
    pub(crate) started_ms: u64,
    requests: AtomicU64,
    pub(crate) catch_up: CatchUp,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) failures: Failures,
}

impl Node {
    #[must_use]
    pub fn new(dependencies: NodeDependencies) -> Arc<Self> {
        let NodeDependencies { catalog, views, searches, languages, tasks, settings, authenticator, .. } = dependencies;
        let NodeDependencies { uuids, identity, clock_ms, entropy, platform, operation, .. } = dependencies;
        let requests = AtomicU64::new(entropy());
        let started_ms = clock_ms();
        let programs = Arc::new(Programs::new(languages, views.settings().limits.clone(), settings.as_ref()));
        let client_threads =
            ClientThreads::new(&PermitCounts::of(settings.as_ref()), &platform.give_way, platform.processors);
        let search_permits = SearchPermits::of(settings.as_ref());
        let slow_lane = SlowLane::new(platform.processors, &platform.give_way);
        let metrics = Arc::new(Metrics::new((operation.monotonic_us)()));
        let hashers = Arc::new(Hashers::start(platform.processors.div_ceil(2), &platform.give_way));
        let operation = Arc::new(operation);
        let clock_ms: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::from(clock_ms);
        let entropy: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::from(entropy);
        catalog.set_clock(commit_clock(&clock_ms, &settings));
        let counting = Arc::clone(&metrics);
        let count = move |label| {
            counting.count(match label {
                Counted::VduReject => Count::VduRejects,
                Counted::AuthCacheHit => Count::AuthCacheHits,
                Counted::AuthCacheMiss => Count::AuthCacheMisses,
            });
        };
        let users = Arc::new(Users::new(UsersDependencies {
            catalog: Arc::clone(&catalog),
            settings: Arc::clone(&settings),
            authenticator: authenticator.clone(),
            hashers: Arc::clone(&hashers),
            count: Arc::new(count),
            entropy: Arc::clone(&entropy),
        }));
        let writer = Arc::new(Writer::new(Arc::clone(&programs), Arc::clone(&users)));
        let authentication = Authentication {
            settings: Arc::clone(&settings),
            authenticator: authenticator.clone(),
            users: Arc::clone(&users),
            writer: Arc::clone(&writer),
            hashers,
            keys: Keys::new(platform.read_keys),
            clock_ms: Arc::clone(&clock_ms),
            policy: Derived::default(),
            secrets: Secrets::default(),
            has_nodes: !catalog.engine().members().is_sole(),
            node_tokens: NodeTokens { receiver: identity.node.clone(), seen: SeenTokens::default() },
        };
        let access = Access::new(Arc::clone(&catalog), Arc::clone(&settings), Arc::clone(&users));
        let replicator = Arc::new(OnceLock::new());
        let indexes = (Arc::clone(&views), Arc::clone(&searches));
        let databases = Arc::new(Databases::new(DatabasesDependencies {
            catalog: Arc::clone(&catalog),
            release: Arc::new(move |database| {
                indexes.0.release(database);
                indexes.1.release(database);
            }),
            settings: Arc::clone(&settings),
            users: Arc::clone(&users),
            writer: Arc::clone(&writer),
            replicator: Arc::clone(&replicator),
            clock_ms: Arc::clone(&clock_ms),
            entropy: Arc::clone(&entropy),
        }));
        let catch_up = CatchUp::new(catalog.engine(), &settings);
        let failures = match catalog.engine().members().is_sole() {
            true => Failures::of_one(),
            false => Failures::of(&authenticator, &settings),
        };
        let nodes = Arc::new(Nodes {
            engine: Arc::clone(catalog.engine()),
            own: identity.node.clone(),
            settings: Arc::clone(&settings),
            secret: Derived::default(),
            clock_ms: Arc::clone(&clock_ms),
            network: OnceLock::new(),
            writers: OnceLock::new(),
            moves: watch::Sender::new(0),
            writing: Arc::default(),
            signed: AtomicU64::new(0),
        });
        Arc::new(Self {
            catalog,
            views,
            peer_tokens: SeenTokens::default(),
            searches,
            programs,
            tasks,
            settings,
            authenticator,
            uuids,
            identity,
            clock_ms,
            entropy,
            feeds: Feeds::default(),
            users,
            writer,
            access,
            databases,
            making_secret: Mutex::default(),
            authentication,
            client_threads,
            search_permits,
            slow_lane,
            budget: Budget::new(platform.request_memory_bytes),
            policy: Derived::default(),
            rates: Rates::default(),
            replicator,
            operation,
            metrics,
            history: History::default(),
            started_ms,
            requests,
            catch_up,
            nodes,
            failures,
        })
    }

    #[must_use]
    pub fn engine(&self) -> &Arc<dyn settee_database::Engine> {
        self.catalog.engine()
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.node
    }

    #[must_use]
    pub fn request_memory_bytes(&self) -> usize {
        self.budget.total()
    }

    #[must_use]
    pub fn uptime_s(&self) -> u64 {
        (self.clock_ms)().saturating_sub(self.started_ms) / 1000
    }

    #[must_use]
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.metrics.slow_requests((self.operation.monotonic_us)())
    }

    pub(crate) fn database(&self, name: &str) -> Result<Arc<Database>, Error> {
        Ok(self.catalog.database(name)?)
    }

    /// Acquires leases if other processes can use the store. Without leases, every process commits, and the versions of
    /// shards are the only fence.
    pub(crate) fn begin_writing(&self) {
        if !self.nodes.is_cluster() || self.nodes.writers().is_some() {
            return;
        }
        let wanted = || u32::try_from(cluster::WRITER_GROUPS.of(self.settings.as_ref())).ok().and_then(NonZeroU32::new);
        let count = self.engine().group_count().or_else(wanted);
        let groups = count.map_or_else(Groups::default, Groups::new);
        let writers = Writers::start(Arc::clone(self.catalog.engine()), groups);
        let moves = self.nodes.moves.clone();
        writers.on_change(Box::new(move || moves.send_modify(|count| *count += 1)));
        self.catalog.set_writers(Arc::clone(&writers));
        let _ = self.nodes.writers.set(writers);
    }

    /// Releases the leases after the writes in progress have ended; new writes wait for the next writer.
    /// Other nodes can forward requests to this node until this method returns.
    pub async fn stop_writing(&self) {
        let Some(writers) = self.nodes.writers() else { return };
        writers.leave();
        if tokio::time::timeout(HANDOVER_TIMEOUT, self.nodes.writing.write()).await.is_err() {
            tracing::warn!("writes are still in progress; they fail, and their clients repeat them");
        }
        let stopping = Arc::clone(writers);
        let _ = tokio::task::spawn_blocking(move || stopping.stop()).await;
        let taken_over = async {
            while !self.nodes.others().is_empty() && writers.is_vacant() {
                writers.refresh();
                tokio::time::sleep(HANDOVER_POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(HANDOVER_TIMEOUT, taken_over).await.is_err() {
            tracing::warn!(
                "no other node has become the writer; clients repeat the writes that were forwarded to this one"
            );
        }
    }

    pub(crate) fn replicator(&self) -> Result<&Arc<Replicator>, Error> {
        let unavailable = || {
            let reason = "Replications do not run yet, or not any more.";
            Error::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
        };
        self.replicator.get().ok_or_else(unavailable)
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.current(self.settings.as_ref(), Policy::of)
    }

    pub(crate) fn admit_response(&self, account: &Arc<Account>) -> Admission {
        self.client_threads.answer(account, self.policy().send_timeout)
    }

    pub(crate) fn admit_list(&self, owner: Option<Owner>, account: &Arc<Account>) -> Admission {
        self.client_threads.list(owner, account, self.policy().send_timeout)
    }

    pub(crate) fn admit_upload(&self, account: &Arc<Account>) -> Admission {
        self.client_threads.upload(account, self.policy().receive_timeout)
    }

    #[cfg(test)]
    pub(crate) fn free_answers(&self) -> usize {
        self.client_threads.free_answers()
    }

    /// Creates the users database, unless it exists or `[couchdb] single_node` is off.
    pub async fn make_users_database(&self) -> Result<(), Error> {
        Ok(self.databases.make_users_database().await?)
    }

    pub(crate) fn auth_policy(&self) -> Arc<AuthPolicy> {
        self.authentication.policy()
    }

    pub(crate) fn refuse(&self, caller: &Caller, error: &Error) -> Response {
        caller.refuse(&self.auth_policy(), &self.policy().forwarded, error)
    }

    pub const HISTORY_INTERVAL: Duration = Duration::from_millis(history::INTERVAL_MS);

    /// This method blocks.
    pub fn record_history(&self) {
        let totals = self.metrics.totals();
        let (recent, _) = self.metrics.recent((self.operation.monotonic_us)(), history::INTERVAL_MS * 1000);
        let durations = recent.measure(Measure::Request);
        let statuses = |first: u16| (first..first + 100).map(|status| totals.status(status)).sum::<u64>() as f64;
        let counter = |name: &str| {
            let found = stats().into_iter().find(|stat| stat.path == ["couchdb", name, ""]);
            found.map_or(0.0, |stat| stat.number(&self.figures(), &totals) as f64)
        };
        let files = ["sorted_file_bytes", "blob_file_bytes"];
        let engine = self.catalog.engine_statistics();
        let disk_bytes: u64 = engine.iter().filter(|(name, _)| files.contains(name)).map(|(_, bytes)| bytes).sum();
        self.history.record(Sample {
            at_ms: (self.clock_ms)(),
            numbers: [
                totals.requests() as f64,
                counter("document_writes"),
                counter("database_reads"),
                statuses(400),
                statuses(500),
                durations.quantile(0.5),
                durations.quantile(0.9),
                durations.quantile(0.99),
                (self.operation.process)().resident_bytes as f64,
                disk_bytes as f64,
            ],
        });
    }

    pub(crate) fn observers(&self) -> (&Arc<Metrics>, &Arc<Operation>) {
        (&self.metrics, &self.operation)
    }

    pub(crate) fn figures(&self) -> Figures<'_> {
        Figures {
            catalog: &self.catalog,
            metrics: &self.metrics,
            operation: &self.operation,
            passwords: self.authenticator.password_checks(),
            replicator: self.replicator.get().map(AsRef::as_ref),
        }
    }

    pub(crate) fn random_hex(&self) -> String {
        format!("{:016x}{:016x}", (self.entropy)(), (self.entropy)())
    }

    pub(crate) fn uuid(&self) -> String {
        (self.uuids)(1).pop().unwrap_or_default()
    }

    pub(crate) fn request_id(&self) -> String {
        let number = self.requests.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        format!("{:010x}", number >> 24)
    }
}

/// Returns the clock of commits. The catalog must not hold the settings, because shared settings hold the catalog.
fn commit_clock(clock_ms: &Arc<dyn Fn() -> u64 + Send + Sync>, settings: &Arc<dyn Settings>) -> CommitClock {
    let (clock_ms, settings) = (Arc::clone(clock_ms), Arc::downgrade(settings));
    let earliest_s =
        move || settings.upgrade().map_or(u64::MAX, |settings| couchdb::TIME_SEQ_MIN_TIME.of(settings.as_ref()));
    CommitClock { now_s: Box::new(move || clock_ms() / 1000), earliest_s: Box::new(earliest_s) }
}
