//! [`Backups`]: a server writes its own backups, removes old ones and ships its log, in two threads. Errors are logged
//! and retried.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use settee_settings::{Settings, backup};
use settee_storage::{CommitLog, Engine};

use super::BackupControl;
use super::log::ship::{Shipped, Shipper, Stream};
use super::manifest::Logged;
use super::remote::{self, Effort, Store, retention, s3};
use crate::control::Checkpoint;
use crate::{environment, time};

const RETRY_US: u64 = 60_000_000;

/// Names of backups have a resolution of one second.
const LEAST_INTERVAL_US: u64 = 2_000_000;

const FIRST_CHECKPOINT: u64 = 1 << 32;

/// Time limit for shipping the end of the log when the server stops.
const END: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub interval_us: u64,
    pub full_interval_us: Option<u64>,
    pub keep_s: u64,
    pub log_interval: Option<Duration>,
}

fn configured(configuration: &dyn Settings) -> Option<(s3::Place, Plan)> {
    let url = backup::URL.text(configuration)?;
    let access_key = backup::ACCESS_KEY_ID.text(configuration).zip(backup::SECRET_ACCESS_KEY.text(configuration));
    let place = s3::Place {
        url,
        endpoint: backup::ENDPOINT.text(configuration),
        region: backup::REGION.text(configuration),
        access_key,
        authorities: backup::CA_FILE.text(configuration).map(PathBuf::from),
        key_file: backup::KEY_FILE.text(configuration).map(PathBuf::from),
    };
    let us = |seconds: u64| seconds.saturating_mul(1_000_000);
    let positive = |seconds: u64| (seconds > 0).then_some(seconds);
    let plan = Plan {
        interval_us: us(backup::INTERVAL.of(configuration)),
        full_interval_us: positive(backup::FULL_INTERVAL.of(configuration)).map(us),
        keep_s: backup::KEEP.of(configuration),
        log_interval: positive(backup::LOG_INTERVAL.of(configuration)).map(Duration::from_secs),
    };
    Some((place, plan))
}

pub fn wants_log(configuration: &dyn Settings) -> bool {
    configured(configuration).is_some_and(|(_, plan)| plan.log_interval.is_some())
}

pub fn wants_backups(configuration: &dyn Settings) -> bool {
    configured(configuration).is_some()
}

pub struct Backups {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    data: PathBuf,
    plan: Plan,
    stream: Option<Arc<Mutex<Stream>>>,
    checkpoints: AtomicU64,
    backup_control: Arc<BackupControl>,
}

struct Taken {
    checkpoint: Checkpoint,
    begun_us: u64,
    log: Option<Logged>,
}

impl Backups {
    pub fn begin(
        configuration: &dyn Settings,
        data: &Path,
        engine: &Arc<dyn Engine>,
        backup_control: Option<Arc<BackupControl>>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(((place, plan), backup_control)) = configured(configuration).zip(backup_control) else {
            return Ok(None);
        };
        Self::start(&|| s3::open(&place), plan, data, Arc::clone(engine), backup_control).map(Some)
    }

    /// Starts the threads. `engine` must keep its log if the plan ships it. Nothing may be committed before this
    /// returns, so that the first backup has every earlier commit and the log every later one.
    pub fn start(
        open: &dyn Fn() -> anyhow::Result<Store>,
        plan: Plan,
        data: &Path,
        engine: Arc<dyn Engine>,
        backup_control: Arc<BackupControl>,
    ) -> anyhow::Result<Self> {
        let stream = match plan.log_interval {
            Some(_) => Some(Arc::new(Mutex::new(Stream::begin(engine.as_ref())?))),
            None => None,
        };
        let shared = Arc::new(Shared {
            engine,
            data: data.to_owned(),
            plan,
            stream,
            checkpoints: AtomicU64::new(FIRST_CHECKPOINT),
            backup_control,
        });
        // On a full disk the checkpoint fails. The server serves anyway, and the checkpoint is retried.
        let first = shared.stream.as_ref().and_then(|_| match shared.take() {
            Ok(taken) => Some(taken),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the first backup failed and will be retried");
                None
            }
        });
        let mut threads = Vec::new();
        let (store, working) = (open()?, Arc::clone(&shared));
        shared.backup_control.configure(store.shown(), plan.interval_us);
        threads.push(spawn("backup", &shared, move || working.write_backups(&store, first))?);
        if let (Some(stream), Some(interval)) = (&shared.stream, plan.log_interval) {
            let shipper = Shipper::new(open()?, Arc::clone(&shared.engine), Arc::clone(stream));
            let working = Arc::clone(&shared);
            threads.push(spawn("log", &shared, move || working.ship(shipper, interval))?);
        }
        Ok(Self { shared, threads })
    }

    /// Sends the rest of the log if that is possible within the time limit. The caller must have stopped all writers.
    pub fn stop(self) {
        let backup_control = Arc::clone(&self.shared.backup_control);
        let mut orders = backup_control.orders.lock();
        orders.is_over = true;
        backup_control.changed.notify_all();
        let all = self.threads.len();
        let is_late = backup_control.changed.wait_while_for(&mut orders, |orders| orders.ended < all, END).timed_out();
        drop(orders);
        if is_late {
            tracing::warn!(
                "the server ends before its backups are complete; the missing commits are in the data directory"
            );
            return;
        }
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, shared: &Arc<Shared>, work: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    struct Ended(Arc<Shared>);
    impl Drop for Ended {
        fn drop(&mut self) {
            self.0.backup_control.orders.lock().ended += 1;
            self.0.backup_control.changed.notify_all();
        }
    }
    let ended = Ended(Arc::clone(shared));
    let work = move || {
        let _ended = ended;
        work();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).context("cannot start the thread for backups")
}

