//! [`RawRocks`]: the bare store to which benchmarks are compared.

use std::path::Path;

use settee_bench::{RawLoad, RawStore};
use settee_storage_rocksdb::raw;

/// RocksDB without any layer above it.
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
