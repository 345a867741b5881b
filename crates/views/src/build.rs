//! Updates of the indexes of a design document.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use settee_database::tasks::TaskKind;
use settee_design::{Cancellation, DesignDocument, DocumentBatch, Emissions, Language, MapSource};
use settee_storage::StorageError;

use crate::claims::Claimed;
use crate::error::{Result, ViewError};
use crate::handle::{Acquired, BuildGuard, DatabaseIndexes};
use crate::host::IndexHost;
use crate::index::identity::definitions;
use crate::index::{IndexDefinition, IndexStore, Meta, Opened, Signature};
use crate::indexer::resume::resume;
use crate::indexer::runs::RunDirectory;
use crate::indexer::source::ChangeSnapshot;
use crate::indexer::{Pass, PassIndex, attach};
use crate::pace::{self, Urgency};
use crate::shared::{Core, LogSubject};

/// A build is retried, from the last commit on, after a commit by another process or a reopening of the engine.
const RETRIES_MAX: u32 = 1000;

struct Build<'a> {
    host: &'a dyn IndexHost,
    ddoc: &'a DesignDocument,
    indexes: &'a DatabaseIndexes,
    rights: &'a [Right<'a>],
    urgency: Urgency,
    cancels: u64,
}

/// The right to build an index, among the threads of this process and among processes.
struct Right<'a> {
    definition: &'a IndexDefinition,
    guard: BuildGuard,
    claimed: Option<Claimed>,
}

struct RequestedIndex<'a> {
    definition: &'a IndexDefinition,
    update_seq: u64,
}

