//! [`Day`]: days of the calendar; and dates in the format of HTTP.

use std::time::{Duration, UNIX_EPOCH};

/// A day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// Year.
    pub year: i64,
    /// Month, from 1.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: i64,
    /// Day of the week; 0 is Sunday.
    pub weekday: i64,
}

impl Day {
    /// Returns the day that is `days` days after 1 January 1970.
    #[must_use]
    pub const fn since_1970(days: i64) -> Self {
        // Years that start in March put the leap day last (H. Hinnant, "chrono-compatible low-level date algorithms").
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = era * 400 + year_of_era + (month <= 2) as i64;
        Self { year, month, day, weekday: (days + 4).rem_euclid(7) }
    }

    /// Returns the number of days since 1 January 1970; `None` if the calendar has no such date.
    #[must_use]
    pub fn days_since_1970(year: i32, month: u8, day: u8) -> Option<i64> {
        let (shifted_year, month, day) = (i64::from(year) - i64::from(month <= 2), i64::from(month), i64::from(day));
        let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
        let found = Self::since_1970(days);
        ([found.year, found.month, found.day] == [i64::from(year), month, day]).then_some(days)
    }
}

/// Formats seconds of the Unix epoch as `Sun, 06 Nov 1994 08:49:37 GMT`. Times after the year 9999 become its end.
#[must_use]
pub fn http_date(time_s: u64) -> String {
    const LAST_S: u64 = 253_402_300_799;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time_s.min(LAST_S)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_each_other() {
        let mut before = Day::since_1970(-800_001);
        for days in -800_000..800_000 {
            let Day { year, month, day, weekday } = Day::since_1970(days);
            assert_eq!(weekday, (before.weekday + 1) % 7);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let expected = match (month, day) {
                (1, 1) => (year - 1, 12, 31),
                (3, 1) => (year, 2, if leap { 29 } else { 28 }),
                (5 | 7 | 10 | 12, 1) => (year, month - 1, 30),
                (_, 1) => (year, month - 1, 31),
                _ => (year, month, day - 1),
            };
            assert_eq!((before.year, before.month, before.day), expected, "the day before {year}-{month}-{day}");
            let counted = Day::days_since_1970(year as i32, month as u8, day as u8);
            assert_eq!(counted, Some(days), "{year}-{month}-{day}");
            if expected.1 != month {
                assert_eq!(Day::days_since_1970(expected.0 as i32, expected.1 as u8, expected.2 as u8 + 1), None);
            }
            before = Day { year, month, day, weekday };
        }
        assert_eq!(Day::since_1970(0), Day { year: 1970, month: 1, day: 1, weekday: 4 });
        for (month, day) in [(0, 1), (13, 1), (1, 0), (255, 255)] {
            assert_eq!(Day::days_since_1970(2026, month, day), None, "{month} {day}");
        }
        assert_eq!(
            Day::days_since_1970(i32::MAX, 12, 31).map(|days| Day::since_1970(days).year),
            Some(i64::from(i32::MAX))
        );
    }

    #[test]
    fn dates() {
        for (time_s, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_582_934_400, "Sat, 29 Feb 2020 00:00:00 GMT"),
            (1_795_184_917, "Fri, 20 Nov 2026 14:28:37 GMT"),
            (4_102_444_799, "Thu, 31 Dec 2099 23:59:59 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(time_s), expected);
        }
    }
}
