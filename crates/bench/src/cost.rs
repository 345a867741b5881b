//! [`Cost`]: processor time and context switches of a server on this machine, if `/proc` exists.

use std::collections::HashMap;
use std::fs;

use crate::memory::descendants;

/// The costs of all threads of a server and of its worker processes since they started. Only threads that still exist
/// are counted, because the system reports no sum over ended ones; idle threads end after a second.
pub(crate) struct Costs(HashMap<String, Cost>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) cpu_ns: u64,
    /// Voluntary context switches: each is a wait for another thread, a lock, a socket or a disk.
    pub(crate) switches: u64,
}

impl Costs {
    pub(crate) fn read(pid: u32) -> Costs {
        let mut threads = HashMap::new();
        for pid in descendants(pid).into_iter().chain([pid]) {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
                let cpu_ns = parse_cpu(&read("schedstat")).unwrap_or(0);
                let switches = parse_switches(&read("status")).unwrap_or(0);
                threads.insert(thread.file_name().to_string_lossy().into_owned(), Cost { cpu_ns, switches });
            }
        }
        Costs(threads)
    }

    /// Returns the sum of the differences per thread: a thread that ended in between had been idle since `earlier`.
    pub(crate) fn since(&self, earlier: &Costs) -> Cost {
        let mut total = Cost::default();
        for (thread, now) in &self.0 {
            let before = earlier.0.get(thread).copied().unwrap_or_default();
            total.cpu_ns += now.cpu_ns.saturating_sub(before.cpu_ns);
            total.switches += now.switches.saturating_sub(before.switches);
        }
        total
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
        let before = Costs::read(std::process::id());
        assert!(before.since(&Costs(HashMap::new())).cpu_ns > 0);
        assert_eq!(before.since(&before), Cost::default());
    }

    #[test]
    fn ended_threads_hide_no_cost_of_others() {
        let costs = |threads: &[(&str, u64)]| {
            let cost = |&(thread, cpu_ns): &(&str, u64)| (thread.to_owned(), Cost { cpu_ns, switches: 1 });
            Costs(threads.iter().map(cost).collect())
        };
        let cost = costs(&[("2", 30), ("3", 5)]).since(&costs(&[("1", 1_000), ("2", 10)]));
        assert_eq!(cost, Cost { cpu_ns: 25, switches: 1 });
    }
}
