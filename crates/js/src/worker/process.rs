//! [`take_descriptors`] takes over the descriptors that the server passed to its child.
#![expect(unsafe_code, reason = "takes over descriptors by number and ties the process to its parent")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::shared_memory::{INITIAL_BYTES, SharedMemory};

pub(super) fn take_descriptors() -> io::Result<(UnixStream, SharedMemory)> {
    end_with_server()?;
    raise_oom_score();
    close_inherited_descriptors();
    let kind = |fd| {
        // SAFETY: fstat fills the structure that is given, which is plain data.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &raw mut status) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok((status.st_mode & libc::S_IFMT, status.st_size))
        }
    };
    if kind(0)?.0 != libc::S_IFSOCK {
        return Err(io::Error::other("standard input is not a control socket"));
    }
    let (mode, bytes) = kind(1)?;
    if mode != libc::S_IFREG || usize::try_from(bytes).is_ok_and(|bytes| bytes < INITIAL_BYTES) {
        return Err(io::Error::other("standard output is not shared memory"));
    }
    // SAFETY: the process has just started and nothing else uses descriptors 0 and 1: this crate never prints to
    // standard output, nor reads standard input.
    let (socket, memory) = unsafe { (UnixStream::from_raw_fd(0), OwnedFd::from_raw_fd(1)) };
    Ok((socket, SharedMemory::open(memory, INITIAL_BYTES)?))
}

/// Makes the kernel kill this process when the server ends, whatever it is executing.
#[cfg(target_os = "linux")]
fn end_with_server() -> io::Result<()> {
    // SAFETY: prctl with integer arguments.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn end_with_server() -> io::Result<()> {
    Ok(())
}

/// If memory is short, the kernel kills this process before the server. Errors are ignored.
fn raise_oom_score() {
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

#[cfg(target_os = "linux")]
fn close_inherited_descriptors() {
    // SAFETY: closes descriptors from 3 on, none of which this fresh process uses.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

#[cfg(not(target_os = "linux"))]
fn close_inherited_descriptors() {}
