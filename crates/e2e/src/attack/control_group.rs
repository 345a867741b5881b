//! [`ControlGroup`]: a control group with a memory limit, if this process may create one.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct ControlGroup(Option<PathBuf>);

impl ControlGroup {
    pub(super) fn new(bytes: u64) -> Self {
        let name = format!("settee-attack-{}", std::process::id());
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let make = |(root, limit): (&str, &str)| {
            let group = Path::new(root).join(&name);
            fs::create_dir_all(&group).ok()?;
            let is_limited = group.join(limit).is_file() && fs::write(group.join(limit), bytes.to_string()).is_ok();
            if !is_limited {
                let _ = fs::remove_dir(&group);
            }
            is_limited.then_some(group)
        };
        let group = kinds.into_iter().find_map(make);
        if group.is_none() {
            println!("no control group could be made: memory is measured and not limited");
        }
        Self(group)
    }

    /// Later children of the process belong to the group too.
    pub(super) fn put(&self, pid: u32) {
        if let Some(group) = &self.0 {
            let _ = fs::write(group.join("cgroup.procs"), pid.to_string());
        }
    }

    pub(super) fn bytes(&self, pid: u32) -> u64 {
        let of_one = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
            line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
        };
        of_one(pid) + children(pid).into_iter().map(of_one).sum::<u64>()
    }

    pub(super) fn settled_bytes(&self, pid: u32, enough: u64, time: Duration) -> u64 {
        let begun = Instant::now();
        loop {
            let bytes = self.bytes(pid);
            if bytes <= enough || begun.elapsed() >= time {
                return bytes;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            for _ in 0..50 {
                if fs::remove_dir(group).is_ok() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
