//! Point-in-time restore: [`find`] selects the backup and the log for a time, and [`RestorePlan::run`] applies them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use super::piece::Read;
use super::{Through, piece_name};
use crate::backup::manifest::{Logged, Manifest};
use crate::backup::remote::retention::LOG;
use crate::backup::remote::{self, Store};
use crate::descriptors::Descriptors;
use crate::{backends, time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreTime {
    Newest,
    Time(u64),
}

impl RestoreTime {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "newest" {
            return Ok(Self::Newest);
        }
        let wanted = || {
            "invalid time: write it in UTC, as 2026-11-20T15:04:05Z, in seconds of the Unix epoch, or as `newest`"
                .to_owned()
        };
        time::parse(text).or_else(|| time::parse_seconds(text)).map(Self::Time).ok_or_else(wanted)
    }

    fn is_before(self, time_us: u64) -> bool {
        match self {
            Self::Newest => false,
            Self::Time(moment_us) => moment_us < time_us,
        }
    }

    fn is_after(self, time_us: u64) -> bool {
        match self {
            Self::Newest => false,
            Self::Time(moment_us) => moment_us > time_us,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestorePlan {
    backup: String,
    moment: RestoreTime,
    log: Logged,
    through: Through,
}

pub(crate) fn find(store: &Store, moment: RestoreTime) -> anyhow::Result<RestorePlan> {
    ensure!(store.check()?, "there are no backups in {}", store.shown());
    // The oldest backup that is later than the target time.
    let mut younger = None;
    for backup in remote::names(store)?.into_iter().rev() {
        // A backup is taken after the start of the second that its name states.
        if time::parse(&backup).is_some_and(|begun_us| moment.is_before(begun_us)) {
            younger = Some(backup);
            continue;
        }
        let Some(log) = remote::manifest(store, &backup)?.log else { continue };
        if moment.is_before(log.taken_us) {
            younger = Some(backup);
            continue;
        }
        let through = Through::get(store, &log.stream)?;
        let through = through.unwrap_or(Through { time_us: log.taken_us, position: log.position, is_closed: false });
        if moment.is_after(through.time_us) && !goes_on(store, through, younger.as_deref())? {
            bail!(
                "{} does not contain all commits until that time: the log ends at {}",
                store.shown(),
                time::rfc3339(through.time_us)
            );
        }
        return Ok(RestorePlan { backup, moment, log, through });
    }
    bail!(
        "{} has no backup with a log from before that time; `settee backup --list` lists the available times",
        store.shown()
    )
}

/// Returns true if nothing was committed between the end of a log and a later backup.
fn goes_on(store: &Store, through: Through, younger: Option<&str>) -> anyhow::Result<bool> {
    let Some(younger) = younger.filter(|_| through.is_closed) else { return Ok(false) };
    Ok(remote::manifest(store, younger)?.log.is_some_and(|log| log.position == through.position))
}

impl RestorePlan {
    pub(crate) fn run(&self, store: &Store, data: &Path) -> anyhow::Result<Manifest> {
        remote::restore(store, &self.backup, data, &mut |aside| {
            let engine = backends::open(aside, Descriptors::claim()?.engine)?;
            let log = engine.log().context("the engine has no log")?;
            self.read(store, &mut |bytes| Ok(log.replay(bytes)?))?;
            engine.sync().context("the restored data cannot be synced")?;
            drop(engine);
            match fs::remove_file(aside.join(backends::RESERVE)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            }
        })
    }

    pub(crate) fn verify(&self, store: &Store) -> anyhow::Result<Manifest> {
        self.read(store, &mut |_| Ok(()))?;
        remote::verify(store, &self.backup)
    }

    fn read(&self, store: &Store, each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.pieces(store, each).with_context(|| format!("the log {} cannot be used", self.log.stream))
    }

    fn pieces(&self, store: &Store, each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Logged { stream, position, .. } = &self.log;
        let first = piece_name(stream, *position);
        let listed = store.list(&format!("{LOG}/{stream}"))?.into_iter().map(|piece| piece.name);
        let names: Vec<String> = listed.filter(|name| !name.ends_with("/through")).collect();
        // The position of the backup may be within a piece.
        let begin = names.partition_point(|name| *name <= first).saturating_sub(1);
        let mut reached = None;
        for name in &names[begin..] {
            let packed = store.get(name)?.with_context(|| format!("{name} is missing"))?;
            let read = Read::open(&packed).with_context(|| name.clone())?;
            let named = || name.rsplit('/').next().and_then(|number| number.parse().ok());
            let after = reached.or_else(named).with_context(|| format!("{name} is not a piece of a log"))?;
            ensure!(reached.is_some() || after <= *position, "the first piece of the log is missing");
            let (is_wanted, end) = read.each(after, &mut |record| {
                if record.time_us.is_some_and(|time_us| self.moment.is_before(time_us)) {
                    return Ok(false);
                }
                if record.end > *position {
                    each(record.bytes)?;
                }
                Ok(true)
            })?;
            if !is_wanted {
                return Ok(());
            }
            reached = Some(end);
        }
        let reached = reached.unwrap_or(*position);
        ensure!(reached >= self.through.position, "it ends at {reached}, not at {}", self.through.position);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_or_the_newest() {
        for (text, expected) in [
            ("newest", Some(RestoreTime::Newest)),
            ("1970-01-01T00:00:02Z", Some(RestoreTime::Time(2_000_000))),
            ("2", Some(RestoreTime::Time(2_000_000))),
            ("2.000001", Some(RestoreTime::Time(2_000_001))),
            ("yesterday", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(RestoreTime::parse(text).ok(), expected, "{text}");
        }
        // A commit in the same microsecond as the target time is included.
        assert!(
            !RestoreTime::Time(5).is_before(5)
                && RestoreTime::Time(5).is_before(6)
                && !RestoreTime::Newest.is_before(6)
        );
    }
}
