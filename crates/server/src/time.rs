//! Points in time as text. What time it is, `environment` knows.

use settee_model::calendar::Day;

/// The seconds of a day.
const DAY_S: u64 = 86_400;

/// A time of the Unix epoch as RFC 3339 has it, in UTC and with microseconds: `2026-11-20T15:04:05.000000Z`.
pub(crate) fn rfc3339(epoch_us: u64) -> String {
    rfc3339_ascii(epoch_us).iter().copied().map(char::from).collect()
}

/// The same as ASCII. Each line of the log has one, so digits are put in their places, which costs less than formatting.
pub(crate) fn rfc3339_ascii(epoch_us: u64) -> [u8; 27] {
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

/// The same for names of files, to the second: `2026-11-20T15-04-05Z`.
pub(crate) fn file_name(epoch_us: u64) -> String {
    let text = rfc3339(epoch_us);
    format!("{}Z", text[..19].replace(':', "-"))
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
}
