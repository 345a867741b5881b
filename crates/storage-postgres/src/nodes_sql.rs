//! [`NodesSql`]: the statements of membership. Heartbeats are compared with the clock of the database at the time of
//! the statement, because a statement may wait for a row.

/// A node `other` is alive if its heartbeat is very recent, or if it is connected and its heartbeat has not expired.
macro_rules! is_alive {
    () => {
        "(other.heartbeat > statement_timestamp() - interval '5 seconds' \
         AND (other.heartbeat > statement_timestamp() - interval '1500 milliseconds' OR EXISTS (\
         SELECT FROM pg_stat_activity WHERE application_name = 'settee node ' || encode(other.id, 'hex'))))"
    };
}

/// Transactions of the connections with which nodes commit, also of nodes that have left.
macro_rules! earlier_commits {
    () => {
        "FROM pg_stat_activity JOIN nodes AS other ON application_name = 'settee writer ' || encode(other.id, 'hex') \
         WHERE xact_start < $1::text::timestamptz"
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodesSql {
    /// Reads the commits of others since a snapshot, and the new snapshot.
    CommitsSince,
    Notify,
    Register,
    /// Sends a heartbeat, and reads those of all nodes, their writer leases, and the start time of the server.
    Heartbeat,
    Announce,
    Leave,
    /// True if a node exists that may have claims.
    IsAlive,
    Claim,
    IsHeld,
    EarlierCommits,
    EndEarlierCommits,
    Release,
    ReleaseAll,
    SweepNodes,
    SweepClaims,
}

impl NodesSql {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            // All transactions that the earlier snapshot did not show: those that started after it, and those that were
            // running in it.
            Self::CommitsSince => {
                "SELECT NULL::bigint, NULL::bigint, pg_current_snapshot()::text \
                 UNION ALL SELECT shard, max(version), NULL FROM (\
                 SELECT shard, version FROM commits \
                 WHERE xid >= pg_snapshot_xmax($1::text::pg_snapshot) AND node <> $2 \
                 UNION ALL SELECT shard, version FROM commits \
                 WHERE xid = ANY (ARRAY (SELECT pg_snapshot_xip($1::text::pg_snapshot))) AND node <> $2\
                 ) AS news GROUP BY shard"
            }
            Self::Notify => "SELECT pg_notify($1, $2)",
            Self::Register => {
                "INSERT INTO nodes (id, name, address) VALUES ($1, $2, $3) \
                 ON CONFLICT (id) DO UPDATE SET heartbeat = clock_timestamp()"
            }
            Self::Heartbeat => {
                "WITH beat AS (\
                 UPDATE nodes SET heartbeat = clock_timestamp() \
                 FROM (SELECT heartbeat AS before FROM nodes WHERE id = $1) AS last \
                 WHERE id = $1 RETURNING extract(epoch FROM heartbeat - before)::float8 AS gap\
                 ) SELECT id, name, address, (extract(epoch FROM started) * 1000)::bigint, \
                 extract(epoch FROM clock_timestamp() - heartbeat)::float8, (SELECT gap FROM beat), \
                 pg_postmaster_start_time()::text, (SELECT string_agg(key || ' ' || epoch, ',') FROM claims \
                 WHERE node = nodes.id AND starts_with(key, 'writer/')) FROM nodes"
            }
            Self::Announce => {
                concat!(
                    "UPDATE nodes SET name = $2, address = $3 WHERE id = $1 AND NOT EXISTS (\
                     SELECT FROM nodes AS other WHERE other.id <> $1 AND other.name = $2 AND ",
                    is_alive!(),
                    ")"
                )
            }
            // The row remains, because a commit of the node may still be in progress.
            Self::Leave => {
                "UPDATE nodes SET heartbeat = heartbeat - interval '1 minute', name = NULL, address = NULL WHERE id = $1"
            }
            Self::IsAlive => {
                concat!("SELECT EXISTS (SELECT FROM nodes AS other WHERE other.id = $1 AND ", is_alive!(), ")")
            }
            // The read before avoids writing the row while a live node holds the claim.
            Self::Claim => {
                concat!(
                    "INSERT INTO claims AS held (key, node, epoch) \
                     SELECT $1::text, id, nextval('claim_epochs') FROM nodes \
                     WHERE id = $2 AND heartbeat > statement_timestamp() - interval '4 seconds' AND NOT EXISTS (\
                     SELECT FROM claims AS known JOIN nodes AS other ON other.id = known.node WHERE known.key = $1 \
                     AND other.id <> $2 AND ",
                    is_alive!(),
                    ") ON CONFLICT (key) DO UPDATE SET node = excluded.node, since = now(), \
                     epoch = nextval('claim_epochs') \
                     WHERE held.node IS NULL OR held.node = excluded.node OR (\
                     $3::text = pg_postmaster_start_time()::text AND NOT EXISTS (\
                     SELECT FROM nodes AS other WHERE other.id = held.node AND ",
                    is_alive!(),
                    ")) RETURNING epoch"
                )
            }
            Self::IsHeld => "SELECT EXISTS (SELECT FROM claims WHERE key = $1 AND epoch = $2 AND node IS NOT NULL)",
            Self::EarlierCommits => concat!("SELECT count(*) ", earlier_commits!()),
            Self::EndEarlierCommits => concat!("SELECT count(pg_terminate_backend(pid)) ", earlier_commits!()),
            Self::Release => "UPDATE claims SET node = NULL, since = now() WHERE key = $1 AND node = $2 AND epoch = $3",
            Self::ReleaseAll => "UPDATE claims SET node = NULL, since = now() WHERE node = $1",
            Self::SweepNodes => "DELETE FROM nodes WHERE heartbeat < clock_timestamp() - interval '10 minutes'",
            Self::SweepClaims => {
                "DELETE FROM claims WHERE since < now() - interval '1 hour' \
                 AND NOT EXISTS (SELECT FROM nodes WHERE id = claims.node)"
            }
        }
    }
}
