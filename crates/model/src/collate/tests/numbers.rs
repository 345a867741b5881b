//! Numbers compared with their exact decimal values.

use std::cmp::Ordering;

use super::{check_ascending, check_pair, encoded, encoded_len};
use crate::collate::{Collation, number};
use crate::testing::Random;

pub(super) fn random_number(random: &mut Random) -> String {
    let sign = random.pick(&["", "-"]);
    match random.below(9) {
        0 => format!("{sign}{}", random.below(20)),
        1 => format!("{sign}{}.{}", random.below(20), random.below(4)),
        2 => format!("{sign}{}", random.next()),
        // Doubles start to skip integers near these, and a limb is full.
        3 => around_power_of_two(sign, random.below(8) + 50, random),
        4 => around_power_of_two(sign, random.below(130), random),
        5 => format!("{sign}{}{:0>308}", random.below(3) + 1, random.next()),
        6 => {
            format!("{sign}17976931348623157{}", "081453742373170435"[..random.below(19)].to_owned() + &"0".repeat(292))
        }
        7 => {
            let double = f64::from_bits(random.next());
            if double.is_finite() { format!("{double:e}") } else { "5e-324".to_owned() }
        }
        _ => format!("{sign}{}e{}", random.below(30), random.below(308) as i64 - 20 * random.below(20) as i64),
    }
}

fn around_power_of_two(sign: &str, power: usize, random: &mut Random) -> String {
    let base = 1u128 << power.min(126);
    let value = (base + random.below(5) as u128).saturating_sub(2);
    match random.below(3) {
        0 => format!("{sign}{value}.0"),
        1 => format!("{sign}{:e}", value as f64),
        _ => format!("{sign}{value}"),
    }
}

/// Exact decimal form: sign and digits before and after the point, without redundant zeros. Every double has one.
struct Exact {
    negative: bool,
    whole: String,
    fraction: String,
}

impl Exact {
    fn of(number: &str) -> Exact {
        let expanded = if number.contains(['.', 'e', 'E']) {
            format!("{:.1100}", number.parse::<f64>().expect("a number"))
        } else {
            number.to_owned()
        };
        let (negative, magnitude) = match expanded.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, &*expanded),
        };
        let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        Exact { negative, whole: whole.to_owned(), fraction: fraction.to_owned() }
    }

    fn compare(&self, other: &Exact) -> Ordering {
        let by_whole = self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(&other.whole));
        let by_magnitude = by_whole.then_with(|| self.fraction.cmp(&other.fraction));
        match (self.negative, other.negative) {
            (false, false) => by_magnitude,
            (true, true) => by_magnitude.reverse(),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

#[test]
fn order_is_exact() {
    let random = &mut Random::new();
    let numbers: Vec<_> = (0..700).map(|_| random_number(random)).collect();
    let exact: Vec<_> = numbers.iter().map(|number| Exact::of(number)).collect();
    for (index, (a, exact_a)) in numbers.iter().zip(&exact).enumerate() {
        for (b, exact_b) in numbers.iter().zip(&exact).take(index + 1) {
            assert_eq!(check_pair(a, b, Collation::Unicode), exact_a.compare(exact_b), "{a} and {b}");
        }
        let key = encoded(a, Collation::Raw);
        assert_eq!(key, encoded(a, Collation::Unicode), "{a}");
        assert_eq!(encoded_len(&key), key.len(), "{a}");
    }
}

#[test]
fn equal_values_are_equal_however_they_are_written() {
    for (a, b) in [
        ("1", "1.0"),
        ("1", "10e-1"),
        ("0", "-0"),
        ("0", "-0.0"),
        ("0.0", "-0e5"),
        ("9007199254740992", "9007199254740993.0"),
        ("18446744073709551616", "18446744073709551617.0"),
        ("99999999999999991611392", "1e23"),
    ] {
        for collation in [Collation::Unicode, Collation::Raw] {
            assert_eq!(check_pair(a, b, collation), Ordering::Equal, "{a} and {b}");
        }
    }
}

#[test]
fn recorded_order_and_the_gaps_of_doubles() {
    let (large, larger) = (format!("1{}", "0".repeat(308)), format!("2{}", "0".repeat(308)));
    let (huge, longer) = (format!("3{}", "0".repeat(320)), format!("1{}", "0".repeat(330)));
    let negative: Vec<_> = [&longer, &huge, &larger, &large].map(|digits| format!("-{digits}")).to_vec();
    let mut values: Vec<&str> = negative.iter().map(String::as_str).collect();
    values.extend([
        "-1e308",
        "-1e100",
        "-9007199254740993",
        "-9007199254740992.0",
        "-1.5",
        "-1",
        "-0.1",
        "-5e-324",
        "0",
        "5e-324",
        "0.01",
        "0.1",
        "1",
        "1.5",
        "2",
        "3",
        "9",
        "10",
        "100",
        "999.5",
        "1000.0",
        "123456789012",
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "9007199254740994.0",
        "9007199254740995",
        "18446744073709551615",
        "18446744073709551616.0",
        "18446744073709551617",
        "1e100",
    ]);
    let mut positive = [large.as_str(), "1e308", "1.7976931348623157e308", &larger, &huge, &longer];
    positive.sort_by(|a, b| Exact::of(a).compare(&Exact::of(b)));
    values.extend(positive);
    values[3..5].sort_by(|a, b| Exact::of(a).compare(&Exact::of(b)));
    check_ascending(&values, Collation::Unicode);
}

#[test]
fn the_bounds_of_each_form_are_ordered() {
    // 2^1024 and its neighbours, around the largest value with an exponent.
    let boundary = std::str::from_utf8(number::FIRST_HUGE).expect("digits").to_owned();
    let below = format!("{}5", &boundary[..boundary.len() - 1]);
    let above = format!("{}7", &boundary[..boundary.len() - 1]);
    check_ascending(&["1.7976931348623157e308", &below, &boundary, &above], Collation::Unicode);
    let [minus_below, minus_boundary, minus_above] = [&below, &boundary, &above].map(|digits| format!("-{digits}"));
    check_ascending(&[&minus_above, &minus_boundary, &minus_below, "-1.7976931348623157e308"], Collation::Unicode);
}

#[test]
fn common_numbers_are_short() {
    for (number, len) in
        [("0", 2), ("1", 3), ("-1", 3), ("12", 3), ("2024", 4), ("100000", 5), ("1700000001", 7), ("0.5", 3)]
    {
        assert_eq!(encoded(number, Collation::Unicode).len(), len, "{number}");
    }
}
