//! [`Cost`]: processor time and context switches of a server on this machine, if `/proc` exists.

use std::fs;

use crate::memory::descendants;

/// Sums over all threads of a server and of its worker processes since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) cpu_ns: u64,
    /// Voluntary context switches: each is a wait for another thread, a lock, a socket or a disk.
    pub(crate) switches: u64,
}

impl Cost {
    pub(crate) fn read(pid: u32) -> Cost {
        let mut total = Cost::default();
        for pid in descendants(pid).into_iter().chain([pid]) {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
                total.cpu_ns += parse_cpu(&read("schedstat")).unwrap_or(0);
                total.switches += parse_switches(&read("status")).unwrap_or(0);
            }
        }
        total
    }

    pub(crate) fn since(self, earlier: Cost) -> Cost {
        Cost {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// The text is `time on the processor, time in the queue, slices`, in nanoseconds.
fn parse_cpu(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

fn parse_switches(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(parse_cpu("1200 30 4\n"), Some(1200));
        assert_eq!(
            parse_switches("Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t2\n"),
            Some(17)
        );
        assert_eq!(parse_switches(""), None);
    }

    #[test]
    fn this_process_has_used_the_processor() {
        let before = Cost::read(std::process::id());
        assert!(before.cpu_ns > 0);
        assert_eq!(before.since(before), Cost::default());
    }
}
