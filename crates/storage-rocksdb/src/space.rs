//! [`Space`]: tracks the free space of the disk, and manages a reserve file. Deletions need space before they free any.
//! Therefore growth is refused while some space is left, a part of which is a reserve file, so that other processes
//! cannot use it: it is removed when a deletion needs the space, and recreated when enough is available.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use settee_storage::StorageError;

use crate::options::Options;

/// Growth is accepted again at this percentage of the required free space.
const MARGIN_PERCENT: u64 = 125;

/// The disk is checked again after this fraction of the minimum free space was written.
const CHECKS_PER_MINIMUM: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reserved,
    Released,
    /// The file system does not support preallocation. The same amount is left free instead.
    Unsupported,
}

pub(crate) struct Space {
    directory: PathBuf,
    free_min_bytes: u64,
    reserve: Option<(PathBuf, u64)>,
    state: Mutex<State>,
    is_scarce: AtomicBool,
    free_bytes: AtomicU64,
    unchecked_bytes: AtomicU64,
}

impl Space {
    /// `directory` must exist.
    pub(crate) fn new(directory: &Path, options: &Options) -> Self {
        let reserve = options.reserve.clone().filter(|(_, bytes)| *bytes > 0);
        let is_whole =
            reserve.as_ref().is_some_and(|(path, bytes)| fs::metadata(path).is_ok_and(|found| found.len() == *bytes));
        Self {
            directory: directory.to_owned(),
            free_min_bytes: options.free_min_bytes,
            reserve,
            state: Mutex::new(if is_whole { State::Reserved } else { State::Released }),
            is_scarce: AtomicBool::new(false),
            free_bytes: AtomicU64::new(0),
            unchecked_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn check_space(&self) {
        let mut state = self.state.lock();
        let Ok(figures) = statvfs(&self.directory) else { return };
        let free = figures.f_bavail.saturating_mul(figures.f_frsize);
        let reserve_bytes = self.reserve.as_ref().map_or(0, |(_, bytes)| *bytes);
        let needed = self.free_min_bytes.saturating_add(if *state == State::Reserved { 0 } else { reserve_bytes });
        let was_scarce = self.is_scarce.load(Ordering::Relaxed);
        let is_scarce = free < if was_scarce { needed.saturating_mul(MARGIN_PERCENT) / 100 } else { needed };
        if let (State::Released, false, Some((path, bytes))) = (*state, is_scarce, &self.reserve) {
            *state = keep(path, *bytes);
        }
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
        self.free_bytes.store(free, Ordering::Relaxed);
        self.unchecked_bytes.store(0, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        let unchecked = self.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.free_min_bytes > 0 && unchecked >= self.free_min_bytes / CHECKS_PER_MINIMUM {
            self.check_space();
        }
    }

    /// Checks the free space for a deletion, and removes the reserve if space is scarce, but not earlier.
    pub(crate) fn make_space(&self) {
        self.check_space();
        if self.is_scarce() {
            self.release_reserve();
        }
    }

    /// Removes the reserve regardless of the free space, because a write failed for lack of space.
    pub(crate) fn release_reserve(&self) {
        let mut state = self.state.lock();
        if let Some((path, _)) = self.reserve.as_ref().filter(|_| *state == State::Reserved) {
            *state = give_up(path);
        }
        self.is_scarce.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce.load(Ordering::Relaxed)
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if !self.is_scarce() {
            return Ok(());
        }
        let free = self.free_bytes() >> 20;
        Err(StorageError::Full(format!(
            "{free} MiB of the disk are free, which is kept for deletions and compaction; remove databases, or make room"
        )))
    }
}

fn keep(path: &Path, bytes: u64) -> State {
    let made = File::create(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let made = made.and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, bytes));
    if made.is_ok() {
        return State::Reserved;
    }
    let _ = fs::remove_file(path);
    if made == Err(Errno::OPNOTSUPP) || made == Err(Errno::NOSYS) { State::Unsupported } else { State::Released }
}

fn give_up(path: &Path) -> State {
    if fs::remove_file(path).is_ok() { State::Released } else { State::Reserved }
}
