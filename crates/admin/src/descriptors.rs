//! [`Descriptors`]: the limit of open files of the process. Connections get the remainder after the engine and others.

use std::fmt;
use std::fs;

use anyhow::ensure;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More open files make reads faster.
const ENGINE_MAX: u64 = 512;

/// Reserve for pipes of worker processes and query servers, connections of replications, logs and short-lived files.
const OTHERS_MAX: u64 = 512;

/// A lower limit would leave no descriptors for connections.
const LIMIT_MIN: u64 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    pub limit: u64,
    pub engine: u16,
    pub connections: u64,
}

impl Descriptors {
    pub fn claim() -> anyhow::Result<Self> {
        Self::share(raise_open_files_limit())
    }

    fn share(limit: u64) -> anyhow::Result<Self> {
        ensure!(
            limit >= LIMIT_MIN,
            "this process may open {limit} files, which is too few to serve. Raise the limit before the start:\n\
             `ulimit -n 4096` in a shell, or LimitNOFILE= in the unit of systemd."
        );
        let engine = (limit / 4).min(ENGINE_MAX);
        let others = (limit / 4).min(OTHERS_MAX);
        let engine_files = u16::try_from(engine).expect("it is at most ENGINE_MAX");
        Ok(Self { limit, engine: engine_files, connections: limit - engine - others })
    }

    pub fn connections(&self, wanted: u64) -> u64 {
        wanted.min(self.connections)
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this process may open {} files, which leaves {} for connections", self.limit, self.connections)
    }
}

pub fn open_files_limit() -> Option<(u64, u64)> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    Some((numbers.next()?, numbers.next()?))
}

/// Raises the soft limit of open files, low for programs that use `select`, to the hard one and returns it.
pub fn raise_open_files_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn connections_get_the_remaining_descriptors() {
        for (limit, engine, connections) in [
            (128, 32, 64),
            (1024, 256, 512),
            (4096, 512, 3072),
            (20_000, 512, 18_976),
            (u64::MAX, 512, u64::MAX - 1024),
        ] {
            assert_eq!(Descriptors::share(limit).unwrap(), Descriptors { limit, engine, connections });
        }
        assert!(Descriptors::share(127).is_err());
        assert_eq!(Descriptors::share(1024).unwrap().connections(20_000), 512);
        assert_eq!(Descriptors::share(1024).unwrap().connections(2), 2);
    }

    #[test]
    fn the_limit_of_this_process_is_read() {
        assert!(open_files_limit().is_some_and(|(soft, hard)| soft > 10 && hard >= soft));
    }
}
