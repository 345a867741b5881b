//! [`Space`]: whether there is room for more on the disk, and the file that keeps some in reserve. It decides nothing about
//! single commits.
//!
//! Removing things takes room before it gives room: a deletion is written to the log, and what a compaction leaves is
//! written before what it read is removed. So growth ends while some room is left, and of that a part is a file of its own,
//! which nobody else can take: it is given up when what makes room needs it, and made again when there is room for all of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use settee_storage::StorageError;

use crate::options::Options;

/// Room for growth comes back when there is so much more than needed, in percent: not with every file that goes.
const MARGIN_PERCENT: u64 = 125;

/// The disk is looked at again when so much of the least free space was written since, as a divisor.
const LOOKS: u64 = 8;

/// The state of the reserve, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Kept,
    GivenUp,
    /// The file system makes no such files. As much is left free instead.
    Impossible,
}

pub(crate) struct Space {
    directory: PathBuf,
    free_min_bytes: u64,
    /// The file and its length.
    reserve: Option<(PathBuf, u64)>,
    /// Held while the disk is looked at.
    state: Mutex<State>,
    is_scarce: AtomicBool,
    free_bytes: AtomicU64,
    /// How much may be written until the disk is looked at again.
    unlooked_bytes: AtomicU64,
}

impl Space {
    /// The space of the disk that `directory` is on, which must be there.
    pub(crate) fn new(directory: &Path, options: &Options) -> Self {
        let reserve = options.reserve.clone().filter(|(_, bytes)| *bytes > 0);
        let is_whole =
            reserve.as_ref().is_some_and(|(path, bytes)| fs::metadata(path).is_ok_and(|found| found.len() == *bytes));
        Self {
            directory: directory.to_owned(),
            free_min_bytes: options.free_min_bytes,
            reserve,
            state: Mutex::new(if is_whole { State::Kept } else { State::GivenUp }),
            is_scarce: AtomicBool::new(false),
            free_bytes: AtomicU64::new(0),
            unlooked_bytes: AtomicU64::new(0),
        }
    }

    /// Looks at the disk, and makes the reserve again if it is gone and there is room.
    pub(crate) fn look(&self) {
        let mut state = self.state.lock();
        let Ok(figures) = statvfs(&self.directory) else { return };
        let free = figures.f_bavail.saturating_mul(figures.f_frsize);
        let reserve_bytes = self.reserve.as_ref().map_or(0, |(_, bytes)| *bytes);
        let needed = self.free_min_bytes.saturating_add(if *state == State::Kept { 0 } else { reserve_bytes });
        let was_scarce = self.is_scarce.load(Ordering::Relaxed);
        let is_scarce = free < if was_scarce { needed.saturating_mul(MARGIN_PERCENT) / 100 } else { needed };
        if let (State::GivenUp, false, Some((path, bytes))) = (*state, is_scarce, &self.reserve) {
            *state = keep(path, *bytes);
        }
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
        self.free_bytes.store(free, Ordering::Relaxed);
        self.unlooked_bytes.store(0, Ordering::Relaxed);
    }

    /// Notes that so much was written, and looks at the disk now and then.
    pub(crate) fn wrote(&self, bytes: u64) {
        let unlooked = self.unlooked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.free_min_bytes > 0 && unlooked >= self.free_min_bytes / LOOKS {
            self.look();
        }
    }

    /// Looks at the disk for what makes room, which has the reserve if the rest is scarce. Not before: whatever else is on
    /// the disk could take it.
    pub(crate) fn look_for_room(&self) {
        self.look();
        if self.is_scarce() {
            self.give_up_reserve();
        }
    }

    /// Gives up the reserve, whatever is free: something else found that there is no room.
    pub(crate) fn give_up_reserve(&self) {
        let mut state = self.state.lock();
        if let Some((path, _)) = self.reserve.as_ref().filter(|_| *state == State::Kept) {
            *state = give_up(path);
        }
        self.is_scarce.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_scarce(&self) -> bool {
        self.is_scarce.load(Ordering::Relaxed)
    }

    /// The free bytes when the disk was looked at.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`StorageError::Full`] when there is no room for growth.
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

/// Makes a file that takes so much room.
fn keep(path: &Path, bytes: u64) -> State {
    let made = File::create(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    let made = made.and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, bytes));
    if made.is_ok() {
        return State::Kept;
    }
    // It may not have been made.
    let _ = fs::remove_file(path);
    if made == Err(Errno::OPNOTSUPP) || made == Err(Errno::NOSYS) { State::Impossible } else { State::GivenUp }
}

fn give_up(path: &Path) -> State {
    if fs::remove_file(path).is_ok() { State::GivenUp } else { State::Kept }
}
