//! Random operations on a database and on a simple model agree in all reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use settee_model::json::Json;
use settee_model::{Document, Rev, RevHash, RevisionHasher, revision_hash};
use settee_storage::Engine;

use super::{Random, audit, body, create, edit, engine, open, replicated, rev, write};
use crate::{Database, Direction, DocUpdate, EditMode, IdRange, Leaves, ReadView, Stored, UpdateOutcome, Work};

mod forgetting;

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelRev {
    parent: Option<Rev>,
    content: Option<(bool, String)>,
}

#[derive(Clone, Debug, Default)]
struct ModelDoc {
    revs: BTreeMap<Rev, ModelRev>,
    seq: u64,
}

#[derive(Default)]
struct Model {
    docs: BTreeMap<String, ModelDoc>,
    locals: BTreeMap<String, (u64, String)>,
    revs_limit: usize,
    update_seq: u64,
    first_seq: u64,
    purges: Vec<crate::Purge>,
    forgotten: BTreeSet<(u64, u32)>,
}

impl ModelDoc {
    fn leaves(&self) -> Vec<&Rev> {
        let parents: BTreeSet<&Rev> = self.revs.values().filter_map(|rev| rev.parent.as_ref()).collect();
        self.revs.keys().filter(|rev| !parents.contains(rev)).collect()
    }

    fn content(&self, rev: &Rev) -> &(bool, String) {
        self.revs[rev].content.as_ref().unwrap()
    }

    fn winner(&self) -> &Rev {
        self.leaves().into_iter().max_by_key(|rev| (!self.content(rev).0, *rev)).unwrap()
    }

    fn is_deleted(&self) -> bool {
        self.content(self.winner()).0
    }

    fn history(&self, rev: &Rev) -> Vec<Rev> {
        let parent = |rev: &Rev| self.revs.get(rev)?.parent.clone();
        std::iter::successors(self.revs.contains_key(rev).then(|| rev.clone()), parent).collect()
    }

    fn merge(&mut self, path: &[Rev], deleted: bool, body: &str, limit: usize) -> bool {
        let is_stored = self.revs.get(&path[0]).is_some_and(|rev| rev.content.is_some());
        if is_stored && self.history(&path[0]).len() >= path.len() {
            return false;
        }
        let before = self.revs.clone();
        for (age, rev) in path.iter().enumerate() {
            let parent = path.get(age + 1);
            let known = self.revs.entry(rev.clone()).or_default();
            if known.parent.is_none() {
                known.parent = parent.cloned();
            } else if known.parent.as_ref() != parent {
                break;
            }
        }
        let newest = self.revs.get_mut(&path[0]).unwrap();
        newest.content.get_or_insert_with(|| (deleted, body.to_owned()));
        let kept: BTreeSet<Rev> =
            self.leaves().into_iter().flat_map(|leaf| self.history(leaf).into_iter().take(limit)).collect();
        self.revs.retain(|rev, _| kept.contains(rev));
        for rev in self.revs.values_mut() {
            rev.parent = rev.parent.take().filter(|parent| kept.contains(parent));
        }
        self.revs != before
    }
}

impl Model {
    fn new() -> Self {
        Self { revs_limit: 1000, ..Self::default() }
    }

    fn edit(&mut self, id: &str, parent: Option<&Rev>, deleted: bool, body: &str) -> Option<Rev> {
        let json = Json::parse(body.as_bytes()).unwrap();
        let next = |parent: Option<&Rev>| {
            let hash = revision_hash(deleted, parent, json.value(), &[]);
            Rev { generation: parent.map_or(1, |rev| rev.generation + 1), hash: RevHash::from(hash) }
        };
        let path: Vec<Rev> = match self.docs.get(id) {
            None if parent.is_some() => return None,
            Some(doc) if doc.is_deleted() => {
                if parent.is_some() || deleted {
                    return None;
                }
                vec![next(Some(doc.winner())), doc.winner().clone()]
            }
            Some(doc) if !parent.is_some_and(|parent| doc.leaves().contains(&parent)) => return None,
            None | Some(_) => std::iter::once(next(parent)).chain(parent.cloned()).collect(),
        };
        self.merge(id, &path, deleted, body);
        path.into_iter().next()
    }

