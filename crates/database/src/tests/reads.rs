//! Reading revisions together answers what reading them one by one answers.

use std::ops::ControlFlow;

use settee_model::{Rev, RevisionHasher};

use super::{Random, database, document, edit, save};
use crate::attachment::{Compression, NewAttachment, NewAttachments, Upload};
use crate::tasks::Tasks;
use crate::{DocUpdate, EditMode, Stored, UnknownParent};

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
            let list = NewAttachments::new(vec![attachment]).unwrap();
            let mode = EditMode::Interactive(UnknownParent::Refuse);
            let (document, hasher) = (document(None, false, &body), &mut RevisionHasher::default());
            save(&database, DocUpdate::prepare_with(id.clone(), document, list, mode, hasher).unwrap())
        } else {
            save(&database, edit(&id, None, false, &body))
        };
        // What was replaced is gone after the compaction.
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
