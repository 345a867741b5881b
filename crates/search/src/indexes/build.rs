//! Updates of a search index. Each index has separate passes, because an error of one index, such as a field with two
//! types, must not block the others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use settee_database::tasks::TaskKind;
use settee_database::{Database, ReadView};
use settee_design::DesignDocument;
use settee_storage::StorageError;
use settee_views::{BuildState, BuildStatus, ChangeSnapshot, Claimed, PaceState, Urgency, ViewError};

use super::definition::SearchIndex;
use super::pass::Pass;
use super::position::Position;
use super::state::{Indexes, SearchAcquired, SearchGuard};
use super::{Result, SearchError, Searches, signature_of_all};
use crate::{Error, SearchLimits};

/// A build is retried, from the last commit on, after a commit by another process or a reopening of the engine.
const RETRIES_MAX: u32 = 1000;

struct Build<'a> {
    database: &'a Arc<Database>,
    ddoc: &'a DesignDocument,
    wanted: &'a SearchIndex,
    indexes: &'a Indexes,
    guard: &'a SearchGuard,
    claimed: Option<&'a Claimed>,
    urgency: Urgency,
    cancels: u64,
}

enum Built {
    Done,
    StartOver,
    /// Another process has built the index, or replaced its shard.
    Elsewhere,
}

