//! [`StatementShape`]: the kinds of writes of small commits, which determine their single statement. Each statement
//! costs a response of PostgreSQL and a wait in this process, more than writing a few rows. A commit of a document
//! needs six; combined into one, it is a transaction by itself, alone or with commits to other shards. All parts of a
//! statement see the state at its start. A writer that expects a version has seen it committed, so its entries are
//! visible, and the fence detects later commits.

use settee_storage::Keyspace;

use crate::fence::{self, FENCE_PARAMETERS};
use crate::sql::{Kind, Sql, write};

const SWEEP: u32 = 1 << 31;

const _: () = assert!(Keyspace::ALL.len() * Kind::ALL.len() <= SWEEP.trailing_zeros() as usize);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StatementShape(u32);

impl StatementShape {
    /// The statements must be in the order of [`Keyspace::ALL`] and [`Kind::ALL`]. `None` if one occurs twice.
    pub(crate) fn of(statements: impl Iterator<Item = Sql>) -> Option<Self> {
        let mut shape = Self::default();
        for statement in statements {
            let Sql::Write(space, kind) = statement else { return None };
            let bit = bit(space, kind);
            if shape.0 >= bit {
                return None;
            }
            shape.0 |= bit;
        }
        Some(shape)
    }

    pub(crate) fn sweeping(self) -> Self {
        Self(self.0 | SWEEP)
    }

    /// Every write has the fences in its `FROM`, so a commit that fails its fence writes nothing. Shards are locked in
    /// their order, which prevents deadlocks.
    pub(crate) fn text(self) -> String {
        let mut text = format!(
            "WITH made AS ({} RETURNING true), fences AS MATERIALIZED (SELECT FROM made HAVING count(*) > 0)",
            fence::fences()
        );
        if self.0 & SWEEP != 0 {
            text += &format!(", swept AS ({})", fence::sweep("fences, "));
        }
        let mut parameter = FENCE_PARAMETERS + 1;
        let writes = Keyspace::ALL.into_iter().flat_map(|space| Kind::ALL.map(|kind| (space, kind)));
        for (index, (space, kind)) in writes.filter(|(space, kind)| self.0 & bit(*space, *kind) != 0).enumerate() {
            text += &format!(", write_{index} AS ({})", write((space, kind), "fences, ", parameter));
            parameter += if kind == Kind::Delete { 2 } else { 3 };
        }
        text + " SELECT FROM fences"
    }
}

fn bit(space: Keyspace, kind: Kind) -> u32 {
    1 << (space as usize * Kind::ALL.len() + kind as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_requires_ordered_distinct_statements() {
        let (of_bodies, of_local) =
            (|kind| Sql::Write(Keyspace::Bodies, kind), |kind| Sql::Write(Keyspace::Local, kind));
        let all = [of_bodies(Kind::Delete), of_bodies(Kind::Insert), of_local(Kind::Put)];
        let shape = StatementShape::of(all.into_iter()).expect("they are in order");
        assert_eq!(shape.0.count_ones(), 3);
        assert_eq!(StatementShape::of([].into_iter()), Some(StatementShape(0)));
        for wrong in [[all[0], all[0]], [all[1], all[0]], [all[2], all[1]], [all[0], Sql::Fence]] {
            assert_eq!(StatementShape::of(wrong.into_iter()), None, "{wrong:?}");
        }
    }

    #[test]
    fn parameters_are_numbered_in_the_order_of_pieces() {
        let writes = [
            Sql::Write(Keyspace::Sequence, Kind::Delete),
            Sql::Write(Keyspace::Sequence, Kind::Insert),
            Sql::Write(Keyspace::Bodies, Kind::Put),
        ];
        let text = StatementShape::of(writes.into_iter()).expect("they are in order").text();
        for part in [
            "unnest($8::bigint[], $9::bytea[]) AS gone",
            "unnest($10::bigint[], $11::bytea[], $12::bytea[])",
            "unnest($13::bigint[], $14::bytea[], $15::bytea[])",
        ] {
            assert_eq!(text.matches(&format!("FROM fences, {part}")).count(), 1, "{text}");
        }
    }
}
