//! `_first` and `_last`: value of the first or the last row.

use settee_design::Growth;
use settee_storage::codec::{Reader, put_bytes};

use super::builtin::{Builtin, Input, OfRows};
use crate::leaf::Group;

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    let end = if source.starts_with("_first") {
        End::First
    } else if source.starts_with("_last") {
        End::Last
    } else {
        return None;
    };
    Some(Box::new(end))
}

/// The stored form contains the row key and the value, so that reductions can be combined in any order.
enum End {
    First,
    Last,
}

fn row_key(partial: &[u8]) -> &[u8] {
    Reader::new(partial, "end").bytes().unwrap_or_default()
}

impl OfRows for End {
    fn reduce(&self, rows: &Group<'_>, out: &mut Vec<u8>) {
        let row = match self {
            Self::First => rows.leaf.row(rows.rows.start),
            Self::Last => rows.leaf.row(rows.rows.end - 1),
        };
        put_bytes(out, row.row_key);
        out.extend_from_slice(row.value);
    }
}

impl Builtin for End {
    fn input(&self) -> Input<'_> {
        Input::Rows(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        let partials = partials.iter().copied();
        let partial = match self {
            Self::First => partials.min_by_key(|partial| row_key(partial)),
            Self::Last => partials.max_by_key(|partial| row_key(partial)),
        };
        out.extend_from_slice(partial.unwrap_or_default());
    }

    fn finish(&self, partial: &[u8], out: &mut Vec<u8>) {
        let mut reader = Reader::new(partial, "end");
        if reader.bytes().is_ok() {
            out.extend_from_slice(&partial[reader.position()..]);
        }
    }
}