impl Searches {
    /// Builds an index until it shows the database at `update_seq` or later, or waits for a concurrent build.
    pub(super) fn advance(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        wanted: &SearchIndex,
        update_seq: u64,
        urgency: Urgency,
    ) -> Result<()> {
        self.require_buildable(database, ddoc, wanted, update_seq)?;
        let guard = match self.handle(database, wanted)?.acquire_build() {
            Ok(SearchAcquired::Build(guard)) => guard,
            Ok(SearchAcquired::Over) => return Ok(()),
            Err(SearchError::Build(ViewError::Paused)) if !self.views.control(database, &ddoc.id)?.is_paused => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.build_with(guard, database, ddoc, wanted, update_seq, urgency)
    }

    /// Starts a build on a separate thread, unless one is running, and waits for it within the limits. The build
    /// continues after its client has disconnected.
    pub(super) fn await_build(
        self: &Arc<Self>,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        wanted: &SearchIndex,
        update_seq: u64,
        limits: &SearchLimits,
    ) -> Result<()> {
        limits.check()?;
        self.require_buildable(database, ddoc, wanted, update_seq)?;
        let handle = self.handle(database, wanted)?;
        let builds = handle.builds();
        if let Some(guard) = handle.try_build() {
            let (searches, database) = (Arc::clone(self), Arc::clone(database));
            let (ddoc, wanted) = (ddoc.clone(), wanted.clone());
            let thread = std::thread::Builder::new().name("settee-search".to_owned());
            drop(thread.spawn(move || {
                let _ = searches.build_with(guard, &database, &ddoc, &wanted, update_seq, Urgency::Client);
            }));
        }
        match handle.wait_for_build(builds, &mut || Ok(limits.check()?)) {
            Err(SearchError::Build(ViewError::Paused)) if !self.views.control(database, &ddoc.id)?.is_paused => Ok(()),
            result => result,
        }
    }

    fn require_buildable(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        wanted: &SearchIndex,
        update_seq: u64,
    ) -> Result<()> {
        if self.views.control(database, &ddoc.id)?.is_paused {
            return Err(ViewError::Paused.into());
        }
        match self.indexes_of(database).failed_builds.lock().get(&wanted.signature) {
            Some((seq, error)) if *seq >= update_seq => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn build_with(
        &self,
        guard: SearchGuard,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        wanted: &SearchIndex,
        update_seq: u64,
        urgency: Urgency,
    ) -> Result<()> {
        let indexes = self.indexes_of(database);
        let cancels = self.views.control(database, &ddoc.id)?.cancels;
        let build = Build { database, ddoc, wanted, indexes: &indexes, guard: &guard, claimed: None, urgency, cancels };
        match self.build_until_it_ends(&build, update_seq) {
            Ok(Built::Done) => {
                // The error is removed before the guard is released, because the next build may record one.
                indexes.failed_builds.lock().remove(&wanted.signature);
                guard.finish(Ok(()));
                Ok(())
            }
            Ok(Built::Elsewhere) => {
                guard.finish(Ok(()));
                Ok(())
            }
            Ok(Built::StartOver) => self.reset_index(database, wanted, &indexes, guard),
            Err(error) => {
                // Waiters of a background build continue to wait for the build of the other process.
                let is_left = urgency == Urgency::Background && matches!(error, SearchError::Build(ViewError::Stopped));
                guard.finish(if is_left { Ok(()) } else { Err(error.clone()) });
                Err(error)
            }
        }
    }

    fn build_until_it_ends(&self, build: &Build<'_>, update_seq: u64) -> Result<Built> {
        let mut built = Ok(Built::Done);
        for _ in 0..RETRIES_MAX {
            // Each attempt has a new claim, because file numbers must not be reused.
            let Some(claimed) = self.claim(build, update_seq)? else { return Ok(Built::Elsewhere) };
            built = self.build(&Build { claimed: Some(&claimed), ..*build }, update_seq);
            let must_reset = matches!(
                &built,
                Err(SearchError::Index(Error::Contended | Error::Storage(StorageError::Interrupted(_)))
                    | SearchError::Build(ViewError::Storage(StorageError::Interrupted(_))))
            );
            if !must_reset {
                break;
            }
        }
        built
    }

    /// Waits while another process holds the claim. Returns `None` if that process has built the index.
    fn claim(&self, build: &Build<'_>, update_seq: u64) -> Result<Option<Claimed>> {
        let engine = self.views.catalog().engine();
        let index = build.guard.handle().store();
        let try_claim =
            || Claimed::try_new(engine, index.shard()).map_err(|error| SearchError::from(ViewError::from(error)));
        if let Some(claimed) = try_claim()? {
            return Ok(Some(claimed));
        }
        if build.urgency == Urgency::Background {
            return Err(ViewError::Stopped.into());
        }
        let mut watch = self.claims.watch(engine.as_ref(), index.shard());
        loop {
            self.check(build)?;
            match Position::of(index) {
                Ok(position) if position.update_seq >= update_seq => return Ok(None),
                Err(Error::Storage(StorageError::Dropped)) => return Ok(None),
                position => drop(position?),
            }
            if let Some(claimed) = try_claim()? {
                return Ok(Some(claimed));
            }
            watch.wait();
        }
    }

    fn reset_index(
        &self,
        database: &Arc<Database>,
        wanted: &SearchIndex,
        indexes: &Indexes,
        guard: SearchGuard,
    ) -> Result<()> {
        let mut handles = indexes.handles.lock();
        let records = self.records(database);
        // Has no effect if another process has already replaced it.
        records.replace(wanted.signature, guard.handle().store().shard())?;
        handles.remove(&wanted.signature);
        guard.retire();
        Ok(())
    }

    fn build(&self, build: &Build<'_>, update_seq: u64) -> Result<Built> {
        self.check(build)?;
        let _client_build = self.views.pace().register(build.urgency);
        let index = build.guard.handle().store();
        // The snapshot must be newer than the right to build: otherwise the index may be ahead of it.
        let view = build.database.read().map_err(ViewError::from)?;
        let found = match index.position() {
            Err(Error::Storage(StorageError::Dropped)) => return Ok(Built::StartOver),
            found => found?,
        };
        let position = match found {
            Some(bytes) => match Position::decode(&bytes)? {
                Some(position) => position,
                None => return Ok(Built::StartOver),
            },
            None => Position::default(),
        };
        if position.update_seq > 0 && position.purge_seq < ChangeSnapshot::purges_forgotten(&view)? {
            return Ok(Built::StartOver);
        }
        if position.update_seq >= update_seq {
            return Ok(Built::Done);
        }
        let result = match index.writer(build.claimed.map_or(0, Claimed::first_number)) {
            Ok(Some(writer)) => self.run_pass(build, &view, position, writer).map(|()| Built::Done),
            Ok(None) => Ok(Built::StartOver),
            Err(error) => Err(error.into()),
        };
        match result {
            Err(SearchError::Index(Error::Corrupt(_))) if index.is_overtaken()? => Err(Error::Contended.into()),
            result => result,
        }
    }

    fn run_pass(&self, build: &Build<'_>, view: &ReadView<'_>, since: Position, writer: crate::Writer) -> Result<()> {
        let Build { database, ddoc, wanted, indexes, .. } = *build;
        let language = self.views.language(ddoc)?;
        let total_changes = view.count_after(since.update_seq)?;
        let kind = TaskKind::SearchIndexer {
            database: database.name().to_owned(),
            design_document: ddoc.id.to_string(),
            index: wanted.name.to_string(),
        };
        let task = self.tasks.start(kind, total_changes);
        let pass = Pass {
            settings: self.views.settings(),
            limits: self.views.limits(),
            language: &language,
            wanted,
            layout: database.layout(),
            database: view,
            since,
            pending: total_changes,
            is_unhurried: build.urgency == Urgency::Background,
            control: &|pace_state, bytes| self.apply_pace(build, pace_state, bytes),
            progress: &|done| task.update(done, total_changes),
            log_event: &|subject, message| self.log_event(database, ddoc, subject, message),
        };
        let result = pass.run(writer);
        if let Err(error @ SearchError::Index(Error::TypeConflict { .. })) = &result {
            let seq = ChangeSnapshot::update_seq(view)?;
            indexes.failed_builds.lock().insert(wanted.signature, (seq, error.clone()));
        }
        result
    }

    fn apply_pace(&self, build: &Build<'_>, pace_state: &mut PaceState, bytes: u64) -> Result<()> {
        let is_awaited = || build.guard.handle().activity().1 > 0 || build.claimed.is_some_and(Claimed::is_awaited);
        if build.urgency == Urgency::Background {
            self.views.pace().pause(pace_state, bytes, &|| is_awaited() || self.check(build).is_err());
        }
        self.check(build)
    }

    fn check(&self, build: &Build<'_>) -> Result<()> {
        if self.databases.is_stopping() || build.indexes.stop.load(Ordering::Relaxed) {
            return Err(ViewError::Stopped.into());
        }
        let control = self.views.control(build.database, &build.ddoc.id)?;
        match control.cancels == build.cancels {
            false => Err(ViewError::Cancelled.into()),
            true if control.is_paused => Err(ViewError::Paused.into()),
            true if build.claimed.is_some_and(|claimed| !claimed.is_held()) => Err(Error::Contended.into()),
            true => Ok(()),
        }
    }

    /// The caller must call this after [`settee_views::Views::cancel`]: background builds then skip the indexes of the
    /// design document until a query needs them or their definitions change.
    pub fn note_cancelled(&self, database: &Arc<Database>, ddoc: &DesignDocument) {
        self.start_backoff(database, ddoc, u64::MAX);
    }

    /// The caller must call this after [`settee_views::Views::resume`].
    pub fn note_resumed(&self, database: &Arc<Database>, ddoc: &DesignDocument) {
        self.indexes_of(database).end_backoff(&ddoc.id);
    }

    /// Returns the number of changes by which the search indexes are behind; `None` if no background build should run.
    pub fn lag(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<Option<u64>> {
        let state = self.build_state(database, ddoc)?;
        Ok((state.status == BuildStatus::Lagging).then_some(state.updates_pending))
    }

    pub fn build_state(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<BuildState> {
        let indexes = self.indexes_of(database);
        let control = self.views.control(database, &ddoc.id)?;
        let view = database.read().map_err(ViewError::from)?;
        let current_seq = ChangeSnapshot::update_seq(&view)?;
        let (mut is_building, mut waiting_clients, mut update_seq) = (false, 0, current_seq);
        for wanted in SearchIndex::all(ddoc) {
            let (handle, position) = self.shown(database, &wanted)?;
            let (builds, waits) = handle.activity();
            is_building |= builds;
            waiting_clients += waits;
            update_seq = update_seq.min(position.update_seq);
        }
        let is_backing_off = indexes.is_backing_off(&ddoc.id, signature_of_all(ddoc), self.clock().now_us());
        let status = match () {
            () if control.is_paused => BuildStatus::Paused,
            () if is_building => BuildStatus::Building,
            () if update_seq >= current_seq => BuildStatus::Current,
            () if is_backing_off => BuildStatus::Resting,
            () => BuildStatus::Lagging,
        };
        let updates_pending = view.count_after(update_seq)?;
        let progress = self.progress(database, ddoc);
        Ok(BuildState { status, update_seq, checkpoint_seq: None, updates_pending, waiting_clients, progress })
    }

    fn progress(&self, database: &Database, ddoc: &DesignDocument) -> Option<(u64, u64, Option<u64>)> {
        let task = self.tasks.list().into_iter().find(|task| match &task.kind {
            TaskKind::SearchIndexer { database: name, design_document, .. } => {
                *name == *database.name() && **design_document == *ddoc.id
            }
            TaskKind::Indexer { .. } | TaskKind::DatabaseCompaction { .. } => false,
        })?;
        Some((task.changes_done, task.total_changes, task.eta_s()))
    }
}
