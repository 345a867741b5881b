//! [`Descriptors`]: the limit of open files of the process, and its distribution. Files and connections share one
//! limit, so connections get the remainder after the engine and all other users.

use std::fmt;

use anyhow::ensure;

use crate::process;

/// Maximum number of files that the engine keeps open. More open files make reads faster.
const ENGINE_MAX: u64 = 512;

/// Reserve for pipes of worker processes and query servers, connections of replications, logs and short-lived files.
const OTHERS_MAX: u64 = 512;

/// Minimum limit; below it no descriptors would be left for connections.
const LIMIT_MIN: u64 = 128;

/// Shares of the limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) limit: u64,
    pub(crate) engine: u16,
    pub(crate) connections: u64,
}

impl Descriptors {
    /// Raises the limit to its maximum and distributes it.
    pub(crate) fn claim() -> anyhow::Result<Self> {
        Self::share(process::raise_open_files_limit())
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

    /// The number of concurrent connections, at most `wanted`.
    pub(crate) fn connections(&self, wanted: u64) -> u64 {
        wanted.min(self.connections)
    }
}

impl fmt::Display for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this process may open {} files, which leaves {} for connections", self.limit, self.connections)
    }
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
}
