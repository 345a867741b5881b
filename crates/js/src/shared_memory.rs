//! [`SharedMemory`] of the server and one worker process: a page for the progress counter, the area that the worker
//! writes ([`OUTPUT`]), and the area that the server writes ([`INPUT`]), which grows with the largest batch.
#![expect(unsafe_code, reason = "maps memory that another process sees")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: usize = 4096;

pub(crate) const OUTPUT: Range<usize> = PAGE_BYTES..PAGE_BYTES + (1 << 20);

pub(crate) const INPUT: usize = OUTPUT.end;

pub(crate) const INITIAL_BYTES: usize = INPUT + (1 << 20);

pub(crate) struct SharedMemory {
    file: File,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access goes through `&self` copies that tolerate a
// concurrent writer in the other process, or through `&mut self`.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// The other process can never shrink the region, so that reading it cannot fault.
    pub(crate) fn create(len: usize) -> io::Result<Self> {
        let file = anonymous_file()?;
        file.set_len(len as u64)?;
        forbid_shrinking(&file)?;
        Self::map(file, len)
    }

    pub(crate) fn open(fd: OwnedFd, len: usize) -> io::Result<Self> {
        Self::map(File::from(fd), len)
    }

    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        Ok(OwnedFd::from(self.file.try_clone()?))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Enlarges the region to at least `len` bytes. The other process must then call [`SharedMemory::remap`].
    pub(crate) fn grow(&mut self, len: usize) -> io::Result<()> {
        if len <= self.len {
            return Ok(());
        }
        let len = len.checked_next_power_of_two().unwrap_or(len);
        self.file.set_len(len as u64)?;
        self.remap(len)
    }

    /// Maps the region again after the other process has enlarged it to `len` bytes.
    pub(crate) fn remap(&mut self, len: usize) -> io::Result<()> {
        if len == self.len {
            return Ok(());
        }
        let base = map(&self.file, len)?;
        self.unmap();
        self.base = base;
        self.len = len;
        Ok(())
    }

    /// Panics if the bytes do not fit.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset, "writes stay inside the region");
        // SAFETY: the destination range is inside the mapping, as just checked, and `bytes` cannot overlap it because
        // no reference into the mapping is handed out while `&mut self` is held.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len()) }
    }

    /// Appends a private copy of `range` to `out`, so that it cannot change after validation. Returns false if the
    /// range is outside the region.
    #[must_use]
    pub(crate) fn copy_to(&self, range: Range<usize>, out: &mut Vec<u8>) -> bool {
        if range.start > range.end || range.end > self.len {
            return false;
        }
        let len = range.len();
        out.reserve(len);
        // SAFETY: the source is inside the mapping, the destination inside the spare capacity just reserved. Bytes that
        // the other process changes concurrently have either value, which is acceptable because they are not trusted
        // yet.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(range.start), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
        true
    }

    /// Only for the worker, while it processes a request: the server does not write then. Panics if the range is
    /// outside the region.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "requests lie inside the region");
        // SAFETY: inside the mapping, which lives as long as `self`; the trusted server leaves it alone during a
        // request, and the worker writes only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(range.start), range.len()) }
    }

    pub(crate) fn progress(&self) -> u64 {
        self.counter().load(Ordering::Relaxed)
    }

    pub(crate) fn counter(&self) -> &AtomicU64 {
        // SAFETY: the region is page-aligned and larger than a page, so its first 8 bytes are an aligned u64; both
        // processes touch them only atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>()) }
    }

    fn map(file: File, len: usize) -> io::Result<Self> {
        assert!(len >= INPUT, "a region holds at least the output area");
        let base = map(&file, len)?;
        Ok(Self { file, base, len })
    }

    fn unmap(&mut self) {
        // SAFETY: `base` and `len` describe a mapping made by `map` that nothing refers to: references borrow `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.unmap();
    }
}

fn map(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that Rust uses.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("the kernel mapped the null page"))
}

#[cfg(target_os = "linux")]
fn anonymous_file() -> io::Result<File> {
    // SAFETY: the name is a terminated string; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(c"settee-js".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(target_os = "linux")]
fn forbid_shrinking(file: &File) -> io::Result<()> {
    // SAFETY: fcntl on an open descriptor with integer arguments.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn anonymous_file() -> io::Result<File> {
    use std::sync::atomic::AtomicU32;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = std::ffi::CString::new(format!("/settee-{}-{number}", std::process::id())).expect("no zero byte inside");
    // SAFETY: the name is a terminated string; the result is checked before it is owned; unlinking needs only the name.
    let fd = unsafe {
        let fd = libc::shm_open(name.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
        if fd >= 0 {
            libc::shm_unlink(name.as_ptr());
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        fd
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(not(target_os = "linux"))]
fn forbid_shrinking(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn both_mappings_see_the_same_bytes_also_after_growing() {
        let mut server = SharedMemory::create(INITIAL_BYTES).unwrap();
        let mut worker = SharedMemory::open(server.share().unwrap(), INITIAL_BYTES).unwrap();
        server.write(INPUT, b"request");
        assert_eq!(worker.bytes(INPUT..INPUT + 7), b"request");
        worker.counter().store(7, Ordering::Relaxed);
        assert_eq!(server.progress(), 7);
        server.grow(INITIAL_BYTES * 3).unwrap();
        worker.remap(server.len()).unwrap();
        let end = server.len() - 3;
        server.write(end, b"end");
        assert_eq!(worker.bytes(end..end + 3), b"end");
        assert_eq!(worker.bytes(INPUT..INPUT + 7), b"request");
    }

    #[test]
    fn copies_outside_the_region_are_refused() {
        let region = SharedMemory::create(INITIAL_BYTES).unwrap();
        let mut out = Vec::new();
        assert!(!region.copy_to(0..INITIAL_BYTES + 1, &mut out));
        #[expect(clippy::reversed_empty_ranges, reason = "what a broken worker may ask for")]
        let reversed = 9..3;
        assert!(!region.copy_to(reversed, &mut out));
        assert!(out.is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_region_cannot_be_shrunk() {
        let region = SharedMemory::create(INITIAL_BYTES).unwrap();
        let file = File::from(region.share().unwrap());
        assert!(file.set_len(0).is_err());
    }
}
