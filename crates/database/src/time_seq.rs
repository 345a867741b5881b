//! [`TimeSeq`]: a bounded record of the update sequences that a database had at past times, for clients that request
//! the changes since a date.
//!
//! The record divides time into intervals of [`INTERVAL_S`] and stores, for each interval with a commit, the update
//! sequence before the first one. An entry is a *bin*; it covers the time until the next bin. A full record
//! ([`BINS_MAX`]) merges old bins in pairs before it adds one, so the width of bins increases with their age. The
//! schedule ([`WIDTHS`]) is that of CouchDB.
//!
//! **Guarantee.** [`TimeSeq::before`] returns for each date a sequence before all changes that were committed when the
//! clock of their writer showed that date or a later one. It may precede earlier changes as well. The guarantee holds
//! for arbitrary clocks: they may differ between writers and go back, because:
//!
//! - A bin is added only for an interval after that of the newest bin. A commit in an earlier interval belongs to the
//!   newest bin, that is to a bin that is selected only for later dates than its own.
//! - Before a bin with the start T is added, no writer's clock has shown T, so all changes since T follow the bin.
//! - Merging removes the newer bin of a pair; its dates select the older one, with an earlier sequence.
//!
//! After commits of unknown time, the caller records the interval after the current one, which these commits precede.

use settee_storage::codec::{Corrupt, Reader, put_varint};

pub(crate) const INTERVAL_S: u64 = 3 * 3600;

/// The encoding takes a few hundred bytes.
pub(crate) const BINS_MAX: usize = 60;

const DAY: u64 = 24 * 3600 / INTERVAL_S;
const YEAR: u64 = 365 * DAY;

/// Widths in intervals. Bins of at most one of these widths are merged when they are older than the next one.
const WIDTHS: [u64; 12] = [1, 2, 4, DAY, 10 * DAY, 30 * DAY, 180 * DAY, YEAR, 2 * YEAR, 4 * YEAR, 8 * YEAR, 16 * YEAR];

const FORMAT: u8 = 1;

const CORRUPT: Corrupt = Corrupt("times of update sequences");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bin {
    interval: u64,
    seq: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeSeq {
    bins: Vec<Bin>,
}

pub(crate) fn interval_of(time_s: u64) -> u64 {
    time_s / INTERVAL_S
}

impl TimeSeq {
    pub(crate) fn record(&mut self, interval: u64, seq: u64) {
        // After a loss of commits the sequences of the bins belong to other changes.
        if self.bins.last().is_some_and(|newest| newest.seq > seq) {
            self.bins.clear();
        }
        if self.bins.last().is_some_and(|newest| newest.interval >= interval || newest.seq == seq) {
            return;
        }
        self.merge_old_bins(interval);
        self.bins.push(Bin { interval, seq });
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        Some(self.bins.last()?.interval)
    }

    /// Returns an update sequence before all changes since a time; `None` if no change is that recent. `latest` is the
    /// interval of the last commit, or 0 if that commit was not recorded.
    pub(crate) fn before(&self, time_s: u64, latest: u64) -> Option<u64> {
        let start_s = |interval: u64| interval.saturating_mul(INTERVAL_S);
        let is_over = |newest: u64| newest == latest && time_s > start_s(newest.saturating_add(1));
        if latest > 0 && self.newest().is_some_and(is_over) {
            return None;
        }
        let later = self.bins.partition_point(|bin| start_s(bin.interval) <= time_s);
        Some(later.checked_sub(1).map_or(0, |index| self.bins[index].seq))
    }

    /// Returns the start of each bin in seconds since 1970 and the number of changes in it, oldest first. Changes
    /// before the first bin have the time 0.
    pub(crate) fn histogram(&self, update_seq: u64) -> Vec<(u64, u64)> {
        let unknown = self.bins.first().filter(|oldest| oldest.seq > 0).map(|_| Bin { interval: 0, seq: 0 });
        let starts: Vec<&Bin> = unknown.iter().chain(&self.bins).collect();
        let ends = starts.iter().skip(1).map(|bin| bin.seq).chain([update_seq]);
        let count = |(bin, end): (&&Bin, u64)| (bin.interval.saturating_mul(INTERVAL_S), end.saturating_sub(bin.seq));
        starts.iter().zip(ends).map(count).collect()
    }

    fn merge_old_bins(&mut self, now: u64) {
        if self.bins.len() < BINS_MAX {
            return;
        }
        for (width, age) in WIDTHS.iter().zip(&WIDTHS[1..]) {
            let old = self.bins.partition_point(|bin| bin.interval.saturating_add(*age) <= now);
            if self.merge(old, *width, now) {
                return;
            }
        }
        // No bins are both narrow and old enough, so the older half is merged regardless of its widths.
        self.merge(self.bins.len() / 2, u64::MAX, now);
    }

    /// A pair with a bin wider than `width` is not merged. Returns true if a pair was merged.
    fn merge(&mut self, old: usize, width: u64, now: u64) -> bool {
        let start = |index: usize| self.bins.get(index).map_or(now, |bin| bin.interval);
        let is_narrow = |index: usize| start(index + 1) - start(index) <= width;
        let mut merged = Vec::with_capacity(BINS_MAX);
        let mut index = 0;
        while index < old {
            merged.push(self.bins[index]);
            let is_pair = index + 1 < old && is_narrow(index) && is_narrow(index + 1);
            index += if is_pair { 2 } else { 1 };
        }
        merged.extend_from_slice(&self.bins[old..]);
        let is_shorter = merged.len() < self.bins.len();
        self.bins = merged;
        is_shorter
    }

    /// Format byte, then for each bin the distances of its interval and of its sequence to those of the preceding bin.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        let mut last = Bin { interval: 0, seq: 0 };
        for bin in &self.bins {
            put_varint(out, bin.interval - last.interval);
            put_varint(out, bin.seq - last.seq);
            last = *bin;
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, CORRUPT.0);
        if reader.byte()? != FORMAT {
            return Err(CORRUPT);
        }
        let mut bins: Vec<Bin> = Vec::new();
        while !reader.is_at_end() {
            let (interval, seq) = (reader.varint()?, reader.varint()?);
            let bin = match bins.last() {
                None => Bin { interval, seq },
                Some(_) if interval == 0 || seq == 0 || bins.len() == BINS_MAX => return Err(CORRUPT),
                Some(last) => Bin {
                    interval: last.interval.checked_add(interval).ok_or(CORRUPT)?,
                    seq: last.seq.checked_add(seq).ok_or(CORRUPT)?,
                },
            };
            bins.push(bin);
        }
        Ok(Self { bins })
    }
}

#[cfg(test)]
mod tests;
