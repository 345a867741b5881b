//! Creation and methods of dates. All times are in UTC, the time zone of the workers.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use super::date::{self, Parts};
use super::run::Run;
use super::tree::{Builtin, Expression, Method};
use super::value::Val;
use crate::reason::{Reason, Stop};

fn current_time() -> f64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_1970.as_secs_f64() * 1000.0).floor()
}

impl<'a> Run<'a, '_> {
    pub(crate) fn now(&mut self, builtin: Builtin) -> Result<Val<'a>, Stop> {
        let time = current_time();
        if builtin == Builtin::DateNow { Ok(Val::Number(time)) } else { self.date_text(time, Method::ToString) }
    }

    pub(crate) fn new_date(&mut self, builtin: Builtin, arguments: &'a [Expression]) -> Result<Val<'a>, Stop> {
        let values = self.arguments(arguments)?;
        let time = match values[..] {
            [] if builtin == Builtin::NewDate => current_time(),
            [] => return Err(Stop::BailOut(Reason::Call)),
            [value] if builtin == Builtin::NewDate => match value {
                Val::Date(time) => time.get(),
                Val::Text(text) => date::parse(text)?,
                Val::Number(_) | Val::Undefined | Val::Null | Val::Bool(_) => date::clip(self.convert().number(value)?),
                _ => return Err(Stop::BailOut(Reason::Call)),
            },
            _ => {
                let mut fields = [f64::NAN, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
                for (field, value) in fields.iter_mut().zip(&values) {
                    *field = self.convert().number(*value)?;
                }
                date::make_date_with_full_year(fields)?
            }
        };
        if builtin == Builtin::DateUtc {
            return Ok(Val::Number(time));
        }
        self.steps.charge_bytes(8)?;
        Ok(Val::Date(self.arena.alloc(Cell::new(time))))
    }

    pub(crate) fn date_method(
        &mut self,
        date: &'a Cell<f64>,
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        if let Some((first, most)) = set_fields(method) {
            return self.set_date(date, first, most, arguments);
        }
        let [value] = self.first_arguments(arguments)?;
        let time = date.get();
        match method {
            Method::GetTime | Method::ValueOf => return Ok(Val::Number(time)),
            Method::SetTime => {
                date.set(date::clip(self.convert().number(value)?));
                return Ok(Val::Number(date.get()));
            }
            Method::ToIsoString | Method::ToJson => {
                return match date::iso(time)? {
                    Some(text) => Ok(Val::Text(self.convert().keep(text.as_bytes())?)),
                    None if method == Method::ToJson => Ok(Val::Null),
                    None => Err(Stop::BailOut(Reason::Call)),
                };
            }
            Method::ToString | Method::ToDateString | Method::ToUtcString | Method::ToGmtString => {
                return self.date_text(time, method);
            }
            _ => {}
        }
        let field = get_field(method).ok_or(Stop::BailOut(Reason::Call))?;
        #[expect(clippy::cast_precision_loss, reason = "fields of dates are small")]
        let number = date::parts(time).map_or(f64::NAN, |parts| field(&parts) as f64);
        Ok(Val::Number(number))
    }

    fn set_date(
        &mut self,
        date: &'a Cell<f64>,
        first: usize,
        most: usize,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        let values = self.arguments(arguments)?;
        let parts = date::parts(date.get()).ok_or(Stop::BailOut(Reason::Date))?;
        let mut fields = parts.fields();
        if values.is_empty() {
            return Err(Stop::BailOut(Reason::Date));
        }
        for (field, value) in fields[first..].iter_mut().zip(values.iter().take(most)) {
            *field = self.convert().number(*value)?;
            if !field.is_finite() {
                return Err(Stop::BailOut(Reason::Date));
            }
        }
        date.set(date::make_date(fields)?);
        Ok(Val::Number(date.get()))
    }

    fn date_text(&mut self, time: f64, method: Method) -> Result<Val<'a>, Stop> {
        const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let parts = date::parts(time).filter(|parts| (1000..=9999).contains(&parts.year));
        let Some(Parts { year, month, day, weekday, hour, minute, second, .. }) = parts else {
            return Err(Stop::BailOut(Reason::Date));
        };
        let name =
            |names: &[&'static str], index: i64| usize::try_from(index).ok().and_then(|at| names.get(at).copied());
        let (Some(weekday), Some(month)) = (name(&DAYS, weekday), name(&MONTHS, month)) else {
            return Err(Stop::BailOut(Reason::Date));
        };
        let text = match method {
            Method::ToDateString => format!("{weekday} {month} {day:02} {year}"),
            Method::ToString => {
                format!("{weekday} {month} {day:02} {year} {hour:02}:{minute:02}:{second:02} GMT+0000")
            }
            _ => format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT"),
        };
        Ok(Val::Text(self.convert().keep(text.as_bytes())?))
    }
}

/// Returns the first field that a method sets, and the maximum number of fields.
fn set_fields(method: Method) -> Option<(usize, usize)> {
    Some(match method {
        Method::SetFullYear | Method::SetUtcFullYear => (0, 3),
        Method::SetMonth | Method::SetUtcMonth => (1, 2),
        Method::SetDate | Method::SetUtcDate => (2, 1),
        Method::SetHours | Method::SetUtcHours => (3, 4),
        Method::SetMinutes | Method::SetUtcMinutes => (4, 3),
        Method::SetSeconds | Method::SetUtcSeconds => (5, 2),
        Method::SetMilliseconds | Method::SetUtcMilliseconds => (6, 1),
        _ => return None,
    })
}

fn get_field(method: Method) -> Option<fn(&Parts) -> i64> {
    Some(match method {
        Method::GetFullYear | Method::GetUtcFullYear => |parts| parts.year,
        Method::GetYear => |parts| parts.year - 1900,
        Method::GetMonth | Method::GetUtcMonth => |parts| parts.month,
        Method::GetDate | Method::GetUtcDate => |parts| parts.day,
        Method::GetDay | Method::GetUtcDay => |parts| parts.weekday,
        Method::GetHours | Method::GetUtcHours => |parts| parts.hour,
        Method::GetMinutes | Method::GetUtcMinutes => |parts| parts.minute,
        Method::GetSeconds | Method::GetUtcSeconds => |parts| parts.second,
        Method::GetMilliseconds | Method::GetUtcMilliseconds => |parts| parts.millisecond,
        Method::GetTimezoneOffset => |_| 0,
        _ => return None,
    })
}
