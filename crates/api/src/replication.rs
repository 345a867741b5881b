//! [`Replication`]: connects the replicator to this server and to the network, and stops it in order.
//! `settee_replication` implements the replication itself.

mod claims;

use std::sync::Arc;

use settee_auth::ADMIN_ROLE;
use settee_database::DatabaseError;
use settee_edge::shutdown::Shutdown;
use settee_replication::documents::REPLICATOR_DATABASE;
use settee_replication::scheduler::{self, Limits};
use settee_replication::{
    Connect, Dependencies, Endpoint, Identity, Places, Replicator, Services, Settings, Transport, TransportError,
    Tuning, User,
};
use settee_settings::{Key, key::Number, replicator};
use tokio::task::JoinHandle;

use crate::failures::Failures;
use crate::in_process::InProcess;
use crate::node::Node;
use crate::router::Router;
use crate::routes;
use claims::Claims;

pub struct ReplicationDependencies {
    pub network: Arc<dyn Connect>,
    pub hostname: String,
    pub port: u16,
}

pub struct Replication {
    replicator: Arc<Replicator>,
    timekeeper: JoinHandle<()>,
}

impl Replication {
    /// Creates the database `_replicator` if it does not exist, and resumes the replications of its documents.
    pub async fn start(
        node: &Arc<Node>,
        dependencies: ReplicationDependencies,
        shutdown: &Shutdown,
    ) -> Result<Self, crate::Error> {
        let ReplicationDependencies { network, hostname, port } = dependencies;
        // These two are set only here, so setting them succeeds.
        let _ = node.nodes.network.set(Arc::clone(&network));
        Failures::begin(node);
        let ways = TransportFactory { node: Arc::downgrade(node), router: Arc::new(routes::router(shutdown)), network };
        let replicator = Replicator::new(make_dependencies(node, ways, hostname, port));
        let _ = node.replicator.set(Arc::clone(&replicator));
        let opened = Arc::clone(node);
        let names = settee_threads::run(move || {
            ensure_database(&opened)?;
            Ok::<_, crate::Error>(opened.catalog.names()?)
        })
        .await?;
        for name in names {
            replicator.database_found(&name);
        }
        let timekeeper = tokio::spawn(Arc::clone(&replicator).run());
        tokio::spawn(Arc::clone(&replicator).balance());
        Ok(Self { replicator, timekeeper })
    }

    /// Stops all replications. The caller must await this before the server shuts down, because replications write
    /// their checkpoints by requests to this server.
    pub async fn stop(self) {
        self.replicator.begin_stop();
        self.replicator.stopped().await;
        // The task has ended; a panic of it is ignored.
        let _ = self.timekeeper.await;
    }
}

fn ensure_database(node: &Node) -> Result<(), crate::Error> {
    match node.catalog.database(REPLICATOR_DATABASE) {
        Err(DatabaseError::NotFound) => match node.databases.create(REPLICATOR_DATABASE) {
            // Another node created the database concurrently.
            Err(settee_service::Error::Database(DatabaseError::Exists)) => Ok(()),
            made => Ok(made?),
        },
        found => Ok(found.map(|_| ())?),
    }
}

fn make_dependencies(node: &Arc<Node>, ways: TransportFactory, hostname: String, port: u16) -> Dependencies {
    let (seconds, ids, clock, random, settings) =
        (Arc::clone(node), Arc::clone(node), Arc::clone(node), Arc::clone(node), Arc::clone(node));
    Dependencies {
        connect: Arc::new(ways),
        services: Services {
            now_s: Arc::new(move || (seconds.clock_ms)() / 1000),
            new_uuid: Arc::new(move || format!("{:016x}{:016x}", (ids.entropy)(), (ids.entropy)())),
            places: Places::default(),
            counters: Arc::default(),
        },
        identity: Identity { uuid: node.identity.uuid.clone(), hostname, port },
        node: node.identity.node.clone(),
        now_ms: Arc::new(move || (clock.clock_ms)()),
        random: Arc::new(move || (random.entropy)()),
        settings: Arc::new(move || read_settings(&settings)),
        servers: Claims::of(&node.catalog),
    }
}

fn read_settings(node: &Node) -> Settings {
    let settings = node.settings.as_ref();
    let count = |key: &Key<Number>| usize::try_from(key.of(settings)).unwrap_or(usize::MAX);
    let shares = settings.section("replicator.shares");
    Settings {
        scheduling: scheduler::Settings {
            max_jobs: count(&replicator::MAX_JOBS),
            max_churn: count(&replicator::MAX_CHURN),
            interval_ms: replicator::INTERVAL.of(settings),
            history: Limits {
                events: count(&replicator::MAX_HISTORY),
                healthy_ms: replicator::HEALTH_THRESHOLD.of(settings).saturating_mul(1000),
            },
            shares: shares.into_iter().filter_map(|(name, shares)| Some((name, shares.trim().parse().ok()?))).collect(),
        },
        tuning: Tuning {
            worker_processes: count(&replicator::WORKER_PROCESSES).clamp(1, Tuning::MAX_WORKERS),
            worker_batch_size: count(&replicator::WORKER_BATCH_SIZE).clamp(1, Tuning::MAX_BATCH_SIZE),
            http_connections: count(&replicator::HTTP_CONNECTIONS).clamp(1, Tuning::MAX_WORKERS),
            connection_timeout_ms: replicator::CONNECTION_TIMEOUT.of(settings).max(1),
            retries_per_request: u32::try_from(replicator::RETRIES_PER_REQUEST.of(settings)).unwrap_or(u32::MAX),
            checkpoint_interval_ms: replicator::CHECKPOINT_INTERVAL.of(settings).max(1),
            use_checkpoints: replicator::USE_CHECKPOINTS.of(settings),
            use_bulk_get: replicator::USE_BULK_GET.of(settings),
            socket_options: None,
        },
        startup_jitter_ms: replicator::STARTUP_JITTER.of(settings),
        update_docs: replicator::UPDATE_DOCS.of(settings),
    }
}

impl Node {
    /// Returns true for administrators, and for all users if `[replicator] private_addresses_for_users` is set.
    #[must_use]
    pub fn reaches_private_addresses(&self, user: &User) -> bool {
        let is_admin_now = match &user.name {
            Some(name) => self.authenticator.is_admin(name),
            None => self.authenticator.without_credentials().is_admin(),
        };
        is_admin_now
            || user.roles.given().iter().any(|role| role == ADMIN_ROLE)
            || replicator::PRIVATE_ADDRESSES_FOR_USERS.of(&*self.settings)
    }
}

struct TransportFactory {
    node: std::sync::Weak<Node>,
    router: Arc<Router>,
    network: Arc<dyn Connect>,
}

impl Connect for TransportFactory {
    fn connect(&self, endpoint: &Endpoint, tuning: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        match endpoint {
            Endpoint::Remote(_) => self.network.connect(endpoint, tuning),
            Endpoint::Local(local) => {
                Ok(Arc::new(InProcess::new(self.node.clone(), Arc::clone(&self.router), local.user.clone())))
            }
        }
    }
}

#[cfg(test)]
mod tests;
