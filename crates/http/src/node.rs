//! [`Node`]: the components that requests are served with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyper::StatusCode;
use parking_lot::Mutex;
use settee_auth::{Authenticator, SeenTokens};
use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database};
use settee_replication::Replicator;
use settee_search::Searches;
use settee_service::threads::GiveWay;
use settee_service::threads::SlowLane;
use settee_service::{
    Access, Counted, Databases, DatabasesDependencies, Feeds, Hashers, Owner, Programs, Users, UsersDependencies,
    Writer,
};
use settee_settings::{Derived, Settings};
use settee_views::{Languages, Views};
use tokio::sync::Semaphore;

use crate::Error;
use crate::auth_policy::AuthPolicy;
use crate::authentication::jwt::{KeyReader, Keys};
use crate::authentication::{Authentication, Caller, NodeTokens, Secrets};
use crate::bridge::permits::{Admission, ClientThreads, PermitCounts};
use crate::budget::{Account, Budget};
use crate::catch_up::CatchUp;
use crate::failures::Failures;
use crate::handover::couriers::Couriers;
use crate::load::{Load, ProcessorTime};
use crate::metrics::table::Figures;
use crate::metrics::{Count, Metrics, SlowRequest};
use crate::nodes::{HANDED_OVER_MAX, Nodes};
use crate::operation::Operation;
use crate::policy::Policy;
use crate::pulse::Pulses;
use crate::rate::Rates;
use crate::respond::Response;
use crate::search_permits::SearchPermits;

/// How this server names itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The version of CouchDB whose interface is served: clients compare it.
    pub couchdb_version: String,
    /// This program's own version.
    pub version: String,
    /// The name of the node in `/_membership` and `/_node`.
    pub node: String,
    /// The id of the server in `/`.
    pub uuid: String,
}

/// Makes identifiers for `/_uuids` and for documents without an id.
pub(crate) type UuidSource = Box<dyn Fn(usize) -> Vec<String> + Send + Sync>;

/// The platform that requests run on: threads, memory, the files and servers that hold keys.
pub struct Platform {
    /// How many processors there are. Half as many threads hash passwords.
    pub processors: usize,
    /// The time of processors that this process and those that work for it have taken.
    pub processor_time: ProcessorTime,
    /// Makes the calling thread give way to others: called on those that hash passwords, on those that are there for large bodies,
    /// and on those whose work for a client turns out to be long.
    pub give_way: GiveWay,
    /// Reads the keys of an identity provider: from an address that begins with `http:` or `https:`, or else from a file.
    /// The error is for the log.
    pub read_keys: KeyReader,
    /// How much memory all bodies and answers in flight may take together.
    pub request_memory_bytes: usize,
}

impl Default for Platform {
    fn default() -> Self {
        let read_keys: KeyReader = Arc::new(|_| Box::pin(async { Err("no keys can be read here".to_owned()) }));
        Self {
            processors: 1,
            processor_time: Arc::new(|| 0),
            give_way: Arc::new(|_| {}),
            read_keys,
            request_memory_bytes: 256 << 20,
        }
    }
}

/// The dependencies of a [`Node`].
pub struct NodeDependencies {
    /// The databases.
    pub catalog: Arc<Catalog>,
    /// Their view indexes.
    pub views: Arc<Views>,
    /// Their search indexes.
    pub searches: Arc<Searches>,
    /// The languages of design documents.
    pub languages: Languages,
    /// The tasks that run in the background.
    pub tasks: Tasks,
    /// The configuration.
    pub settings: Arc<dyn Settings>,
    /// The admins, and the check of passwords.
    pub authenticator: Authenticator,
    /// Identifiers.
    pub uuids: Box<dyn Fn(usize) -> Vec<String> + Send + Sync>,
    /// Names.
    pub identity: Identity,
    /// The time in milliseconds of the Unix epoch.
    pub clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Random numbers.
    pub entropy: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Threads, memory and keys.
    pub platform: Platform,
    /// The functions that operators need.
    pub operation: Operation,
}

/// A running server, without its sockets.
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
    pub(crate) entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) feeds: Feeds,
    pub(crate) users: Arc<Users>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) access: Access,
    pub(crate) databases: Arc<Databases>,
    /// Held while the secret of session cookies is made up.
    pub(crate) making_secret: Mutex<()>,
    pub(crate) authentication: Authentication,
    client_threads: Arc<ClientThreads>,
    /// The builds that searches wait for.
    pub(crate) search_permits: SearchPermits,
    /// Where requests are served that have much to do.
    pub(crate) slow_lane: SlowLane,
    pub(crate) budget: Arc<Budget>,
    policy: Derived<Policy>,
    pub(crate) rates: Rates,
    /// There when replication has begun.
    pub(crate) replicator: Arc<OnceLock<Arc<Replicator>>>,
    pub(crate) operation: Arc<Operation>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started_ms: u64,
    requests: AtomicU64,
    pub(crate) catch_up: CatchUp,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) failures: Failures,
    /// When the database of users was opened last for what small writes presume, or was to be.
    pub(crate) users_opened_ms: AtomicU64,
}