    fn merge(&mut self, id: &str, path: &[Rev], deleted: bool, body: &str) {
        let doc = self.docs.entry(id.to_owned()).or_default();
        // All additions of one work to a document share one update sequence.
        if doc.merge(path, deleted, body, self.revs_limit) && doc.seq < self.first_seq {
            self.update_seq += 1;
            doc.seq = self.update_seq;
        }
    }

    fn live(&self) -> Vec<&str> {
        self.docs.iter().filter(|(_, doc)| !doc.is_deleted()).map(|(id, _)| id.as_str()).collect()
    }
}

/// The byte order of the ids differs from that by characters or length.
fn random_id(random: &mut Random) -> String {
    let prefix = random.pick(&["", "a", "doc", "_design/d", "é", "日", "\u{10ffff}", "z"]);
    format!("{prefix}{}", random.below(25))
}

fn random_rev(random: &mut Random, generation: u64) -> Rev {
    let hash = match random.below(3) {
        0 => RevHash::from([random.below(3) as u8; 16]),
        1 => RevHash::from_bytes(&[b'a' + random.below(3) as u8]),
        _ => RevHash::from_bytes(format!("{:x}", random.next()).as_bytes()),
    };
    Rev { generation, hash }
}

fn known_rev(random: &mut Random, model: &Model, id: &str) -> Option<Rev> {
    let doc = model.docs.get(id)?;
    let rev = match random.below(8) {
        0 => doc.revs.keys().nth(random.below(doc.revs.len())).unwrap(),
        1 | 2 => random.pick(&doc.leaves()),
        _ => doc.winner(),
    };
    Some(rev.clone())
}

fn random_update(random: &mut Random, model: &mut Model) -> (DocUpdate, UpdateOutcome) {
    let id = random_id(random);
    let longest = if random.one_in(10) { 500 } else { 40 };
    let text = random.body(longest);
    let deleted = random.one_in(4);
    let saved = |rev: Option<Rev>| rev.map_or(UpdateOutcome::Conflict, UpdateOutcome::Saved);
    match random.below(10) {
        0..=3 => {
            let parent = match random.below(10) {
                0 => None,
                1 => Some(random_rev(random, 1)),
                _ => known_rev(random, model, &id),
            };
            let json = Json::parse(text.as_bytes()).unwrap();
            let document =
                Document { id: None, rev: parent.clone(), deleted, body: json, attachments: None, revisions: None };
            let mode = EditMode::Interactive;
            let update = DocUpdate::prepare(id.clone(), document, mode, &mut RevisionHasher::default()).unwrap();
            (update, saved(model.edit(&id, parent.as_ref(), deleted, &text)))
        }
        4 | 5 => {
            let update = edit(&id, None, deleted, &text);
            (update, saved(model.edit(&id, None, deleted, &text)))
        }
        6..=8 => {
            let base = if random.one_in(4) { None } else { known_rev(random, model, &id) };
            let mut path = base.map_or_else(Vec::new, |base| model.docs[&id].history(&base));
            for _ in 0..random.below(4) + usize::from(path.is_empty()) {
                let generation = path.first().map_or_else(|| 1 + random.below(3) as u64, |rev| rev.generation + 1);
                path.insert(0, random_rev(random, generation));
            }
            // Ancestors beyond the revision limit, which some sources still have.
            while random.one_in(3) && path.last().is_some_and(|oldest| oldest.generation > 1) {
                let oldest = path.last().unwrap().generation;
                path.push(random_rev(random, oldest - 1));
            }
            if random.one_in(3) {
                path.truncate(1 + random.below(path.len()));
            }
            let update = replicated(&id, &path, deleted, &text);
            model.merge(&id, &path, deleted, &text);
            (update, UpdateOutcome::Saved(path.remove(0)))
        }
        _ => {
            let id = format!("_local/{}", random.below(10));
            let named = random.one_in(2).then(|| random.below(5) as u64);
            let number = if deleted { 0 } else { named.unwrap_or(0) + 1 };
            if deleted {
                model.locals.remove(&id);
            } else {
                model.locals.insert(id.clone(), (number, text.clone()));
            }
            let parent = named.map(|number| rev(&format!("0-{number}")));
            let update = edit(&id, parent.as_ref(), deleted, &text);
            (update, UpdateOutcome::Saved(rev(&format!("0-{number}"))))
        }
    }
}

