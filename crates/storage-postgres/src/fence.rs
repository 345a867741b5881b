//! The fence of a commit: the commit gets the next version of its shard, or fails, regardless of concurrent commits.
//! [`fences`] are those of batched commits.
//!
//! Each commit inserts its version, and the primary key admits each version once. If the version is not the next one,
//! or the claim of the commit is not current, the inserted value is NULL, which the table rejects ([`NEXT_VERSION`]),
//! so the whole statement or transaction fails. Rows are kept for longer than the outcome of a commit can be in doubt;
//! then [`sweep`] removes them.
//!
//! A statement that has started before a claim changes hands may be applied after it. [`Members::fence`] waits for it.
//!
//! [`Members::fence`]: settee_storage::Members::fence

/// Parameters of [`fences`]: shards, expected versions, tokens, heads, the node, and the keys and epochs of the claims
/// on which the commits depend. [`sweep`] has the first two.
pub(crate) const FENCE_PARAMETERS: usize = 7;
pub(crate) const SWEEP_PARAMETERS: usize = 2;

/// The table and the column that is NULL for a commit that would not be the next one, or whose claim is lost.
pub(crate) const NEXT_VERSION: (&str, &str) = ("commits", "version");

/// One of this many commits to a shard removes old rows.
const SWEEP_EVERY: i64 = 64;

pub(crate) fn fences() -> String {
    // An epoch belongs to one holder, and a released claim has none.
    "INSERT INTO commits (shard, version, token, head, node) \
     SELECT own.shard, CASE WHEN coalesce(last.version, 0) = own.version AND last.is_dropped IS NOT TRUE \
     AND NOT EXISTS (SELECT FROM unnest($6::text[], $7::bigint[]) AS lease(key, epoch) WHERE NOT EXISTS (\
     SELECT FROM claims WHERE key = lease.key AND epoch = lease.epoch AND node IS NOT NULL)) THEN own.version + 1 END, \
     own.token, coalesce(own.head, last.head), $5::bigint \
     FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) AS own(shard, version, token, head) \
     LEFT JOIN LATERAL (SELECT version, head, is_dropped FROM commits WHERE shard = own.shard ORDER BY version DESC LIMIT 1) AS last ON true"
        .to_owned()
}

/// Returns the statement that removes old rows of the shards that are due, with the tables `before` in its `FROM`.
pub(crate) fn sweep(before: &str) -> String {
    format!(
        "DELETE FROM commits WHERE ctid = ANY (ARRAY (SELECT old.place \
         FROM {before}unnest($1::bigint[], $2::bigint[]) AS own(shard, version), \
         LATERAL (SELECT place FROM (SELECT ctid AS place, at FROM commits \
         WHERE shard = own.shard AND version < own.version - {SWEEP_EVERY} ORDER BY version LIMIT {}) AS first \
         WHERE at < now() - interval '2 minutes') AS old \
         WHERE own.version % {SWEEP_EVERY} = {}))",
        4 * SWEEP_EVERY,
        SWEEP_EVERY - 1
    )
}

pub(crate) fn is_sweeping(expected: i64) -> bool {
    expected % SWEEP_EVERY == SWEEP_EVERY - 1
}
