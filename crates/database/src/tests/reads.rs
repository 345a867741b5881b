//! Revisions read together equal those read one by one.

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::{Rev, RevisionHasher};
use settee_storage::Engine;
use settee_storage::counting::CountingEngine;

use super::{Random, database, document, edit, new, save};
use crate::tasks::Tasks;
use crate::update::{Compression, NewAttachment, NewAttachments, Upload};
use crate::{
    Bodies, DOCUMENTS_TOGETHER, DatabaseError, Direction, DocUpdate, EditMode, IdRange, ReadView, Stored, Waiting,
};

#[test]
fn revisions_read_together_are_those_read_one_by_one() {
    let mut random = Random::new();
    let database = database();
    let mut all: Vec<(String, Rev)> = Vec::new();
    for number in 0..40 {
        let (id, body) = (format!("d{number}"), random.body(350));
        let rev = if random.one_in(3) {
            let mut upload = Upload::new(&database, Compression::None);
            upload.write(&random.bytes(200)).unwrap();
            let upload = upload.finish().unwrap();
            let attachment = NewAttachment::uploaded("a".to_owned(), "text/plain".to_owned(), None, upload);
            let list = NewAttachments::new(&database, vec![attachment]).unwrap();
            let mode = EditMode::Interactive;
            let (document, hasher) = (document(None, false, &body), &mut RevisionHasher::default());
            save(&database, DocUpdate::prepare_with(id.clone(), document, list, mode, hasher).unwrap())
        } else {
            save(&database, edit(&id, None, false, &body))
        };
        if random.one_in(4) {
            all.push((id.clone(), save(&database, edit(&id, Some(&rev), random.one_in(2), &random.body(350)))));
        }
        all.push((id, rev));
    }
    let old = database.read().unwrap();
    let stored: Vec<Stored> = (all.iter())
        .map(|(id, rev)| {
            let record = old.record(id).unwrap().unwrap();
            record.tree.node(record.tree.find(rev).unwrap()).value.unwrap()
        })
        .collect();
    database.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
    let mut gone = 0;
    for view in [old, database.read().unwrap()] {
        let mut together = Vec::new();
        view.revisions(&stored, |index, revision| {
            assert_eq!(index, together.len());
            let (id, rev) = &all[index];
            let text = revision.map(|revision| {
                let mut text = Vec::new();
                revision.write(&mut text, id, rev, stored[index].deleted, |out| out.extend_from_slice(b",\"x\":1"));
                text
            });
            gone += usize::from(text.is_none());
            together.push(text);
            ControlFlow::Continue(())
        })
        .unwrap();
        let alone = all.iter().zip(&stored).map(|((id, rev), stored)| {
            let mut text = Vec::new();
            let extra = |out: &mut Vec<u8>| out.extend_from_slice(b",\"x\":1");
            view.write_document(&mut text, id, rev, *stored, extra).unwrap().then_some(text)
        });
        assert_eq!(together, alone.collect::<Vec<_>>());
    }
    assert_eq!(gone, all.len() - 40, "replaced revisions");
}

