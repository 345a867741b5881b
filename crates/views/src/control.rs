//! [`BuildControl`]: pause, resumption and cancellation of the builds of a design document, which apply to all
//! processes and survive restarts. A paused build keeps its progress. A cancelled build discards the progress that is
//! not in its index; background builds then skip the indexes until a query needs them or their definition changes.

use std::sync::Arc;

use settee_database::tasks::TaskKind;
use settee_design::DesignDocument;
use settee_storage::codec::{Reader, put_bytes, put_varint};

use crate::claims::Claimed;
use crate::error::{Result, ViewError};
use crate::handle::{BuildControl, DatabaseIndexes};
use crate::host::IndexHost;
use crate::index::Signature;
use crate::index::identity::definitions;
use crate::shared::Core;

/// State of the builds of a design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildState {
    /// Greatest status of the indexes.
    pub status: BuildStatus,
    /// Update sequence that all indexes have reached.
    pub update_seq: u64,
    /// Update sequence after applying the checkpoint of an interrupted or long build, if one exists.
    pub checkpoint_seq: Option<u64>,
    /// Number of changes by which the most outdated index is behind.
    pub updates_pending: u64,
    /// Number of waiting queries.
    pub waiting_clients: u64,
    /// Progress of the running build: processed changes, total changes, and remaining seconds if available.
    pub progress: Option<(u64, u64, Option<u64>)>,
}

impl BuildState {
    /// Combines the states of indexes of the same design document.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let checkpoint_seq = match (self.checkpoint_seq, other.checkpoint_seq) {
            (Some(one), Some(another)) => Some(one.min(another)),
            (one, another) => one.or(another),
        };
        Self {
            status: self.status.max(other.status),
            update_seq: self.update_seq.min(other.update_seq),
            checkpoint_seq,
            updates_pending: self.updates_pending.max(other.updates_pending),
            waiting_clients: self.waiting_clients + other.waiting_clients,
            progress: self.progress.or(other.progress),
        }
    }
}

/// State of builds. The state of several indexes is the greatest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildStatus {
    /// All indexes are current.
    Current,
    /// The indexes are behind, and background builds skip them after a cancellation or a failure.
    Resting,
    /// The indexes are behind, and no build is running.
    Lagging,
    /// A build is running.
    Building,
    /// An administrator has paused the builds.
    Paused,
}

impl BuildStatus {
    /// Returns the name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Lagging => "lagging",
            Self::Building => "building",
            Self::Paused => "paused",
            Self::Resting => "resting",
        }
    }
}

const BACKOFF_US: u64 = 60_000_000;

fn paused_key(ddoc: &str) -> String {
    format!("paused/{ddoc}")
}

fn cancelled_key(ddoc: &str) -> String {
    format!("cancelled/{ddoc}")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cancelled {
    count: u64,
    skipped: Option<Signature>,
}

impl Cancelled {
    fn of(control: &BuildControl) -> Self {
        let skipped = control.backoff.filter(|(_, until_us)| *until_us == u64::MAX).map(|(signature, _)| signature);
        Self { count: control.cancels, skipped }
    }

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.count);
        put_bytes(&mut out, self.skipped.map(|signature| signature.to_string()).unwrap_or_default().as_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "cancelled builds");
        Ok(Self { count: reader.varint()?, skipped: Signature::parse(reader.bytes()?) })
    }
}

impl DatabaseIndexes {
    fn known_control(&self, host: &dyn IndexHost, ddoc: &Arc<str>) -> Option<BuildControl> {
        let elsewhere = host.changes_elsewhere();
        self.controls.lock().get(ddoc).filter(|control| control.elsewhere == elsewhere).copied()
    }
}

fn read_control(host: &dyn IndexHost, indexes: &DatabaseIndexes, ddoc: &Arc<str>) -> Result<BuildControl> {
    if let Some(control) = indexes.known_control(host, ddoc) {
        return Ok(control);
    }
    let elsewhere = host.changes_elsewhere();
    let mut records = host.read_records(&[&paused_key(ddoc), &cancelled_key(ddoc)])?.into_iter();
    let is_paused = records.next().flatten().is_some();
    let cancelled = records.next().flatten().map_or(Ok(Cancelled::default()), |record| Cancelled::decode(&record))?;
    let mut controls = indexes.controls.lock();
    let control = controls.entry(Arc::clone(ddoc)).or_default();
    let own_backoff = control.backoff.filter(|(_, until_us)| *until_us != u64::MAX);
    let backoff = cancelled.skipped.map(|signature| (signature, u64::MAX)).or(own_backoff);
    *control = BuildControl { is_paused, cancels: cancelled.count, backoff, elsewhere };
    Ok(*control)
}

impl Core {
    /// Returns the stored control, which applies to all processes, combined with the local one.
    pub(crate) fn control(
        &self,
        host: &dyn IndexHost,
        indexes: &DatabaseIndexes,
        ddoc: &Arc<str>,
    ) -> Result<BuildControl> {
        if let Some(control) = indexes.known_control(host, ddoc) {
            return Ok(control);
        }
        let _changing = indexes.changing.lock();
        read_control(host, indexes, ddoc)
    }

