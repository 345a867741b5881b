//! Checkpoints of long loads, from which a load continues after a crash. Periodically the workers stop, write their
//! sorted runs to files, sync them, and record in the index which files bring it to which update sequence
//! ([`Checkpoint`]). Other files are invalid. Opening the index merges the recorded runs into its trees ([`resume`]),
//! and the build continues as after any update.

use std::collections::HashSet;
use std::sync::Arc;

use settee_design::{Language, Limits};

use super::runs::{self, RunDirectory};
use super::worker::{Target, Worker};
use super::write::{MappedRuns, PassPosition, WritableIndex, load};
use super::{Pass, PassIndex};
use crate::error::Result;
use crate::index::Checkpoint;
use crate::reduce::Aggregate;

impl Pass<'_> {
    pub(super) fn make_checkpoint(
        &self,
        writables: &mut [WritableIndex<'_>],
        workers: &mut [Worker],
        targets: &[Target<'_>],
        reached: PassPosition,
    ) -> Result<()> {
        let mut checkpoints = Vec::new();
        for (index, (writable, target)) in writables.iter().zip(targets).enumerate() {
            let since = writable.meta.update_seq;
            let PassPosition { update_seq, purge_seq } = reached.not_before(&writable.meta);
            let (mut rows, mut entries) = (Vec::new(), Vec::new());
            for worker in &mut *workers {
                let output = &mut worker.outputs[index];
                rows.extend_from_slice(output.rows.spill_all(target.directory)?);
                entries.extend_from_slice(output.entries.spill_all(target.directory)?);
            }
            checkpoints.push(Checkpoint { since, update_seq, purge_seq, rows, entries });
        }
        for ((writable, target), checkpoint) in writables.iter_mut().zip(targets).zip(checkpoints) {
            let fresh = checkpoint.runs().filter(|run| !writable.checkpointed.contains(&run.number));
            target.directory.sync(fresh, self.database_name)?;
            writable.writer.write_checkpoint(&checkpoint, &writable.meta)?;
            writable.checkpointed.extend(checkpoint.runs().map(|run| run.number));
        }
        writables.first().map_or(Ok(()), |writable| writable.store.sync())
    }
}

/// Removes the runs that were merged into the indexes, after a sync, so that no crash restores a checkpoint of them.
pub(super) fn clear_runs<'r>(
    writables: &mut [WritableIndex<'_>],
    mut directories: impl Iterator<Item = &'r RunDirectory>,
) -> Result<()> {
    if let Some(checkpointed) = writables.iter().find(|writable| !writable.checkpointed.is_empty()) {
        checkpointed.store.sync()?;
    }
    writables.iter_mut().for_each(|writable| writable.checkpointed.clear());
    directories.try_for_each(RunDirectory::remove)
}

/// Merges the runs of a checkpoint into the index. Discards a checkpoint whose files are missing or damaged, or that
/// needs purges up to `purges_forgotten`.
pub(crate) fn resume(
    index: PassIndex<'_>,
    checkpoint: &Checkpoint,
    language: &Arc<dyn Language>,
    limits: Limits,
    memory_bytes: usize,
    purges_forgotten: u64,
) -> Result<()> {
    let PassIndex { store, meta, mut writer, directory, .. } = index;
    let fits = checkpoint.since == meta.update_seq && checkpoint.purge_seq >= purges_forgotten;
    if !fits || !checkpoint.runs().all(|run| directory.is_whole(run)) {
        writer.forget_checkpoint()?;
        store.sync()?;
        return directory.remove();
    }
    let aggregates =
        meta.reduces.iter().map(|reduce| Aggregate::open(reduce, language, limits)).collect::<Result<_>>()?;
    let &Checkpoint { update_seq, purge_seq, .. } = checkpoint;
    let mapped = MappedRuns {
        rows: runs::open(&directory, checkpoint.rows.clone())?,
        entries: runs::open(&directory, checkpoint.entries.clone())?,
        entry_bytes: checkpoint.entries.iter().map(|run| run.bytes).sum(),
        reached: PassPosition { update_seq, purge_seq },
    };
    let mut writable = WritableIndex { store, writer, meta, aggregates, checkpointed: HashSet::new() };
    load(&mut writable, mapped, &directory, memory_bytes)?;
    store.sync()?;
    directory.remove()
}
