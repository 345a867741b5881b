//! Distributions in buckets of an eighth of a power of two each, so the error is at most 13 %.

/// Values below this have a bucket each.
const EXACT: u64 = 16;

const PARTS: usize = 8;

/// Power of two from which on values share the last bucket.
const POWER_MAX: usize = 40;

pub(crate) const BUCKETS: usize = EXACT as usize + (POWER_MAX - 4) * PARTS;

pub(crate) fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let power = 63 - value.leading_zeros() as usize;
    let part = (value >> (power - 3)) as usize & (PARTS - 1);
    (EXACT as usize + (power - 4) * PARTS + part).min(BUCKETS - 1)
}

pub(crate) fn least(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let (power, part) = ((bucket - EXACT as usize) / PARTS + 4, (bucket - EXACT as usize) % PARTS);
    ((PARTS + part) as u64) << (power - 3)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Distribution {
    /// A representative value of each bucket and its count, ascending, without empty buckets.
    pub(crate) counts: Vec<(f64, u64)>,
    pub(crate) sum: f64,
}

impl Distribution {
    /// `counts` contains a count for each bucket. All values are divided by `unit`.
    pub(crate) fn new(counts: impl Iterator<Item = u64>, sum: u64, unit: f64) -> Self {
        let middle = |bucket: usize| (least(bucket) as f64 + least(bucket + 1) as f64 - 1.0) / 2.0;
        let seen = counts.enumerate().filter(|(_, count)| *count > 0);
        Self { counts: seen.map(|(bucket, count)| (middle(bucket) / unit, count)).collect(), sum: sum as f64 / unit }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn min(&self) -> f64 {
        self.counts.first().map_or(0.0, |(value, _)| *value)
    }

    pub(crate) fn max(&self) -> f64 {
        self.counts.last().map_or(0.0, |(value, _)| *value)
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.counts.is_empty() { 0.0 } else { self.sum / self.count() as f64 }
    }

    /// `share` is a fraction from 0 to 1.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |(value, _)| *value)
    }

    pub(crate) fn mean_of(&self, f: impl Fn(f64) -> f64) -> f64 {
        let total: f64 = self.counts.iter().map(|(value, count)| f(*value) * *count as f64).sum();
        if self.counts.is_empty() { 0.0 } else { total / self.count() as f64 }
    }

    pub(crate) fn moment(&self, power: i32) -> f64 {
        let mean = self.mean_of(|value| value);
        self.mean_of(|value| (value - mean).powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_buckets() {
        let mut values: Vec<u64> = (0..40).flat_map(|power| [1 << power, (1 << power) + 1, (1 << power) - 1]).collect();
        values.extend(0..5000);
        for value in values.into_iter().filter(|value| *value < 1 << POWER_MAX) {
            let bucket = bucket(value);
            assert!(least(bucket) <= value && value < least(bucket + 1), "{value} in {bucket}");
            assert!(least(bucket + 1) - least(bucket) <= (value / 8).max(1), "{value} in {bucket}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_known_values() {
        let mut counts = [0; BUCKETS];
        (0..1000_u64).for_each(|value| counts[bucket(value)] += 1);
        let reply = Distribution::new(counts.into_iter(), (0..1000).sum(), 1.0);
        assert_eq!((reply.count(), reply.min(), reply.mean()), (1000, 0.0, 499.5));
        for (share, value) in [(0.5, 500.0), (0.75, 750.0), (0.9, 900.0), (0.99, 990.0)] {
            let error: f64 = reply.quantile(share) - value;
            assert!(error.abs() <= value / 7.0, "{share}: {}", reply.quantile(share));
        }
        let deviation = reply.moment(2).sqrt();
        assert!((deviation - 288.6).abs() < 10.0, "{deviation}");
        assert_eq!(Distribution::default().quantile(0.5), 0.0);
    }
}
