//! The tables: creation, and checks of existing ones.

use settee_storage::{Keyspace, Shard};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use crate::OpenError;
use crate::error::{ConnectError, describe};
use crate::lease::number;
use crate::options::Options;

pub const VERSION: i32 = 2;

const SERVER_MIN: i32 = 130_000;

const UPGRADABLE_VERSION: i32 = 1;

const TABLES_SQL: &str = include_str!("schema.sql");
const NODES_SQL: &str = include_str!("nodes.sql");
const UPGRADE_SQL: &str = include_str!("upgrade.sql");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    Existing,
    Created,
    Upgraded,
}

pub(crate) async fn ensure_tables(
    client: &Client,
    options: &Options,
    owner: Option<&str>,
) -> Result<Tables, OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let number = client.query_one("SELECT current_setting('server_version_num')::int", &[]).await.map_err(convert)?;
    let number: i32 = number.try_get(0).map_err(convert)?;
    if number < SERVER_MIN {
        return Err(OpenError::OldServer { found: number / 10_000, required: SERVER_MIN / 10_000 });
    }
    let mut tables = Tables::Existing;
    if is_missing(client, options).await? {
        create_tables(client, options, owner).await?;
        tables = Tables::Created;
    } else if version(client, options).await?.0 == UPGRADABLE_VERSION {
        upgrade(client, options).await?;
        tables = Tables::Upgraded;
    }
    check(client, options).await?;
    Ok(tables)
}

/// Returns true if the schema is empty. Fails if it contains other tables.
async fn is_missing(client: &Client, options: &Options) -> Result<bool, OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let row = client
        .query_one(
            "SELECT count(*) FILTER (WHERE relname = 'settee_schema'), count(*) \
             FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1",
            &[&options.schema],
        )
        .await
        .map_err(convert)?;
    let (own, all): (i64, i64) = (row.try_get(0).map_err(convert)?, row.try_get(1).map_err(convert)?);
    match (own, all) {
        (0, 0) => Ok(true),
        (0, _) => Err(OpenError::ForeignSchema(options.schema.clone())),
        _ => Ok(false),
    }
}

async fn check(client: &Client, options: &Options) -> Result<(), OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let schema = &options.schema;
    let (found, made_by) = version(client, options).await?;
    if found != VERSION {
        return Err(OpenError::OtherVersion { found, made_by, supported: VERSION });
    }
    let row =
        client.query_one(&format!("SELECT max(layout) FROM {schema}.settee_schema"), &[]).await.map_err(convert)?;
    let layout: i64 = row.try_get(0).map_err(convert)?;
    if layout > options.layout {
        return Err(OpenError::LaterLayout { found: layout, supported: options.layout });
    }
    Ok(())
}

async fn version(client: &Client, options: &Options) -> Result<(i32, String), OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let schema = &options.schema;
    let row = client
        .query_opt(&format!("SELECT version, made_by FROM {schema}.settee_schema"), &[])
        .await
        .map_err(convert)?;
    let Some(row) = row else { return Err(OpenError::ForeignSchema(schema.clone())) };
    Ok((row.try_get(0).map_err(convert)?, row.try_get(1).map_err(convert)?))
}

/// Upgrades the tables of an earlier version in place. One of several concurrent upgrades does the work.
async fn upgrade(client: &Client, options: &Options) -> Result<(), OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let schema = &options.schema;
    client.batch_execute("BEGIN").await.map_err(convert)?;
    let done = async {
        // A server of that version holds this lock, and does not support several processes.
        let name = format!("settee {schema}");
        let lock = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)), \
             (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = ($2::text || '.settee_schema')::regclass)";
        // Concurrent upgrades wait here, and then find the new version.
        client
            .batch_execute(&format!("LOCK TABLE {schema}.settee_schema IN ACCESS EXCLUSIVE MODE"))
            .await
            .map_err(convert)?;
        if version(client, options).await?.0 != UPGRADABLE_VERSION {
            return Ok(());
        }
        let row = client.query_one(lock, &[&name, schema]).await.map_err(convert)?;
        let (is_free, owner): (bool, String) = (row.try_get(0).map_err(convert)?, row.try_get(1).map_err(convert)?);
        if !is_free {
            return Err(OpenError::EarlierServer(options.location()));
        }
        let statements = substituted(&[&format!("SET LOCAL ROLE {owner};\n"), UPGRADE_SQL, NODES_SQL], schema);
        client.batch_execute(&statements).await.map_err(convert)
    };
    let done: Result<(), OpenError> = done.await;
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await.map_err(convert);
    done.and(ended)
}

