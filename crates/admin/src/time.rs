//! Formats and parsers of times.

use settee_model::calendar::Day;

const DAY_S: u64 = 86_400;

/// UTC with microseconds: `2026-11-20T15:04:05.000000Z`.
pub fn rfc3339(epoch_us: u64) -> String {
    rfc3339_ascii(epoch_us).iter().copied().map(char::from).collect()
}

/// Every log line has a time, so the digits are written directly, which is faster than formatting.
pub fn rfc3339_ascii(epoch_us: u64) -> [u8; 27] {
    let date = Day::since_1970((epoch_us / 1_000_000 / DAY_S).cast_signed());
    let [year, month, day] = [date.year, date.month, date.day].map(i64::unsigned_abs);
    let second = epoch_us / 1_000_000 % DAY_S;
    let (hour, minute, second, us) = (second / 3600, second / 60 % 60, second % 60, epoch_us % 1_000_000);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let parts = [(0..4, year), (5..7, month), (8..10, day), (11..13, hour), (14..16, minute), (17..19, second)];
    for (place, mut number) in parts.into_iter().chain([(20..26, us)]) {
        for digit in text[place].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    text
}

/// Has a resolution of one second: `2026-11-20T15-04-05Z`.
pub fn file_name(epoch_us: u64) -> String {
    let text = rfc3339(epoch_us);
    format!("{}Z", text[..19].replace(':', "-"))
}

/// Parses the output of [`rfc3339`] and [`file_name`], with fewer or more digits of the second, to microseconds.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim().strip_suffix('Z')?;
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    let shape: String = text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    if !matches!(shape.as_str(), "0000-00-00T00:00:00" | "0000-00-00T00-00-00") {
        return None;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().ok();
    let date = [number(0, 4)?, number(5, 7)?, number(8, 10)?];
    let [hour, minute, second] = [number(11, 13)?, number(14, 16)?, number(17, 19)?];
    if date[0] < 1970 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let us = fraction_us(fraction)?;
    // The day is near an estimate from years and months of equal length.
    let guess = (date[0] - 1970) * 365 + (date[0] - 1969) / 4 + (date[1] - 1) * 30 + date[2] - 1;
    let is_it = |day: &i64| {
        let Day { year, month, day, .. } = Day::since_1970(*day);
        [year, month, day] == date
    };
    let day = (guess - 40..guess + 40).find(is_it)?.cast_unsigned();
    let second = (hour * 3600 + minute * 60 + second).cast_unsigned();
    Some((day * DAY_S + second) * 1_000_000 + us)
}

pub fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = seconds.parse::<u64>().ok().filter(|_| is_number)?;
    seconds.checked_mul(1_000_000)?.checked_add(fraction_us(fraction)?)
}

fn fraction_us(digits: &str) -> Option<u64> {
    let is_number = digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some(format!("{digits:0<9}").parse::<u64>().ok().filter(|_| is_number)? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        for (epoch_s, expected) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(rfc3339(epoch_s * 1_000_000 + 7), format!("{expected}.000007Z"));
        }
        assert_eq!(file_name(951_782_399_999_999), "2000-02-28T23-59-59Z");
    }

    #[test]
    fn written_times_can_be_parsed() {
        for day in (0..100_000_u64).step_by(7).chain([59, 60, 789, 11_016, 47_540, 47_541]) {
            let time_us = (day * DAY_S + day % DAY_S) * 1_000_000 + day;
            assert_eq!(parse(&rfc3339(time_us)), Some(time_us), "{}", rfc3339(time_us));
            assert_eq!(parse(&file_name(time_us)), Some(time_us / 1_000_000 * 1_000_000));
        }
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", Some(1_000_000)),
            (" 1970-01-01T00:00:01.5Z ", Some(1_500_000)),
            ("1970-01-01T00:00:01.000000999Z", Some(1_000_000)),
            ("1970-01-01T00:00:01", None),
            ("1970-02-30T00:00:01Z", None),
            ("1970-13-01T00:00:01Z", None),
            ("1970-01-01T24:00:01Z", None),
            ("1970-01-01 00:00:01Z", None),
            ("1970-01-01T00:00:01.Z", Some(1_000_000)),
            ("1970-01-01T00:00:01.xZ", None),
            ("1969-01-01T00:00:01Z", None),
            ("+970-01-01T00:00:01Z", None),
            ("newest", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
