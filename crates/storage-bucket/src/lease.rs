//! [`Lease`]: the exclusive use of a bucket, so that a second node waits or refuses to start instead of ending the
//! first one.
//!
//! The owner replaces an object at intervals, each time on the condition that it is unchanged. Another node takes over
//! after it has observed the object unchanged for the duration of the lease; it compares no clocks. The lease protects
//! the owner from others, and readers from an owner that another node has replaced. It does not protect the data: the
//! library fences the log of an earlier writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion};
use parking_lot::Mutex;
use settee_storage::{Result, StorageError};
use tokio::sync::Notify;

use crate::error::{FENCED, explain};

pub(crate) const OBJECT: &str = "settee-owner";

/// Number of renewals during the duration of a lease.
const RENEWALS: u32 = 3;

/// Number of reads of the object by a waiting node during the duration of a lease.
const READS: u32 = 5;

/// Behaviour of a node that finds the bucket in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    /// It waits until the owner ends or fails.
    Waits,
    /// It fails.
    Refuses,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    node: u128,
    beat: u64,
    is_released: bool,
    /// Other nodes wait for this time, whatever they are configured to.
    duration_ms: u64,
    name: String,
}

impl Record {
    fn encode(&self) -> String {
        let state = if self.is_released { "released" } else { "held" };
        let Self { node, beat, duration_ms, name, .. } = self;
        format!("node {node:032x}\nbeat {beat}\nstate {state}\nduration_ms {duration_ms}\nname {name}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let node = u128::from_str_radix(lines.next()?.strip_prefix("node ")?, 16).ok()?;
        let beat = lines.next()?.strip_prefix("beat ")?.parse().ok()?;
        let is_released = lines.next()?.strip_prefix("state ")? == "released";
        let duration_ms = lines.next()?.strip_prefix("duration_ms ")?.parse().ok()?;
        Some(Self { node, beat, is_released, duration_ms, name: lines.next()?.strip_prefix("name ")?.to_owned() })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseOptions {
    pub(crate) node: u128,
    pub(crate) name: String,
    pub(crate) duration: Duration,
    pub(crate) standby: Standby,
    pub(crate) shown: String,
}

impl LeaseOptions {
    fn record(&self, beat: u64, is_released: bool) -> Record {
        let duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        Record { node: self.node, beat, is_released, duration_ms, name: self.name.clone() }
    }
}

pub(crate) struct Lease {
    objects: Arc<dyn ObjectStore>,
    options: LeaseOptions,
    held: Mutex<Held>,
    /// Reason why this node is not the owner any more.
    lost: OnceLock<String>,
    ended: Notify,
    is_releasing: AtomicBool,
}

struct Held {
    beat: u64,
    version: UpdateVersion,
    valid_until: Instant,
}

impl Lease {
    /// Waits for the lease, or fails if another node holds it, as [`Standby`] demands.
    pub(crate) async fn acquire(objects: Arc<dyn ObjectStore>, options: LeaseOptions) -> Result<Arc<Self>> {
        let mut observed: Option<(Record, Instant)> = None;
        let mut is_reported = false;
        loop {
            let found = read(objects.as_ref(), &options.shown).await?;
            let Some((record, version)) = found else {
                if let Some(lease) = Self::take(&objects, &options, 1, PutMode::Create).await? {
                    return Ok(lease);
                }
                continue;
            };
            let since = match &observed {
                Some((before, since)) if *before == record => *since,
                Some(_) if options.standby == Standby::Refuses && !record.is_released => {
                    return Err(StorageError::Io(format!(
                        "{} is in use by {}: stop it first, or let this node wait with [storage] standby = true",
                        options.shown, record.name
                    )));
                }
                _ => Instant::now(),
            };
            let has_expired = since.elapsed() >= Duration::from_millis(record.duration_ms);
            let is_free = record.is_released || record.node == options.node || has_expired;
            if is_free {
                let mode = PutMode::Update(version);
                if let Some(lease) = Self::take(&objects, &options, record.beat + 1, mode).await? {
                    return Ok(lease);
                }
                continue;
            }
            if !is_reported {
                is_reported = true;
                tracing::info!(owner = record.name, store = options.shown, "waiting for the owner of the store to end");
            }
            let pause = Duration::from_millis(record.duration_ms).min(options.duration) / READS;
            observed = Some((record, since));
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns `None` if another node was faster.
    async fn take(
        objects: &Arc<dyn ObjectStore>,
        options: &LeaseOptions,
        beat: u64,
        mode: PutMode,
    ) -> Result<Option<Arc<Self>>> {
        let started = Instant::now();
        let record = options.record(beat, false);
        let version = match put(objects.as_ref(), &record, mode).await {
            Ok(version) => version,
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match read(objects.as_ref(), &options.shown).await? {
                    // The response to this put was lost.
                    Some((found, version)) if found == record => version,
                    _ => return Ok(None),
                }
            }
            Err(error) => return Err(explain(&options.shown, OBJECT, &error)),
        };
        let held = Held { beat, version, valid_until: started + options.duration };
        Ok(Some(Arc::new(Self {
            objects: Arc::clone(objects),
            options: options.clone(),
            held: Mutex::new(held),
            lost: OnceLock::new(),
            ended: Notify::new(),
            is_releasing: AtomicBool::new(false),
        })))
    }

    /// Fails if another node may have become the owner: this one does not know the state of the data any more.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(reason) = self.lost.get() {
            return Err(StorageError::Unreached(reason.clone()));
        }
        if Instant::now() > self.held.lock().valid_until {
            let seconds = self.options.duration.as_secs_f32();
            return Err(StorageError::Unreached(format!(
                "{} could not be reached for {seconds} s, so another node may have taken over",
                self.options.shown
            )));
        }
        Ok(())
    }

    /// Renews the lease until it is lost or released.
    pub(crate) async fn renew(self: Arc<Self>) {
        let pause = self.options.duration / RENEWALS;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ended.notified() => return,
            }
            // A request that takes longer is repeated, and the repetition recognizes its success.
            let renewed = tokio::time::timeout(self.options.duration, self.put_next(false)).await;
            match renewed {
                Ok(Ok(())) => {}
                Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. })) => {
                    tracing::error!(store = self.options.shown, "{FENCED}");
                    let _ = self.lost.set(FENCED.to_owned());
                    return;
                }
                Ok(Err(error)) => tracing::warn!(store = self.options.shown, %error, "the lease was not renewed"),
                Err(_) => tracing::warn!(store = self.options.shown, "the lease was not renewed in time"),
            }
        }
    }

    /// Permits the next node to start immediately. Errors are ignored, because the lease expires.
    pub(crate) async fn release(&self) {
        self.is_releasing.store(true, Ordering::SeqCst);
        self.ended.notify_one();
        if self.lost.get().is_none() {
            let _ = tokio::time::timeout(self.options.duration, self.put_next(true)).await;
        }
    }

    async fn put_next(&self, is_released: bool) -> Result<(), Error> {
        loop {
            if !is_released && self.is_releasing.load(Ordering::SeqCst) {
                return Ok(());
            }
            let started = Instant::now();
            let (beat, version) = {
                let held = self.held.lock();
                (held.beat + 1, held.version.clone())
            };
            let record = self.options.record(beat, is_released);
            match put(self.objects.as_ref(), &record, PutMode::Update(version)).await {
                Ok(version) => {
                    *self.held.lock() = Held { beat, version, valid_until: started + self.options.duration };
                    return Ok(());
                }
                Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. })) => self.adopt(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Continues from an earlier put of this node whose response was lost. The lease is not extended, because that put
    /// may be old. Returns `error` if another node replaced the object.
    async fn adopt(&self, error: Error) -> Result<(), Error> {
        let object = self.objects.get(&Path::from(OBJECT)).await?;
        let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
        let text = object.bytes().await?;
        match std::str::from_utf8(&text).ok().and_then(Record::decode) {
            Some(found) if found.node == self.options.node => {
                let mut held = self.held.lock();
                held.beat = found.beat;
                held.version = version;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

async fn put(objects: &dyn ObjectStore, record: &Record, mode: PutMode) -> Result<UpdateVersion, Error> {
    let options = PutOptions { mode, ..PutOptions::default() };
    let put = objects.put_opts(&Path::from(OBJECT), record.encode().into(), options).await?;
    Ok(put.into())
}

async fn read(objects: &dyn ObjectStore, shown: &str) -> Result<Option<(Record, UpdateVersion)>> {
    let failed = |error: Error| explain(shown, OBJECT, &error);
    let object = match objects.get(&Path::from(OBJECT)).await {
        Ok(object) => object,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
    let bytes = object.bytes().await.map_err(failed)?;
    let record = std::str::from_utf8(&bytes).ok().and_then(Record::decode);
    let record = record.ok_or_else(|| StorageError::Corrupt(format!("{OBJECT} in {shown} does not decode")))?;
    Ok(Some((record, version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let name = "settee@host name".to_owned();
        let record = Record { node: u128::MAX - 5, beat: 7, is_released: false, duration_ms: 15_000, name };
        for record in [record.clone(), Record { is_released: true, ..record }] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::decode("node 1\nbeat x\n"), None);
    }
}
