//! Dates as starts of feeds, in the one form of RFC 3339 that CouchDB accepts: `2026-01-09T19:01:02Z`.

use settee_model::calendar::Day;

const DAY_S: u64 = 86_400;

/// CouchDB parses texts with these separators as dates, and all others as sequences.
pub(super) fn is_date(text: &str) -> bool {
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    let bytes = text.as_bytes();
    bytes.len() == 20 && separators.iter().all(|(at, separator)| bytes[*at] == *separator)
}

/// Returns seconds since 1970, or 0 for earlier dates.
pub(super) fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| {
        let digits = text.as_bytes().get(from..to)?;
        let add = |number: i32, digit: &u8| digit.is_ascii_digit().then(|| 10 * number + i32::from(digit - b'0'));
        digits.iter().try_fold(0, add)
    };
    let byte = |from: usize, last: i32| number(from, from + 2).filter(|number| *number <= last)?.try_into().ok();
    let (year, month, day): (i32, u8, u8) = (number(0, 4)?, byte(5, 12)?, byte(8, 31)?);
    // A minute can end with a leap second.
    let (hour, minute, second): (u8, u8, u8) = (byte(11, 23)?, byte(14, 59)?, byte(17, 60)?);
    let days = Day::days_since_1970(year, month, day)?;
    let second_of_day = u64::from(hour) * 3600 + u64::from(minute) * 60 + u64::from(second);
    Some(u64::try_from(days).map_or(0, |days| days * DAY_S + second_of_day))
}

pub(crate) fn format(time_s: u64) -> String {
    let Day { year, month, day, .. } = Day::since_1970((time_s / DAY_S).cast_signed());
    let (hour, minute, second) = (time_s / 3600 % 24, time_s / 60 % 60, time_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed_and_formatted() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:01Z", 1),
            ("2025-08-01T00:00:00Z", 1_754_006_400),
            ("2024-02-29T23:59:59Z", 1_709_251_199),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert!(is_date(text));
            assert_eq!(parse(text), Some(expected));
            assert_eq!(format(expected), text);
        }
        assert_eq!(parse("2016-12-31T23:59:60Z"), parse("2017-01-01T00:00:00Z"));
        for before in ["1969-12-31T23:59:59Z", "1000-01-01T01:01:01Z", "0000-01-01T00:00:00Z"] {
            assert_eq!(parse(before), Some(0), "{before}");
        }
        format(u64::MAX);
    }

    #[test]
    fn times_that_do_not_exist_are_rejected() {
        for text in [
            "2025-01-01Txx:yy:00Z",
            "2025-02-29T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-01-00T00:00:00Z",
            "2025-04-31T00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:60:00Z",
            "2025-01-01T00:00:61Z",
            "+025-01-01T00:00:00Z",
            "2025- 1-01T00:00:00Z",
            "2025-01-01T-1:00:00Z",
            "202é-1-01T00:00:00Z0",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["", "2025-01-01", "2025-01-01T00:00:00", "2025-01-01T00:00:00+00:00", "2025-01-01t00:00:00z"] {
            assert!(!is_date(text), "{text}");
        }
        for text in ["2025-01-01T00:00:00.5Z", " 2025-01-01T00:00:00Z", "2025-01-01 00:00:00Z", "2025-01-01T00:00:00é"]
        {
            assert!(!is_date(text), "{text}");
        }
    }
}
