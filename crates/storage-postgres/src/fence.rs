//! The fence of a commit: it is the next one of its shard, or fails, whoever else tries. [`fences`] are those of commits that are made together.
//!
//! Each commit inserts its version, which only one of several can. A version that is not the next one is none at all, which the table refuses
//! ([`NEXT`]), so whatever is in the same statement or transaction fails with it. Rows stay for longer than anybody is in doubt about a commit of
//! his; then [`sweep`] removes them.

/// The parameters of [`fences`]: shards, expected versions, tokens, heads, and the node. [`sweep`] has the first two.
pub(crate) const FENCE_PARAMETERS: usize = 5;
pub(crate) const SWEEP_PARAMETERS: usize = 2;

/// The parameters of what is presumed: shards, and the snapshot that has shown all commits to them.
pub(crate) const PREMISE_PARAMETERS: usize = 2;

/// The table and the column that has no value where a commit would not be the next one.
pub(crate) const NEXT: (&str, &str) = ("commits", "version");

/// Old rows are removed by one commit of so many to a shard.
const SWEPT_EVERY: i64 = 64;

/// Inserts the commits, unless `condition` is false.
pub(crate) fn fences(condition: &str) -> String {
    format!(
        "INSERT INTO commits (shard, version, token, head, node) \
         SELECT own.shard, CASE WHEN coalesce(last.version, 0) = own.version AND last.is_dropped IS NOT TRUE THEN own.version + 1 END, \
         own.token, coalesce(own.head, last.head), $5::bigint \
         FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) AS own(shard, version, token, head) \
         LEFT JOIN LATERAL (SELECT version, head, is_dropped FROM commits WHERE shard = own.shard ORDER BY version DESC LIMIT 1) AS last ON true \
         WHERE {condition}"
    )
}

/// Whether everything that is presumed is so, by parameters from number `first` on. The last commit of a shard tells: who sees that one sees all before it.
pub(crate) fn premise(first: usize) -> String {
    let shown = first + 1;
    format!(
        "NOT EXISTS (SELECT FROM unnest(${first}::bigint[]) AS presumed(shard), \
         LATERAL (SELECT xid FROM commits WHERE shard = presumed.shard ORDER BY version DESC LIMIT 1) AS last \
         WHERE NOT pg_visible_in_snapshot(last.xid, ${shown}::text::pg_snapshot))"
    )
}

/// Removes old rows of the shards whose turn it is, once for the row of each of the tables that go `before`.
pub(crate) fn sweep(before: &str) -> String {
    format!(
        "DELETE FROM commits WHERE ctid = ANY (ARRAY (SELECT old.place \
         FROM {before}unnest($1::bigint[], $2::bigint[]) AS own(shard, version), \
         LATERAL (SELECT place FROM (SELECT ctid AS place, at FROM commits \
         WHERE shard = own.shard AND version < own.version - {SWEPT_EVERY} ORDER BY version LIMIT {}) AS first \
         WHERE at < now() - interval '2 minutes') AS old \
         WHERE own.version % {SWEPT_EVERY} = {}))",
        4 * SWEPT_EVERY,
        SWEPT_EVERY - 1
    )
}

/// Whether it is the turn of a commit that expects this version to [`sweep`].
pub(crate) fn is_sweeping(expected: i64) -> bool {
    expected % SWEPT_EVERY == SWEPT_EVERY - 1
}
