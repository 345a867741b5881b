//! [`FaultyStore`]: a store in memory with latency, errors, lost responses and outages, and with a record of the states
//! that a crash may leave.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// A process's access to a store. Faults are those of this access.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<InMemory>,
    /// Creates all requests of the test in the order in which they arrive.
    random: parking_lot::Mutex<Generator>,
    latency_ms: AtomicU64,
    /// Requests in 1,000 that fail without an effect.
    failures: AtomicU64,
    /// Puts in 1,000 that are applied and then fail.
    lost_responses: AtomicU64,
    is_down: AtomicBool,
    is_forbidden: AtomicBool,
    is_recording: AtomicBool,
    states: parking_lot::Mutex<Vec<InMemory>>,
}

impl FaultyStore {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Self::on(Arc::new(InMemory::new()), seed)
    }

    fn on(inner: Arc<InMemory>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner,
            random: parking_lot::Mutex::new(Generator::new(seed)),
            latency_ms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lost_responses: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            is_recording: AtomicBool::new(false),
            states: parking_lot::Mutex::default(),
        })
    }

    /// Returns the access of another process to the same objects.
    pub(crate) fn other(&self) -> Arc<Self> {
        Self::on(Arc::clone(&self.inner), 1)
    }

    pub(crate) fn bucket(self: &Arc<Self>) -> Bucket {
        Bucket::new(Arc::clone(self) as Arc<dyn ObjectStore>, "s3://test/prefix".to_owned())
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        self.latency_ms.store(latency.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_failures(&self, failures: u64, lost_responses: u64) {
        self.failures.store(failures, Ordering::Relaxed);
        self.lost_responses.store(lost_responses, Ordering::Relaxed);
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    pub(crate) fn forbid(&self) {
        self.is_forbidden.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record(&self) {
        self.is_recording.store(true, Ordering::Relaxed);
    }

    /// Number of changes so far.
    pub(crate) fn changes(&self) -> usize {
        self.states.lock().len()
    }

    /// Returns the store as it was after a number of changes, without an owner.
    pub(crate) fn after(&self, changes: usize) -> Arc<Self> {
        let state = match changes.checked_sub(1) {
            Some(last) => self.states.lock()[last].fork(),
            None => InMemory::new(),
        };
        let state = Self::on(Arc::new(state), 1);
        state.remove("settee-coordinator");
        state
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = block_on(self.inner.delete(&Path::from(name)));
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        block_on(self.inner.put(&Path::from(name), content.to_owned().into())).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let objects: Vec<ObjectMeta> = block_on(self.inner.list(None).try_collect()).unwrap();
        objects.into_iter().map(|object| object.location.to_string()).collect()
    }

    async fn before(&self, path: &Path) -> Result<()> {
        let latency = self.latency_ms.load(Ordering::Relaxed);
        if latency > 0 {
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        if self.is_forbidden.load(Ordering::Relaxed) {
            return Err(Error::PermissionDenied { path: path.to_string(), source: "403 AccessDenied".into() });
        }
        if self.is_down.load(Ordering::Relaxed) || self.happens(&self.failures) {
            return Err(failure("503 SlowDown"));
        }
        Ok(())
    }

    /// Records the change, and fails if the response is lost.
    fn after_change(&self) -> Result<()> {
        if self.is_recording.load(Ordering::Relaxed) {
            self.states.lock().push(self.inner.fork());
        }
        if self.happens(&self.lost_responses) { Err(failure("the connection was lost")) } else { Ok(()) }
    }

    fn happens(&self, permille: &AtomicU64) -> bool {
        let permille = permille.load(Ordering::Relaxed);
        permille > 0 && self.random.lock().number() % 1000 < permille
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
        self.before(location).await?;
        let put = self.inner.put_opts(location, payload, options).await?;
        self.after_change()?;
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.before(location).await?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.before(location).await?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.is_forbidden.load(Ordering::Relaxed) {
            let error = Error::PermissionDenied { path: String::new(), source: "403 AccessDenied".into() };
            return futures_util::stream::iter([Err(error)]).boxed();
        }
        if self.is_down.load(Ordering::Relaxed) || self.happens(&self.failures) {
            return futures_util::stream::iter([Err(failure("503 SlowDown"))]).boxed();
        }
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.before(&Path::default()).await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.before(from).await?;
        self.inner.copy_opts(from, to, options).await?;
        self.after_change()
    }
}
