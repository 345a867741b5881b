//! [`sweep`]: deletes the entries of dropped shards in the background, in pieces.

use std::sync::{Arc, Weak};
use std::time::Duration;

use settee_storage::Keyspace;
use tokio::sync::Notify;

use crate::error::Failure;
use crate::pool::Pool;
use crate::sql::table;

/// A piece takes some milliseconds.
const ROWS_PER_STATEMENT: i64 = 2_000;

/// Wait after an error, and between two checks for work without notification.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Deletes the entries of dropped shards, now and whenever `work` is notified.
pub(crate) async fn sweep(pool: Weak<Pool>, work: Arc<Notify>) {
    loop {
        loop {
            let Some(pool) = pool.upgrade() else { return };
            // A later run finds the work that is left after an error.
            if !matches!(sweep_batch(&pool).await, Ok(true)) {
                break;
            }
        }
        let _ = tokio::time::timeout(SWEEP_INTERVAL, work.notified()).await;
    }
}

async fn sweep_batch(pool: &Arc<Pool>) -> Result<bool, Failure> {
    let leased = pool.acquire().await.map_err(Failure::Permanent)?;
    let client = &leased.link().client;
    let answer = async {
        let Some(row) = client.query_opt("SELECT shard FROM dropped LIMIT 1", &[]).await? else { return Ok(false) };
        let shard: i64 = row.try_get(0)?;
        for space in Keyspace::ALL {
            let table = table(space);
            let statement = format!(
                "DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {table} WHERE shard = $1 ORDER BY key LIMIT $2))"
            );
            if client.execute(&statement, &[&shard, &ROWS_PER_STATEMENT]).await? > 0 {
                return Ok(true);
            }
        }
        client.execute("DELETE FROM dropped WHERE shard = $1", &[&shard]).await?;
        Ok(true)
    };
    let answer: Result<bool, tokio_postgres::Error> = answer.await;
    answer.map_err(|error| {
        let failure = Failure::from(error);
        if matches!(failure, Failure::Lost(_)) {
            leased.set_broken();
        }
        failure
    })
}
