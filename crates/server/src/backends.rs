//! The storage engines that can be chosen, and the bare one that benchmarks are held against.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use settee_bench::{RawLoad, RawStore};
use settee_storage::Engine;
use settee_storage_rocksdb::{Options, RocksEngine, raw};

/// Opens the engine that keeps its files in `directory`.
pub(crate) fn open(directory: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let engine = RocksEngine::open(directory, &Options::default())
        .with_context(|| format!("the data in {} cannot be opened", directory.display()))?;
    Ok(Arc::new(engine))
}

/// RocksDB without anything of ours above it.
pub(crate) struct RawRocks;

impl RawStore for RawRocks {
    fn load(
        &self,
        directory: &Path,
        load: RawLoad,
        batches: &mut dyn Iterator<Item = Vec<(Vec<u8>, Vec<u8>)>>,
        sync_each_batch: bool,
    ) -> anyhow::Result<f64> {
        let pattern = match load {
            RawLoad::Pairs => raw::RawPattern::Pair,
            RawLoad::Documents => raw::RawPattern::Document,
        };
        let report = raw::RawStore::load(directory, pattern, batches, sync_each_batch)?;
        Ok(report.seconds)
    }
}
