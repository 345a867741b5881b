//! [`WriteFailure`]: the reason why a reachable PostgreSQL rejects writes: a missing privilege, a full disk, or
//! read-only transactions. A rejected commit sets it, and a successful one clears it. A server whose health check fails
//! gets no writes, so a probe clears it as well, and detects missing privileges before a write does.

use std::sync::Arc;

use parking_lot::Mutex;
use settee_storage::{Keyspace, Outcome, Result, StorageError};

use crate::error::Failure;
use crate::pool::Pool;
use crate::sql::table;

/// A full disk still has space for small rows in existing pages.
const PROBE_BYTES: usize = 256 << 10;

/// No engine uses the shard of the probe, which is rolled back.
const PROBE_SHARD: i64 = -1;

/// The last rejection, until a write succeeds.
#[derive(Debug, Default)]
pub(crate) struct WriteFailure(Mutex<Option<StorageError>>);

impl WriteFailure {
    pub(crate) fn reason(&self) -> Option<StorageError> {
        self.0.lock().clone()
    }

    pub(crate) fn record(&self, outcome: &Result<Outcome>) {
        match outcome {
            Ok(Outcome::Committed(_)) => *self.0.lock() = None,
            Err(error @ (StorageError::Io(_) | StorageError::Full(_))) => *self.0.lock() = Some(error.clone()),
            Ok(Outcome::Conflict(_) | Outcome::Unknown) | Err(_) => {}
        }
    }

    /// Checks privileges, and probes a write after a rejection. A missing response changes nothing.
    pub(crate) async fn probe(&self, writers: &Arc<Pool>) {
        let has_failed = self.0.lock().is_some();
        let answer = match check_privileges(writers).await {
            Ok(()) if has_failed => probe_write(writers).await,
            answer => answer,
        };
        match answer {
            Ok(()) if has_failed => *self.0.lock() = None,
            Err(Failure::Permanent(error @ (StorageError::Io(_) | StorageError::Full(_)))) => {
                *self.0.lock() = Some(error);
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Fails if the role lacks a privilege that commits need.
async fn check_privileges(writers: &Arc<Pool>) -> Result<(), Failure> {
    const PRIVILEGES: &str = "SELECT coalesce(bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') \
         AND has_table_privilege(oid, 'DELETE') AND (relname = 'commits' OR has_table_privilege(oid, 'UPDATE'))), false)::text \
         FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') \
         AND (relname = 'commits' OR starts_with(relname::text, 'kv_'))";
    let leased = writers.acquire().await.map_err(Failure::Permanent)?;
    let answer = leased.link().client.simple_query(PRIVILEGES).await.map_err(Failure::from).inspect_err(|failure| {
        if matches!(failure, Failure::Lost(_)) {
            leased.set_broken();
        }
    })?;
    let may_write = answer.iter().any(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some("true"),
        _ => false,
    });
    let rejected = || StorageError::Io("PostgreSQL: the role may not write to the tables of the schema".to_owned());
    if may_write { Ok(()) } else { Err(Failure::Permanent(rejected())) }
}

async fn probe_write(writers: &Arc<Pool>) -> Result<(), Failure> {
    let leased = writers.acquire().await.map_err(Failure::Permanent)?;
    // The pool then rolls the transaction back.
    leased.set_in_transaction(true);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let value: String = (0..PROBE_BYTES / 8)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state ^ (state >> 29))
        })
        .collect();
    // Probes of several processes must not wait for each other.
    let version = std::process::id();
    let bodies = table(Keyspace::Bodies);
    let statements = format!(
        "BEGIN; INSERT INTO commits (shard, version, token, node) VALUES ({PROBE_SHARD}, {version}, '\\x00', 0); \
         INSERT INTO {bodies} (shard, key, value) VALUES ({PROBE_SHARD}, decode(to_hex({version}), 'escape'), '\\x{value}')"
    );
    leased.link().client.batch_execute(&statements).await.map_err(Failure::from).inspect_err(|failure| {
        if matches!(failure, Failure::Lost(_)) {
            leased.set_broken();
        }
    })
}
