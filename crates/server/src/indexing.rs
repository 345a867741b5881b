//! [`Indexing`]: background work on indexes, as by CouchDB's daemon ken. Unused indexes are removed after a time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use settee_database::{Catalog, Database, DatabaseError, Happened};
use settee_design::DesignDocument;
use settee_search::{SearchError, Searches};
use settee_settings::{Key, dreyfus, ken, key::Number, nouveau, view_cleanup};
use settee_views::{Budget, Urgency, ViewError, Views, design_documents};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::config::Configuration;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

/// Builds must save their progress within this time when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Indexing {
    catalog: Arc<Catalog>,
    views: Arc<Views>,
    searches: Arc<Searches>,
    configuration: Arc<Configuration>,
    changed: Mutex<BTreeSet<String>>,
    wakeup: Notify,
    /// The value is true if the design document must be checked again afterwards.
    running: Mutex<HashMap<Job, bool>>,
    /// Permits for builds of any length. Short ones have further permits.
    batch: Semaphore,
    incremental: Semaphore,
    is_over: AtomicBool,
}

type Job = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexingSettings {
    is_enabled: bool,
    max_incremental_updates: u64,
    delay: Duration,
}

impl Indexing {
    pub(crate) fn new(views: Arc<Views>, searches: Arc<Searches>, configuration: Arc<Configuration>) -> Arc<Self> {
        let channels = |key: &Key<Number>| {
            let channels = key.of(configuration.as_ref());
            Semaphore::new(usize::try_from(channels).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS))
        };
        let (batch, incremental) = (channels(&ken::BATCH_CHANNELS), channels(&ken::INCREMENTAL_CHANNELS));
        Arc::new(Self {
            catalog: Arc::clone(views.catalog()),
            views,
            searches,
            configuration,
            changed: Mutex::default(),
            wakeup: Notify::new(),
            running: Mutex::default(),
            batch,
            incremental,
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        self.apply_budget();
        let watched = Arc::downgrade(self);
        self.configuration.on_change(move |change| {
            if let Some(indexing) = watched.upgrade().filter(|_| change.section == "ken") {
                indexing.apply_budget();
            }
        });
        vec![tokio::spawn(Arc::clone(self).update_lagging()), tokio::spawn(Arc::clone(self).collect_periodically())]
    }

    pub(crate) fn note(&self, events: &[(String, Happened)]) {
        let changed = events.iter().filter(|(_, happened)| *happened != Happened::Deleted);
        self.changed.lock().extend(changed.map(|(name, _)| name.clone()));
        self.wakeup.notify_one();
    }

    pub(crate) async fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let (views, searches) = (Arc::clone(&self.views), Arc::clone(&self.searches));
        let stop = move || {
            views.stop();
            searches.stop();
        };
        let stopped = tokio::time::timeout(STOP_TIMEOUT, spawn_blocking(stop)).await;
        if stopped.is_err() {
            tracing::warn!("a build of an index did not end in time; it resumes from its last checkpoint");
        }
    }

    fn apply_budget(&self) {
        self.views.set_budget(budget(&self.configuration));
    }

    fn settings(&self) -> IndexingSettings {
        let configuration = self.configuration.as_ref();
        IndexingSettings {
            is_enabled: ken::ENABLED.of(configuration),
            max_incremental_updates: ken::MAX_INCREMENTAL_UPDATES.of(configuration),
            delay: Duration::from_millis(ken::DELAY.of(configuration)),
        }
    }

    fn is_ignored(&self, database: &str) -> bool {
        self.configuration.get("ken.ignore", database).as_deref() == Some("true")
    }

    async fn update_lagging(self: Arc<Self>) {
        match self.views.interrupted() {
            Ok(names) => self.changed.lock().extend(names),
            Err(error) => tracing::warn!(%error, "the search for interrupted builds of indexes failed"),
        }
        loop {
            let settings = self.settings();
            tokio::time::sleep(settings.delay).await;
            let names = std::mem::take(&mut *self.changed.lock());
            for name in names.into_iter().filter(|name| settings.is_enabled && !self.is_ignored(name)) {
                let working = Arc::clone(&self);
                match spawn_blocking(move || working.designs(&name)).await {
                    Ok(designs) => designs.into_iter().for_each(|(database, design)| self.begin(database, design)),
                    Err(panic) => tracing::error!(%panic, "the search for lagging indexes panicked"),
                }
            }
            self.wakeup.notified().await;
        }
    }

    fn designs(&self, name: &str) -> Vec<(Arc<Database>, DesignDocument)> {
        let designs = || {
            let database = match self.catalog.database(name) {
                Err(DatabaseError::NotFound) => return Ok(Vec::new()),
                database => database?,
            };
            let designs = design_documents(&database)?;
            let mut seen = HashSet::new();
            // The first entry of an id is the winner.
            let winners = designs.into_iter().filter(|design| seen.insert(Arc::clone(&design.id)));
            let has_indexes = |design: &DesignDocument| !design.views.is_empty() || !design.searches.is_empty();
            let kept = winners.filter(|design| design.autoupdate && has_indexes(design));
            Ok::<_, ViewError>(kept.map(|design| (Arc::clone(&database), design)).collect())
        };
        designs().unwrap_or_else(|error| {
            tracing::warn!(%error, database = name, "the search for lagging indexes failed");
            Vec::new()
        })
    }

