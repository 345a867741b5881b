//! [`BackupControl`]: the state of the backups that a server writes, and requests to the threads that write them.

use parking_lot::{Condvar, Mutex};
use settee_api::{BackupAttempt, BackupProgress, BackupSize, BackupState, Backups};

use super::manifest::Report;
use super::remote::Progress;
use crate::environment;

const ATTEMPTS: usize = 50;

const STORED: usize = 200;

#[derive(Default)]
pub struct BackupControl {
    pub(super) orders: Mutex<ControlState>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct ControlState {
    pub(super) is_over: bool,
    pub(super) is_wanted: bool,
    pub(super) ended: usize,
    state: BackupState,
}

impl ControlState {
    pub(super) fn begin(&mut self, now_us: u64) {
        self.is_wanted = false;
        self.state.next_ms = None;
        self.state.running = Some(BackupProgress { started_ms: now_us / 1000, ..BackupProgress::default() });
    }
}

impl BackupControl {
    pub(super) fn configure(&self, location: &str, interval_us: u64) {
        let state = &mut self.orders.lock().state;
        location.clone_into(&mut state.location);
        state.interval_ms = interval_us / 1000;
    }

    pub(super) fn expect(&self, due_us: u64) {
        let state = &mut self.orders.lock().state;
        state.next_ms = Some((due_us / 1000).max(environment::now_us() / 1000));
    }

    pub(super) fn advance(&self, progress: Progress) -> bool {
        let mut orders = self.orders.lock();
        if let Some(running) = &mut orders.state.running {
            running.total_files = progress.total_files as u64;
            running.files = progress.files as u64;
            running.sent_bytes = progress.sent_bytes;
        }
        orders.is_over
    }

    pub(super) fn end(&self, outcome: &anyhow::Result<Report>) {
        let outcome = match outcome {
            Ok(report) => Ok(BackupSize { bytes: report.bytes, sent_bytes: report.copied_bytes }),
            Err(error) => Err(format!("{error:#}")),
        };
        let state = &mut self.orders.lock().state;
        let Some(running) = state.running.take() else { return };
        let ended_ms = environment::now_us() / 1000;
        state.attempts.push(BackupAttempt { started_ms: running.started_ms, ended_ms, outcome });
        let excess = state.attempts.len().saturating_sub(ATTEMPTS);
        state.attempts.drain(..excess);
    }

    pub(super) fn store(&self, mut names: Vec<String>) {
        names.drain(..names.len().saturating_sub(STORED));
        self.orders.lock().state.stored = names;
    }
}

impl Backups for BackupControl {
    fn state(&self) -> BackupState {
        self.orders.lock().state.clone()
    }

    fn start(&self) {
        let mut orders = self.orders.lock();
        if orders.state.running.is_none() {
            orders.is_wanted = true;
            self.changed.notify_all();
        }
    }
}
