//! [`make`]: composes the node that serves requests from all crates and the configuration.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use settee_api::{Identity, Node, NodeDependencies, Operation, Platform};
use settee_auth::Authenticator;
use settee_database::Catalog;
use settee_database::tasks::Tasks;
use settee_design::{Growth, Limits, LimitsSource};
use settee_search::{Caches, Searches};
use settee_settings::{couchdb, query_server_config, search, view_updater};
use settee_storage::{Engine, durable};
use settee_views::{Clock, Languages, LogLine, LogSubject, Views};

use crate::config::Configuration;
use crate::indexing::Indexing;
use crate::maintenance::Maintenance;
use crate::uuids::{Algorithm, Entropy, Uuids};
use crate::{cluster, environment, keys, languages, memory};
use settee_admin::backends;

/// The interface of this version is implemented.
const COUCHDB_VERSION: &str = "3.5.2";

pub(crate) fn create_spill(data: &Path) -> anyhow::Result<()> {
    durable::create_directories(&data.join(backends::SPILL))
        .context("the directory for temporary files cannot be created")
}

pub(crate) fn catalog(engine: Arc<dyn Engine>) -> anyhow::Result<Arc<Catalog>> {
    Ok(Arc::new(Catalog::open(engine, environment::random_u64()).context("the databases cannot be read")?))
}

/// Does not start the background work of the node.
pub(crate) fn make(
    data: &Path,
    catalog: Arc<Catalog>,
    configuration: Arc<Configuration>,
    authenticator: Authenticator,
    operation: Operation,
    platform: Platform,
) -> anyhow::Result<(Arc<Node>, Maintenance)> {
    limit_open_databases(&configuration, &catalog);
    let tasks = Tasks::new(|| environment::now_us() / 1_000_000);
    let languages = languages::find(&configuration, data)?;
    let views = Arc::new(views(&catalog, &languages, &tasks, &configuration, &data.join(backends::SPILL))?);
    let uuid = couchdb::UUID.of(configuration.as_ref());
    let name = cluster::name(&configuration)?;
    let uuids = uuids(&configuration);
    let searches = Arc::new(searches(&views, &tasks, &configuration));
    let indexing = Indexing::new(Arc::clone(&views), Arc::clone(&searches), Arc::clone(&configuration));
    let maintenance = Maintenance {
        catalog: Arc::clone(&catalog),
        tasks: tasks.clone(),
        configuration: Arc::clone(&configuration),
        indexing,
        written: parking_lot::Mutex::default(),
        data: data.to_owned(),
    };
    let node = Node::new(NodeDependencies {
        catalog,
        views,
        searches,
        languages,
        tasks,
        settings: configuration,
        authenticator,
        uuids: Box::new(move |count| uuids.take(count)),
        identity: Identity {
            couchdb_version: COUCHDB_VERSION.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: name,
            uuid,
        },
        clock_ms: Box::new(environment::now_ms),
        entropy: Box::new(environment::random_u64),
        platform,
        operation,
    });
    Ok((node, maintenance))
}

fn limit_open_databases(configuration: &Arc<Configuration>, catalog: &Arc<Catalog>) {
    let limit = |configuration: &Configuration| {
        let limit = couchdb::MAX_DBS_OPEN.of(configuration);
        usize::try_from(limit).unwrap_or(usize::MAX)
    };
    catalog.set_max_open(limit(configuration));
    let (settings, catalog) = (Arc::downgrade(configuration), Arc::clone(catalog));
    configuration.on_change(move |change| {
        let is_it = couchdb::MAX_DBS_OPEN.is(change.section, change.key);
        if let Some(settings) = settings.upgrade().filter(|_| is_it) {
            catalog.set_max_open(limit(&settings));
        }
    });
}

pub(crate) fn platform(configuration: &Configuration) -> anyhow::Result<Platform> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let lower_priority = Arc::new(environment::lower_priority);
    let request_memory_bytes = memory::for_requests(configuration);
    tracing::info!(
        bytes = request_memory_bytes,
        "memory for bodies of requests and responses: [chttpd] max_request_memory"
    );
    Ok(Platform { processors, give_way: lower_priority, read_keys: keys::reader()?, request_memory_bytes })
}

