//! Opening of an engine: the identity of the store, then the coordinator.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use settee_cluster::Groups;
use settee_storage::members::NodeId;
use settee_storage::{Result, StorageError};
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use tokio::runtime::{Builder, Runtime};

use crate::BucketEngine;
use crate::block::block_on;
use crate::engine::Inner;
use crate::group::Context;
use crate::history::PastStore;
use crate::identity::{self, ClusterId, Identity};
use crate::lease::{Candidate, LeaseOptions};
use crate::location::{Bucket, Ownership};
use crate::metered::{Metadata, Meter, MeteredStore};
use crate::nodes::Nodes;
use crate::options::{self, Options};
use crate::peers::Peers;

/// Threads of the runtime: log, files and compactions. Reads are executed by their callers.
const THREADS_MAX: usize = 4;

pub(crate) fn open(bucket: Bucket, options: &Options, peers: Option<Arc<dyn Peers>>) -> Result<BucketEngine> {
    let runtime = start_runtime()?;
    match block_on(runtime.handle(), open_on(&runtime, bucket, options, peers)) {
        Ok(mut engine) => {
            engine.runtime = Some(runtime);
            Ok(engine)
        }
        Err(error) => {
            runtime.shutdown_background();
            Err(error)
        }
    }
}

fn start_runtime() -> Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name("bucket").enable_all().build();
    runtime.map_err(|error| StorageError::Io(format!("threads cannot be started: {error}")))
}

async fn open_on(
    runtime: &Runtime,
    bucket: Bucket,
    options: &Options,
    peers: Option<Arc<dyn Peers>>,
) -> Result<BucketEngine> {
    let Bucket { objects, shown, ownership } = bucket;
    let is_directory = matches!(ownership, Ownership::Locked(_));
    let metadata = if is_directory { Metadata::Dropped } else { Metadata::Kept };
    let meter = Arc::new(Meter::default());
    let mut objects = MeteredStore::wrap(objects, Arc::clone(&meter), metadata, options.timeout);
    let mut time_s = None;
    if let Ownership::Past(at_s) = ownership {
        let (past, at_s) = PastStore::open(objects, &shown, at_s).await?;
        (objects, time_s) = (past, Some(at_s));
    }
    let new = Identity::new(ClusterId(options.id), options.groups, options.secret);
    let Identity { cluster, groups, secret, .. } =
        identity::establish(objects.as_ref(), &shown, options.cluster, new).await?;
    let lease = LeaseOptions { node: options.id, duration: options.lease, shown: shown.clone() };
    let (candidate, lock) = match ownership {
        Ownership::Locked(lock) => (None, Some(lock)),
        Ownership::Leased => (Some(Candidate::new(Arc::clone(&objects), lease)), None),
        Ownership::Past(_) => (None, None),
    };
    let is_known = peers.is_some();
    let (id, handle) = (NodeId(options.id), runtime.handle().clone());
    let nodes = Nodes::new((id, options.started_ms), Groups::new(groups), handle.clone(), candidate, (secret, peers));
    nodes.join((&options.name, &options.address), &shown, options.is_exclusive).await?;
    let cache = MokaCacheOptions { max_capacity: options.cache_bytes, ..MokaCacheOptions::default() };
    let context = Context {
        objects,
        runtime: handle,
        settings: options.settings(time_s.is_some()),
        garbage: time_s.is_none().then(|| options::garbage(is_directory)),
        history: options.history,
        cache: Arc::new(MokaCache::new_with_opts(cache)),
        shown,
        timeout: options.timeout,
        commit_interval: options.commit_interval,
        idle_time: options.idle_time,
        meter,
        commits: AtomicU64::new(0),
        written: AtomicU64::new(0),
    };
    let inner = Arc::new(Inner::new(nodes, Arc::new(context)));
    runtime.spawn(Inner::run(Arc::downgrade(&inner)));
    Ok(BucketEngine { runtime: None, inner, cluster, time_s, has_peers: is_known, _lock: lock })
}
