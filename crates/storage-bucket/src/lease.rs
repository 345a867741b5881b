//! [`Lease`]: the right to be the coordinator of a store. A second process follows the holder instead of ending its
//! writes.
//!
//! The holder replaces an object at intervals, each time on the condition that it is unchanged. Another process takes
//! over after it has observed the object unchanged for the duration of the lease; it compares no clocks. The lease
//! protects claims, and readers of an owner that another process has replaced. It does not protect the data: the
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

pub(crate) const OBJECT: &str = "settee-coordinator";

/// Number of renewals during the duration of a lease.
const RENEWALS: u32 = 3;

/// State of the lease in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    /// Available at once. Its last holder keeps its other claims.
    Released,
    /// Available at once. Its last holder has ended.
    Left,
}

impl Hold {
    const ALL: [(Self, &str); 3] = [(Self::Held, "held"), (Self::Released, "released"), (Self::Left, "left")];
}

/// The object of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) node: u128,
    /// Increases with every replacement.
    pub(crate) beat: u64,
    pub(crate) hold: Hold,
    /// True if the coordinator may have granted claims to other processes.
    pub(crate) has_others: bool,
    /// Epochs below this number may have been granted.
    pub(crate) epochs: u64,
    /// Other processes wait for this time, whatever they are configured to.
    duration_ms: u64,
    pub(crate) name: String,
    /// Root of the HTTP interface of the coordinator. Empty before the coordinator has announced itself.
    pub(crate) address: String,
}