fn check_documents(view: &ReadView<'_>, model: &mut Model) {
    for (id, doc) in &model.docs {
        let record = view.record(id).unwrap().unwrap();
        let nodes = record.tree.nodes();
        let mut stored_revs = BTreeMap::new();
        for node in nodes {
            let content = node.value.map(|stored| (stored.deleted, body(view, stored).expect("it is remembered")));
            let parent = node.parent.map(|parent| nodes[parent as usize].rev.clone());
            stored_revs.insert(node.rev.clone(), ModelRev { parent, content });
        }
        assert_eq!(stored_revs, doc.revs, "{id}");
        let head = view.head(id).unwrap().unwrap();
        assert_eq!((&head.rev, head.seq), (doc.winner(), doc.seq), "{id}");
        assert_eq!(head.stored.deleted, doc.is_deleted());
        assert_eq!(head.has_conflicts, doc.leaves().len() > 1);
    }
    let ids: Vec<&str> = model.docs.keys().map(String::as_str).chain(["nobody"]).collect();
    let heads = view.heads(&ids).unwrap();
    assert!(ids.iter().zip(&heads).all(|(id, head)| *head == view.head(id).unwrap()));
    for (body_seq, size) in &model.forgotten {
        let stored = Stored { body_seq: *body_seq, size: *size, ..Stored::default() };
        assert_eq!(body(view, stored), None, "a forgotten body is gone");
    }
}

fn note_forgotten(model: &mut Model, before: &BTreeMap<String, Vec<Stored>>, view: &ReadView<'_>) {
    for (id, stored) in before {
        let record = view.record(id).unwrap().unwrap();
        let kept: BTreeSet<u64> = record.tree.nodes().iter().filter_map(|node| Some(node.value?.body_seq)).collect();
        let gone = stored.iter().filter(|stored| !kept.contains(&stored.body_seq));
        model.forgotten.extend(gone.map(|stored| (stored.body_seq, stored.size)));
    }
}

fn stored_bodies(view: &ReadView<'_>, updates: &[(DocUpdate, UpdateOutcome)]) -> BTreeMap<String, Vec<Stored>> {
    let ids = updates.iter().map(|(update, _)| update.id());
    let records = ids.filter_map(|id| Some((id.to_owned(), view.record(id).unwrap()?)));
    records.map(|(id, record)| (id, record.tree.nodes().iter().filter_map(|node| node.value).collect())).collect()
}

fn check_counts(database: &Arc<Database>, view: &ReadView<'_>, model: &Model) {
    let live = model.live().len() as u64;
    let deleted = model.docs.len() as u64 - live;
    assert_eq!(view.counts().unwrap(), (live, deleted));
    assert_eq!(view.update_seq().unwrap(), model.update_seq);
    let info = database.info().unwrap();
    assert_eq!((info.doc_count, info.doc_del_count, info.update_seq), (live, deleted, model.update_seq));
    let leaf_bytes: usize =
        model.docs.values().flat_map(|doc| doc.leaves().into_iter().map(|leaf| doc.content(leaf).1.len())).sum();
    assert_eq!(info.external_bytes, leaf_bytes as u64);
    assert!(info.active_bytes < info.file_bytes || info.file_bytes == 0, "there is more in the file than bodies");
}