impl Core {
    /// Builds an index until it shows the database at `update_seq` or later and has all reduce functions of `ddoc`, or
    /// waits for a concurrent build. Includes other lagging indexes of the design document.
    pub(crate) fn advance(
        &self,
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        signature: Signature,
        update_seq: u64,
        (urgency, cancellation): (Urgency, &Cancellation),
    ) -> Result<()> {
        host.waiting().may_block()?;
        let indexes = self.indexes_of(host.shard());
        let control = self.control(host, &indexes, &ddoc.id)?;
        if control.is_paused {
            return Err(ViewError::Paused);
        }
        let definitions = definitions(host.layout(), ddoc);
        let Some(definition) = definitions.iter().find(|definition| definition.signature == signature) else {
            return Err(ViewError::MissingView);
        };
        let mut has_joined = false;
        let guard = loop {
            match self.handle(host, signature)?.acquire_build_while(&mut || Ok(cancellation.check()?)) {
                Ok(Acquired::Build(guard)) => break guard,
                Ok(Acquired::Over) => return Ok(()),
                Err(ViewError::Paused) if !self.control(host, &indexes, &ddoc.id)?.is_paused => return Ok(()),
                // The document that made a running build fail may have been replaced before this call. The next build
                // starts later than this call.
                Err(ViewError::Run(_)) if !has_joined => has_joined = true,
                Err(error) => return Err(error),
            }
        };
        let mut rights = vec![Right { definition, guard, claimed: None }];
        let mut result = Err(ViewError::Contended);
        for _ in 0..RETRIES_MAX {
            let build = Build { host, ddoc, indexes: &indexes, rights: &rights, urgency, cancels: control.cancels };
            match self.claim(&build, &RequestedIndex { definition, update_seq }) {
                Ok(claimed @ Some(_)) => rights[0].claimed = claimed,
                Ok(None) => {
                    result = Ok(Vec::new());
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            if let Err(error) = self.add_outdated_indexes(host, &definitions, update_seq, &mut rights) {
                result = Err(error);
                break;
            }
            let build = Build { host, ddoc, indexes: &indexes, rights: &rights, urgency, cancels: control.cancels };
            result = self.build(&build, update_seq);
            // The shard is unusable, for example because another process has replaced it. The next attempt detects it.
            let must_reset = matches!(
                result,
                Err(ViewError::Contended | ViewError::Storage(StorageError::Interrupted(_) | StorageError::Dropped))
            );
            if !must_reset {
                break;
            }
            // The retry needs a new claim because node numbers must not be reused.
            rights.iter_mut().for_each(|right| right.claimed = None);
        }
        self.end(host, &indexes, rights, &result)?;
        if result.is_ok() && control.backoff.is_some() {
            self.end_backoff(host, ddoc)?;
        }
        result.map(drop)
    }

    fn add_outdated_indexes<'a>(
        &self,
        host: &dyn IndexHost,
        definitions: &'a [IndexDefinition],
        update_seq: u64,
        rights: &mut Vec<Right<'a>>,
    ) -> Result<()> {
        for right in rights.iter_mut().filter(|right| right.claimed.is_none()) {
            right.claimed = Claimed::try_new(host.engine(), right.guard.handle().store().shard())?;
        }
        for definition in definitions {
            if rights.iter().any(|right| right.definition.signature == definition.signature) {
                continue;
            }
            let handle = self.handle(host, definition.signature)?;
            if !handle.meta()?.is_current(&definition.reduces, update_seq)
                && let Some(guard) = handle.try_build()
            {
                match Claimed::try_new(host.engine(), handle.store().shard())? {
                    claimed @ Some(_) => rights.push(Right { definition, guard, claimed }),
                    None => guard.finish(Ok(())),
                }
            }
        }
        Ok(())
    }

    /// Waits while another process holds the claim. Returns `None` if that process has built the index.
    fn claim(&self, build: &Build<'_>, requested: &RequestedIndex<'_>) -> Result<Option<Claimed>> {
        let engine = build.host.engine();
        let handle = build.rights[0].guard.handle();
        let shard = handle.store().shard();
        if let Some(claimed) = Claimed::try_new(engine, shard)? {
            return Ok(Some(claimed));
        }
        if build.urgency == Urgency::Background {
            return Err(ViewError::Stopped);
        }
        let mut watch = self.claims.watch(engine.as_ref(), shard);
        loop {
            self.check(build)?;
            match handle.store().meta(&*handle.store().snapshot()?) {
                Ok(Some(meta)) if meta.is_current(&requested.definition.reduces, requested.update_seq) => {
                    return Ok(None);
                }
                Err(ViewError::Storage(StorageError::Dropped)) => return Ok(None),
                meta => drop(meta?),
            }
            if let Some(claimed) = Claimed::try_new(engine, shard)? {
                return Ok(Some(claimed));
            }
            watch.wait();
        }
    }

    fn end(
        &self,
        host: &dyn IndexHost,
        indexes: &DatabaseIndexes,
        rights: Vec<Right<'_>>,
        result: &Result<Vec<Signature>>,
    ) -> Result<()> {
        for Right { definition, guard, claimed } in rights {
            match result {
                Ok(unusable) if unusable.contains(&definition.signature) => {
                    self.reset_index(host, indexes, definition.signature, guard)?;
                }
                // Another process builds the index: waiters check its state themselves.
                _ if claimed.is_none() => guard.finish(Ok(())),
                result => guard.finish(result.as_ref().map(drop).map_err(Clone::clone)),
            }
        }
        Ok(())
    }

    fn reset_index(
        &self,
        host: &dyn IndexHost,
        indexes: &DatabaseIndexes,
        signature: Signature,
        guard: BuildGuard,
    ) -> Result<()> {
        let shard = guard.handle().store().shard();
        let mut handles = indexes.handles.lock();
        if host.find_index(signature)? == Some(shard) {
            host.replace_index(signature, shard)?;
        }
        handles.remove(&signature);
        guard.retire();
        drop(handles);
        RunDirectory::new(&self.settings.run_directory, shard).remove()
    }

    /// Builds indexes in as few passes as possible, or only returns the signatures of those to be rebuilt from scratch.
    fn build(&self, build: &Build<'_>, update_seq: u64) -> Result<Vec<Signature>> {
        let Build { host, ddoc, rights, .. } = *build;
        self.check(build)?;
        let _client_build = self.pace.register(build.urgency);
        let language = self.language(ddoc)?;
        // The snapshot must be newer than the right to build: otherwise an index may be ahead of it.
        let database = host.read()?;
        let mut lagging: Vec<(&IndexDefinition, PassIndex<'_>)> = Vec::new();
        let mut unusable = Vec::new();
        for Right { definition, guard, claimed } in rights {
            let Some(claimed) = claimed else { continue };
            let store = guard.handle().store();
            let first_number = claimed.first_number();
            match self.open((store, first_number), definition, &language, database.purges_forgotten()?)? {
                Some(index) if index.meta.update_seq < update_seq => lagging.push((definition, index)),
                Some(_) => {}
                None => unusable.push(definition.signature),
            }
        }
        if !unusable.is_empty() {
            return Ok(unusable);
        }
        for pass in passes(lagging, database.update_seq()?) {
            let result = self.run_pass(build, &language, &*database, pass);
            if matches!(result, Err(ViewError::Cancelled)) {
                claimed(rights).try_for_each(|right| self.discard(right.guard.handle().store()))?;
            }
            result?;
        }
        let built = claimed(rights).map(|right| right.definition.signature).collect::<Vec<_>>();
        self.record_serving(host, ddoc, &built)?;
        Ok(Vec::new())
    }

    /// Prepares an index for a pass: applies the checkpoint of an interrupted load, and adds all reduce functions.
    /// Returns `None` if the index must be rebuilt, for example because it missed purges up to `purges_forgotten`.
    fn open<'a>(
        &self,
        (store, first_number): (&'a IndexStore, u64),
        definition: &IndexDefinition,
        language: &Arc<dyn Language>,
        purges_forgotten: u64,
    ) -> Result<Option<PassIndex<'a>>> {
        let limits = self.limits();
        let open = || {
            let Some(Opened { mut meta, writer, checkpoint }) = store.open(first_number)? else { return Ok(None) };
            if meta.update_seq == 0 {
                meta.reduces = with_reduces(&meta, definition);
            }
            let IndexDefinition { collation, layout, .. } = *definition;
            let directory = RunDirectory::new(&self.settings.run_directory, store.shard());
            Ok::<_, ViewError>(Some((PassIndex { store, collation, layout, meta, writer, directory }, checkpoint)))
        };
        let follows = |meta: &Meta| meta.update_seq == 0 || meta.purge_seq >= purges_forgotten;
        let Some((mut index, checkpoint)) = open()?.filter(|(index, _)| follows(&index.meta)) else { return Ok(None) };
        let again = || open()?.map(|(index, _)| index).ok_or(ViewError::Contended);
        match checkpoint {
            Some(checkpoint) => {
                resume(index, &checkpoint, language, limits, self.settings.memory_bytes, purges_forgotten)?;
                index = again()?;
            }
            None => index.directory.remove()?,
        }
        let reduces = with_reduces(&index.meta, definition);
        if reduces.len() > index.meta.reduces.len() {
            attach(index, reduces, language, limits)?;
            index = again()?;
        }
        Ok(Some(index))
    }

    fn run_pass(
        &self,
        build: &Build<'_>,
        language: &Arc<dyn Language>,
        database: &dyn ChangeSnapshot,
        indexes: Vec<(&IndexDefinition, PassIndex<'_>)>,
    ) -> Result<()> {
        let Build { host, ddoc, .. } = *build;
        let functions = indexes.iter().map(|(definition, _)| Arc::clone(&definition.map)).collect();
        let since = indexes.iter().map(|(_, index)| index.meta.update_seq).min().unwrap_or(0);
        let total_changes = database.count_after(since)?;
        let kind = TaskKind::Indexer { database: host.name().to_owned(), design_document: ddoc.id.to_string() };
        let task = self.tasks.start(kind, total_changes);
        let pass = Pass {
            settings: &self.settings,
            limits: self.limits(),
            language,
            source: MapSource { functions, library: ddoc.library.clone() },
            options: ddoc.options,
            database,
            pending: total_changes,
            database_name: host.name(),
            control: &|pace_state, bytes| self.apply_pace(build, pace_state, bytes),
            progress: &|done| task.update(done, total_changes),
            report: &|documents, emissions| self.report(host, ddoc, documents, emissions),
            report_engine: &|message| self.log_event(host, ddoc, LogSubject::Engine, message),
        };
        pass.run(indexes.into_iter().map(|(_, index)| index).collect())
    }

    fn apply_pace(&self, build: &Build<'_>, pace_state: &mut pace::PaceState, bytes: u64) -> Result<()> {
        let is_awaited = || build.rights.iter().any(Right::is_awaited);
        if build.urgency == Urgency::Background {
            self.pace.pause(pace_state, bytes, &|| is_awaited() || self.check(build).is_err());
        }
        self.check(build)
    }

    fn check(&self, build: &Build<'_>) -> Result<()> {
        if self.is_stopping.load(Ordering::Relaxed) || build.indexes.stop.load(Ordering::Relaxed) {
            return Err(ViewError::Stopped);
        }
        let control = self.control(build.host, build.indexes, &build.ddoc.id)?;
        match control.cancels == build.cancels {
            false => Err(ViewError::Cancelled),
            true if control.is_paused => Err(ViewError::Paused),
            true if !claimed(build.rights).all(Right::is_held) => Err(ViewError::Contended),
            true => Ok(()),
        }
    }

    /// Discards the checkpoint of an interrupted load. The caller must hold the right to build.
    pub(crate) fn discard(&self, store: &IndexStore) -> Result<()> {
        if let Some(mut opened) = store.open(0)?.filter(|opened| opened.checkpoint.is_some()) {
            opened.writer.forget_checkpoint()?;
            store.sync()?;
        }
        RunDirectory::new(&self.settings.run_directory, store.shard()).remove()
    }

    fn report(&self, host: &dyn IndexHost, ddoc: &DesignDocument, documents: &DocumentBatch, emissions: &Emissions) {
        for failure in &emissions.failures {
            let failed_document = documents.get(failure.document as usize).id;
            self.log_event(host, ddoc, LogSubject::Failure(failed_document), &failure.message);
        }
        for message in &emissions.log {
            self.log_event(host, ddoc, LogSubject::Message, message);
        }
    }
}

impl Right<'_> {
    fn is_held(&self) -> bool {
        self.claimed.as_ref().is_some_and(Claimed::is_held)
    }

    fn is_awaited(&self) -> bool {
        self.guard.handle().activity().1 > 0 || self.claimed.as_ref().is_some_and(Claimed::is_awaited)
    }
}

fn claimed<'r, 'a>(rights: &'r [Right<'a>]) -> impl Iterator<Item = &'r Right<'a>> {
    rights.iter().filter(|right| right.claimed.is_some())
}

