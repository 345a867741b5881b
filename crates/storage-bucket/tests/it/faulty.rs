//! [`FaultyStore`]: a store in memory with latency, errors, requests without an answer, lost responses, outages, stale
//! listings and a wrong clock, and with a record of the states that a crash may leave.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use settee_storage::conformance::Generator;
use settee_storage_bucket::Bucket;

/// Earlier listings that are kept.
const LISTINGS: usize = 64;

/// A process's access to a store. Faults are those of this access.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    objects: Arc<Objects>,
    faults: Arc<Faults>,
}

/// The objects, which all accesses share.
#[derive(Debug, Default)]
struct Objects {
    store: InMemory,
    /// Listings after the last changes, if an access has stale ones.
    listings: parking_lot::Mutex<VecDeque<Vec<ObjectMeta>>>,
    keeps_listings: AtomicBool,
    is_recording: AtomicBool,
    states: parking_lot::Mutex<Vec<InMemory>>,
}

#[derive(Debug)]
struct Faults {
    /// Creates all requests of the test in the order in which they arrive.
    random: parking_lot::Mutex<Generator>,
    latency_ms: AtomicU64,
    /// Requests in 1,000 that fail without an effect.
    failures: AtomicU64,
    /// Changes in 1,000 that are applied and then fail.
    lost_responses: AtomicU64,
    /// Requests in 1,000 that are never answered. Half of the changes among them are applied.
    hangs: AtomicU64,
    is_down: AtomicBool,
    is_forbidden: AtomicBool,
    /// Maximum age of listings, in changes of the store.
    stale_changes: AtomicUsize,
    /// True if listings are empty.
    hides_objects: AtomicBool,
    /// Difference of the times of objects to the clock of this process.
    clock_ms: AtomicI64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    AppliedOnly,
    Lost,
}

impl Objects {
    fn on(store: InMemory) -> Arc<Self> {
        Arc::new(Self { store, ..Self::default() })
    }

    async fn note_change(&self) {
        if self.is_recording.load(Ordering::Relaxed) {
            self.states.lock().push(self.store.fork());
        }
        if self.keeps_listings.load(Ordering::Relaxed) {
            let listing = self.store.list(None).try_collect().await.unwrap_or_default();
            let mut listings = self.listings.lock();
            listings.push_back(listing);
            while listings.len() > LISTINGS {
                listings.pop_front();
            }
        }
    }

    async fn list(&self, age: usize) -> Result<Vec<ObjectMeta>> {
        let stale = {
            let listings = self.listings.lock();
            // The last listing is the current one.
            listings.iter().rev().nth(age).or(listings.front()).filter(|_| age > 0).cloned()
        };
        match stale {
            Some(listing) => Ok(listing),
            None => self.store.list(None).try_collect().await,
        }
    }
}

impl Faults {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            random: parking_lot::Mutex::new(Generator::new(seed)),
            latency_ms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lost_responses: AtomicU64::new(0),
            hangs: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            stale_changes: AtomicUsize::new(0),
            hides_objects: AtomicBool::new(false),
            clock_ms: AtomicI64::new(0),
        })
    }

    async fn before(&self, path: &Path) -> Result<Fate> {
        let latency = self.latency_ms.load(Ordering::Relaxed);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        if self.is_forbidden.load(Ordering::Relaxed) {
            return Err(Error::PermissionDenied { path: path.to_string(), source: "403 AccessDenied".into() });
        }
        if self.is_down.load(Ordering::Relaxed) || self.happens(&self.failures) {
            let status = ["500 InternalError", "503 SlowDown"][self.below(2)];
            return Err(failure(status));
        }
        if !self.happens(&self.hangs) {
            return Ok(Fate::Answered);
        }
        Ok(if self.below(2) == 0 { Fate::AppliedOnly } else { Fate::Lost })
    }

    async fn before_read(&self, path: &Path) -> Result<()> {
        match self.before(path).await? {
            Fate::Answered => Ok(()),
            Fate::AppliedOnly | Fate::Lost => std::future::pending().await,
        }
    }

    async fn change<T>(&self, objects: &Objects, path: &Path, change: impl Future<Output = Result<T>>) -> Result<T> {
        let fate = self.before(path).await?;
        if fate == Fate::Lost {
            return std::future::pending().await;
        }
        let changed = change.await?;
        objects.note_change().await;
        if fate == Fate::AppliedOnly {
            return std::future::pending().await;
        }
        if self.happens(&self.lost_responses) { Err(failure("the connection was lost")) } else { Ok(changed) }
    }

    fn below(&self, limit: usize) -> usize {
        self.random.lock().below(limit)
    }

    fn happens(&self, permille: &AtomicU64) -> bool {
        let permille = permille.load(Ordering::Relaxed);
        permille > 0 && self.random.lock().number() % 1000 < permille
    }

    fn shift(&self, meta: &mut ObjectMeta) {
        meta.last_modified += Duration::from_millis(self.clock_ms.load(Ordering::Relaxed).max(0) as u64);
        meta.last_modified -= Duration::from_millis(self.clock_ms.load(Ordering::Relaxed).min(0).unsigned_abs());
    }
}

