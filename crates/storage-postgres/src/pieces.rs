//! [`pieces`]: the writes of commits as statements, one or several for each keyspace and kind.

use std::borrow::Cow;

use settee_storage::{Batch, Keyspace, Operation};
use tokio_postgres::types::ToSql;

use crate::keys::{stored, stored_value};
use crate::sql::{Kind, Sql};

/// A message to PostgreSQL is limited to a gigabyte, and must arrive before the server ends the transaction of an idle
/// writer.
pub(crate) const PIECE_ROWS: usize = 5_000;
pub(crate) const PIECE_BYTES: usize = 2 << 20;

pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

pub(crate) struct Piece<'a> {
    pub(crate) sql: Sql,
    shards: Vec<i64>,
    keys: Vec<Cow<'a, [u8]>>,
    values: Vec<Cow<'a, [u8]>>,
}

impl Piece<'_> {
    /// Ordered as [`crate::sql::write`] numbers them.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = Parameter<'_>> {
        let [shards, keys, values]: [Parameter<'_>; 3] = [&self.shards, &self.keys, &self.values];
        [shards, keys].into_iter().chain((!matches!(self.sql, Sql::Write(_, Kind::Delete))).then_some(values))
    }
}

struct Write<'a> {
    key: &'a [u8],
    value: Option<&'a [u8]>,
    is_new: bool,
}

impl Write<'_> {
    fn kind(&self) -> Kind {
        match self.value {
            None => Kind::Delete,
            Some(_) if self.is_new => Kind::Insert,
            Some(_) => Kind::Put,
        }
    }
}

type Spaces<'a> = [Vec<Write<'a>>; Keyspace::ALL.len()];

/// Omits writes that a later write to the same key replaces.
pub(crate) fn pieces<'a>(batches: &[(i64, &'a Batch)]) -> Vec<Piece<'a>> {
    let writes: Vec<(i64, Spaces<'a>)> = batches.iter().map(|(shard, batch)| (*shard, last_writes(batch))).collect();
    let mut pieces = Vec::new();
    for space in Keyspace::ALL {
        for kind in Kind::ALL {
            let of_kind = |write: &&Write<'a>| write.kind() == kind;
            let rows = writes.iter().flat_map(|(shard, spaces)| {
                spaces[space as usize].iter().filter(of_kind).map(move |write| (*shard, write))
            });
            divide(Sql::Write(space, kind), rows, &mut pieces);
        }
    }
    pieces
}

fn last_writes(batch: &Batch) -> Spaces<'_> {
    let mut spaces = Spaces::default();
    for operation in batch.operations() {
        let (space, key, value, is_new) = match operation {
            Operation::Put(space, key, value) => (space, key, Some(value), false),
            Operation::Insert(space, key, value) => (space, key, Some(value), true),
            Operation::Delete(space, key) => (space, key, None, false),
        };
        spaces[space as usize].push(Write { key, value, is_new });
    }
    for writes in &mut spaces {
        // Adjacent keys are in the same pages, and a common order of locks prevents deadlocks. Writes to the same key
        // keep their order.
        writes.sort_by_key(|write| write.key);
        writes.dedup_by(|later, last| {
            let is_same = later.key == last.key;
            if is_same {
                *last = Write { is_new: false, ..*later };
            }
            is_same
        });
    }
    spaces
}

