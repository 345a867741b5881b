//! Tables: made, found, refused; and one server at a time.

use settee_storage::{Durability, Engine, Shard, StorageError, Version};
use settee_storage_postgres::{OpenError, PostgresEngine, Tables, VERSION, init};

use crate::{numbered, open, options, server, step, steps, token};

fn refused(url: &str) -> String {
    PostgresEngine::open(&options(url), [1; 16]).expect_err("it cannot be opened").to_string()
}

#[test]
fn tables_are_made_once() {
    let Some(server) = server() else { return };
    let url = server.url();
    assert_eq!(init(&options(&url), None), Ok(Tables::Made));
    assert_eq!(init(&options(&url), None), Ok(Tables::Found));
    let engine = open(&url);
    step(&engine, Shard(1), 0, Durability::Synced);
    assert_eq!(init(&options(&url), None), Ok(Tables::Found), "beside a server");
    assert_eq!(steps(&engine, Shard(1)), 1);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let Some(server) = server() else { return };
    server.run("CREATE SCHEMA foreign1; CREATE TABLE foreign1.mine (a int); CREATE SCHEMA empty1");
    let text = refused(&server.url_as("settee", "postgres", "foreign1"));
    assert!(text.contains("schema foreign1 holds tables that are not Settee's"), "{text}");
    assert_eq!(server.run("SELECT count(*) FROM pg_class WHERE relnamespace = 'foreign1'::regnamespace"), "1");
    // A schema without tables may have been made by an administrator.
    assert_eq!(init(&options(&server.url_as("settee", "postgres", "empty1")), None), Ok(Tables::Made));
}

#[test]
fn tables_of_other_versions_are_refused() {
    let Some(server) = server() else { return };
    let url = server.url();
    init(&options(&url), None).unwrap();
    let schema = url.rsplit('=').next().unwrap();
    server.run(&format!("UPDATE {schema}.settee_schema SET version = {}, made_by = 'Settee 9.1'", VERSION + 1));
    let text = refused(&url);
    assert!(text.contains(&format!("version {}, made by Settee 9.1", VERSION + 1)), "{text}");
}

#[test]
fn later_layouts_are_refused() {
    let Some(server) = server() else { return };
    let url = server.url();
    for (layout, later) in [(1, None), (3, None), (2, Some(3)), (3, None)] {
        let opened = PostgresEngine::open(&options(&url).with_layout(layout), [1; 16]).map(drop);
        let wanted = later.map_or(Ok(()), |found| Err(OpenError::LaterLayout { found, known: i64::from(layout) }));
        assert_eq!(opened, wanted, "layout {layout}");
    }
}

#[test]
fn missing_rights_are_told_with_what_helps() {
    let Some(server) = server() else { return };
    server.run("CREATE ROLE poor LOGIN; CREATE ROLE locked NOLOGIN");
    let text = refused(&server.url_as("poor", "postgres", "of_poor"));
    assert!(text.contains("permission denied") && text.contains("settee storage init URL --owner ROLE"), "{text}");
    let text = refused(&server.url_as("locked", "postgres", "of_poor"));
    assert!(text.contains("not permitted to log in"), "{text}");
    let text = refused(&server.url_as("settee", "nowhere", "of_poor"));
    assert!(text.contains("database \"nowhere\" does not exist"), "{text}");
    // An administrator makes the tables for the role, which needs no right but to log in.
    let made = init(&options(&server.url_as("settee", "postgres", "of_poor")), Some("poor"));
    assert_eq!(made, Ok(Tables::Made));
    let engine = open(&server.url_as("poor", "postgres", "of_poor"));
    step(&engine, Shard(1), 0, Durability::Synced);
    engine.sync().unwrap();
    // Tables of somebody else.
    init(&options(&server.url_as("settee", "postgres", "of_rich")), None).unwrap();
    let text = refused(&server.url_as("poor", "postgres", "of_rich"));
    assert!(text.contains("permission denied"), "{text}");
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let error = PostgresEngine::open(&options("postgres://settee@%2Fnowhere/settee"), [1; 16]).unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("database settee on /nowhere"), "{error}");
}

#[test]
fn one_server_uses_a_database() {
    let Some(server) = server() else { return };
    let url = server.url();
    let first = open(&url);
    step(&first, Shard(1), 0, Durability::Synced);
    let error = PostgresEngine::open(&options(&url), [2; 16]).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("another Settee uses this database"), "{error}");
    step(&first, Shard(1), 1, Durability::Synced);
    drop(first);
    assert_eq!(steps(&open(&url), Shard(1)), 2);
}

/// Whoever lost the lock without noticing cannot commit once another server has it.
#[test]
fn commits_of_a_former_server_are_refused() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = url.rsplit('=').next().unwrap();
    let first = open(&url);
    step(&first, Shard(1), 0, Durability::Synced);
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND (classid::bigint << 32 | objid::bigint) = hashtextextended('settee {schema}', 0)"
    );
    assert_eq!(server.run(&end), "t");
    let second = PostgresEngine::open(&options(&url), [2; 16]).unwrap();
    let refused = first.commit(Shard(1), Version(1), token(2), numbered(2), Durability::Synced).unwrap_err();
    assert!(matches!(refused, StorageError::Poisoned(_)), "{refused}");
    assert!(matches!(first.drop_shard(Shard(1)), Err(StorageError::Poisoned(_))));
    assert!(matches!(first.check(), Err(StorageError::Poisoned(_))), "and it says so from then on");
    step(&second, Shard(1), 1, Durability::Synced);
    assert_eq!(steps(&second, Shard(1)), 2);
}