impl Record {
    fn encode(&self) -> String {
        let state = Hold::ALL.iter().find(|(hold, _)| *hold == self.hold).map_or("", |(_, name)| name);
        let Self { node, beat, has_others, epochs, duration_ms, name, address, .. } = self;
        format!(
            "node {node:032x}\nbeat {beat}\nstate {state}\nothers {has_others}\nepochs {epochs}\n\
             duration_ms {duration_ms}\nname {name}\naddress {address}\n"
        )
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |prefix: &str| lines.next()?.strip_prefix(prefix);
        Some(Self {
            node: u128::from_str_radix(field("node ")?, 16).ok()?,
            beat: field("beat ")?.parse().ok()?,
            hold: {
                let name = field("state ")?;
                Hold::ALL.iter().find(|(_, known)| *known == name)?.0
            },
            has_others: field("others ")? == "true",
            epochs: field("epochs ")?.parse().ok()?,
            duration_ms: field("duration_ms ")?.parse().ok()?,
            name: field("name ")?.to_owned(),
            address: field("address ")?.to_owned(),
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseOptions {
    pub(crate) node: u128,
    pub(crate) duration: Duration,
    /// Location for operators.
    pub(crate) shown: String,
}

/// The variable contents of the object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) has_others: bool,
    pub(crate) epochs: u64,
}

impl LeaseOptions {
    fn record(&self, beat: u64, hold: Hold, description: &Description) -> Record {
        let duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let Description { name, address, has_others, epochs } = description.clone();
        Record { node: self.node, beat, hold, has_others, epochs, duration_ms, name, address }
    }
}

/// A process that does not hold the lease.
pub(crate) struct Candidate {
    objects: Arc<dyn ObjectStore>,
    options: LeaseOptions,
    /// Holder and number of the last known replacement, and the time since which it is the last one.
    observed: Option<(u128, u64, Instant)>,
    /// Name of the holder.
    holder: String,
}

/// Result of an attempt to take the lease.
pub(crate) enum Attempt {
    /// `before` is the record of the earlier holder.
    Taken { lease: Arc<Lease>, before: Option<Record> },
    /// Another process holds the lease.
    Held(Record),
}

impl Candidate {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, options: LeaseOptions) -> Self {
        Self { objects, options, observed: None, holder: String::new() }
    }

    /// Records that `beat` was the last replacement by `node` at the time `at`, as the holder itself has reported.
    pub(crate) fn observe(&mut self, node: u128, beat: u64, at: Instant) {
        match self.observed {
            Some((known, last, _)) if (known, last) == (node, beat) => {}
            _ => self.observed = Some((node, beat, at)),
        }
    }

    /// Returns the last known holder and the number of its replacement.
    pub(crate) fn observed(&self) -> Option<(u128, u64)> {
        self.observed.map(|(node, beat, _)| (node, beat))
    }

    /// Returns the time at which the last replacement became known.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        self.observed.map(|(_, _, since)| since)
    }

    /// Returns the name of the last known holder.
    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    /// Takes the lease if it is free, released or expired. `reserved` is the number of epochs that the new holder
    /// reserves.
    pub(crate) async fn attempt(&mut self, may_take: bool, own: &Description, reserved: u64) -> Result<Attempt> {
        let found = read(self.objects.as_ref(), &self.options.shown).await?;
        let epochs = found.as_ref().map_or(1, |(record, _)| record.epochs) + reserved;
        let description = &Description { epochs, ..own.clone() };
        let Some((record, version)) = found else {
            return self.take(1, PutMode::Create, description, None).await;
        };
        let now = Instant::now();
        self.observe(record.node, record.beat, now);
        self.holder.clone_from(&record.name);
        let since = self.observed.map_or(now, |(_, _, since)| since);
        let has_expired = since.elapsed() >= Duration::from_millis(record.duration_ms);
        if may_take && (record.hold != Hold::Held || record.node == self.options.node || has_expired) {
            let (beat, mode) = (record.beat + 1, PutMode::Update(version));
            return self.take(beat, mode, description, Some(record)).await;
        }
        Ok(Attempt::Held(record))
    }

    async fn take(
        &mut self,
        beat: u64,
        mode: PutMode,
        description: &Description,
        before: Option<Record>,
    ) -> Result<Attempt> {
        match Lease::take(&self.objects, &self.options, beat, mode, description).await? {
            Some(lease) => Ok(Attempt::Taken { lease, before }),
            // Another process was faster.
            None => match read(self.objects.as_ref(), &self.options.shown).await? {
                Some((record, _)) => Ok(Attempt::Held(record)),
                None => Err(StorageError::Unreached(format!("{OBJECT} in {} was removed", self.options.shown))),
            },
        }
    }
}

pub(crate) struct Lease {
    objects: Arc<dyn ObjectStore>,
    options: LeaseOptions,
    description: Mutex<Description>,
    /// Held during a replacement.
    replacing: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
    /// Reason why this node is not the holder any more.
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
    /// Returns `None` if another node was faster.
    async fn take(
        objects: &Arc<dyn ObjectStore>,
        options: &LeaseOptions,
        beat: u64,
        mode: PutMode,
        description: &Description,
    ) -> Result<Option<Arc<Self>>> {
        let started = Instant::now();
        let record = options.record(beat, Hold::Held, description);
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
            description: Mutex::new(description.clone()),
            replacing: tokio::sync::Mutex::new(()),
            held: Mutex::new(held),
            lost: OnceLock::new(),
            ended: Notify::new(),
            is_releasing: AtomicBool::new(false),
        })))
    }

    /// Number of the last replacement.
    pub(crate) fn beat(&self) -> u64 {
        self.held.lock().beat
    }

    /// Returns true if another process has taken the lease.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Changes what the object contains, and replaces it.
    pub(crate) async fn describe(&self, description: Description) -> Result<()> {
        *self.description.lock() = description;
        self.put_next(Hold::Held).await.map_err(|error| explain(&self.options.shown, OBJECT, &error))
    }

    pub(crate) fn description(&self) -> Description {
        self.description.lock().clone()
    }

    /// Fails if another node may have become the holder.
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
            let renewed = tokio::time::timeout(self.options.duration, self.put_next(Hold::Held)).await;
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

    /// Permits another process to take the lease at once. Errors are ignored, because the lease expires.
    pub(crate) async fn release(&self, hold: Hold) {
        self.is_releasing.store(true, Ordering::SeqCst);
        self.ended.notify_one();
        if self.lost.get().is_none() {
            let _ = tokio::time::timeout(self.options.duration, self.put_next(hold)).await;
        }
    }

    async fn put_next(&self, hold: Hold) -> Result<(), Error> {
        let _replacing = self.replacing.lock().await;
        loop {
            if hold == Hold::Held && self.is_releasing.load(Ordering::SeqCst) {
                return Ok(());
            }
            let started = Instant::now();
            let (beat, version) = {
                let held = self.held.lock();
                (held.beat + 1, held.version.clone())
            };
            let record = self.options.record(beat, hold, &self.description.lock());
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
        let record = Record {
            node: u128::MAX - 5,
            beat: 7,
            hold: Hold::Held,
            has_others: true,
            epochs: 9,
            duration_ms: 15_000,
            name: "settee@host name".to_owned(),
            address: "http://host:5984/".to_owned(),
        };
        for record in [record.clone(), Record { hold: Hold::Left, has_others: false, address: String::new(), ..record }]
        {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::decode("node 1\nbeat x\n"), None);
    }
}