/// Groups lagging indexes into passes. One that is slightly ahead processes some changes again, which costs less than a
/// separate pass. Indexes without rows form separate passes, because they need no removal of rows.
fn passes<'a>(mut lagging: Vec<OutdatedIndex<'a>>, update_seq: u64) -> Vec<Vec<OutdatedIndex<'a>>> {
    lagging.sort_by_key(|(_, index)| index.meta.update_seq);
    let mut passes: Vec<Vec<OutdatedIndex<'_>>> = Vec::new();
    for lagging in lagging {
        let seq = lagging.1.meta.update_seq;
        let joins = |pass: &&mut Vec<OutdatedIndex<'_>>| {
            let since = pass[0].1.meta.update_seq;
            since == seq || since > 0 && seq - since <= update_seq.saturating_sub(since) / WORK_PER_LEAD
        };
        match passes.last_mut().filter(joins) {
            Some(pass) => pass.push(lagging),
            None => passes.push(vec![lagging]),
        }
    }
    passes
}

type OutdatedIndex<'a> = (&'a IndexDefinition, PassIndex<'a>);

/// An index joins the pass of another one if the work of that one is at least this multiple of its lead.
const WORK_PER_LEAD: u64 = 8;

fn with_reduces(meta: &Meta, definition: &IndexDefinition) -> Vec<Arc<str>> {
    let new = definition.reduces.iter().filter(|reduce| meta.aggregate(reduce).is_none());
    meta.reduces.iter().chain(new).cloned().collect()
}