impl Node {
    /// Puts the components together.
    #[must_use]
    pub fn new(dependencies: NodeDependencies) -> Arc<Self> {
        let NodeDependencies { catalog, views, searches, languages, tasks, settings, authenticator, .. } = dependencies;
        let NodeDependencies { uuids, identity, clock_ms, entropy, platform, operation, .. } = dependencies;
        let requests = AtomicU64::new(entropy());
        let started_ms = clock_ms();
        let programs = Arc::new(Programs::new(languages, settings.as_ref()));
        let client_threads = ClientThreads::new(&PermitCounts::of(settings.as_ref()), &platform.give_way);
        let search_permits = SearchPermits::of(settings.as_ref());
        let slow_lane = SlowLane::new(platform.processors, &platform.give_way);
        let metrics = Arc::new(Metrics::new((operation.monotonic_us)()));
        let hashers = Arc::new(Hashers::start(platform.processors.div_ceil(2), &platform.give_way));
        let operation = Arc::new(operation);
        let clock_ms: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::from(clock_ms);
        let entropy: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::from(entropy);
        let counting = Arc::clone(&metrics);
        let count = move |what| {
            counting.count(match what {
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
        let clock = Arc::clone(&operation);
        let load = Load::new(platform.processors, platform.processor_time, move || (clock.monotonic_us)() / 1000);
        let nodes = Arc::new(Nodes {
            engine: Arc::clone(catalog.engine()),
            own: identity.node.clone(),
            settings: Arc::clone(&settings),
            secret: Derived::default(),
            clock_ms: Arc::clone(&clock_ms),
            network: OnceLock::new(),
            pulses: Pulses::default(),
            load,
            couriers: Couriers::default(),
            writing: Arc::default(),
            handing_over: Semaphore::new(HANDED_OVER_MAX),
            signed: AtomicU64::new(0),
        });
        Arc::new(Self {
            catalog,
            views,
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
            started_ms,
            requests,
            catch_up,
            nodes,
            failures,
            users_opened_ms: AtomicU64::new(0),
        })
    }

    /// The storage engine below everything.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn settee_database::Engine> {
        self.catalog.engine()
    }

    /// What this server is called among those that serve the same store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.node
    }

    /// How much memory all bodies and answers in flight may take together.
    #[must_use]
    pub fn request_memory_bytes(&self) -> usize {
        self.budget.total()
    }

    /// The time for which the server has been running.
    #[must_use]
    pub fn uptime_s(&self) -> u64 {
        (self.clock_ms)().saturating_sub(self.started_ms) / 1000
    }

    /// The last requests that took longer than `[log] slow_request_ms`, oldest first.
    #[must_use]
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.metrics.slow_requests((self.operation.monotonic_us)())
    }

    /// The database of this name.
    pub(crate) fn database(&self, name: &str) -> Result<Arc<Database>, Error> {
        Ok(self.catalog.database(name)?)
    }

    /// The replications of this server.
    pub(crate) fn replicator(&self) -> Result<&Arc<Replicator>, Error> {
        let unavailable = || {
            let reason = "Replications do not run yet, or not any more.";
            Error::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
        };
        self.replicator.get().ok_or_else(unavailable)
    }

    /// The settings that hold for all requests.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.current(self.settings.as_ref(), Policy::of)
    }

    /// The way of an answer that may be long.
    pub(crate) fn outward(&self, account: &Arc<Account>) -> Admission {
        self.client_threads.answer(account, self.policy().send_timeout)
    }

    /// The way of what a list function answers.
    pub(crate) fn list_outward(&self, owner: Owner, account: &Arc<Account>) -> Admission {
        self.client_threads.list(owner, account, self.policy().send_timeout)
    }

    /// The way of a body that is read piece by piece.
    pub(crate) fn inward(&self, account: &Arc<Account>) -> Admission {
        self.client_threads.upload(account, self.policy().receive_timeout)
    }

    /// The number of more long answers that could be on their way.
    #[cfg(test)]
    pub(crate) fn free_answers(&self) -> usize {
        self.client_threads.free_answers()
    }

    /// Makes the database of users, unless it is there, or `[couchdb] single_node` is off.
    ///
    /// # Errors
    /// When the engine failed.
    pub async fn make_users_database(&self) -> Result<(), Error> {
        Ok(self.databases.make_users_database().await?)
    }

    /// The settings of authentication.
    pub(crate) fn auth_policy(&self) -> Arc<AuthPolicy> {
        self.authentication.policy()
    }

    /// The answer to who was refused.
    pub(crate) fn refuse(&self, caller: &Caller, error: &Error) -> Response {
        caller.refuse(&self.auth_policy(), &self.policy().forwarded, error)
    }

    /// Those who are notified of every request.
    pub(crate) fn observers(&self) -> (&Arc<Metrics>, &Arc<Operation>) {
        (&self.metrics, &self.operation)
    }

    /// Those who know the numbers of statistics.
    pub(crate) fn figures(&self) -> Figures<'_> {
        Figures {
            catalog: &self.catalog,
            metrics: &self.metrics,
            operation: &self.operation,
            replicator: self.replicator.get().map(AsRef::as_ref),
        }
    }

    /// 32 hexadecimal digits that nobody can guess.
    pub(crate) fn random_hex(&self) -> String {
        format!("{:016x}{:016x}", (self.entropy)(), (self.entropy)())
    }

    /// One fresh identifier.
    pub(crate) fn uuid(&self) -> String {
        (self.uuids)(1).pop().unwrap_or_default()
    }

    /// A name for a request that brought none: ten hexadecimal digits.
    pub(crate) fn request_id(&self) -> String {
        // Steps by a large odd number, so that neighbours do not look alike.
        let number = self.requests.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        format!("{:010x}", number >> 24)
    }
}
