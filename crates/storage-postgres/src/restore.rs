//! [`restore`]: writes a part of a copy of a shard, with the version of the original. It is not retried when its
//! connection is lost, because the caller resumes the copy.

use std::sync::Arc;

use settee_storage::{Batch, Result, Shard, ShardState, StorageError};
use tokio_postgres::types::ToSql;

use crate::commit::execute;
use crate::error::Failure;
use crate::lease::number;
use crate::pieces::pieces;
use crate::pool::{Pool, PooledConnection};
use crate::sql::Sql;

pub(crate) async fn restore(pool: &Arc<Pool>, shard: Shard, state: ShardState, batch: &Batch) -> Result<()> {
    let leased = pool.acquire().await?;
    leased.set_in_transaction(true);
    match attempt(&leased, number(shard), state, batch).await {
        Ok(true) => {
            leased.set_in_transaction(false);
            Ok(())
        }
        Ok(false) => Err(StorageError::Dropped),
        Err(failure) => {
            if matches!(failure, Failure::Lost(_)) {
                leased.set_broken();
            }
            Err(failure.into_error())
        }
    }
}

async fn attempt(leased: &PooledConnection, shard: i64, state: ShardState, batch: &Batch) -> Result<bool, Failure> {
    let link = leased.link();
    link.client.batch_execute("BEGIN; SET LOCAL synchronous_commit TO off").await?;
    let statement = link.statement(Sql::Restore).await?;
    let version = i64::try_from(state.version.0).unwrap_or(i64::MAX);
    let token = state.token.0.to_be_bytes();
    let parameters: [&(dyn ToSql + Sync); 4] = [&shard, &version, &&token[..], &batch.head()];
    if link.client.execute(&statement, &parameters).await? == 0 {
        return Ok(false);
    }
    for piece in pieces(&[(shard, batch)]) {
        let statement = link.statement(piece.sql).await?;
        let parameters: Vec<_> = piece.parameters().collect();
        execute(link, &statement, &parameters).await?;
    }
    link.client.batch_execute("COMMIT").await?;
    Ok(true)
}
