//! Bringing the indexes of a design document up to date: which of them, by whom, in how many passes, and what ends it early.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use settee_database::tasks::TaskKind;
use settee_design::{Cancellation, DesignDocument, DocumentBatch, Emissions, Language, MapSource};
use settee_storage::StorageError;

use crate::claims::Claimed;
use crate::error::{Result, ViewError};
use crate::handle::{BuildGuard, DatabaseIndexes, Turn};
use crate::host::IndexHost;
use crate::index::identity::definitions;
use crate::index::{IndexDefinition, IndexStore, Meta, Opened, Signature};
use crate::indexer::resume::resume;
use crate::indexer::runs::RunDirectory;
use crate::indexer::source::ChangeSnapshot;
use crate::indexer::{Pass, PassIndex, attach};
use crate::pace::{self, Urgency};
use crate::shared::{About, Core};

/// A build starts over at most so often because somebody else came first, or the engine was opened again below it: it goes on
/// where the last commit was.
const ANEW_MAX: u32 = 1000;

/// The indexes of a design document that this process may build.
struct Build<'a> {
    host: &'a dyn IndexHost,
    ddoc: &'a DesignDocument,
    indexes: &'a DatabaseIndexes,
    rights: &'a [Right<'a>],
    urgency: Urgency,
    /// The number of times that builds of the design document had been cancelled when this one began.
    cancels: u64,
}

/// The right to build an index: among the threads of this process, and among processes.
struct Right<'a> {
    definition: &'a IndexDefinition,
    guard: BuildGuard,
    claimed: Option<Claimed>,
}

/// The state that somebody wants an index to be in.
struct Wanted<'a> {
    definition: &'a IndexDefinition,
    update_seq: u64,
}

impl Core {
    /// Builds an index so that it shows the database at `update_seq` or later and has all reduce functions of `ddoc`, or
    /// waits until somebody else has built it. Other indexes of the design document that lag as well and that nobody
    /// builds are taken along.
    pub(crate) fn advance(
        &self,
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        signature: Signature,
        update_seq: u64,
        (urgency, cancellation): (Urgency, &Cancellation),
    ) -> Result<()> {
        let indexes = self.indexes_of(host.shard());
        let control = self.control(host, &indexes, &ddoc.id)?;
        if control.is_paused {
            return Err(ViewError::Paused);
        }
        let definitions = definitions(host.layout(), ddoc);
        let Some(definition) = definitions.iter().find(|definition| definition.signature == signature) else {
            return Err(ViewError::MissingView);
        };
        let guard = match self.handle(host, signature)?.take_turn_while(&mut || Ok(cancellation.check()?)) {
            Ok(Turn::Build(guard)) => guard,
            Ok(Turn::Over) => return Ok(()),
            // The build that was waited for was paused, and resumed before it had ended.
            Err(ViewError::Paused) if !self.control(host, &indexes, &ddoc.id)?.is_paused => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut rights = vec![Right { definition, guard, claimed: None }];
        let mut result = Err(ViewError::Contended);
        for _ in 0..ANEW_MAX {
            let build = Build { host, ddoc, indexes: &indexes, rights: &rights, urgency, cancels: control.cancels };
            match self.claim(&build, &Wanted { definition, update_seq }) {
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
            if let Err(error) = self.take_along(host, &definitions, update_seq, &mut rights) {
                result = Err(error);
                break;
            }
            let build = Build { host, ddoc, indexes: &indexes, rights: &rights, urgency, cancels: control.cancels };
            result = self.build(&build, update_seq);
            // What another process has given another shard cannot be used, as is found at the beginning.
            let begins_anew = matches!(
                result,
                Err(ViewError::Contended | ViewError::Storage(StorageError::Interrupted(_) | StorageError::Dropped))
            );
            if !begins_anew {
                break;
            }
            // Under another claim: numbers that were given out are not given out again.
            rights.iter_mut().for_each(|right| right.claimed = None);
        }
        self.end(host, &indexes, rights, &result)?;
        if result.is_ok() && control.rest.is_some() {
            self.end_rest(host, ddoc)?;
        }
        result.map(drop)
    }

    /// Takes the right to build other indexes of a design document that lag.
    fn take_along<'a>(
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

    /// Takes the right to build an index among processes, and waits while another one has it. `None` if that has built it.
    fn claim(&self, build: &Build<'_>, wanted: &Wanted<'_>) -> Result<Option<Claimed>> {
        let engine = build.host.engine();
        let handle = build.rights[0].guard.handle();
        let shard = handle.store().shard();
        if let Some(claimed) = Claimed::try_new(engine, shard)? {
            return Ok(Some(claimed));
        }
        // It has a loop of its own for what lags.
        if build.urgency == Urgency::Background {
            return Err(ViewError::Stopped);
        }
        let mut watch = self.claims.watch(engine.as_ref(), shard);
        loop {
            self.check(build)?;
            match handle.store().meta(&*handle.store().snapshot()?) {
                Ok(Some(meta)) if meta.is_current(&wanted.definition.reduces, wanted.update_seq) => return Ok(None),
                // It has another shard now.
                Err(ViewError::Storage(StorageError::Dropped)) => return Ok(None),
                meta => drop(meta?),
            }
            if let Some(claimed) = Claimed::try_new(engine, shard)? {
                return Ok(Some(claimed));
            }
            watch.wait();
        }
    }

    /// Gives the rights back, and tells those who wait how it ended.
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
                    self.begin_anew(host, indexes, definition.signature, guard)?;
                }
                // Another process builds it: those who wait find out themselves.
                _ if claimed.is_none() => guard.finish(Ok(())),
                result => guard.finish(result.as_ref().map(drop).map_err(Clone::clone)),
            }
        }
        Ok(())
    }

    /// Gives an index whose shard cannot be used any more an empty one.
    fn begin_anew(
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

    /// Builds indexes in as few passes as possible. Answers those that have to start over; then nothing was done.
    fn build(&self, build: &Build<'_>, update_seq: u64) -> Result<Vec<Signature>> {
        let Build { host, ddoc, rights, .. } = *build;
        self.check(build)?;
        let _urgent = self.pace.begin(build.urgency);
        let language = self.language(ddoc)?;
        // Read after the right to build was taken, so that no index is ahead of it.
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
        self.note_served(host, ddoc, &built)?;
        Ok(Vec::new())
    }

    /// Prepares an index for a pass: it has what an interrupted load had found, and all reduce functions of the design
    /// document. `None` if it must start over: also one that did not see the purges up to `purges_forgotten`, which cannot
    /// follow any more.
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
            // What is there was never noted.
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
            control: &|turn, bytes| self.rest(build, turn, bytes),
            progress: &|done| task.update(done, total_changes),
            report: &|documents, emissions| self.report(host, ddoc, documents, emissions),
            remark: &|message| self.say(host, ddoc, About::Engine, message),
        };
        pass.run(indexes.into_iter().map(|(_, index)| index).collect())
    }

    /// Lets a thread of a build rest, if it has to, and tells why it must not go on.
    fn rest(&self, build: &Build<'_>, turn: &mut pace::Turn, bytes: u64) -> Result<()> {
        let is_awaited = || build.rights.iter().any(Right::is_awaited);
        if build.urgency == Urgency::Background {
            self.pace.rest(turn, bytes, &|| is_awaited() || self.check(build).is_err());
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
            // Another process may have taken it over.
            true if !claimed(build.rights).all(Right::is_held) => Err(ViewError::Contended),
            true => Ok(()),
        }
    }

    /// Forgets what an interrupted load had found. The caller has the right to build.
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
            self.say(host, ddoc, About::Failure(failed_document), &failure.message);
        }
        for message in &emissions.log {
            self.say(host, ddoc, About::Message, message);
        }
    }
}

