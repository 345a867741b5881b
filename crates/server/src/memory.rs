//! Memory limit of this process (that of the machine or of its control group; Linux only), and its allocator.

use std::path::Path;

use crate::config::Configuration;
use settee_settings::chttpd;

/// The allocator of the whole process, including RocksDB (`docs/adr/10-limits-and-fairness.md`).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Configuration of jemalloc, which reads it at its first use. Background threads return freed memory to the system
/// within a second or two. One arena per processor instead of four halves the memory at the same speed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the name is what jemalloc looks for; nothing else has it")]
#[unsafe(export_name = "malloc_conf")]
static SETUP: Option<&'static std::ffi::c_char> = {
    let text = c"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas_ratio:1";
    // SAFETY: the text is not empty, because it has at least its terminator.
    Some(unsafe { &*text.as_ptr() })
};

const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

/// A smaller budget would refuse ordinary documents.
const REQUEST_MEMORY_MIN: u64 = 32 << 20;

/// Limit of all request bodies and responses in flight: `[chttpd] max_request_memory`, or a quarter of the memory.
pub(crate) fn for_requests(configuration: &Configuration) -> usize {
    let quarter = || {
        (all(&|path| std::fs::read_to_string(path).ok()).unwrap_or(DEFAULT_MEMORY_BYTES) / 4).max(REQUEST_MEMORY_MIN)
    };
    let bytes = chttpd::MAX_REQUEST_MEMORY.find(configuration).unwrap_or_else(quarter);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn all(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_limit(line, read));
    machine.into_iter().chain(limits).min()
}

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
    fn the_lowest_limit_applies() {
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
        // In a container the group may appear as the root.
        check(&[machine, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "700\n")], Some(700));
        let first = ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n");
        check(&[machine, first, ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "900\n")], Some(900));
        let unlimited = ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        check(&[machine, first, unlimited], Some(2 << 20));
    }
}