#[test]
fn reading_together_ends_when_nothing_more_is_wanted() {
    let database = database();
    let ids: Vec<String> = (0..10).map(|number| format!("d{number}")).collect();
    for id in &ids {
        save(&database, edit(id, None, false, "{}"));
    }
    let view = database.read().unwrap();
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let stored: Vec<Stored> = view.heads(&names).unwrap().into_iter().map(|head| head.unwrap().stored).collect();
    let mut seen = 0;
    let each = |index, _| {
        seen = index + 1;
        if index == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    view.revisions(&stored, each).unwrap();
    assert_eq!(seen, 5);
}

#[test]
fn reading_ahead_equals_single_reads() {
    let mut random = Random::new();
    let engine = Arc::new(CountingEngine::new(super::engine()));
    let catalog = super::open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    let database = super::create(&catalog, "db");
    let ids: Vec<String> = (0..30).map(|number| format!("d{number}")).collect();
    for id in &ids {
        if random.one_in(5) {
            continue;
        }
        let first = save(&database, edit(id, None, false, &random.body(350)));
        if random.one_in(3) {
            save(&database, edit(id, Some(&first), random.one_in(2), &random.body(350)));
        }
        if random.one_in(3) {
            let other = super::rev(&format!("1-{:032x}", random.below(1 << 20)));
            save(&database, super::replicated(id, &[other], random.one_in(3), &random.body(30)));
        }
    }
    let text = |view: &ReadView<'_>, id: &str| {
        let record = view.record(id).unwrap()?;
        let texts = record.tree.leaves().map(|leaf| {
            let node = record.tree.node(leaf);
            let (stored, mut text) = (node.value.unwrap(), Vec::new());
            view.write_document(&mut text, id, &node.rev, stored, |_| {}).unwrap().then_some(text)
        });
        Some((view.head(id).unwrap().map(|head| head.rev), texts.collect::<Vec<_>>()))
    };
    for bodies in [Bodies::None, Bodies::Winners, Bodies::Leaves] {
        let (alone, ahead) = (database.read().unwrap(), database.read().unwrap());
        for together in ids.chunks(DOCUMENTS_TOGETHER) {
            let names: Vec<&str> = together.iter().map(String::as_str).collect();
            let before = engine.calls();
            ahead.read_ahead(&names, bodies).unwrap();
            assert!(engine.calls().since(before).reads <= 2, "records and bodies");
            for id in together.iter().chain(&ids[..2]) {
                assert_eq!(text(&ahead, id), text(&alone, id), "{id} with {bodies:?}");
            }
        }
    }
}