pub(crate) async fn record_layout(client: &Client, options: &Options) -> Result<(), OpenError> {
    let Options { schema, layout, .. } = options;
    let statement = format!("UPDATE {schema}.settee_schema SET layout = {layout} WHERE layout < {layout}");
    client.batch_execute(&statement).await.map_err(|error| open_error(&error, options))
}

pub(crate) async fn read_value(
    client: &Client,
    options: &Options,
    (shard, space, key): (Shard, Keyspace, &[u8]),
) -> Result<Option<Vec<u8>>, OpenError> {
    let convert = |error: Error| open_error(&error, options);
    if is_missing(client, options).await? {
        return Ok(None);
    }
    check(client, options).await?;
    let statement =
        format!("SELECT value FROM {}.{} WHERE shard = $1 AND key = $2", options.schema, crate::sql::table(space));
    let row = client.query_opt(&statement, &[&number(shard), &key]).await.map_err(convert)?;
    row.map(|row| row.try_get(0)).transpose().map_err(convert)
}

async fn create_tables(client: &Client, options: &Options, owner: Option<&str>) -> Result<(), OpenError> {
    let convert = |error: Error| open_error(&error, options);
    let row = client
        .query_one(
            "SELECT coalesce(bool_or('lz4' = ANY (enumvals)), false) FROM pg_settings WHERE name = 'default_toast_compression'",
            &[],
        )
        .await
        .map_err(convert)?;
    let has_lz4: bool = row.try_get(0).map_err(convert)?;
    let statements = statements(&options.schema, has_lz4, owner);
    if let Err(error) = client.batch_execute(&statements).await {
        // The connection ends soon, but only after the following statements.
        let _ = client.batch_execute("ROLLBACK").await;
        // Another server may have created the tables concurrently.
        return if is_missing(client, options).await.unwrap_or(true) { Err(convert(error)) } else { Ok(()) };
    }
    Ok(())
}

fn statements(schema: &str, has_lz4: bool, owner: Option<&str>) -> String {
    let mut statements = String::from("BEGIN;\n");
    if let Some(owner) = owner {
        let name = format!("\"{}\"", owner.replace('"', "\"\""));
        statements += &format!("CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {name};\nSET LOCAL ROLE {name};\n");
    } else {
        statements += &format!("CREATE SCHEMA IF NOT EXISTS {schema};\n");
    }
    statements += &substituted(&[TABLES_SQL, NODES_SQL], schema);
    for space in Keyspace::ALL {
        let table = crate::sql::table(space);
        // Updates in place are possible if a page has free space.
        let options = if space == Keyspace::Documents { " WITH (fillfactor = 85)" } else { "" };
        statements += &format!(
            "CREATE TABLE {table} (shard bigint NOT NULL, key bytea NOT NULL, value bytea NOT NULL, \
             PRIMARY KEY (shard, key)){options};\n"
        );
        if has_lz4 {
            // Takes a third of the time of the default method.
            statements += &format!("ALTER TABLE {table} ALTER COLUMN value SET COMPRESSION lz4;\n");
        }
    }
    statements + "COMMIT;\n"
}

fn substituted(texts: &[&str], schema: &str) -> String {
    let product = concat!("Settee ", env!("CARGO_PKG_VERSION"));
    let names = [("{schema}", schema), ("{version}", &VERSION.to_string()), ("{product}", product)];
    names.iter().fold(texts.concat(), |sql, (name, value)| sql.replace(name, value))
}

pub(crate) fn connect_error(error: &ConnectError, options: &Options) -> OpenError {
    match error {
        ConnectError::Failed(error) => open_error(error, options),
        ConnectError::Timeout(_) | ConnectError::Unresponsive => {
            OpenError::Unreachable { location: options.location(), reason: error.to_string() }
        }
    }
}

fn open_error(error: &Error, options: &Options) -> OpenError {
    let location = options.location();
    let reason = describe(error);
    let Some(code) = error.code() else { return OpenError::Unreachable { location, reason } };
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return OpenError::MissingPrivilege { location, reason };
    }
    let class = &code.code()[..2];
    match class {
        "28" | "3D" => OpenError::MissingPrivilege { location, reason },
        "08" | "53" | "57" => OpenError::Unreachable { location, reason },
        _ => OpenError::Failed { location, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        for (has_lz4, owner) in [(false, None), (true, Some("some \"body\""))] {
            let sql = statements("other", has_lz4, owner);
            assert!(!sql.contains('{') && sql.starts_with("BEGIN;") && sql.ends_with("COMMIT;\n"), "{sql}");
            assert_eq!(sql.contains("lz4"), has_lz4);
            assert_eq!(sql.contains("SET LOCAL ROLE \"some \"\"body\"\"\";"), owner.is_some(), "{sql}");
            assert_eq!(sql.matches("CREATE TABLE kv_").count(), Keyspace::ALL.len());
        }
    }
}
