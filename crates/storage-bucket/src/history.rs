//! The state of a store at an earlier time. The objects of a group never change, so this state consists of the objects that
//! existed at the time: [`PastStore`] hides the later ones. [`Kept`] keeps the objects of the states of the last hours.
//!
//! All times are those that the store has given to its objects, in seconds of the Unix epoch: S3 has no finer resolution.
//! The state of a second contains the objects of this second.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use settee_storage::{Result as StorageResult, StorageError};
use slatedb::admin::Admin;
use slatedb::config::GarbageCollectorOptions;
use slatedb::{GarbageCollectorBuilder, GcFilter, ObjectMetadata, VersionedManifest};

use crate::error::explain;
use crate::group;
use crate::identity;

/// Object whose time is that of the store.
const CLOCK: &str = "settee-clock";
const CLOCK_INTERVAL: Duration = Duration::from_millis(200);

/// Difference between the clock of this process and that of the store.
const CLOCK_MARGIN: Duration = Duration::from_secs(600);

const REMOVAL_INTERVAL: Duration = Duration::from_secs(600);

const COMPACTION_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// A store without the objects that were written after a time. What is written to it stays in memory.
#[derive(Debug)]
pub(crate) struct PastStore {
    objects: Arc<dyn ObjectStore>,
    at_s: i64,
    own: Arc<InMemory>,
}

impl PastStore {
    /// Returns the store as it was in a second, or is now, and that second. `None` contains every object that was written
    /// before the call. Fails if the store does not have the state of that second any more.
    pub(crate) async fn open(
        objects: Arc<dyn ObjectStore>,
        shown: &str,
        at_s: Option<u64>,
    ) -> StorageResult<(Arc<dyn ObjectStore>, u64)> {
        let failed = |error: Error| explain(shown, CLOCK, &error);
        let groups = identity::existing(objects.as_ref(), shown).await?.groups;
        let mut now = clock(objects.as_ref()).await.map_err(failed)?;
        let at_s = at_s.map_or(now, |at_s| i64::try_from(at_s).unwrap_or(i64::MAX));
        if at_s > now {
            return Err(StorageError::Io(format!("the time is in the future of {shown}")));
        }
        // Objects that are written from now on must not have that time.
        while now <= at_s {
            tokio::time::sleep(CLOCK_INTERVAL).await;
            now = clock(objects.as_ref()).await.map_err(failed)?;
        }
        objects.delete(&Path::from(CLOCK)).await.map_err(failed)?;
        let past = Arc::new(Self { objects, at_s, own: Arc::default() });
        identity::existing(past.as_ref(), shown).await?;
        for group in 0..groups.get() {
            past.check(group, shown).await?;
        }
        Ok((past, at_s.cast_unsigned()))
    }

    /// Fails if the manifest that was the newest one at the time has been removed.
    async fn check(&self, group: u32, shown: &str) -> StorageResult<()> {
        let found = manifests(self.objects.as_ref(), &group::path(group)).await;
        let manifests = found.map_err(|error| explain(shown, group::path(group).as_ref(), &error))?;
        let newest = manifests.iter().rposition(|(_, at_s)| *at_s <= self.at_s);
        let last = newest.map_or(0, |at| manifests[at].0);
        let next = manifests.get(newest.map_or(0, |at| at + 1));
        if next.is_some_and(|(next, _)| *next != last + 1) {
            return Err(StorageError::Io(format!(
                "{shown} does not contain the state of that time any more: [storage] history_hours is the time for which \
                 states are kept"
            )));
        }
        Ok(())
    }

    fn is_visible(&self, object: &ObjectMeta) -> bool {
        object.last_modified.timestamp() <= self.at_s
    }

    /// Returns the visible objects of the store that are not replaced, and the own ones.
    async fn all(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut all: Vec<ObjectMeta> = self.own.list(prefix).try_collect().await?;
        let own: HashSet<Path> = all.iter().map(|object| object.location.clone()).collect();
        let mut objects = self.objects.list(prefix);
        while let Some(object) = objects.try_next().await? {
            if self.is_visible(&object) && !own.contains(&object.location) {
                all.push(object);
            }
        }
        Ok(all)
    }
}

/// Returns the time of the store.
async fn clock(objects: &dyn ObjectStore) -> Result<i64> {
    let path = Path::from(CLOCK);
    objects.put(&path, PutPayload::new()).await?;
    Ok(objects.head(&path).await?.last_modified.timestamp())
}

