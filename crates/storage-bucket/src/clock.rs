//! [`GroupClock`]: the clock of an open group. The library stores times of the owner with writes, files and compactions,
//! and closes the group with an error if the clock of the next owner is behind them. So the clock of a group follows the
//! wall clock of its node, and is advanced to the last stored time when the group is opened.
//!
//! Wall-clock time has no other effect on the data. Leases, heartbeats and claims measure durations on one machine.
//! Versions and epochs are counters. The garbage collection removes no object that the manifest refers to, and the
//! minimum age of the others exceeds the differences between the clocks of the nodes and of the store.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use slatedb::admin::Admin;
use slatedb::{Db, Error, VersionedCompactions};
use slatedb_common::clock::{DefaultSystemClock, SystemClock, SystemClockTicker};

pub(crate) struct GroupClock {
    wall: DefaultSystemClock,
    /// Difference to the wall clock at the opening. It only increases.
    ahead_ms: AtomicI64,
}

impl GroupClock {
    pub(crate) fn new(ahead_ms: i64) -> Self {
        Self { wall: DefaultSystemClock::new(), ahead_ms: AtomicI64::new(ahead_ms) }
    }

    /// Advances the clock to a time in milliseconds of the Unix epoch. Returns true if it was behind.
    pub(crate) fn advance_to(&self, time_ms: i64) -> bool {
        let behind_ms = time_ms.saturating_sub(self.now().timestamp_millis());
        if behind_ms > 0 {
            self.ahead_ms.fetch_add(behind_ms, Ordering::SeqCst);
        }
        behind_ms > 0
    }
}

impl fmt::Debug for GroupClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupClock").field("ahead_ms", &self.ahead_ms).finish_non_exhaustive()
    }
}

impl SystemClock for GroupClock {
    fn now(&self) -> DateTime<Utc> {
        self.wall.now() + TimeDelta::milliseconds(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.wall.sleep(duration)
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}

/// Returns the last time in the log and in the files of a group that has just been opened.
pub(crate) async fn last_write_ms(database: &Db) -> Result<i64, Error> {
    let manifest = database.manifest();
    let files = manifest.all_sst_views().map(|view| view.sst.id.value()).chain(manifest.last_compacted_l0_sst_id());
    let last_file_ms = files.map(|id| i64::try_from(id.timestamp_ms()).unwrap_or(i64::MAX)).max();
    let last_ms = manifest.last_l0_clock_tick().max(last_file_ms.unwrap_or(i64::MIN));
    let last_number = database.snapshot()?.seq();
    if last_number <= manifest.last_l0_seq() {
        return Ok(last_ms);
    }
    // Times of writes do not decrease, and the last write is in memory, because it was read from the log.
    let mut entries = database.scan_prefix_by_recency(b"").await?;
    while let Some(entry) = entries.next_entry().await? {
        if entry.seq == last_number {
            return Ok(last_ms.max(entry.create_ts.unwrap_or(i64::MIN)));
        }
    }
    Ok(last_ms)
}

/// Returns the last time at which a compaction was started.
pub(crate) async fn last_compaction_ms(admin: &Admin) -> Result<i64, Error> {
    let compactions = admin.read_compactions(None).await?;
    let times_ms = compactions.iter().flat_map(VersionedCompactions::recent_compactions).map(|compaction| {
        let time_ms = compaction.id().timestamp_ms();
        i64::try_from(time_ms).unwrap_or(i64::MAX)
    });
    Ok(times_ms.max().unwrap_or(i64::MIN))
}