type Row = (u64, String, Leaves, String);

fn changes(view: &ReadView<'_>, since: u64, direction: Direction, mut with_body: impl FnMut() -> bool) -> Vec<Row> {
    let mut changes = view.changes(since, direction).unwrap();
    let mut rows = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        let (seq, id, leaves) = (change.seq, change.id.to_owned(), change.leaves);
        let mut text = Vec::new();
        if with_body() {
            changes.write_document(&mut text, |out| out.extend_from_slice(b",\"_extra\":1")).unwrap();
        }
        rows.push((seq, id, leaves, String::from_utf8(text).unwrap()));
    }
    rows
}

fn model_changes(model: &Model) -> Vec<Row> {
    let row = |(id, doc): (&String, &ModelDoc)| {
        let leaves = if doc.leaves().len() > 1 { Leaves::Several } else { Leaves::One };
        let (deleted, body) = doc.content(doc.winner());
        let mark = if *deleted { ",\"_deleted\":true" } else { "" };
        let members = body.strip_suffix('}').and_then(|body| body.strip_prefix('{')).unwrap();
        let text = format!("{{\"_id\":\"{id}\",\"_rev\":\"{}\",{members}{mark},\"_extra\":1}}", doc.winner());
        (doc.seq, id.clone(), leaves, text)
    };
    let mut rows: Vec<Row> = model.docs.iter().map(row).collect();
    rows.sort_by_key(|(seq, ..)| *seq);
    rows
}

fn check_changes(random: &mut Random, view: &ReadView<'_>, model: &Model) {
    let wanted = model_changes(model);
    let mut whole = changes(view, 0, Direction::Forward, || true);
    for backward in [false, true] {
        if backward {
            whole = changes(view, u64::MAX, Direction::Backward, || true);
            whole.reverse();
        }
        assert_eq!(whole.len(), wanted.len());
        for (read, wanted) in whole.iter().zip(&wanted) {
            assert_eq!(read, wanted);
        }
    }
    for _ in 0..5 {
        let since = random.below(model.update_seq as usize + 3) as u64;
        let after = &wanted[wanted.partition_point(|row| row.0 <= since)..];
        assert_eq!(view.changes_after(since).unwrap(), after.len() as u64, "after {since}");
        // Some rows are read without their bodies, so that the scan of bodies has to skip.
        let share = 1 + random.below(12);
        let read = changes(view, since, Direction::Forward, || random.one_in(share));
        assert_eq!(read.len(), after.len());
        for (read, wanted) in read.iter().zip(after) {
            assert_eq!((read.0, &read.1, read.2), (wanted.0, &wanted.1, wanted.2));
            assert!(read.3.is_empty() || read.3 == wanted.3, "{read:?} {wanted:?}");
        }
    }
    assert_eq!(view.changes_after(u64::MAX).unwrap(), 0);
    assert_eq!(changes(view, u64::MAX, Direction::Forward, || true), []);
}

pub(crate) fn all_docs(view: &ReadView<'_>, range: &IdRange, direction: Direction, skip: u64) -> Vec<String> {
    let mut rows = view.all_docs(range, direction).unwrap();
    rows.skip(skip).unwrap();
    let mut ids = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        assert!(!row.head.stored.deleted);
        ids.push(row.id.to_owned());
    }
    ids
}

fn bound(random: &mut Random) -> Option<Vec<u8>> {
    let mut id = random_id(random).into_bytes();
    if random.one_in(4) {
        id.push(random.next() as u8);
    }
    (!random.one_in(3)).then_some(id)
}