fn views(
    catalog: &Arc<Catalog>,
    languages: &Languages,
    tasks: &Tasks,
    configuration: &Arc<Configuration>,
    spill: &Path,
) -> anyhow::Result<Views> {
    let settings = settee_views::Settings {
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: usize::try_from(view_updater::SORT_MEMORY_BYTES.of(configuration.as_ref())).unwrap_or(usize::MAX),
        run_directory: spill.to_owned(),
        checkpoint_interval_ms: view_updater::CHECKPOINT_INTERVAL.of(configuration.as_ref()).saturating_mul(1000),
        clock: Clock::new(environment::monotonic_us),
        limits: LimitsSource::new({
            let configuration = Arc::clone(configuration);
            move || function_limits(&configuration)
        }),
        seed: environment::random_u64(),
    };
    Ok(Views::new(Arc::clone(catalog), Arc::clone(languages), tasks.clone(), Arc::new(log_line), settings))
}

fn searches(views: &Arc<Views>, tasks: &Tasks, configuration: &Configuration) -> Searches {
    let [part_bytes, vector_bytes] = [&search::CACHE_BYTES, &search::VECTOR_CACHE_BYTES]
        .map(|setting| usize::try_from(setting.of(configuration)).unwrap_or(usize::MAX));
    let caches = Caches::new(part_bytes, vector_bytes);
    let seed = environment::random_u64();
    Searches::new(Arc::clone(views), tasks.clone(), Arc::new(log_line), caches, seed)
}

fn function_limits(configuration: &Configuration) -> Limits {
    Limits {
        timeout_ms: couchdb::OS_PROCESS_TIMEOUT.of(configuration),
        key_bytes: view_updater::MAX_KEY_BYTES.of(configuration),
        value_bytes: view_updater::MAX_VALUE_BYTES.of(configuration),
        rows_per_document: u32::try_from(view_updater::MAX_DOCUMENT_ROWS.of(configuration)).unwrap_or(u32::MAX),
        bytes_per_document: view_updater::MAX_DOCUMENT_BYTES.of(configuration),
        reduction_bytes: view_updater::MAX_REDUCTION_BYTES.of(configuration),
        growth: match query_server_config::REDUCE_LIMIT.of(configuration).as_str() {
            "false" => Growth::Allowed,
            "log" => Growth::Logged,
            _ => Growth::Refused,
        },
        ..Limits::default()
    }
}

fn log_line(line: &LogLine<'_>) {
    let LogLine { database, design_document, subject, message } = *line;
    match subject {
        LogSubject::Failure(document) => {
            tracing::info!(database, design_document, document, "map function failed: {message}");
        }
        LogSubject::Message => tracing::info!(database, design_document, "function says: {message}"),
        LogSubject::Engine => tracing::debug!(database, design_document, "{message}"),
    }
}

fn uuids(configuration: &Arc<Configuration>) -> Arc<Uuids> {
    let uuids = Arc::new(Uuids::new(algorithm(configuration), entropy(), environment::now_us));
    let (watched, updated) = (Arc::downgrade(configuration), Arc::clone(&uuids));
    configuration.on_change(move |change| {
        if let Some(configuration) = watched.upgrade().filter(|_| change.section == "uuids") {
            updated.set_algorithm(algorithm(&configuration));
        }
    });
    uuids
}

fn algorithm(configuration: &Configuration) -> Algorithm {
    let (name, suffix) =
        (settee_settings::uuids::ALGORITHM.of(configuration), settee_settings::uuids::UTC_ID_SUFFIX.of(configuration));
    Algorithm::named(&name, &suffix).unwrap_or(Algorithm::Sequential)
}

pub(crate) fn entropy() -> Arc<dyn Entropy> {
    Arc::new(environment::random)
}

pub(crate) fn authenticator(configuration: &Arc<Configuration>, address: SocketAddr) -> Authenticator {
    let mut key = [0; 32];
    environment::random(&mut key);
    let authenticator = Authenticator::new(key);
    authenticator.set_admins(configuration.section("admins"));
    let (watched, updated) = (Arc::downgrade(configuration), authenticator.clone());
    configuration.on_change(move |change| {
        if let Some(configuration) = watched.upgrade().filter(|_| change.section == "admins") {
            let mut admins = configuration.section("admins");
            if admins.is_empty() && !address.ip().is_loopback() {
                tracing::warn!("the last administrator was removed: all requests are rejected until one is created");
                // No client can authenticate as this administrator, but it keeps the server closed.
                admins.push((String::new(), String::new()));
            }
            updated.set_admins(admins);
        }
    });
    authenticator
}
