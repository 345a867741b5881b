//! [`figures`]: peak memory of a server on this machine, as the kernel tracks it, if `/proc` exists.

use crate::measure::{Figure, Metric};
use std::fs;

const SERVER: Metric = Metric::lower("peak memory", "MB");
const WORKERS: Metric = Metric::lower("peak memory of workers", "MB");

pub(crate) fn figures(pid: u32) -> Vec<Figure> {
    let Some(server) = peak(pid) else { return Vec::new() };
    let workers: u64 = descendants(pid).into_iter().filter_map(peak).sum();
    let mut figures = vec![Figure::new(SERVER, server as f64 / 1e6)];
    if workers > 0 {
        figures.push(Figure::new(WORKERS, workers as f64 / 1e6));
    }
    figures
}

/// Without the permission to reset them, peaks are those of the processes' whole lives.
pub(crate) fn forget(pid: u32) {
    for pid in descendants(pid).into_iter().chain([pid]) {
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

fn peak(pid: u32) -> Option<u64> {
    parse_peak(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = pids
        .filter_map(|pid| Some((pid, parse_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, other)| *other == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

/// The text is `pid (name) state ppid …`, where the name may contain any character.
fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(parse_peak("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(parse_peak("Name:\tx\n"), None);
        assert_eq!(parse_parent("12 (a) b (c)) S 7 12 12"), Some(7));
        assert_eq!(parse_parent(""), None);
    }
}