#[test]
fn documents_that_were_read_ahead_cost_no_calls() {
    let engine = Arc::new(CountingEngine::new(super::engine()));
    let catalog = super::open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    let database = super::create(&catalog, "db");
    for id in ["a", "b"] {
        save(&database, edit(id, None, false, r#"{"n":1}"#));
    }
    let view = database.read().unwrap();
    view.read_ahead(&["a", "b", "c"], Bodies::Winners).unwrap();
    let before = engine.calls();
    for id in ["b", "a"] {
        let head = view.head(id).unwrap().unwrap();
        let mut text = Vec::new();
        assert!(view.write_document(&mut text, id, &head.rev, head.stored, |_| {}).unwrap());
    }
    assert!(view.record("c").unwrap().is_none());
    assert_eq!(engine.calls(), before);
}

#[test]
fn derived_design_data_is_cached_until_a_design_document_changes() {
    let engine = Arc::new(CountingEngine::new(super::engine()));
    let catalog = super::open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    let database = super::create(&catalog, "db");
    let made = |name: &str, bytes: usize| {
        let before = engine.calls();
        let make = |view: &ReadView<'_>| Ok::<_, crate::DatabaseError>((super::ids(view), bytes));
        let ids = database.of_designs(name, Waiting::Allowed, make).unwrap();
        (ids.join(" "), engine.calls() != before)
    };
    let kept = |ids: &str| (ids.to_owned(), false);
    let read = |ids: &str| (ids.to_owned(), true);
    assert_eq!(made("a", 1), read(""));
    save(&database, edit("x", None, false, "{}"));
    assert_eq!(made("a", 1), kept(""), "only design documents count");
    let first = save(&database, edit("_design/d", None, false, "{}"));
    assert_eq!(made("a", 1), read("_design/d x"));
    assert_eq!((made("b", 1), made("a", 1)), (read("_design/d x"), kept("_design/d x")));
    save(&database, edit("_design/d", Some(&first), true, "{}"));
    assert_eq!((made("a", 1), made("b", 1)), (read("x"), read("x")));
    let length = |view: &ReadView<'_>| Ok::<_, crate::DatabaseError>((super::ids(view).len(), 1));
    assert_eq!(*database.of_designs("a", Waiting::Allowed, length).unwrap(), 1);
    assert_eq!((made("large", 3 << 20), made("large", 3 << 20)), (read("x"), read("x")));
    assert_eq!(made("a", 1), kept("x"));
    catalog.delete("db").unwrap();
    assert!(database.of_designs("a", Waiting::Allowed, length).is_err(), "a deleted database has none");
}

/// Regression test: each batch of such a request read and decoded the document again.
#[test]
fn a_long_document_is_read_once_however_often_it_is_named() {
    let engine = Arc::new(CountingEngine::new(super::engine()));
    let catalog = super::open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    let database = super::create(&catalog, "db");
    for hash in 0..30 {
        let rev = super::rev(&format!("1-{hash:032x}"));
        save(&database, super::replicated("long", &[rev], false, r#"{"a":1}"#));
    }
    save(&database, edit("short", None, false, "{}"));
    let view = database.read().unwrap();
    let record = view.record("long").unwrap().unwrap();
    for (ids, bodies, reads) in [
        (&["long"][..], Bodies::None, 0),
        (&["long"], Bodies::Winners, 1),
        (&["long", "short"], Bodies::None, 1),
        (&["long", "short"], Bodies::Leaves, 2),
    ] {
        let before = engine.calls();
        view.read_ahead(ids, bodies).unwrap();
        assert_eq!(engine.calls().since(before).reads, reads, "{ids:?} with {bodies:?}");
        let before = engine.calls();
        assert!(Arc::ptr_eq(&view.record("long").unwrap().unwrap(), &record));
        assert_eq!(view.head("long").unwrap().map(|head| head.rev), record.head().map(|head| head.rev));
        assert_eq!(engine.calls().since(before).reads, 0);
    }
}

#[test]
fn reads_for_a_client_are_cancelled_and_charged() {
    struct Budget(std::sync::Mutex<(usize, usize)>);
    impl crate::Memory for Budget {
        fn take(&self, bytes: usize) -> Option<crate::MemoryGrant> {
            let mut budget = self.0.lock().unwrap();
            budget.1 += bytes;
            (bytes <= budget.0).then(|| Box::new(()) as crate::MemoryGrant)
        }
    }
    let database = database();
    for number in 0..10 {
        save(&database, new(&format!("d{number}"), &format!("{{\"n\":{number}}}")));
    }
    let texts = |memory: Option<Arc<Budget>>| {
        let memory = memory.map(|memory| memory as Arc<dyn crate::Memory>);
        let view = database.read().unwrap().for_client(&crate::ReadClient { memory, ..Default::default() });
        let mut rows = view.all_docs(&IdRange::default(), Direction::Forward).unwrap();
        let mut out = Vec::new();
        loop {
            let together = rows.together(usize::MAX, Bodies::Winners).unwrap();
            if together.is_empty() {
                return out;
            }
            for (id, head) in together {
                assert!(view.write_document(&mut out, &id, &head.rev, head.stored, |_| {}).unwrap());
            }
        }
    };
    let expected = texts(None);
    for available in [0, usize::MAX] {
        let budget = Arc::new(Budget(std::sync::Mutex::new((available, 0))));
        assert_eq!(texts(Some(Arc::clone(&budget))), expected, "{available} bytes are available");
        assert!(budget.0.lock().unwrap().1 > 0, "documents are charged");
    }
    let client = crate::ReadClient::default();
    let view = database.read().unwrap().for_client(&client);
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut rows = view.all_docs(&IdRange::default(), Direction::Forward).unwrap();
    assert!(changes.next().unwrap().is_some() && rows.next().unwrap().is_some());
    client.cancellation.cancel();
    let is_cancelled = |error: Option<DatabaseError>| assert!(matches!(error, Some(DatabaseError::Cancelled(_))));
    is_cancelled(changes.next().err());
    is_cancelled(rows.next().err());
    is_cancelled(view.read_ahead(&["d1"], Bodies::Winners).err());
}

/// The bucket starts with a document, on which a backward seek to its edge is positioned.
#[test]
fn a_scan_backward_steps_over_the_edge_of_deleted_documents() {
    let database = database();
    let ids: Vec<_> = (0..100).map(|number| format!("d{number:03}")).collect();
    let revs: Vec<_> = ids.iter().map(|id| save(&database, new(id, "{}"))).collect();
    for (number, (id, rev)) in ids.iter().zip(&revs).enumerate().rev() {
        save(&database, edit(id, Some(rev), true, "{}"));
        let view = database.read().unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = view.all_docs(&IdRange::default(), direction).unwrap();
            let mut live = 0;
            while rows.next().unwrap().is_some() {
                live += 1;
            }
            assert_eq!(live, number, "{direction:?}");
        }
    }
}
