//! Resource usage of this process from `/proc`: [`figures`]. Without `/proc` the numbers are 0.

use std::fs;

use settee_api::ProcessFigures;

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
        cpu_ms: cpu_time_ms(&fs::read_to_string("/proc/self/stat").unwrap_or_default()),
    }
}

fn entries(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of_task(task).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The preceding name of the program may contain any character; the last parenthesis ends it.
fn cpu_time_ms(stat: &str) -> u64 {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 1000 / TICKS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_this_process_are_plausible() {
        let found = figures();
        assert!(found.open_files > 2 && found.resident_bytes > 1 << 20 && found.threads > 0, "{found:?}");
    }

    #[test]
    fn processor_time_of_a_program_with_an_odd_name() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 150 50 7 8 20";
        assert_eq!([cpu_time_ms(stat), cpu_time_ms("")], [2000, 0]);
    }
}
