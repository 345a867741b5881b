//! Tables: creation, checks, upgrade, rejection.

use std::thread;

use settee_storage::{Durability, Engine, Keyspace, Shard};
use settee_storage_postgres::{OpenError, PostgresEngine, Tables, VERSION, init, read_value};

use super::nodes::until;
use crate::{id, open, options, schema_of, server, step, steps};

fn open_error(url: &str) -> String {
    PostgresEngine::open(&options(url), id()).expect_err("it cannot be opened").to_string()
}

#[test]
fn tables_are_created_once() {
    let Some(server) = server() else { return };
    let url = server.url();
    assert_eq!(init(&options(&url), None), Ok(Tables::Created));
    assert_eq!(init(&options(&url), None), Ok(Tables::Existing));
    let engine = open(&url);
    step(&engine, Shard(1), 0, Durability::Synced);
    assert_eq!(init(&options(&url), None), Ok(Tables::Existing), "while an engine is open");
    assert_eq!(steps(&engine, Shard(1)), 1);
}

/// A read without an engine creates nothing and leaves no trace in the membership.
#[test]
fn reading_a_value_has_no_side_effects() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let read = |key: u64| read_value(&options(&url), Shard(1), Keyspace::Bodies, &key.to_be_bytes());
    assert_eq!(read(1), Ok(None));
    assert_eq!(init(&options(&url), None), Ok(Tables::Created));
    assert_eq!(read(1), Ok(None));
    assert_eq!(server.run(&format!("SELECT count(*) FROM {schema}.nodes")), "0");
    let engine = open(&url);
    step(&engine, Shard(1), 0, Durability::Synced);
    assert_eq!([read(1), read(2)], [Ok(Some(vec![1])), Ok(None)]);
    server.run(&format!("UPDATE {schema}.settee_schema SET version = {}", VERSION + 1));
    assert!(matches!(read(1), Err(OpenError::OtherVersion { .. })));
}

#[test]
fn foreign_tables_are_not_modified() {
    let Some(server) = server() else { return };
    server.run("CREATE SCHEMA foreign1; CREATE TABLE foreign1.mine (a int); CREATE SCHEMA empty1");
    let text = open_error(&server.url_as("settee", "postgres", "foreign1"));
    assert!(text.contains("schema foreign1 contains tables of another program"), "{text}");
    assert_eq!(server.run("SELECT count(*) FROM pg_class WHERE relnamespace = 'foreign1'::regnamespace"), "1");
    // A schema without tables may have been created by an administrator.
    assert_eq!(init(&options(&server.url_as("settee", "postgres", "empty1")), None), Ok(Tables::Created));
}

#[test]
fn tables_of_other_versions_are_rejected() {
    let Some(server) = server() else { return };
    let url = server.url();
    init(&options(&url), None).unwrap();
    let schema = schema_of(&url);
    server.run(&format!("UPDATE {schema}.settee_schema SET version = {}, made_by = 'Settee 9.1'", VERSION + 1));
    let text = open_error(&url);
    assert!(text.contains(&format!("version {}, created by Settee 9.1", VERSION + 1)), "{text}");
}

#[test]
fn later_layouts_are_rejected() {
    let Some(server) = server() else { return };
    let url = server.url();
    for (layout, later) in [(1, None), (3, None), (2, Some(3)), (3, None)] {
        let opened = PostgresEngine::open(&options(&url).with_layout(layout), id()).map(drop);
        let wanted = later.map_or(Ok(()), |found| Err(OpenError::LaterLayout { found, supported: i64::from(layout) }));
        assert_eq!(opened, wanted, "layout {layout}");
    }
}

#[test]
fn missing_permissions_are_reported_with_a_remedy() {
    let Some(server) = server() else { return };
    server.run("CREATE ROLE poor LOGIN; CREATE ROLE locked NOLOGIN");
    let text = open_error(&server.url_as("poor", "postgres", "of_poor"));
    assert!(text.contains("permission denied") && text.contains("settee storage init URL --owner ROLE"), "{text}");
    let text = open_error(&server.url_as("locked", "postgres", "of_poor"));
    assert!(text.contains("not permitted to log in"), "{text}");
    let text = open_error(&server.url_as("settee", "nowhere", "of_poor"));
    assert!(text.contains("database \"nowhere\" does not exist"), "{text}");
    // An administrator creates the tables for the role, which needs no privilege except to log in.
    let made = init(&options(&server.url_as("settee", "postgres", "of_poor")), Some("poor"));
    assert_eq!(made, Ok(Tables::Created));
    let engine = open(&server.url_as("poor", "postgres", "of_poor"));
    step(&engine, Shard(1), 0, Durability::Synced);
    engine.sync().unwrap();
    // Tables of another role.
    init(&options(&server.url_as("settee", "postgres", "of_rich")), None).unwrap();
    let text = open_error(&server.url_as("poor", "postgres", "of_rich"));
    assert!(text.contains("permission denied"), "{text}");
}

#[test]
fn an_unreachable_server_is_reported() {
    let error = PostgresEngine::open(&options("postgres://settee@%2Fnowhere/settee"), id()).unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("database settee on /nowhere"), "{error}");
}

/// Tables of version 1 are upgraded with their contents, unless a server of that version uses them.
#[test]
fn earlier_tables_are_upgraded() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let engine = open(&url);
    for number in 0..5 {
        step(&engine, Shard(1), number, Durability::Synced);
    }
    drop(engine);
    server.run(&format!("SET search_path = {schema}; {DOWNGRADE}"));
    let lock = format!("SELECT pg_advisory_lock(hashtextextended('settee {schema}', 0)); SELECT pg_sleep(60)");
    let text = thread::scope(|scope| {
        // A server of that version holds the lock.
        scope.spawn(|| server.try_run(&lock));
        let holder = format!("FROM pg_stat_activity WHERE query LIKE '%settee {schema}''%' AND wait_event = 'PgSleep'");
        until("the lock is held", || server.run(&format!("SELECT count(*) {holder}")) == "1");
        let text = open_error(&url);
        server.run(&format!("SELECT pg_terminate_backend(pid) {holder}"));
        text
    });
    assert!(text.contains("a server of an earlier version uses these tables"), "{text}");
    let upgraded: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| init(&options(&url), None))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert!(upgraded.contains(&Tables::Upgraded), "{upgraded:?}");
    let engine = open(&url);
    assert_eq!(steps(&engine, Shard(1)), 5);
    step(&engine, Shard(1), 5, Durability::Synced);
    assert_eq!(init(&options(&url), None), Ok(Tables::Existing));
}

/// Replaces the objects of version 2 by those of version 1.
const DOWNGRADE: &str = "DROP TABLE nodes, claims; DROP SEQUENCE claim_epochs; \
     DROP FUNCTION settee_drop(bigint, bigint); \
     ALTER TABLE commits DROP COLUMN xid, DROP COLUMN node; \
     CREATE TABLE settee_owner (id bytea NOT NULL, since timestamptz NOT NULL DEFAULT now()); \
     CREATE FUNCTION settee_fence(bigint, bigint, bytea, bytea, bytea) RETURNS void LANGUAGE sql AS ''; \
     CREATE FUNCTION settee_drop(bigint, bytea) RETURNS void LANGUAGE sql AS ''; \
     UPDATE settee_schema SET version = 1";
