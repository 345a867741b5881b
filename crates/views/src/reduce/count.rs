//! `_count`: number of rows.

use settee_design::Growth;
use settee_storage::codec::{Reader, put_varint};

use super::builtin::{Builtin, Input, OfValues, Values};

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    (source.starts_with("_count")).then(|| Box::new(Count) as Box<dyn Builtin>)
}

struct Count;

fn stored(partial: &[u8]) -> u64 {
    Reader::new(partial, "count").varint().unwrap_or(0)
}

impl OfValues for Count {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        put_varint(out, values.len() as u64);
    }
}

impl Builtin for Count {
    fn input(&self) -> Input<'_> {
        Input::Values(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        put_varint(out, partials.iter().map(|partial| stored(partial)).sum());
    }

    fn finish(&self, partial: &[u8], out: &mut Vec<u8>) {
        settee_model::json::write_u64(out, stored(partial));
    }
}