    fn begin(self: &Arc<Self>, database: Arc<Database>, design: DesignDocument) {
        let job = (database.name().to_owned(), design.id.to_string());
        if let Some(again) = self.running.lock().get_mut(&job) {
            *again = true;
            return;
        }
        self.running.lock().insert(job.clone(), false);
        let indexing = Arc::clone(self);
        tokio::spawn(async move {
            indexing.update_until_current(&database, &Arc::new(design)).await;
            if indexing.running.lock().remove(&job) == Some(true) {
                indexing.changed.lock().insert(job.0);
                indexing.wakeup.notify_one();
            }
        });
    }

    async fn update_until_current(self: &Arc<Self>, database: &Arc<Database>, design: &Arc<DesignDocument>) {
        while let Some(lag) = self.lag(database, design).await {
            let settings = self.settings();
            let permit = if lag > settings.max_incremental_updates {
                self.batch.acquire().await
            } else {
                tokio::select! {
                    permit = self.batch.acquire() => permit,
                    permit = self.incremental.acquire() => permit,
                }
            };
            let working = (Arc::clone(self), Arc::clone(database), Arc::clone(design));
            let goes_on = spawn_blocking(move || working.0.update(&working.1, &working.2)).await;
            drop(permit);
            if !goes_on.unwrap_or(false) {
                return;
            }
            tokio::time::sleep(settings.delay).await;
        }
    }

    async fn lag(self: &Arc<Self>, database: &Arc<Database>, design: &Arc<DesignDocument>) -> Option<u64> {
        let (indexing, database, design) = (Arc::clone(self), Arc::clone(database), Arc::clone(design));
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let lag = move || {
            let views = indexing.views.lag(&database, &design).ok().flatten();
            let searches = indexing.serves_searches().then(|| indexing.searches.lag(&database, &design));
            views.max(searches.and_then(Result::ok).flatten())
        };
        spawn_blocking(lag).await.ok().flatten()
    }

    /// Returns true if more work may remain.
    fn update(&self, database: &Arc<Database>, design: &DesignDocument) -> bool {
        let views = self.update_views(database, design);
        self.update_searches(database, design) && views
    }

    fn serves_searches(&self) -> bool {
        let configuration = self.configuration.as_ref();
        nouveau::ENABLE.of(configuration) || dreyfus::ENABLE.of(configuration)
    }

    fn update_searches(&self, database: &Arc<Database>, design: &DesignDocument) -> bool {
        if !self.serves_searches() {
            return true;
        }
        match self.searches.update(database, design, Urgency::Background) {
            Ok(()) => true,
            Err(error) => {
                if !error.is_end() {
                    tracing::warn!(%error, database = database.name(), ddoc = %design.id, "a search index was not updated");
                }
                false
            }
        }
    }

    fn update_views(&self, database: &Arc<Database>, design: &DesignDocument) -> bool {
        match self.views.update(database, design, Urgency::Background) {
            Ok(()) => true,
            Err(ViewError::Stopped | ViewError::Paused | ViewError::Cancelled | ViewError::UnknownLanguage(_)) => false,
            Err(error) => {
                tracing::warn!(%error, database = database.name(), ddoc = %design.id, "an index was not updated");
                false
            }
        }
    }

    async fn collect_periodically(self: Arc<Self>) {
        loop {
            let working = Arc::clone(&self);
            if let Err(panic) = spawn_blocking(move || working.collect()).await {
                tracing::error!(%panic, "the removal of unused indexes panicked");
            }
            let interval_s = view_cleanup::CHECK_INTERVAL.of(self.configuration.as_ref()).max(1);
            tokio::time::sleep(Duration::from_secs(interval_s)).await;
        }
    }

    fn collect(&self) {
        let grace_s = view_cleanup::GRACE.of(self.configuration.as_ref());
        let collect = |name: &str| {
            let database = self.catalog.database(name).map_err(ViewError::from)?;
            let designs = design_documents(&database)?;
            let grace_us = grace_s.saturating_mul(1_000_000);
            let removed = self.views.cleanup(&database, &designs, grace_us)?;
            Ok::<_, SearchError>(removed + self.searches.cleanup(&database, &designs, grace_us)?)
        };
        let names = self.catalog.names().unwrap_or_else(|error| {
            tracing::warn!(%error, "the search for unused indexes failed");
            Vec::new()
        });
        for name in names {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match collect(&name) {
                Ok(0) => {}
                Ok(removed) => tracing::info!(database = name, removed, "unused indexes were removed"),
                Err(error) => tracing::debug!(%error, database = name, "unused indexes were not removed"),
            }
        }
        match self.views.sweep() {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "leftovers of builds of former indexes were removed"),
            Err(error) => tracing::warn!(%error, "leftovers of builds of former indexes were not removed"),
        }
    }
}

fn budget(configuration: &Configuration) -> Budget {
    Budget { cpu_percent: ken::CPU_PERCENT.of(configuration), bytes_per_s: ken::BYTES_PER_SECOND.of(configuration) }
}
