//! A reachable server that rejects writes: health checks report the start and end of that state.

use settee_storage::{Durability, Engine, Outcome, Shard, StorageError, Version};
use settee_storage_postgres::init;

use crate::{numbered, open, options, schema_of, server, step, token};

/// Statements that make writes fail and succeed again, part of the reason, and true if the state is detected before a
/// write. `{S}` and `{R}` are the schema and the role.
const FAILURES: [(&str, &str, &str, bool); 5] = [
    (
        "REVOKE INSERT ON {S}.commits FROM {R}",
        "GRANT INSERT ON {S}.commits TO {R}",
        "may not write to the tables",
        true,
    ),
    (
        "REVOKE INSERT ON {S}.kv_bodies FROM {R}",
        "GRANT INSERT ON {S}.kv_bodies TO {R}",
        "may not write to the tables",
        true,
    ),
    (
        "REVOKE UPDATE ON {S}.kv_documents FROM {R}",
        "GRANT UPDATE ON {S}.kv_documents TO {R}",
        "may not write to the tables",
        true,
    ),
    ("REVOKE USAGE ON SCHEMA {S} FROM {R}", "GRANT USAGE ON SCHEMA {S} TO {R}", "may not write to the tables", true),
    (
        "CREATE FUNCTION {S}.full() RETURNS trigger LANGUAGE plpgsql AS \
         $$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$; \
         CREATE TRIGGER no_room BEFORE INSERT ON {S}.kv_bodies FOR EACH STATEMENT EXECUTE FUNCTION {S}.full()",
        "DROP TRIGGER no_room ON {S}.kv_bodies; DROP FUNCTION {S}.full()",
        "No space left on device",
        false,
    ),
];

#[test]
fn rejected_writes_are_reported_until_they_succeed() {
    let Some(server) = server() else { return };
    let role = "writer_of_few";
    server.run(&format!("CREATE ROLE {role} LOGIN"));
    let schema = schema_of(&server.url()).to_owned();
    assert!(init(&options(&server.url_as("settee", "postgres", &schema)), Some(role)).is_ok());
    // The owner keeps its privileges on the schema: another role has them by grants alone.
    server.run(&format!("ALTER SCHEMA {schema} OWNER TO settee; GRANT USAGE ON SCHEMA {schema} TO {role}"));
    let engine = open(&server.url_as(role, "postgres", &schema));
    step(&engine, Shard(1), 0, Durability::Synced);
    let run = |statements: &str| server.run(&statements.replace("{S}", &schema).replace("{R}", role));
    let mut version = 1;
    for (refuse, allow, reason, shows_before) in FAILURES {
        assert!(engine.maintain().is_ok() && engine.health().is_ok(), "{refuse}");
        run(refuse);
        assert_eq!(engine.maintain().is_err(), shows_before, "{refuse}");
        let made =
            engine.commit(Shard(1), Version(version), token(version + 1), numbered(version + 1), Durability::Synced);
        match made {
            // A commit that needs fewer privileges than others.
            Ok(outcome) => {
                assert!(refuse.contains("kv_documents") || refuse.contains("USAGE"), "{refuse}");
                assert_eq!(outcome, Outcome::Committed(Version(version + 1)));
                version += 1;
            }
            Err(error) => assert!(matches!(error, StorageError::Io(_) | StorageError::Full(_)), "{refuse}: {error}"),
        }
        for _ in 0..2 {
            let why = engine.maintain().expect_err(refuse).to_string();
            assert!(why.contains(reason), "{refuse}: {why}");
            assert_eq!(engine.health().map_err(|error| error.to_string()), Err(why));
        }
        // Each write is attempted all the same, because the state may be over.
        assert!(engine.check().is_ok());
        run(allow);
        assert!(engine.maintain().is_ok() && engine.health().is_ok(), "{allow}");
        step(&engine, Shard(1), version, Durability::Synced);
        version += 1;
    }
    // A successful write clears it as well.
    let (refuse, allow, ..) = FAILURES[4];
    run(refuse);
    let made = engine.commit(Shard(1), Version(version), token(9999), numbered(9999), Durability::Synced);
    assert!(made.is_err() && engine.health().is_err(), "{made:?}");
    run(allow);
    step(&engine, Shard(1), version, Durability::Synced);
    assert!(engine.health().is_ok());
    let left = server.run(&format!("SELECT count(*) FROM {schema}.commits WHERE shard < 0"));
    assert_eq!(left, "0", "a probe leaves nothing");
}