fn check_all_docs(random: &mut Random, view: &ReadView<'_>, model: &Model) {
    let live = model.live();
    for round in 0..20 {
        let range = if round == 0 { IdRange::default() } else { IdRange { start: bound(random), end: bound(random) } };
        let inside = |id: &&str| {
            range.start.as_deref().is_none_or(|start| id.as_bytes() >= start)
                && range.end.as_deref().is_none_or(|end| id.as_bytes() < end)
        };
        let mut wanted: Vec<&str> = live.iter().copied().filter(inside).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            for skip in [0, 1, 8, 9, 17, random.below(live.len() + 20), 1_000_000, usize::MAX] {
                let rest = wanted.get(skip..).unwrap_or_default();
                let read = all_docs(view, &range, direction, skip as u64);
                assert_eq!(read, rest, "{range:?} {direction:?} without {skip}");
            }
            wanted.reverse();
        }
        let probe = bound(random).unwrap_or_default();
        let rank = live.iter().filter(|id| id.as_bytes() < probe.as_slice()).count();
        assert_eq!(view.rank_of_id(&probe).unwrap(), rank as u64, "{probe:?}");
    }
    assert_eq!(view.rank_of_id(&[0xff]).unwrap(), live.len() as u64);
}

fn check_locals(view: &ReadView<'_>, model: &Model) {
    for (direction, at_most) in [(Direction::Forward, 3), (Direction::Backward, 3), (Direction::Forward, usize::MAX)] {
        let mut read = Vec::new();
        view.local_docs(&IdRange::default(), direction, |id, local| {
            read.push((id.to_owned(), (local.rev, String::from_utf8(local.body.into_bytes()).unwrap())));
            read.len() < at_most
        })
        .unwrap();
        let mut wanted: Vec<_> = model.locals.clone().into_iter().collect();
        if direction == Direction::Backward {
            wanted.reverse();
        }
        wanted.truncate(at_most);
        assert_eq!(read, wanted);
    }
    for id in ["_local/0", "_local/1", "_local/none"] {
        let read = view.local(id).unwrap().map(|local| local.rev);
        assert_eq!(read, model.locals.get(id).map(|(number, _)| *number));
    }
}

fn check(random: &mut Random, database: &Arc<Database>, model: &mut Model) {
    let view = database.read().unwrap();
    audit(&view);
    check_counts(database, &view, model);
    check_documents(&view, model);
    check_changes(random, &view, model);
    check_all_docs(random, &view, model);
    check_locals(&view, model);
    forgetting::check_purges(&view, model);
}

#[test]
fn random_operations_agree_with_a_model() {
    let mut random = Random::new();
    for _ in 0..3 {
        let engine: Arc<dyn Engine> = engine();
        let mut database = create(&open(&engine), "db");
        let mut model = Model::new();
        for round in 0..120 {
            match random.below(12) {
                0 => {
                    let limit = random.pick(&[1, 2, 5, 1000]);
                    model.revs_limit = limit;
                    database.update(Work::SetRevsLimit(limit as u64)).unwrap();
                }
                1 => database = open(&engine).database("db").unwrap(),
                2 => forgetting::purge(&mut random, &database, &mut model),
                3 if random.one_in(3) => forgetting::compact(&mut random, &database, &mut model),
                _ => {
                    let before = random.below(40) + 1;
                    model.first_seq = model.update_seq + 1;
                    let updates: Vec<_> = (0..before).map(|_| random_update(&mut random, &mut model)).collect();
                    let stored = stored_bodies(&database.read().unwrap(), &updates);
                    let (updates, wanted): (Vec<_>, Vec<_>) = updates.into_iter().unzip();
                    assert_eq!(write(&database, updates), wanted);
                    note_forgotten(&mut model, &stored, &database.read().unwrap());
                }
            }
            if round % 12 == 0 {
                check(&mut random, &database, &mut model);
            }
        }
        check(&mut random, &database, &mut model);
        check(&mut random, &open(&engine).database("db").unwrap(), &mut model);
    }
}
