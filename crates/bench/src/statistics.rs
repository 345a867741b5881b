//! [`Spread`]: summaries of measured numbers.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let sorted = sorted(values);
        Some(Spread { least: *sorted.first()?, median: middle(&sorted), greatest: *sorted.last()? })
    }
}

/// Of an even number of values, the mean of the two middle ones; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    middle(&sorted(values))
}

/// The smallest number that is at least as large as the share `share` (0 to 1) of all numbers; NaN without numbers.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let sorted = sorted(values);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (values, expected) in [(&[3.0, 1.0, 2.0][..], 2.0), (&[4.0, 1.0][..], 2.5), (&[7.0][..], 7.0)] {
            assert_eq!(median(values), expected);
        }
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        for (share, expected) in [(0.99, 198.0), (0.5, 100.0), (1.0, 200.0), (0.0, 1.0)] {
            assert_eq!(quantile(&values, share), expected);
        }
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[2.0, 8.0, 4.0]), Some(Spread { least: 2.0, median: 4.0, greatest: 8.0 }));
        assert_eq!(Spread::of(&[]), None);
    }
}
