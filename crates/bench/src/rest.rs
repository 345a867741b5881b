//! [`Rest`]: waiting until this machine is idle, if `/proc` exists. Servers respond before all work is done. Without a
//! pause that work would affect the next cell.

use std::fs;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    total: u64,
}

/// Has a time limit for a machine that is never idle.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    gave_up: bool,
}

/// The machine counts as idle after several periods in sequence with this idle percentage.
const IDLE_PERCENT: u64 = 90;
const PERIODS: u32 = 3;
const PERIOD: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

impl Rest {
    pub(crate) async fn wait(&mut self) {
        // Other tests keep the machine busy.
        if cfg!(test) {
            return;
        }
        let started = Instant::now();
        let mut idle_periods = 0;
        let Some(mut before) = ticks() else { return };
        while idle_periods < PERIODS && !self.gave_up {
            tokio::time::sleep(PERIOD).await;
            let Some(now) = ticks() else { return };
            idle_periods = if is_idle(before, now) { idle_periods + 1 } else { 0 };
            before = now;
            if started.elapsed() > LONGEST {
                eprintln!("  this machine does not come to rest: figures will vary");
                self.gave_up = true;
            }
        }
    }
}

fn is_idle(before: Ticks, now: Ticks) -> bool {
    let passed = now.total.saturating_sub(before.total);
    now.idle.saturating_sub(before.idle) * 100 >= passed * IDLE_PERCENT
}

fn ticks() -> Option<Ticks> {
    parse_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses `cpu user nice system idle iowait irq softirq steal …`. Waiting for a disk does not count as idle.
fn parse_ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    Some(Ticks { idle: *fields.get(3)?, total: fields.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_machines_are_distinguished_from_busy_ones() {
        let ticks = |stat| parse_ticks(stat).expect("it is a line of processor times");
        let before = ticks("cpu  100 0 50 1000 20 0 0 0 9 9\ncpu0 1 2 3 4\n");
        assert_eq!(before, Ticks { idle: 1000, total: 1170 });
        assert!(is_idle(before, ticks("cpu  101 0 50 1019 20 0 0 0 9 9\n")));
        assert!(!is_idle(before, ticks("cpu  105 0 50 1015 20 0 0 0 9 9\n")));
        assert!(!is_idle(before, ticks("cpu  100 0 50 1010 30 0 0 0 9 9\n")), "the disk is busy");
        assert_eq!(parse_ticks("intr 5\n"), None);
        assert_eq!(parse_ticks("cpu  1 2\n"), None);
    }
}