impl Right<'_> {
    fn is_held(&self) -> bool {
        self.claimed.as_ref().is_some_and(Claimed::is_held)
    }

    /// Whether a client waits for the index, here or at another process.
    fn is_awaited(&self) -> bool {
        self.guard.handle().activity().1 > 0 || self.claimed.as_ref().is_some_and(Claimed::is_awaited)
    }
}

/// Those that this process has among all.
fn claimed<'r, 'a>(rights: &'r [Right<'a>]) -> impl Iterator<Item = &'r Right<'a>> {
    rights.iter().filter(|right| right.claimed.is_some())
}

/// Lagging indexes, those that go through the changes together in one pass beside each other. One that is a little ahead
/// sees some changes again: that costs less than a pass of its own. Indexes without rows have no rows to take back, so they
/// keep to themselves.
fn passes<'a>(mut lagging: Vec<Lagging<'a>>, update_seq: u64) -> Vec<Vec<Lagging<'a>>> {
    lagging.sort_by_key(|(_, index)| index.meta.update_seq);
    let mut passes: Vec<Vec<Lagging<'_>>> = Vec::new();
    for lagging in lagging {
        let seq = lagging.1.meta.update_seq;
        let joins = |pass: &&mut Vec<Lagging<'_>>| {
            let since = pass[0].1.meta.update_seq;
            since == seq || since > 0 && seq - since <= update_seq.saturating_sub(since) / AHEAD_PART
        };
        match passes.last_mut().filter(joins) {
            Some(pass) => pass.push(lagging),
            None => passes.push(vec![lagging]),
        }
    }
    passes
}

type Lagging<'a> = (&'a IndexDefinition, PassIndex<'a>);

/// An index joins the pass of another that has so many times as much to do as it is ahead.
const AHEAD_PART: u64 = 8;

/// The reduce functions of an index, those that a design document asks for included.
fn with_reduces(meta: &Meta, definition: &IndexDefinition) -> Vec<Arc<str>> {
    let new = definition.reduces.iter().filter(|reduce| meta.aggregate(reduce).is_none());
    meta.reduces.iter().chain(new).cloned().collect()
}