/// Returns the numbers and times of the manifests of a group, sorted by number. The first manifest has the number 1.
async fn manifests(objects: &dyn ObjectStore, group: &Path) -> Result<Vec<(u64, i64)>> {
    let folder = Path::from(format!("{group}/manifest"));
    let found: Vec<ObjectMeta> = objects.list(Some(&folder)).try_collect().await?;
    let number = |object: &ObjectMeta| stem(&object.location)?.parse().ok();
    let mut numbers: Vec<(u64, i64)> =
        found.iter().filter_map(|object| Some((number(object)?, object.last_modified.timestamp()))).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn stem(path: &Path) -> Option<&str> {
    path.filename()?.split('.').next()
}

impl fmt::Display for PastStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

fn unsupported() -> Error {
    Error::NotSupported { source: "a state of the past cannot be changed".into() }
}

#[async_trait::async_trait]
impl ObjectStore for PastStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if options.mode == PutMode::Create {
            match self.head(location).await {
                Ok(_) => {
                    let source = "it existed at that time".into();
                    return Err(Error::AlreadyExists { path: location.to_string(), source });
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.own.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.own.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.own.get_opts(location, options.clone()).await {
            Err(Error::NotFound { .. }) => {}
            own => return own,
        }
        let found = self.objects.get_opts(location, options).await?;
        if self.is_visible(&found.meta) {
            return Ok(found);
        }
        Err(Error::NotFound { path: location.to_string(), source: "it was written later".into() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations.map(|location| location.and_then(|_| Err(unsupported()))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let past = Self { objects: Arc::clone(&self.objects), at_s: self.at_s, own: Arc::clone(&self.own) };
        let prefix = prefix.cloned();
        let all = async move {
            past.all(prefix.as_ref()).await.map(|all| futures_util::stream::iter(all.into_iter().map(Ok)))
        };
        futures_util::stream::once(all).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported())
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported())
    }
}

/// Removes unused objects of a group after a delay, then at intervals.
pub(crate) async fn remove_unused(
    group: Path,
    objects: Arc<dyn ObjectStore>,
    options: GarbageCollectorOptions,
    (delay, history): (Duration, Duration),
) {
    let mut collector = GarbageCollectorBuilder::new(group.clone(), Arc::clone(&objects)).with_options(options);
    if !history.is_zero() {
        collector = collector.with_gc_filter(Arc::new(Kept::new(group, objects, history)));
    }
    let collector = collector.build();
    tokio::time::sleep(delay).await;
    loop {
        collector.run_gc_once().await;
        tokio::time::sleep(REMOVAL_INTERVAL).await;
    }
}

/// Keeps unused objects of a group for some time: those of the state at the start of this time, and all later ones.
struct Kept {
    group: Path,
    objects: Arc<dyn ObjectStore>,
    admin: Admin,
    duration: Duration,
    /// Maximum time between the creation of a file by a compaction and its first use.
    compaction_time: Duration,
}

impl Kept {
    fn new(group: Path, objects: Arc<dyn ObjectStore>, duration: Duration) -> Self {
        let admin = Admin::builder(group.clone(), Arc::clone(&objects)).build();
        let duration = duration + CLOCK_MARGIN;
        Self { group, objects, admin, duration, compaction_time: COMPACTION_TIME_MAX }
    }

    /// Returns the manifest that was the newest one at the start of the time, and its own time.
    async fn oldest(&self) -> Option<(VersionedManifest, i64)> {
        let start = SystemTime::now().checked_sub(self.duration)?;
        let start_s = i64::try_from(start.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()?;
        let manifests = manifests(self.objects.as_ref(), &self.group).await.ok()?;
        let (number, at_s) = manifests.into_iter().rfind(|(_, at_s)| *at_s <= start_s)?;
        Some((self.admin.read_manifest(Some(number)).await.ok()??, at_s))
    }
}

#[async_trait::async_trait]
impl GcFilter for Kept {
    /// Nothing is removed if the start of the time is unknown.
    async fn filter(&self, mut candidates: HashSet<ObjectMetadata>) -> HashSet<ObjectMetadata> {
        if candidates.is_empty() {
            return candidates;
        }
        let Some((oldest, at_s)) = self.oldest().await else { return HashSet::new() };
        let margin_s = i64::try_from(self.compaction_time.as_secs()).unwrap_or(i64::MAX);
        let used: HashSet<String> = oldest.all_sst_views().map(|view| view.sst.id.value().to_string()).collect();
        candidates.retain(|candidate| {
            let Some(name) = stem(&candidate.location) else { return false };
            let is_below = |limit: u64| name.parse::<u64>().is_ok_and(|number| number < limit);
            match candidate.location.as_ref().rsplit('/').nth(1) {
                Some("manifest") => is_below(oldest.id()),
                Some("wal") => is_below(oldest.replay_after_wal_id()),
                Some("compacted") => candidate.last_modified.timestamp() < at_s - margin_s && !used.contains(name),
                Some("compactions") => true,
                _ => false,
            }
        });
        candidates
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
