//! `_stats`: sum, count, minimum, maximum and sum of squares of numbers, of arrays by position, and of objects that are
//! such statistics.

use settee_design::Growth;
use settee_model::json::{Kind, Value, write_array};

use super::builtin::{Builtin, Input, OfValues, Values};
use super::number::Number;
use super::sum::{ErrorValue, error, is_error};

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    (source.starts_with("_stats")).then(|| Box::new(StatsOfValues) as Box<dyn Builtin>)
}

/// The stored form is the JSON text for clients, which is also a valid input.
struct StatsOfValues;

impl OfValues for StatsOfValues {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        stats(values.iter(), out);
    }
}

impl Builtin for StatsOfValues {
    fn input(&self) -> Input<'_> {
        Input::Values(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        stats(partials.iter().copied(), out);
    }
}

fn stats<'a>(values: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let mut total: Option<Shape> = None;
    for text in values {
        let next = match (&mut total, Number::parse(text)) {
            (Some(Shape::One(total)), Some(number)) => {
                total.add(&Stats::of(number));
                continue;
            }
            (_, Some(number)) => Ok(Shape::One(Stats::of(number))),
            (_, None) => Shape::parse(Value::trusted(text)),
        };
        let added = next.and_then(|next| match total.take() {
            None => Ok(next),
            Some(total) => total.add(next, text),
        });
        match added {
            Ok(added) => total = Some(added),
            Err(error) => return out.extend_from_slice(&error.0),
        }
    }
    if let Some(total) = total {
        total.write(out);
    }
}

#[derive(Clone, Copy, Debug)]
struct Stats {
    sum: Number,
    count: Number,
    min: Number,
    max: Number,
    sumsqr: Number,
}

impl Stats {
    fn of(number: Number) -> Self {
        Self { sum: number, count: Number::Int(1), min: number, max: number, sumsqr: number.square() }
    }

    fn parse(object: Value<'_>) -> Result<Self, ErrorValue> {
        let member = |name: &str| match object.get(name) {
            None => {
                let shown = String::from_utf8_lossy(object.raw());
                Err(error(&format!("user _stats input missing required field {name} ({shown})"), None))
            }
            Some(value) => Number::parse(value.raw()).ok_or_else(|| {
                let shown = String::from_utf8_lossy(value.raw());
                error(&format!("non-numeric _stats input received for {name}: {shown}"), None)
            }),
        };
        Ok(Self {
            sum: member("sum")?,
            count: member("count")?,
            min: member("min")?,
            max: member("max")?,
            sumsqr: member("sumsqr")?,
        })
    }

    fn add(&mut self, other: &Self) {
        self.sum = self.sum.add(other.sum);
        self.count = self.count.add(other.count);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sumsqr = self.sumsqr.add(other.sumsqr);
    }

    fn write(&self, out: &mut Vec<u8>) {
        let members = [
            ("{\"sum\":", self.sum),
            (",\"count\":", self.count),
            (",\"min\":", self.min),
            (",\"max\":", self.max),
            (",\"sumsqr\":", self.sumsqr),
        ];
        for (name, number) in members {
            out.extend_from_slice(name.as_bytes());
            number.write(out);
        }
        out.push(b'}');
    }
}

#[derive(Debug)]
enum Shape {
    One(Stats),
    Places(Vec<Shape>),
}

impl Shape {
    fn parse(value: Value<'_>) -> Result<Self, ErrorValue> {
        match value.kind() {
            Kind::Array => Ok(Self::Places(value.elements().map(Self::parse).collect::<Result<_, _>>()?)),
            Kind::Object if is_error(value) => Err(ErrorValue(value.raw().to_vec())),
            Kind::Object => Stats::parse(value).map(Self::One),
            _ => match Number::parse(value.raw()) {
                Some(number) => Ok(Self::One(Stats::of(number))),
                None => Err(refused(value.raw())),
            },
        }
    }

    /// `text` must be the JSON text of `value`.
    fn add(self, value: Self, text: &[u8]) -> Result<Self, ErrorValue> {
        match (self, value) {
            (Self::One(mut total), Self::One(value)) => {
                total.add(&value);
                Ok(Self::One(total))
            }
            (Self::Places(total), Self::Places(values)) if total.len() == values.len() => {
                let places = total.into_iter().zip(values).map(|(total, value)| total.add(value, text));
                places.collect::<Result<_, _>>().map(Self::Places)
            }
            _ => Err(refused(text)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::One(stats) => stats.write(out),
            Self::Places(places) => {
                write_array(out, places, |out, place| place.write(out));
            }
        }
    }
}

fn refused(value: &[u8]) -> ErrorValue {
    let shown = String::from_utf8_lossy(value);
    let reason = format!("The _stats function requires that map values be numbers or arrays of numbers, not '{shown}'");
    error(&reason, Some(value))
}
