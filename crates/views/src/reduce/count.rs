//! `_count`: how many rows there are.

use super::{Builtin, Growth, Input, OfValues, Values};
use crate::codec::{Reader, push_number};

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    (source.starts_with("_count")).then(|| Box::new(Count) as Box<dyn Builtin>)
}

/// Stored as a number of variable length.
struct Count;

fn stored(part: &[u8]) -> u64 {
    Reader::new(part, "count").number().unwrap_or(0)
}

impl OfValues for Count {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        push_number(out, values.len() as u64);
    }
}

impl Builtin for Count {
    fn input(&self) -> Input<'_> {
        Input::Values(self)
    }

    fn rereduce(&self, parts: &[&[u8]], out: &mut Vec<u8>) {
        push_number(out, parts.iter().map(|part| stored(part)).sum());
    }

    fn finish(&self, part: &[u8], out: &mut Vec<u8>) {
        settee_model::json::write_u64(out, stored(part));
    }
}