    fn change_control(
        &self,
        host: &dyn IndexHost,
        ddoc: &Arc<str>,
        change: impl FnOnce(&mut BuildControl),
    ) -> Result<()> {
        let indexes = self.indexes_of(host.shard());
        let _changing = indexes.changing.lock();
        let before = read_control(host, &indexes, ddoc)?;
        let mut after = before;
        change(&mut after);
        if after.is_paused != before.is_paused {
            host.write_record(&paused_key(ddoc), after.is_paused.then(Vec::new))?;
        }
        let cancelled = Cancelled::of(&after);
        if cancelled != Cancelled::of(&before) {
            host.write_record(&cancelled_key(ddoc), Some(cancelled.encode()))?;
        }
        indexes.controls.lock().insert(Arc::clone(ddoc), after);
        Ok(())
    }

    pub(crate) fn pause(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        self.change_control(host, &ddoc.id, |control| control.is_paused = true)
    }

    pub(crate) fn resume(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        self.change_control(host, &ddoc.id, |control| (control.is_paused, control.backoff) = (false, None))
    }

    pub(crate) fn cancel(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        let definitions = definitions(host.layout(), ddoc);
        let signature = Signature::of_all(&definitions);
        self.change_control(host, &ddoc.id, |control| {
            control.cancels += 1;
            control.backoff = Some((signature, u64::MAX));
        })?;
        // A running build, here or in another process, clears its own indexes.
        for definition in definitions {
            let handle = self.handle(host, definition.signature)?;
            if let Some(guard) = handle.try_build() {
                let discarded = Claimed::try_new(host.engine(), handle.store().shard());
                let discarded = discarded.map_err(ViewError::from).and_then(|claimed| match claimed {
                    Some(_claimed) => self.discard(handle.store()),
                    None => Ok(()),
                });
                guard.finish(discarded);
            }
        }
        Ok(())
    }

    pub(crate) fn start_backoff(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        let signature = Signature::of_all(&definitions(host.layout(), ddoc));
        let until_us = self.clock().now_us().saturating_add(BACKOFF_US);
        self.change_control(host, &ddoc.id, |control| {
            // A cancellation has no end and must remain.
            if control.backoff.is_none_or(|(skipped, until)| skipped != signature || until < until_us) {
                control.backoff = Some((signature, until_us));
            }
        })
    }

    pub(crate) fn end_backoff(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        match self.control(host, &self.indexes_of(host.shard()), &ddoc.id)?.backoff {
            Some(_) => self.change_control(host, &ddoc.id, |control| control.backoff = None),
            None => Ok(()),
        }
    }

    /// Returns the number of changes by which the indexes are behind; `None` if no background build should run.
    pub(crate) fn lag(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<Option<u64>> {
        let state = self.build_state(host, ddoc)?;
        Ok((state.status == BuildStatus::Lagging).then_some(state.updates_pending))
    }

    pub(crate) fn build_state(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<BuildState> {
        let indexes = self.indexes_of(host.shard());
        let control = self.control(host, &indexes, &ddoc.id)?;
        let definitions = definitions(host.layout(), ddoc);
        let database = host.read()?;
        let current_seq = database.update_seq()?;
        let (mut is_building, mut is_current_all, mut waiting_clients) = (false, true, 0);
        let (mut update_seq, mut checkpoint_seq, mut has_checkpoint) = (current_seq, current_seq, false);
        for definition in &definitions {
            let (handle, _, meta) = self.open_snapshot(host, definition.signature)?;
            let (builds, waits) = handle.activity();
            is_building |= builds;
            waiting_clients += waits;
            is_current_all &= meta.is_current(&definition.reduces, current_seq);
            update_seq = update_seq.min(meta.update_seq);
            let checkpoint = handle.store().checkpoint()?;
            has_checkpoint |= checkpoint.is_some();
            checkpoint_seq = checkpoint_seq.min(checkpoint.map_or(meta.update_seq, |checkpoint| checkpoint.update_seq));
        }
        let is_backing_off = control.backoff.is_some_and(|(signature, until_us)| {
            signature == Signature::of_all(&definitions) && self.clock().now_us() < until_us
        });
        let status = match () {
            () if control.is_paused => BuildStatus::Paused,
            () if is_building => BuildStatus::Building,
            () if is_current_all => BuildStatus::Current,
            () if is_backing_off => BuildStatus::Resting,
            () => BuildStatus::Lagging,
        };
        Ok(BuildState {
            status,
            update_seq,
            checkpoint_seq: has_checkpoint.then_some(checkpoint_seq),
            updates_pending: database.count_after(update_seq)?,
            waiting_clients,
            progress: self.progress(host, &ddoc.id),
        })
    }

    pub(crate) fn progress(&self, host: &dyn IndexHost, ddoc: &str) -> Option<(u64, u64, Option<u64>)> {
        let kind = TaskKind::Indexer { database: host.name().to_owned(), design_document: ddoc.to_owned() };
        let task = self.tasks().list().into_iter().find(|task| task.kind == kind)?;
        Some((task.changes_done, task.total_changes, task.eta_s()))
    }
}
