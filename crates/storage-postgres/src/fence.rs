//! The fence of a commit: the commit gets the next version of its shard, or fails, regardless of concurrent commits.
//! [`fences`] are those of joint commits.
//!
//! Each commit inserts its version, which only one of several can do. If the version is not the next one, the inserted
//! value is NULL, which the table rejects ([`NEXT_VERSION`]), so the whole statement or transaction fails. Rows are
//! kept for longer than the outcome of a commit can be in doubt; then [`sweep`] removes them.

/// Number of parameters of [`fences`]: shards, expected versions, tokens, heads, and the node. [`sweep`] has the first
/// two.
pub(crate) const FENCE_PARAMETERS: usize = 5;
pub(crate) const SWEEP_PARAMETERS: usize = 2;

/// Number of parameters of a read set: shards, and the snapshot that showed all commits to them.
pub(crate) const READ_SET_PARAMETERS: usize = 2;

/// The table and the column that is NULL for a commit that would not be the next one.
pub(crate) const NEXT_VERSION: (&str, &str) = ("commits", "version");

/// One of this many commits to a shard removes old rows.
const SWEPT_EVERY: i64 = 64;

/// Returns the statement that inserts the commits, unless `condition` is false.
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

/// Returns the condition that the read set is current, with parameters from number `first` on. The last commit of a
/// shard suffices: a snapshot that shows it shows all before it.
pub(crate) fn read_set(first: usize) -> String {
    let shown = first + 1;
    format!(
        "NOT EXISTS (SELECT FROM unnest(${first}::bigint[]) AS read_set(shard), \
         LATERAL (SELECT xid FROM commits WHERE shard = read_set.shard ORDER BY version DESC LIMIT 1) AS last \
         WHERE NOT pg_visible_in_snapshot(last.xid, ${shown}::text::pg_snapshot))"
    )
}

/// Returns the statement that removes old rows of the shards that are due, with the tables `before` in its `FROM`.
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

/// Returns true if a commit that expects this version is due to [`sweep`].
pub(crate) fn is_sweeping(expected: i64) -> bool {
    expected % SWEPT_EVERY == SWEPT_EVERY - 1
}
