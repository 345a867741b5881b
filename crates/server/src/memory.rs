//! How much memory this process may use: what the machine has, or less if it runs in a control group with a limit. Only
//! Linux tells. And that what was freed goes back: [`give_back_freed`].

use std::path::Path;

use crate::config::Configuration;
use settee_settings::chttpd;

/// Where nothing is known.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// Less than this would refuse ordinary documents.
const LEAST_BYTES: u64 = 32 << 20;

/// The memory that bodies and answers in flight may take together: `[chttpd] max_request_memory`, or a quarter of the
/// memory.
pub(crate) fn for_requests(configuration: &Configuration) -> usize {
    let quarter = || (all(&|path| std::fs::read_to_string(path).ok()).unwrap_or(UNKNOWN_BYTES) / 4).max(LEAST_BYTES);
    let bytes = chttpd::MAX_REQUEST_MEMORY.find(configuration).unwrap_or_else(quarter);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Has the allocator of the C library return memory to the system. Left alone it has eight pools for each processor, and learns
/// from large blocks to keep larger ones: after an attack by many clients 370 MB stayed where 50 were in use. What RocksDB
/// allocates is meant as well, so another allocator for Rust alone would not do.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe way to call it")]
pub(crate) fn give_back_freed() {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pools = i32::try_from(processors.max(2)).unwrap_or(i32::MAX);
    // Blocks from the first size on have pages of their own; so much may be free at the end of a pool.
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, 1 << 20), (libc::M_TRIM_THRESHOLD, 4 << 20), (libc::M_ARENA_MAX, pools)]
    {
        // SAFETY: it takes two numbers and refuses those that it does not know; nothing else of the program runs yet.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back_freed() {}

/// Returns what was freed between blocks that are in use, which [`give_back_freed`] does not: it has no effect but for what is
/// at the end of a pool. Takes a moment, so call it now and then.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe way to call it")]
pub(crate) fn trim() {
    // SAFETY: it may be called at any time from any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}

/// The memory in bytes, if a file that `read` knows tells it.
fn all(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_limit(line, read));
    machine.into_iter().chain(limits).min()
}

/// The limit of one line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`, and of the groups around it.
fn group_limit(line: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    let group = Path::new(path.trim_start_matches('/'));
    let groups = group.ancestors().map(|group| Path::new(root).join(group).join(file));
    groups.filter_map(|file| read(&file)?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let check = |files: &[(&str, &str)], expected: Option<u64>| {
            let read = |path: &Path| {
                let file = files.iter().find(|(known, _)| Path::new(known) == path)?;
                Some(file.1.to_owned())
            };
            assert_eq!(all(&read), expected, "{files:?}");
        };
        let machine = ("/proc/meminfo", "MemTotal:        2048 kB\nMemFree:         1024 kB\n");
        check(&[], None);
        check(&[("/proc/meminfo", "nonsense")], None);
        check(&[machine], Some(2 << 20));
        let unified = ("/proc/self/cgroup", "0::/a/b\n");
        check(&[machine, unified], Some(2 << 20));
        check(&[machine, unified, ("/sys/fs/cgroup/a/b/memory.max", "max\n")], Some(2 << 20));
        check(&[machine, unified, ("/sys/fs/cgroup/a/b/memory.max", "1000\n")], Some(1000));
        let inner = ("/sys/fs/cgroup/a/b/memory.max", "1000\n");
        check(&[machine, unified, inner, ("/sys/fs/cgroup/a/memory.max", "500\n")], Some(500));
        // In a container the group may look like the root.
        check(&[machine, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "700\n")], Some(700));
        let first = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n");
        check(&[machine, first, ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "900\n")], Some(900));
        let unlimited = ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        check(&[machine, first, unlimited], Some(2 << 20));
    }
}