impl FaultyStore {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Self::on(Objects::on(InMemory::new()), seed)
    }

    fn on(objects: Arc<Objects>, seed: u64) -> Arc<Self> {
        Arc::new(Self { objects, faults: Faults::new(seed) })
    }

    /// Returns the access of another process to the same objects.
    pub(crate) fn other(&self) -> Arc<Self> {
        let seed = self.faults.random.lock().number();
        Self::on(Arc::clone(&self.objects), seed)
    }

    pub(crate) fn bucket(self: &Arc<Self>) -> Bucket {
        Bucket::new(Arc::clone(self) as Arc<dyn ObjectStore>, "s3://test/prefix".to_owned())
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        self.faults.latency_ms.store(latency.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_failures(&self, failures: u64, lost_responses: u64) {
        self.faults.failures.store(failures, Ordering::Relaxed);
        self.faults.lost_responses.store(lost_responses, Ordering::Relaxed);
    }

    pub(crate) fn set_hangs(&self, hangs: u64) {
        self.faults.hangs.store(hangs, Ordering::Relaxed);
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.faults.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Listings are those before at most this number of changes, at random.
    pub(crate) fn set_stale(&self, changes: usize) {
        self.objects.keeps_listings.store(true, Ordering::Relaxed);
        self.faults.stale_changes.store(changes, Ordering::Relaxed);
    }

    /// Makes listings empty, as before the first change.
    pub(crate) fn hide_objects(&self, hides: bool) {
        self.faults.hides_objects.store(hides, Ordering::Relaxed);
    }

    /// Shifts the times of objects.
    pub(crate) fn set_clock(&self, ahead_ms: i64) {
        self.faults.clock_ms.store(ahead_ms, Ordering::Relaxed);
    }

    pub(crate) fn forbid(&self) {
        self.faults.is_forbidden.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record(&self) {
        self.objects.is_recording.store(true, Ordering::Relaxed);
    }

    /// Number of changes so far.
    pub(crate) fn changes(&self) -> usize {
        self.objects.states.lock().len()
    }

    /// Returns the store as it was after a number of changes, without an owner.
    pub(crate) fn after(&self, changes: usize) -> Arc<Self> {
        let state = match changes.checked_sub(1) {
            Some(last) => self.objects.states.lock()[last].fork(),
            None => InMemory::new(),
        };
        let state = Self::on(Objects::on(state), 1);
        state.remove("settee-coordinator");
        state
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = block_on(self.objects.store.delete(&Path::from(name)));
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        block_on(self.objects.store.put(&Path::from(name), content.to_owned().into())).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let objects = block_on(self.objects.list(0)).unwrap();
        objects.into_iter().map(|object| object.location.to_string()).collect()
    }
}

fn failure(text: &str) -> Error {
    Error::Generic { store: "test", source: text.into() }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.objects.store.put_opts(location, payload, options);
        self.faults.change(&self.objects, location, put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.faults.before_read(location).await?;
        self.objects.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.faults.before_read(location).await?;
        let mut found = self.objects.store.get_opts(location, options).await?;
        self.faults.shift(&mut found.meta);
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (objects, faults) = (Arc::clone(&self.objects), Arc::clone(&self.faults));
        let delete = move |location: Result<Path>| {
            let (objects, faults) = (Arc::clone(&objects), Arc::clone(&faults));
            async move {
                let location = location?;
                faults.change(&objects, &location, objects.store.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (objects, faults) = (Arc::clone(&self.objects), Arc::clone(&self.faults));
        let prefix = prefix.cloned().unwrap_or_default();
        let listed = async move {
            faults.before_read(&prefix).await?;
            let age = faults.below(faults.stale_changes.load(Ordering::Relaxed) + 1);
            let mut listing = objects.list(age).await?;
            let hides = faults.hides_objects.load(Ordering::Relaxed);
            listing.retain(|object| !hides && object.location.prefix_matches(&prefix) && object.location != prefix);
            listing.iter_mut().for_each(|object| faults.shift(object));
            Ok::<_, Error>(futures_util::stream::iter(listing.into_iter().map(Ok)))
        };
        futures_util::stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.faults.before_read(&Path::default()).await?;
        self.objects.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let copied = self.objects.store.copy_opts(from, to, options);
        self.faults.change(&self.objects, from, copied).await
    }
}
