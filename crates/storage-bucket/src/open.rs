//! Opening of an engine: the identity of the store, the lease, then the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use settee_storage::{Result, StorageError};
use slatedb::Db;
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use tokio::runtime::{Builder, Runtime};

use crate::BucketEngine;
use crate::block::block_on;
use crate::error::translate;
use crate::flusher::Flusher;
use crate::lease::{Lease, LeaseOptions};
use crate::location::{Bucket, Ownership};
use crate::metered::{Metadata, Meter, MeteredStore};
use crate::options::Options;
use crate::shards::Slots;
use crate::{clear, identity};

/// Folder of the library's objects.
const FOLDER: &str = "store";

/// Threads of the runtime: log, files and compactions. Reads are executed by their callers.
const THREADS_MAX: usize = 4;

pub(crate) fn open(bucket: Bucket, options: &Options) -> Result<BucketEngine> {
    let runtime = start_runtime()?;
    match block_on(runtime.handle(), open_on(&runtime, bucket, options)) {
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

async fn open_on(runtime: &Runtime, bucket: Bucket, options: &Options) -> Result<BucketEngine> {
    let Bucket { objects, shown, ownership } = bucket;
    let is_directory = matches!(ownership, Ownership::Locked(_));
    let metadata = if is_directory { Metadata::Dropped } else { Metadata::Kept };
    let meter = Arc::new(Meter::default());
    let objects = MeteredStore::wrap(objects, Arc::clone(&meter), metadata, options.timeout);
    let new = identity::ClusterId(options.id);
    let cluster = identity::establish(objects.as_ref(), &shown, options.cluster, new).await?;
    let (lease, lock) = match ownership {
        Ownership::Locked(lock) => (None, Some(lock)),
        Ownership::Leased => {
            let lease_options = LeaseOptions {
                node: options.id,
                name: options.name.clone(),
                duration: options.lease,
                standby: options.standby,
                shown: shown.clone(),
            };
            let lease = Lease::acquire(Arc::clone(&objects), lease_options).await?;
            // Opening may take longer than the lease lasts.
            runtime.spawn(Arc::clone(&lease).renew());
            (Some(lease), None)
        }
    };
    let cache = MokaCacheOptions { max_capacity: options.cache_bytes, ..MokaCacheOptions::default() };
    let opened = Db::builder(FOLDER, objects)
        .with_settings(options.settings(is_directory))
        .with_db_cache(Arc::new(MokaCache::new_with_opts(cache)), 0)
        .build()
        .await;
    let database = match opened {
        Ok(database) => Arc::new(database),
        Err(error) => {
            if let Some(lease) = lease {
                lease.release().await;
            }
            return Err(translate(&error));
        }
    };
    let flusher = Arc::new(Flusher::default());
    runtime.spawn(Arc::clone(&flusher).run(Arc::clone(&database), options.commit_interval));
    runtime.spawn(clear::resume(Arc::clone(&database)));
    Ok(BucketEngine {
        runtime: None,
        status: database.subscribe(),
        database,
        flusher,
        lease,
        _lock: lock,
        slots: Slots::default(),
        meter,
        cluster,
        shown,
        timeout: options.timeout,
        commits: AtomicU64::new(0),
        written: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
    })
}
