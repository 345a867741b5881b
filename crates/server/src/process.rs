//! Resource usage of this process from `/proc`: [`figures`]. Without `/proc` the numbers are 0.

use std::fs;

use settee_api::ProcessFigures;

/// Ticks of the processor clock per second, on every current Linux.
const TICKS_PER_S: u64 = 100;

pub(crate) fn figures() -> ProcessFigures {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    ProcessFigures {
        open_files: entries("/proc/self/fd").saturating_sub(1),
        resident_bytes: line("VmRSS") * 1024,
        threads: line("Threads"),
        children: children().len() as u64,
        cpu_ms: times_ms("self")[0],
    }
}

/// The processor time of this process and of all its children, running and ended. A child that ends during the call may
/// be missing.
pub(crate) fn processor_time_ms() -> u64 {
    let children = children();
    children.iter().map(String::as_str).chain(["self"]).flat_map(times_ms).sum()
}

fn entries(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of_task(task).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn times_ms(process: &str) -> [u64; 2] {
    cpu_times_ms(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default())
}

/// Sum of user and system time: of the process, and of its ended children. The preceding name of the program may
/// contain any character; the last parenthesis ends it.
fn cpu_times_ms(stat: &str) -> [u64; 2] {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    [ticks(11) + ticks(12), ticks(13) + ticks(14)].map(|ticks| ticks * 1000 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_figures_of_this_process_are_plausible() {
        let found = figures();
        assert!(found.open_files > 2 && found.resident_bytes > 1 << 20 && found.threads > 0, "{found:?}");
    }

    #[test]
    fn the_time_of_children_is_included() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let number = child.id().to_string();
        assert!(children().contains(&number));
        // Waits until the child was scheduled.
        while times_ms(&number)[0] == 0 {
            std::thread::yield_now();
        }
        let own = || times_ms("self");
        let ([alone, ended], all) = (own(), processor_time_ms());
        assert!(all > alone + ended, "{all} {alone} {ended}");
        child.kill().expect("a child that runs");
        child.wait().expect("a child that was killed");
        assert!(own()[1] > ended && processor_time_ms() >= all);
    }

    #[test]
    fn processor_time_of_a_program_with_an_odd_name() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 150 50 7 8 20";
        assert_eq!(cpu_times_ms(stat), [2000, 150]);
        assert_eq!(cpu_times_ms(""), [0, 0]);
    }
}
