//! [`MeteredStore`]: counts the requests to the store by kind, because they determine its price, and limits their
//! duration.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;

/// Number of requests of each kind since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) heads: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) copies: AtomicU64,
    /// Requests that failed, except for the absence of an object and for conditions that did not hold.
    pub(crate) errors: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// The duration of a larger request depends on its size.
const SMALL_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct Waiting {
    /// Start of the first small request since the last response.
    since: Option<Instant>,
    requests: usize,
}

/// A small request, which may be cancelled.
struct SmallRequest<'a>(&'a Meter);

impl<'a> SmallRequest<'a> {
    fn start(meter: &'a Meter) -> Self {
        let mut waiting = meter.waiting.lock();
        waiting.requests += 1;
        waiting.since.get_or_insert_with(Instant::now);
        Self(meter)
    }

    /// After an error the store still does not respond.
    fn end(self) {
        self.0.waiting.lock().requests -= 1;
        std::mem::forget(self);
    }
}

impl Drop for SmallRequest<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.requests -= 1;
        if waiting.requests == 0 {
            waiting.since = None;
        }
    }
}

impl Meter {
    fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the time at which the store stopped responding. `None` if it has responded to the last small request.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.waiting.lock().since
    }

    fn watch<T>(&self, result: Result<T>) -> Result<T> {
        if result.as_ref().err().is_none_or(is_expected) {
            self.waiting.lock().since = None;
        }
        if let Err(error) = &result
            && !is_expected(error)
        {
            Self::add(&self.errors, 1);
        }
        result
    }

    /// Returns names and values for operators.
    pub(crate) fn statistics(&self) -> Vec<(&'static str, u64)> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("store_put_requests", value(&self.puts)),
            ("store_get_requests", value(&self.gets)),
            ("store_head_requests", value(&self.heads)),
            ("store_list_requests", value(&self.lists)),
            ("store_delete_requests", value(&self.deletes)),
            ("store_copy_requests", value(&self.copies)),
            ("store_request_errors", value(&self.errors)),
            ("store_sent_bytes", value(&self.sent_bytes)),
            ("store_received_bytes", value(&self.received_bytes)),
        ]
    }
}

fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }
    )
}

/// Metadata of objects that a store can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    Kept,
    /// A directory rejects objects with metadata, after which the library repeats each put without them. It uses them
    /// to recognize its own put after a lost response, which a directory does not have.
    Dropped,
}

#[derive(Debug)]
pub(crate) struct MeteredStore {
    store: Arc<dyn ObjectStore>,
    meter: Arc<Meter>,
    metadata: Metadata,
    timeout: Duration,
}

impl MeteredStore {
    pub(crate) fn wrap(
        store: Arc<dyn ObjectStore>,
        meter: Arc<Meter>,
        metadata: Metadata,
        timeout: Duration,
    ) -> Arc<dyn ObjectStore> {
        Arc::new(Self { store, meter, metadata, timeout })
    }

    async fn limited<T>(&self, bytes: usize, request: impl Future<Output = Result<T>>) -> Result<T> {
        let small = (bytes <= SMALL_BYTES).then(|| SmallRequest::start(&self.meter));
        let result = limited(self.timeout, request).await;
        small.into_iter().for_each(SmallRequest::end);
        self.meter.watch(result)
    }

    /// Limits the time until each item, and counts the requests that fail.
    fn watched<T: Send + 'static>(&self, items: BoxStream<'static, Result<T>>) -> BoxStream<'static, Result<T>> {
        let meter = Arc::clone(&self.meter);
        limited_items(self.timeout, items).map(move |result| meter.watch(result)).boxed()
    }

    fn attributes(&self, attributes: Attributes) -> Attributes {
        match self.metadata {
            Metadata::Kept => attributes,
            Metadata::Dropped => Attributes::new(),
        }
    }
}

/// A request that exceeds the timeout fails, and may have been executed.
async fn limited<T>(timeout: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| Err(unanswered()))
}

fn unanswered() -> Error {
    Error::Generic { store: "bucket", source: "the store did not respond in time".into() }
}

/// Ends with an error if an item exceeds the timeout.
fn limited_items<T: Send + 'static>(
    timeout: Duration,
    items: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    let next = move |items: Option<BoxStream<'static, Result<T>>>| async move {
        let mut items = items?;
        match tokio::time::timeout(timeout, items.next()).await {
            Ok(item) => Some((item?, Some(items))),
            Err(_) => Some((Err(unanswered()), None)),
        }
    };
    stream::unfold(Some(items), next).boxed()
}

impl fmt::Display for MeteredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for MeteredStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        Meter::add(&self.meter.puts, 1);
        Meter::add(&self.meter.sent_bytes, payload.content_length() as u64);
        options.attributes = self.attributes(options.attributes);
        self.limited(payload.content_length(), self.store.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        mut options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Meter::add(&self.meter.puts, 1);
        options.attributes = self.attributes(options.attributes);
        let upload = self.limited(0, self.store.put_multipart_opts(location, options)).await?;
        Ok(Box::new(MeteredUpload { upload, meter: Arc::clone(&self.meter), timeout: self.timeout }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        Meter::add(if is_head { &self.meter.heads } else { &self.meter.gets }, 1);
        let mut result = self.limited(0, self.store.get_opts(location, options)).await?;
        result.payload = match result.payload {
            GetResultPayload::Stream(bytes) => GetResultPayload::Stream(limited_items(self.timeout, bytes)),
            file => file,
        };
        if !is_head {
            Meter::add(&self.meter.received_bytes, result.range.end.saturating_sub(result.range.start));
        }
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let meter = Arc::clone(&self.meter);
        let deleted = self.watched(self.store.delete_stream(locations));
        deleted.inspect(move |_| Meter::add(&meter.deletes, 1)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        Meter::add(&self.meter.lists, 1);
        self.watched(self.store.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        Meter::add(&self.meter.lists, 1);
        self.watched(self.store.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        Meter::add(&self.meter.lists, 1);
        self.limited(0, self.store.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        Meter::add(&self.meter.copies, 1);
        self.limited(usize::MAX, self.store.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct MeteredUpload {
    upload: Box<dyn MultipartUpload>,
    meter: Arc<Meter>,
    timeout: Duration,
}

#[async_trait::async_trait]
impl MultipartUpload for MeteredUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        Meter::add(&self.meter.puts, 1);
        Meter::add(&self.meter.sent_bytes, data.content_length() as u64);
        let meter = Arc::clone(&self.meter);
        let part = limited(self.timeout, self.upload.put_part(data));
        Box::pin(async move { meter.watch(part.await) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        Meter::add(&self.meter.puts, 1);
        let completed = limited(self.timeout, self.upload.complete()).await;
        self.meter.watch(completed)
    }

    async fn abort(&mut self) -> Result<()> {
        limited(self.timeout, self.upload.abort()).await
    }
}
