//! `_sum`: the sum of numbers, of arrays element by element, of objects member by member. It follows CouchDB's
//! function, including peculiarities: values are validated only when combined, a number is added to the first element
//! of an array, and an object replaces a sum that is still 0. A value that cannot be added makes the result a final
//! error value.

use settee_design::Growth;
use settee_model::json::{Kind, Value, write_array};

use super::builtin::{Builtin, Input, OfValues, Values};
use super::number::Number;

pub(super) fn parse(source: &str, growth: Growth) -> Option<Box<dyn Builtin>> {
    source.starts_with("_sum").then(|| Box::new(SumValues { growth }) as Box<dyn Builtin>)
}

struct SumValues {
    growth: Growth,
}

const REASON: &str = "The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects \
    cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the values for all \
    fields are themselves numbers, arrays of numbers, or objects.";

/// A sum of this length is an error if it exceeds half its input, as with CouchDB's `reduce_limit`.
const OVERFLOW_BYTES: usize = 4906;

impl OfValues for SumValues {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        sum(values.iter(), || values.content_bytes(), self.growth, out);
    }
}

impl Builtin for SumValues {
    fn input(&self) -> Input<'_> {
        Input::Values(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        sum(partials.iter().copied(), || partials.iter().map(|partial| partial.len()).sum(), self.growth, out);
    }
}

fn sum<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    input_bytes: impl FnOnce() -> usize,
    growth: Growth,
    out: &mut Vec<u8>,
) {
    let mut sum = Sum::Number(Number::ZERO);
    for text in values {
        if let (Sum::Number(number), Some(next)) = (&mut sum, Number::parse(text)) {
            *number = number.add(next);
            continue;
        }
        match sum.add(&Sum::parse(Value::trusted(text))) {
            Ok(next) => sum = next,
            Err(error) => return out.extend_from_slice(&error.0),
        }
    }
    let start = out.len();
    sum.write(out);
    let output_bytes = out.len() - start;
    if growth == Growth::Refused && output_bytes > OVERFLOW_BYTES && !matches!(sum, Sum::Number(_)) {
        let input_bytes = input_bytes();
        if output_bytes * 2 > input_bytes {
            out.truncate(start);
            let reason = format!(
                "Reduce output must shrink more rapidly: input size: {input_bytes} output size: {output_bytes}"
            );
            out.extend_from_slice(&error(&reason, None).0);
        }
    }
}

pub(super) struct ErrorValue(pub(super) Vec<u8>);

pub(super) fn error(reason: &str, caused_by: Option<&[u8]>) -> ErrorValue {
    let mut text = br#"{"error":"builtin_reduce_error","reason":"#.to_vec();
    settee_model::json::write_string(&mut text, reason);
    if let Some(cause) = caused_by {
        text.extend_from_slice(br#","caused_by":"#);
        text.extend_from_slice(cause);
    }
    text.push(b'}');
    ErrorValue(text)
}

pub(super) fn is_error(value: Value<'_>) -> bool {
    value.is_object() && value.get("error").is_some_and(|error| error.is_string("builtin_reduce_error"))
}

#[derive(Clone, Debug)]
enum Sum<'a> {
    Number(Number),
    Array(Vec<Sum<'a>>),
    /// Names are JSON texts, in the order of the document until two objects are combined, then sorted.
    Object(Vec<(&'a [u8], Sum<'a>)>),
    Other(Value<'a>),
}

impl<'a> Sum<'a> {
    fn parse(value: Value<'a>) -> Self {
        match value.kind() {
            Kind::Number => Number::parse(value.raw()).map_or(Self::Other(value), Self::Number),
            Kind::Array => Self::Array(value.elements().map(Self::parse).collect()),
            Kind::Object if is_error(value) => Self::Other(value),
            Kind::Object => {
                Self::Object(value.members().map(|(name, value)| (name.raw(), Self::parse(value))).collect())
            }
            Kind::Null | Kind::Bool | Kind::String => Self::Other(value),
        }
    }

    fn add(self, value: &Self) -> Result<Self, ErrorValue> {
        match (value, self) {
            (Self::Number(value), Self::Number(sum)) => Ok(Self::Number(sum.add(*value))),
            (Self::Array(value), Self::Array(sum)) => add_arrays(sum, value),
            (Self::Number(_), Self::Array(sum)) => add_arrays(sum, std::slice::from_ref(value)),
            (Self::Array(value), sum @ Self::Number(_)) => add_arrays(vec![sum], value),
            (Self::Object(value), Self::Number(Number::Int(0))) => Ok(Self::Object(value.clone())),
            (Self::Object(value), Self::Object(sum)) => add_objects(sum, value.clone()),
            (Self::Other(value), _) if is_error(*value) => Err(ErrorValue(value.raw().to_vec())),
            (value, _) => Err(value.refused()),
        }
    }

    fn refused(&self) -> ErrorValue {
        let mut cause = Vec::new();
        self.write(&mut cause);
        error(REASON, Some(&cause))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => number.write(out),
            Self::Other(value) => out.extend_from_slice(value.raw()),
            Self::Array(elements) => write_array(out, elements, |out, element| element.write(out)),
            Self::Object(members) => {
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The rest of the longer array is not validated.
fn add_arrays<'a>(mut sum: Vec<Sum<'a>>, value: &[Sum<'a>]) -> Result<Sum<'a>, ErrorValue> {
    for (index, value) in value.iter().enumerate() {
        match (sum.get_mut(index), value) {
            (Some(Sum::Number(sum)), Sum::Number(value)) => *sum = sum.add(*value),
            (Some(_), _) => return Err(Sum::Array(sum.split_off(index)).refused()),
            (None, value) => sum.push(value.clone()),
        }
    }
    Ok(Sum::Array(sum))
}

fn add_objects<'a>(
    mut sum: Vec<(&'a [u8], Sum<'a>)>,
    mut value: Vec<(&'a [u8], Sum<'a>)>,
) -> Result<Sum<'a>, ErrorValue> {
    sum.sort_by(|a, b| a.0.cmp(b.0));
    value.sort_by(|a, b| a.0.cmp(b.0));
    let mut merged = Vec::with_capacity(sum.len().max(value.len()));
    let mut values = value.into_iter().peekable();
    for (name, sum) in sum {
        while let Some(less) = values.next_if(|(other, _)| *other < name) {
            merged.push(less);
        }
        let sum = match values.next_if(|(other, _)| *other == name) {
            Some((_, value)) => sum.add(&value)?,
            None => sum,
        };
        merged.push((name, sum));
    }
    merged.extend(values);
    Ok(Sum::Object(merged))
}
