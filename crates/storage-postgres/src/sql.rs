//! [`Sql`]: the statements of normal operation. Each is prepared once per connection and concerns one shard or none;
//! only small commits to several shards may share a statement. A planner that considers a table small, as it does with
//! every new one, joins keys with *all* entries of a shard, or compares each of these with a list. `OFFSET 0` forces a
//! lookup of each key; a test counts the rows read.

use settee_storage::{Direction, Keyspace};

use crate::fence::{fences, sweep};
use crate::nodes_sql::NodesSql;
use crate::statement_shape::StatementShape;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sql {
    State,
    Token,
    Get(Keyspace),
    MultiGet(Keyspace),
    Page(Keyspace, Direction, PageEnd),
    /// Fails if the commit is not the next one of its shard.
    Fence,
    Sweep,
    Restore,
    Write(Keyspace, Kind),
    /// Makes commits with all their writes, or fails.
    Commit(StatementShape),
    Drop,
    Size,
    Nodes(NodesSql),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Delete,
    Put,
    Insert,
}

impl Kind {
    /// In the order in which commits execute them.
    pub(crate) const ALL: [Self; 3] = [Self::Delete, Self::Put, Self::Insert];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageEnd {
    Key,
    Open,
}

impl Sql {
    pub(crate) fn text(self) -> String {
        match self {
            Self::State => {
                "SELECT version, token, head, is_dropped FROM commits WHERE shard = $1 ORDER BY version DESC LIMIT 1"
                    .into()
            }
            Self::Token => "SELECT token FROM commits WHERE shard = $1 AND version = $2".into(),
            Self::Get(space) => format!("SELECT value FROM {} WHERE shard = $1 AND key = $2", table(space)),
            Self::MultiGet(space) => format!(
                "SELECT wanted.place, found.value FROM unnest($2::bytea[]) WITH ORDINALITY AS wanted(key, place), \
                 LATERAL (SELECT value FROM {} WHERE shard = $1 AND key = wanted.key OFFSET 0) AS found",
                table(space)
            ),
            Self::Page(space, direction, end) => {
                let (bound, rows) = match end {
                    PageEnd::Key => (" AND key < $3", "$4"),
                    PageEnd::Open => ("", "$3"),
                };
                let order = match direction {
                    Direction::Forward => "ASC",
                    Direction::Backward => "DESC",
                };
                let table = table(space);
                format!(
                    "SELECT key, value FROM {table} WHERE shard = $1 AND key >= $2{bound} ORDER BY key {order} LIMIT {rows}"
                )
            }
            Self::Fence => fences(),
            Self::Sweep => sweep(""),
            Self::Restore => "WITH last AS (SELECT head, is_dropped FROM commits WHERE shard = $1 ORDER BY version DESC LIMIT 1), \
                 gone AS (DELETE FROM commits WHERE shard = $1 AND version <> $2 AND NOT EXISTS (SELECT FROM last WHERE is_dropped)) \
                 INSERT INTO commits (shard, version, token, head, node) \
                 SELECT $1::bigint, $2::bigint, $3::bytea, coalesce($4::bytea, (SELECT head FROM last)), 0 WHERE NOT EXISTS (SELECT FROM last WHERE is_dropped) \
                 ON CONFLICT (shard, version) DO UPDATE SET token = excluded.token, head = excluded.head, xid = excluded.xid"
                .into(),
            Self::Write(space, kind) => write((space, kind), "", 1),
            Self::Commit(shape) => shape.text(),
            Self::Drop => "SELECT settee_drop($1, $2)".into(),
            Self::Nodes(which) => which.text().into(),
            Self::Size => {
                // Overhead of a row: its header, its item in the page, and an index entry that repeats the key.
                let size = |space| {
                    format!(
                        "SELECT sum(pg_column_size(value) + 2 * pg_column_size(key) + 56) AS bytes FROM {} WHERE shard = $1",
                        table(space)
                    )
                };
                let sizes: Vec<String> = Keyspace::ALL.into_iter().map(size).collect();
                format!(
                    "SELECT coalesce(sum(bytes), 0)::bigint FROM ({}) AS sizes \
                     WHERE NOT EXISTS (SELECT FROM dropped WHERE shard = $1)",
                    sizes.join(" UNION ALL ")
                )
            }
        }
    }
}

/// Parameters from number `first` on are shards, keys and values. The statement has the tables `before` in its `FROM`.
pub(crate) fn write((space, kind): (Keyspace, Kind), before: &str, first: usize) -> String {
    let (table, second, third) = (table(space), first + 1, first + 2);
    let insert = || {
        format!(
            "INSERT INTO {table} (shard, key, value) SELECT added.shard, added.key, added.value \
             FROM {before}unnest(${first}::bigint[], ${second}::bytea[], ${third}::bytea[]) AS added(shard, key, value)"
        )
    };
    match kind {
        Kind::Delete => format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT found.place \
             FROM {before}unnest(${first}::bigint[], ${second}::bytea[]) AS gone(shard, key), \
             LATERAL (SELECT ctid AS place FROM {table} WHERE shard = gone.shard AND key = gone.key OFFSET 0) AS found))"
        ),
        Kind::Put => format!("{} ON CONFLICT (shard, key) DO UPDATE SET value = excluded.value", insert()),
        Kind::Insert => insert(),
    }
}

pub(crate) fn table(space: Keyspace) -> String {
    format!("kv_{}", space.name())
}