fn divide<'a, 'b>(sql: Sql, rows: impl Iterator<Item = (i64, &'b Write<'a>)>, pieces: &mut Vec<Piece<'a>>)
where
    'a: 'b,
{
    let mut bytes = usize::MAX;
    for (shard, write) in rows {
        let size = write.key.len() + write.value.map_or(0, <[u8]>::len);
        let is_full = pieces.last().is_none_or(|piece| piece.sql != sql || piece.keys.len() >= PIECE_ROWS);
        if is_full || bytes.saturating_add(size) > PIECE_BYTES {
            pieces.push(Piece { sql, shards: Vec::new(), keys: Vec::new(), values: Vec::new() });
            bytes = 0;
        }
        bytes += size;
        if let Some(piece) = pieces.last_mut() {
            piece.shards.push(shard);
            piece.keys.push(stored(write.key));
            piece.values.extend(write.value.map(|value| stored_value(write.key, value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(batches: &[(i64, &Batch)]) -> Vec<(Sql, Vec<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let lines = |piece: &Piece<'_>| {
            let value = |at: usize| piece.values.get(at).map_or(String::new(), |value| format!("={}", text(value)));
            let line = |(at, key): (usize, &Cow<'_, [u8]>)| format!("{}/{}{}", piece.shards[at], text(key), value(at));
            piece.keys.iter().enumerate().map(line).collect()
        };
        pieces(batches).iter().map(|piece| (piece.sql, lines(piece))).collect()
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn only_the_last_write_of_a_key_remains_sorted_by_kind() {
        let (space, other) = (Keyspace::Bodies, Keyspace::Local);
        let mut batch = Batch::new();
        batch.insert(space, b"new", b"1");
        batch.put(space, b"b", b"1");
        batch.put(space, b"a", b"1");
        batch.put(space, b"b", b"2");
        batch.delete(space, b"gone");
        batch.insert(space, b"new then gone", b"1");
        batch.delete(space, b"new then gone");
        batch.delete(space, b"gone then new");
        batch.insert(space, b"gone then new", b"3");
        batch.delete(other, b"a");
        let wanted = [
            (Sql::Write(space, Kind::Delete), lines(&["7/gone", "7/new then gone"])),
            (Sql::Write(space, Kind::Put), lines(&["7/a=1", "7/b=2", "7/gone then new=3"])),
            (Sql::Write(space, Kind::Insert), lines(&["7/new=1"])),
            (Sql::Write(other, Kind::Delete), lines(&["7/a"])),
        ];
        assert_eq!(shape(&[(7, &batch)]), wanted);
        assert_eq!(shape(&[(7, &Batch::new())]), []);
    }

    #[test]
    fn batches_for_several_shards_share_statements() {
        let [mut first, mut second] = [Batch::new(), Batch::new()];
        first.insert(Keyspace::Bodies, b"a", b"1");
        first.delete(Keyspace::Local, b"b");
        second.insert(Keyspace::Bodies, b"a", b"2");
        second.put(Keyspace::Bodies, b"c", b"3");
        let wanted = [
            (Sql::Write(Keyspace::Bodies, Kind::Put), lines(&["8/c=3"])),
            (Sql::Write(Keyspace::Bodies, Kind::Insert), lines(&["-7/a=1", "8/a=2"])),
            (Sql::Write(Keyspace::Local, Kind::Delete), lines(&["-7/b"])),
        ];
        assert_eq!(shape(&[(-7, &first), (8, &second)]), wanted);
    }

    #[test]
    fn pieces_are_bounded() {
        let mut batch = Batch::new();
        for at in 0..PIECE_ROWS + 1 {
            batch.delete(Keyspace::Local, &at.to_be_bytes());
        }
        for at in 0..5_u8 {
            batch.put(Keyspace::Bodies, &[at], &vec![at; PIECE_BYTES / 2]);
        }
        batch.put(Keyspace::Bodies, &[9], &vec![9; 2 * PIECE_BYTES]);
        let sizes: Vec<(Sql, usize)> =
            pieces(&[(1, &batch)]).iter().map(|piece| (piece.sql, piece.keys.len())).collect();
        let (bodies, local) = (Sql::Write(Keyspace::Bodies, Kind::Put), Sql::Write(Keyspace::Local, Kind::Delete));
        let mut wanted = vec![(bodies, 1); 6];
        wanted.extend([(local, PIECE_ROWS), (local, 1)]);
        assert_eq!(sizes, wanted);
    }
}
