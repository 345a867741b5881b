//! Dates in UTC, the time zone of the workers. Only texts in the format of the language are parsed ([`parse`]).

use settee_model::calendar::Day;

use crate::reason::{Reason, Stop};

const DAY_MS: f64 = 86_400_000.0;

/// Maximum distance from 1970.
const MAX_MS: f64 = 8.64e15;

pub(super) struct Parts {
    pub(super) year: i64,
    /// January is 0.
    pub(super) month: i64,
    pub(super) day: i64,
    /// Sunday is 0.
    pub(super) weekday: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) millisecond: i64,
}

impl Parts {
    pub(super) fn fields(&self) -> [f64; 7] {
        #[expect(clippy::cast_precision_loss, reason = "fields of dates are small")]
        [self.year, self.month, self.day, self.hour, self.minute, self.second, self.millisecond].map(|part| part as f64)
    }
}

pub(super) fn parts(time: f64) -> Option<Parts> {
    if !time.is_finite() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "within the farthest times")]
    let time = time as i64;
    let days = time.div_euclid(86_400_000);
    let rest = time.rem_euclid(86_400_000);
    let Day { year, month, day, weekday } = Day::since_1970(days);
    Some(Parts {
        year,
        month: month - 1,
        day,
        weekday,
        hour: rest / 3_600_000,
        minute: rest / 60_000 % 60,
        second: rest / 1_000 % 60,
        millisecond: rest % 1_000,
    })
}

fn days(year: i64, month: i64) -> i64 {
    let year = year + month.div_euclid(12);
    let month = month.rem_euclid(12);
    let shifted_year = if month <= 1 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 10) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// NaN outside of the range of dates.
pub(super) fn clip(time: f64) -> f64 {
    if time.is_finite() && time.abs() <= MAX_MS { time.trunc() + 0.0 } else { f64::NAN }
}

/// As [`make_date`], but a year from 0 to 99 is one of the 20th century.
pub(super) fn make_date_with_full_year(mut fields: [f64; 7]) -> Result<f64, Stop> {
    let year = fields[0].trunc();
    if (0.0..=99.0).contains(&year) {
        fields[0] = 1900.0 + year;
    }
    make_date(fields)
}

/// Returns the time of year, month (from 0), day, hour, minute, second and millisecond, each of any size.
pub(super) fn make_date(fields: [f64; 7]) -> Result<f64, Stop> {
    let [year, month, day, hour, minute, second, millisecond] = fields;
    if fields.iter().any(|field| !field.is_finite()) {
        return Ok(f64::NAN);
    }
    // Sums of large numbers depend on the order of addition.
    if fields.iter().any(|field| field.abs() > 1e6) {
        return Err(Stop::BailOut(Reason::Date));
    }
    #[expect(clippy::cast_possible_truncation, reason = "below a million")]
    let days = days(year.trunc() as i64, month.trunc() as i64);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let day = days as f64 + day.trunc() - 1.0;
    let time = hour.trunc() * 3_600_000.0 + minute.trunc() * 60_000.0 + second.trunc() * 1_000.0 + millisecond.trunc();
    Ok(clip(day * DAY_MS + time))
}

/// `toISOString`; `None` for invalid dates. Years beyond four digits are left to the engine.
pub(super) fn iso(time: f64) -> Result<Option<String>, Stop> {
    let Some(parts) = parts(time) else {
        return Ok(None);
    };
    if !(0..=9999).contains(&parts.year) {
        return Err(Stop::BailOut(Reason::Date));
    }
    Ok(Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        parts.year,
        parts.month + 1,
        parts.day,
        parts.hour,
        parts.minute,
        parts.second,
        parts.millisecond
    )))
}

/// Parses `YYYY-MM-DD`, with optional `THH:MM`, `:SS`, `.mmm` and `Z`.
pub(super) fn parse(text: &[u8]) -> Result<f64, Stop> {
    let digits = |from: usize, count: usize| -> Result<f64, Stop> {
        let part = text.get(from..from + count).ok_or(Stop::BailOut(Reason::Date))?;
        part.iter().try_fold(0.0, |sum, byte| {
            if byte.is_ascii_digit() {
                Ok(sum * 10.0 + f64::from(byte - b'0'))
            } else {
                Err(Stop::BailOut(Reason::Date))
            }
        })
    };
    let fingerprint =
        |at: usize, byte: u8| if text.get(at) == Some(&byte) { Ok(()) } else { Err(Stop::BailOut(Reason::Date)) };
    let (year, month, day) = (digits(0, 4)?, digits(5, 2)?, digits(8, 2)?);
    fingerprint(4, b'-')?;
    fingerprint(7, b'-')?;
    let mut time = [0.0; 4];
    let mut at = 10;
    if text.len() > at {
        fingerprint(10, b'T')?;
        fingerprint(13, b':')?;
        time[0] = digits(11, 2)?;
        time[1] = digits(14, 2)?;
        at = 16;
        if text.get(at) == Some(&b':') {
            time[2] = digits(17, 2)?;
            at = 19;
            if text.get(at) == Some(&b'.') {
                time[3] = digits(20, 3)?;
                at = 23;
            }
        }
        if text.get(at) == Some(&b'Z') {
            at += 1;
        }
    }
    let month_length = 28.0;
    let sound = (1.0..=12.0).contains(&month)
        && day >= 1.0
        && (day <= month_length || (day <= 31.0 && exists(year, month, day)))
        && time[0] <= 23.0
        && time[1] <= 59.0
        && time[2] <= 59.0;
    if at != text.len() || !sound || year < 100.0 {
        return Err(Stop::BailOut(Reason::Date));
    }
    make_date_with_full_year([year, month - 1.0, day, time[0], time[1], time[2], time[3]])
}

fn exists(year: f64, month: f64, day: f64) -> bool {
    let Ok(time) = make_date_with_full_year([year, month - 1.0, day, 0.0, 0.0, 0.0, 0.0]) else {
        return false;
    };
    #[expect(clippy::cast_precision_loss, reason = "months are small")]
    let same = parts(time).is_some_and(|parts| parts.month as f64 == month - 1.0);
    same
}