impl Shared {
    fn take(&self) -> anyhow::Result<Taken> {
        let begun_us = environment::now_us();
        let stream = self.stream.as_ref().map(|stream| stream.lock().clone());
        // The position is read first: commits after it are in the log, and possibly in the checkpoint too.
        let position = self.engine.log().map(CommitLog::end).transpose()?;
        let number = self.checkpoints.fetch_add(1, Ordering::Relaxed);
        let checkpoint = Checkpoint::make(&self.data, self.engine.as_ref(), number)?;
        let taken_us = environment::now_us();
        let fits = |stream: &Stream| position.filter(|position| position.opening == stream.begins.opening);
        let log = stream.and_then(|stream| {
            let position = fits(&stream)?.number;
            Some(Logged { stream: stream.id, position, taken_us })
        });
        Ok(Taken { checkpoint, begun_us, log })
    }

    fn wait_until(&self, due_us: u64, least_us: u64) -> bool {
        self.backup_control.expect(due_us);
        let mut orders = self.backup_control.orders.lock();
        loop {
            let now_us = environment::now_us();
            if orders.is_over {
                return false;
            }
            let due_us = if orders.is_wanted { due_us.min(least_us) } else { due_us };
            if now_us >= due_us {
                orders.begin(now_us);
                return true;
            }
            self.backup_control.changed.wait_for(&mut orders, Duration::from_micros(due_us - now_us));
        }
    }

    fn write_backups(&self, store: &Store, first: Option<Taken>) {
        let mut first = first;
        let mut due_us = if self.stream.is_some() { 0 } else { self.next_due(store) };
        let (mut least_us, mut tidied_us) = (0, 0);
        while self.wait_until(due_us, least_us) {
            let begun_us = environment::now_us();
            least_us = begun_us.saturating_add(LEAST_INTERVAL_US);
            let outcome = self.write_backup(store, first.take());
            if outcome.is_ok()
                && let Ok(names) = remote::names(store)
            {
                self.backup_control.store(names);
            }
            self.backup_control.end(&outcome);
            match outcome {
                Ok(report) => {
                    let bytes = report.bytes;
                    let (name, sent_bytes) = (report.directory.display().to_string(), report.copied_bytes);
                    tracing::info!(name, bytes, sent_bytes, "a backup was written");
                    due_us = begun_us.saturating_add(self.plan.interval_us);
                }
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "a backup failed and will be retried");
                    due_us = begun_us.saturating_add(RETRY_US.min(self.plan.interval_us));
                    continue;
                }
            }
            // Retention lists all objects, so it runs less often than backups.
            let is_tidy = begun_us.saturating_sub(tidied_us) < (self.plan.keep_s / 20).saturating_mul(1_000_000);
            if !is_tidy {
                tidied_us = begun_us;
                self.remove_old(store);
            }
        }
    }

    fn next_due(&self, store: &Store) -> u64 {
        let names = store.prepare().and_then(|()| remote::names(store));
        match names {
            Ok(names) => {
                let newest = names.last().cloned();
                self.backup_control.store(names);
                newest.and_then(|name| time::parse(&name)).map_or(0, |us| us.saturating_add(self.plan.interval_us))
            }
            Err(_) => 0,
        }
    }

    fn write_backup(&self, store: &Store, first: Option<Taken>) -> anyhow::Result<super::Report> {
        store.prepare()?;
        let Taken { checkpoint, begun_us, log } = first.map_or_else(|| self.take(), Ok)?;
        let effort = self.effort(store, begun_us)?;
        let sources = remote::sources(&checkpoint.0, &self.data)?;
        remote::upload(store, &sources, begun_us, log, effort, &|progress| self.backup_control.advance(progress))
    }

    fn effort(&self, store: &Store, now_us: u64) -> anyhow::Result<Effort> {
        let Some(interval_us) = self.plan.full_interval_us else { return Ok(Effort::New) };
        let last = remote::last_full(store)?;
        let is_due = last.is_none_or(|last_us| now_us.saturating_sub(last_us) >= interval_us);
        Ok(if is_due { Effort::Full } else { Effort::New })
    }

    fn remove_old(&self, store: &Store) {
        match retention::apply(store, environment::now_us(), self.plan.keep_s) {
            Ok(removed) if removed != retention::Removed::default() => {
                let retention::Removed { backups, files, pieces } = removed;
                tracing::info!(backups, files, pieces, "old backups were removed");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = format!("{error:#}"), "old backups were not removed"),
        }
    }

    fn ship(&self, mut shipper: Shipper, interval: Duration) {
        let mut reply = None;
        loop {
            let is_over = {
                let mut orders = self.backup_control.orders.lock();
                self.backup_control.changed.wait_while_for(&mut orders, |orders| !orders.is_over, interval);
                orders.is_over
            };
            let shipped = if is_over { shipper.close() } else { shipper.ship() };
            let failure = shipped.as_ref().err().map(|error| format!("{error:#}"));
            match (&shipped, &failure) {
                (Ok(Shipped::Restarted), _) => {
                    tracing::warn!("the log has a gap: a new log starts with a backup");
                    self.backup_control.orders.lock().is_wanted = true;
                    self.backup_control.changed.notify_all();
                }
                (_, Some(error)) if reply != failure => tracing::error!(error, "sending the log failed"),
                (_, None) if reply.is_some() => tracing::warn!("sending the log succeeds again"),
                _ => {}
            }
            reply = failure;
            if is_over {
                return;
            }
        }
    }
}
