//! Tests of copies that are interrupted anywhere and resumed, and of differences found by a comparison.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use settee_database::{Catalog, DatabaseOptions, DocUpdate, EditMode, Layout, Work};
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};
use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::memory::MemoryEngine;
use settee_storage::{Batch, CommitToken, Durability, Engine, Keyspace, Shard, StorageError};

use super::compare::compare;
use super::copy::{PIECE_ROWS, copy, finish, refuse_unfinished};

fn store() -> Arc<dyn Engine> {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let catalog = Catalog::open(Arc::clone(&engine), 1).unwrap();
    for (instance, (name, documents)) in (0_u64..).zip([("empty", 0), ("many", PIECE_ROWS + 10), ("one", 1)]) {
        let options = DatabaseOptions { created_ms: 1, instance, layout: Layout::Whole, q: 1 };
        let database = catalog.create(name, options).unwrap();
        let updates = (0..documents).map(|number| {
            let body = Json::parse(format!("{{\"number\":{number}}}").as_bytes()).unwrap();
            let document = Document { id: None, rev: None, deleted: false, body, attachments: None, revisions: None };
            let (id, mode) = (format!("{number:06}"), EditMode::Interactive);
            DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap()
        });
        database.update(Work::Documents(updates.collect())).unwrap();
    }
    engine
}

fn commit(engine: &dyn Engine, shard: Shard, change: impl FnOnce(&mut Batch)) {
    let version = engine.snapshot(shard).unwrap().state().unwrap().version;
    let mut batch = Batch::new();
    change(&mut batch);
    let _ = engine.commit(shard, version, CommitToken(99), batch, Durability::Synced).unwrap();
}

#[test]
fn a_copy_resumes_after_an_interruption_at_any_point() {
    let from = store();
    let mut place = 0;
    loop {
        place += 1;
        let to = FaultyEngine::new();
        let fault = match place % 2 {
            0 => WriteFault::LoseAnswer,
            _ => WriteFault::Fail(StorageError::Io("the process was killed".to_owned())),
        };
        to.inject_write(place, fault);
        if copy(from.as_ref(), &to, false).is_ok() {
            break;
        }
        let is_started = refuse_unfinished(&to).is_err();
        if is_started {
            let again = copy(from.as_ref(), &to, false).unwrap_err().to_string();
            assert!(again.contains("--resume continues it"), "{again}");
        }
        copy(from.as_ref(), &to, is_started).unwrap_or_else(|error| panic!("place {place}: {error:#}"));
        let compared = compare(from.as_ref(), &to).unwrap();
        assert!(compared.is_same(), "place {place}: {}", compared.text("one", "other"));
        refuse_unfinished(&to).unwrap_err();
        finish(&to).unwrap();
        refuse_unfinished(&to).unwrap();
        let catalog = Catalog::open(Arc::new(to), 2).unwrap();
        assert_eq!(catalog.names().unwrap(), ["empty", "many", "one"]);
    }
    assert!(place > 12, "only {place} writes were tried");
}

#[test]
fn a_copy_requires_an_empty_target_and_an_idle_source() {
    let (from, to) = (store(), store());
    let printed_text = |answer: anyhow::Result<_>| answer.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(printed_text(copy(from.as_ref(), to.as_ref(), false)).contains("the target contains data"));
    assert!(printed_text(copy(from.as_ref(), to.as_ref(), true)).contains("no unfinished copy"));
    let to = FaultyEngine::new();
    to.inject_write(8, WriteFault::LoseRequest);
    copy(from.as_ref(), &to, false).unwrap_err();
    commit(from.as_ref(), Shard(1), |_| {});
    commit(from.as_ref(), Shard(2), |_| {});
    let error = printed_text(copy(from.as_ref(), &to, true));
    assert!(error.contains("was written to since the copy started"), "{error}");
    assert!(
        printed_text(copy(&to, &MemoryEngine::new(), false)).contains("unfinished copy"),
        "a part of a copy is not copied"
    );
}

#[test]
fn a_comparison_finds_each_kind_of_difference() {
    type Change = fn(&mut Batch);
    let cases: [(Shard, Change, &[&str]); 6] = [
        (
            Shard(2),
            |batch| batch.delete(Keyspace::Documents, b"000003"),
            &["database many, documents 000003: is not in the copy"],
        ),
        (
            Shard(2),
            |batch| batch.put(Keyspace::Local, b"x\n", b"1"),
            &["database many, local x\\n: is in the copy only"],
        ),
        (
            Shard(3),
            |batch| batch.put(Keyspace::Documents, b"000000", b"1"),
            &["database one, documents 000000: differs"],
        ),
        (Shard(1), |batch| batch.set_head(b"1"), &["database empty: its last commit differs"]),
        (Shard(3), |_| {}, &["database one: its last commit differs"]),
        (
            Shard(0),
            |batch| batch.put(Keyspace::Catalog, b"zz", b"1"),
            &["the list of databases, catalog zz: is in the copy only"],
        ),
    ];
    let from = store();
    for (shard, change, wanted) in cases {
        let to = MemoryEngine::new();
        copy(from.as_ref(), &to, false).unwrap();
        commit(&to, shard, change);
        let compared = compare(from.as_ref(), &to).unwrap();
        let text = compared.text("one", "other");
        assert!(!compared.is_same() && text.starts_with("NOT the same: one and other; "), "{text}");
        for line in wanted {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
    let compared = compare(from.as_ref(), store().as_ref()).unwrap().text("one", "other");
    let begin = format!(
        "the same on both sides: 3 databases with {} documents, 0 attachments and 0 indexes, ",
        PIECE_ROWS + 11
    );
    assert!(compared.starts_with(&begin), "{compared}");
}
