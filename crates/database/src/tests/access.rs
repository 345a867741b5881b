//! Per-document access against a model that evaluates the list of every revision.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use settee_storage::{Batch, CommitToken, Durability, Keyspace, Outcome};

use super::*;
use crate::access::removal::tombstone;
use crate::record::DocRecord;
use crate::{AccessControl, DatabaseOptions, Direction, IdRange, Layout, Member, Reader, Waiting};

const USERS: [(&str, &[&str]); 4] = [("ann", &[]), ("bob", &["staff"]), ("cid", &["staff", "board"]), ("eve", &[])];
const ENTRIES: [&str; 6] = ["ann", "bob", "cid", "staff", "board", "_users"];

fn options() -> DatabaseOptions {
    DatabaseOptions { created_ms: 1, instance: 2, layout: Layout::Whole, q: 1 }
}

fn with_access(catalog: &Catalog) -> Arc<Database> {
    catalog.create_with("db", options(), AccessControl::PerDocument).unwrap()
}

fn reader(name: &str) -> Reader {
    let (name, roles) = USERS.iter().find(|(known, _)| *known == name).unwrap();
    Reader::Member(Member::new(Some(name), roles.iter().map(|role| (*role).to_owned())))
}

fn anonymous() -> Reader {
    Reader::Member(Member::new(None, ["staff".to_owned()]))
}

fn by(reader: &Reader, mut update: DocUpdate) -> DocUpdate {
    update.set_reader(reader.clone());
    update
}

fn listed(entries: &[&str]) -> String {
    let entries: Vec<String> = entries.iter().map(|entry| format!("\"{entry}\"")).collect();
    format!(r#"{{"_access":[{}]}}"#, entries.join(","))
}

#[derive(Default)]
struct Model {
    /// Lists by id and revision.
    lists: BTreeMap<(String, Rev), BTreeSet<String>>,
    /// Update sequence and last visible revision of lost entries, by entry and id.
    removals: BTreeMap<(String, String), (u64, Rev)>,
}

impl Model {
    /// Records the entries that the list of the winner has lost and gained.
    fn follow(&mut self, id: &str, before: Option<&Known>, now: &Known) {
        let Some(before) = before else { return };
        let list = |known: &Known| self.lists[&(id.to_owned(), known.rev.clone())].clone();
        let (old, new) = (list(before), list(now));
        for entry in old.difference(&new) {
            self.removals.insert((entry.clone(), id.to_owned()), (now.seq, before.rev.clone()));
        }
        for entry in new.difference(&old) {
            self.removals.remove(&(entry.clone(), id.to_owned()));
        }
    }

    /// Returns what `reader` sees of a document.
    fn seen(&self, reader: &Reader, id: &str, known: &Known) -> Option<Known> {
        // The last visible revision of each branch.
        let last: Vec<&Rev> = known.parents.keys().filter(|rev| self.grants(reader, id, rev)).collect();
        let followed: BTreeSet<&Rev> = last.iter().flat_map(|rev| known.ancestors(rev)).collect();
        let last = last.into_iter().filter(|rev| !followed.contains(rev));
        if self.grants(reader, id, &known.rev) {
            let shown = |rev: &Rev| if known.leaves.contains(rev) { rev.clone() } else { tombstone(rev) };
            let leaves = last.map(shown).collect();
            return Some(Known { rev: known.rev.clone(), leaves, parents: BTreeMap::new(), ..*known });
        }
        let Reader::Member(member) = reader else { return None };
        let removals = member.entries().iter().filter_map(|entry| self.removals.get(&(entry.clone(), id.to_owned())));
        let (seq, rev) = removals.max_by_key(|(seq, _)| *seq)?.clone();
        let leaves = last.chain([&rev]).map(tombstone).collect();
        Some(Known { seq, rev: tombstone(&rev), deleted: true, leaves, parents: BTreeMap::new() })
    }

    fn grants(&self, reader: &Reader, id: &str, rev: &Rev) -> bool {
        match reader {
            Reader::Administrator => true,
            Reader::Member(member) => {
                let list = &self.lists[&(id.to_owned(), rev.clone())];
                member.entries().iter().any(|entry| list.contains(entry))
            }
        }
    }
}

/// Winner and leaves of a document as an administrator sees them.
struct Known {
    seq: u64,
    rev: Rev,
    deleted: bool,
    leaves: BTreeSet<Rev>,
    /// All revisions of the document.
    parents: BTreeMap<Rev, Option<Rev>>,
}

impl Known {
    fn ancestors(&self, rev: &Rev) -> impl Iterator<Item = &Rev> {
        let parent = |rev: &Rev| self.parents.get(rev).and_then(Option::as_ref);
        std::iter::successors(parent(rev), move |rev| parent(rev))
    }
}

fn leaves(record: &DocRecord) -> BTreeSet<Rev> {
    record.tree.leaves().map(|leaf| record.tree.node(leaf).rev.clone()).collect()
}

fn known(view: &ReadView<'_>) -> BTreeMap<String, Known> {
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut found = BTreeMap::new();
    while let Some(change) = changes.next().unwrap() {
        let record = view.record(change.id).unwrap().unwrap();
        let parent_of = |parent: u32| record.tree.node(parent).rev.clone();
        let nodes = record.tree.nodes().iter();
        let parents = nodes.map(|node| (node.rev.clone(), node.parent.map(parent_of))).collect();
        let (rev, deleted) = (change.rev.clone(), change.stored.deleted);
        let known = Known { seq: change.seq, rev, deleted, leaves: leaves(&record), parents };
        found.insert(change.id.to_owned(), known);
    }
    found
}

fn check(database: &Arc<Database>, model: &Model, reader: &Reader, random: &mut Random) {
    let all = known(&database.read().unwrap());
    let view = database.read_as(reader, Waiting::Allowed).unwrap();
    let seen = all.iter().filter_map(|(id, known)| Some((id, model.seen(reader, id, known)?)));
    let visible: BTreeMap<&String, Known> = seen.collect();
    let live: Vec<&str> = visible.iter().filter(|(_, known)| !known.deleted).map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids(&view), live, "{reader:?}");
    assert_eq!(view.counts().unwrap(), (live.len() as u64, (visible.len() - live.len()) as u64));
    let (low, high) = (random.below(10), random.below(10));
    let range = IdRange { start: Some(low.to_string().into_bytes()), end: Some(high.to_string().into_bytes()) };
    let skipped = random.below(3);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected: Vec<&str> = live.iter().copied().filter(|id| range.contains(id)).collect();
        let mut by_seq: Vec<(u64, &str, &Rev)> =
            visible.iter().map(|(id, known)| (known.seq, id.as_str(), &known.rev)).collect();
        by_seq.sort_unstable_by_key(|(seq, ..)| *seq);
        let since = random.below(20) as u64;
        by_seq.retain(|(seq, ..)| (*seq > since) == (direction == Direction::Forward));
        if direction == Direction::Backward {
            expected.reverse();
            by_seq.reverse();
        }
        if low < high {
            let mut rows = view.all_docs(&range, direction).unwrap();
            rows.skip(skipped as u64).unwrap();
            let mut found = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                found.push(row.id.to_owned());
            }
            assert_eq!(found, expected.iter().skip(skipped).copied().collect::<Vec<_>>());
        }
        let mut rows = view.changes(since, direction).unwrap();
        for (seq, id, rev) in &by_seq {
            let row = rows.next().unwrap().unwrap();
            assert_eq!((row.seq, row.id, &row.rev), (*seq, *id, *rev));
        }
        assert!(rows.next().unwrap().is_none());
        if direction == Direction::Forward {
            assert_eq!(view.changes_after(since).unwrap(), by_seq.len() as u64);
        }
    }
    let before = live.iter().filter(|id| id.as_bytes() < low.to_string().as_bytes()).count();
    assert_eq!(view.rank_of_id(low.to_string().as_bytes()).unwrap(), before as u64);
    for id in all.keys() {
        let (head, record) = (view.head(id).unwrap(), view.record(id).unwrap());
        assert_eq!(view.heads(&[id]).unwrap(), std::slice::from_ref(&head));
        assert_eq!((head.is_some(), record.is_some()), (visible.contains_key(id), head.is_some()), "{id} {reader:?}");
        let (Some(head), Some(record)) = (head, record) else { continue };
        let known = &visible[id];
        assert_eq!((head.seq, &head.rev, head.stored.deleted), (known.seq, &known.rev, known.deleted));
        let leaves = leaves(&record);
        assert_eq!(leaves, known.leaves, "{id} {reader:?}");
        // All tombstones are deletions, and any of them can be the winner.
        assert!(leaves.contains(&known.rev) && record.head().unwrap().stored.deleted == known.deleted, "{id}");
        assert!(leaves.len() == 1 || head.has_conflicts, "{id}");
        for node in record.tree.nodes().iter().filter(|node| node.value.is_some()) {
            let is_tombstone = !all[id].parents.contains_key(&node.rev);
            assert!(is_tombstone || model.grants(reader, id, &node.rev), "{id} {}", node.rev);
        }
    }
}

/// Returns a random update and the list that its revision names; `None` keeps that of the replaced revision.
fn random_update(
    all: &BTreeMap<String, Known>,
    random: &mut Random,
    number: usize,
) -> (DocUpdate, Option<Vec<&'static str>>) {
    let id = random.below(10).to_string();
    let parent = all.get(&id).and_then(|known| known.leaves.iter().nth(random.below(known.leaves.len())).cloned());
    let deleted = random.one_in(5);
    let list: Vec<&'static str> = ENTRIES.iter().copied().filter(|_| random.one_in(3)).collect();
    let names_list = !deleted || random.one_in(4);
    let body = match names_list {
        true => listed(&list).replace('}', &format!(r#","number":{number}}}"#)),
        false => "{}".to_owned(),
    };
    let update = match parent {
        Some(parent) if random.one_in(4) => {
            let hash = RevHash::from_bytes(&(number as u64).to_be_bytes().repeat(2));
            let new = Rev { generation: parent.generation + 1, hash };
            replicated(&id, &[new, parent], deleted, &body)
        }
        parent => edit(&id, parent.as_ref(), deleted, &body),
    };
    (update, names_list.then_some(list))
}

/// Returns true if the model permits the update of an existing or new document.
fn permits(
    model: &Model,
    all: &BTreeMap<String, Known>,
    reader: &Reader,
    update: &DocUpdate,
    list: &BTreeSet<String>,
) -> bool {
    let Reader::Member(member) = reader else { return true };
    let id = update.id();
    let old = all.get(id).map(|known| &known.rev).into_iter().chain(update.path().get(1));
    let has_old = old.clone().next().is_some();
    member.name().is_some()
        && member.entries().iter().any(|entry| list.contains(entry))
        && old.into_iter().all(|rev| model.grants(reader, id, rev))
        && (has_old || !update.is_deletion() || !list.is_empty())
}

#[test]
fn random_documents_of_several_members() {
    for round in 0..20 {
        let mut random = Random::new();
        let database = with_access(&open(&engine()));
        let mut model = Model::default();
        let mut outcomes = [0; 3];
        for number in 0..60 {
            let writer = match random.below(6) {
                4 => anonymous(),
                5 => Reader::Administrator,
                user => reader(USERS[user].0),
            };
            let all = known(&database.read().unwrap());
            let (update, named) = random_update(&all, &mut random, number);
            let id = update.id().to_owned();
            let list: BTreeSet<String> = match (&named, update.path().get(1)) {
                (Some(named), _) => named.iter().map(|entry| (*entry).to_owned()).collect(),
                (None, Some(parent)) => model.lists.get(&(id.clone(), parent.clone())).cloned().unwrap_or_default(),
                (None, None) => BTreeSet::new(),
            };
            let permitted = permits(&model, &all, &writer, &update, &list);
            let update = by(&writer, update);
            let early = database.read().unwrap().check_access(&update).unwrap();
            let outcome = write(&database, vec![update]).remove(0);
            match &outcome {
                UpdateOutcome::Saved(rev) => {
                    assert!(permitted, "{id} in round {round}, update {number} by {writer:?}");
                    outcomes[0] += 1;
                    model.lists.insert((id.clone(), rev.clone()), list);
                    model.follow(&id, all.get(&id), &known(&database.read().unwrap())[&id]);
                }
                UpdateOutcome::Forbidden => outcomes[1] += 1,
                _ => outcomes[2] += 1,
            }
            assert_eq!(outcome == UpdateOutcome::Forbidden || early.is_some(), early.is_some());
            if early.is_some() {
                assert!(!permitted);
                assert_eq!(early, Some(outcome));
            }
            if random.one_in(5) {
                for (name, _) in USERS {
                    check(&database, &model, &reader(name), &mut random);
                }
                check(&database, &model, &anonymous(), &mut random);
                check(&database, &model, &Reader::Administrator, &mut random);
            }
        }
        assert!(outcomes[0] > 5 && outcomes[1] > 5, "{outcomes:?}");
    }
}

/// A device that has not received the deletion would otherwise keep the document.
#[test]
fn a_deleted_document_that_is_revived_for_others_is_removed_from_devices() {
    let database = with_access(&open(&engine()));
    let one = save(&database, new("a", &listed(&["ann", "eve"])));
    let since = database.read().unwrap().update_seq().unwrap();
    save(&database, edit("a", Some(&one), true, "{}"));
    write(&database, vec![replicated("a", &[rev("1-abc")], false, &listed(&["eve"]))]);
    let view = database.read_as(&reader("ann"), Waiting::Allowed).unwrap();
    assert_eq!((ids(&view), view.changes_after(since).unwrap()), (vec![], 1));
    let record = view.record("a").unwrap().unwrap();
    assert!(record.tree.find(&one).is_some() && record.head().unwrap().stored.deleted);
}

#[test]
fn a_member_can_neither_take_nor_give_away() {
    let database = with_access(&open(&engine()));
    let (ann, eve) = (reader("ann"), reader("eve"));
    let one = save(&database, by(&ann, new("a", &listed(&["ann"]))));
    let refused = |update: DocUpdate| write(&database, vec![update]).remove(0);
    // As for a document that does not exist.
    assert_eq!(refused(by(&eve, edit("a", Some(&one), false, &listed(&["eve"])))), UpdateOutcome::Conflict);
    assert_eq!(refused(by(&eve, edit("b", Some(&one), false, &listed(&["eve"])))), UpdateOutcome::Conflict);
    assert_eq!(refused(by(&eve, edit("a", Some(&one), true, "{}"))), UpdateOutcome::Conflict);
    assert_eq!(refused(by(&eve, edit("b", Some(&one), true, "{}"))), UpdateOutcome::Conflict);
    assert_eq!(refused(by(&eve, new("a", &listed(&["eve"])))), UpdateOutcome::Forbidden);
    let two = rev("2-abc");
    let pushed = || replicated("a", &[two.clone(), one.clone()], false, &listed(&["eve"]));
    assert_eq!(refused(by(&eve, pushed())), UpdateOutcome::Forbidden);
    for body in ["{}".to_owned(), listed(&["eve"]), listed(&[])] {
        assert_eq!(refused(by(&ann, edit("a", Some(&one), false, &body))), UpdateOutcome::Forbidden, "{body}");
        assert_eq!(refused(by(&ann, new("c", &body))), UpdateOutcome::Forbidden, "{body}");
    }
    assert_eq!(refused(by(&ann, new("_design/a", &listed(&["ann"])))), UpdateOutcome::Forbidden);
    assert_eq!(refused(by(&anonymous(), new("d", &listed(&["staff"])))), UpdateOutcome::Forbidden);
    let shared = save(&database, by(&ann, edit("a", Some(&one), false, &listed(&["ann", "eve"]))));
    let taken = save(&database, by(&eve, edit("a", Some(&shared), false, &listed(&["eve"]))));
    let view = database.read_as(&ann, Waiting::Allowed).unwrap();
    assert_eq!((ids(&view), view.counts().unwrap()), (vec![], (0, 1)));
    let record = view.record("a").unwrap().unwrap();
    let (head, revs) = (record.head().unwrap(), record.tree.nodes().iter().map(|node| node.rev.clone()));
    assert_eq!(revs.collect::<Vec<_>>(), [one, shared, head.rev]);
    assert_eq!((head.stored.deleted, body(&view, head.stored).as_deref()), (true, Some("{}")));
    save(&database, by(&eve, edit("a", Some(&taken), true, "{}")));
    // The deletion keeps the list: eve sees it, and only eve can create the document again.
    assert_eq!(database.read_as(&eve, Waiting::Allowed).unwrap().counts().unwrap(), (0, 1));
    assert_eq!(refused(by(&ann, new("a", &listed(&["ann"])))), UpdateOutcome::Forbidden);
    save(&database, by(&eve, new("a", &listed(&["eve"]))));
}

fn problems(engine: &Arc<dyn Engine>, database: &Database) -> Vec<String> {
    let found = crate::verify::verify(engine.as_ref(), database.shard(), &mut |_| ControlFlow::Continue(()));
    found.problems.into_iter().map(|problem| problem.description).collect()
}

#[test]
fn verification_compares_the_access_indexes_with_the_documents() {
    let engine = engine();
    let database = with_access(&open(&engine));
    let rev = save(&database, new("a", &listed(&["ann", "bob"])));
    save(&database, new("b", &listed(&["staff"])));
    save(&database, edit("a", Some(&rev), false, &listed(&["ann"])));
    assert_eq!(problems(&engine, &database), [""; 0]);
    let shard = database.shard();
    let snapshot = engine.snapshot(shard).unwrap();
    let mut rows = Vec::new();
    let mut cursor =
        snapshot.scan(Keyspace::IndexEntries, Default::default(), Direction::Forward, crate::Expect::All).unwrap();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.push((key.to_vec(), value.to_vec()));
    }
    // Two rows of each of the two lists, a removal and its row in the feed of bob.
    assert_eq!(rows.len(), 6);
    let commit = |change: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        change(&mut batch);
        let version = engine.snapshot(shard).unwrap().state().unwrap().version;
        let done = engine.commit(shard, version, CommitToken(version.0.into()), batch, Durability::Buffered).unwrap();
        assert!(matches!(done, Outcome::Committed(_)));
    };
    for (key, value) in &rows {
        commit(&|batch| batch.delete(Keyspace::IndexEntries, key));
        assert_eq!(problems(&engine, &database).len(), 1, "{key:?}");
        commit(&|batch| batch.put(Keyspace::IndexEntries, key, value));
    }
    assert_eq!(problems(&engine, &database), [""; 0]);
    commit(&|batch| batch.put(Keyspace::IndexEntries, b"i\x03bobb", b""));
    assert_eq!(problems(&engine, &database), ["the access indexes have 5 rows instead of 4"]);
}

#[test]
fn local_documents_belong_to_their_writer() {
    let database = with_access(&open(&engine()));
    let local = |body: &str| new("_local/x", body);
    for (writer, body) in [(reader("ann"), r#"{"of":1}"#), (reader("eve"), r#"{"of":2}"#)] {
        save(&database, by(&writer, local(body)));
    }
    let read = |reader: &Reader| database.read_as(reader, Waiting::Allowed).unwrap().local("_local/x").unwrap();
    let body = |reader: &Reader| read(reader).map(|local| String::from_utf8(local.body.into_bytes()).unwrap());
    assert_eq!(body(&reader("ann")).as_deref(), Some(r#"{"of":1}"#));
    assert_eq!(body(&reader("eve")).as_deref(), Some(r#"{"of":2}"#));
    assert_eq!((body(&Reader::Administrator), body(&anonymous()), body(&reader("bob"))), (None, None, None));
    let refused = write(&database, vec![by(&anonymous(), local("{}"))]).remove(0);
    assert_eq!(refused, UpdateOutcome::Forbidden);
    save(&database, by(&reader("ann"), edit("_local/x", None, true, "{}")));
    assert_eq!((body(&reader("ann")), body(&reader("eve")).is_some()), (None, true));
}

#[test]
fn lists_survive_a_restart_a_purge_and_a_salvage() {
    let engine = engine();
    let database = with_access(&open(&engine));
    let rev = save(&database, new("a", &listed(&["ann"])));
    save(&database, new("b", &listed(&["ann", "staff"])));
    let gone = save(&database, new("c", &listed(&["ann"])));
    database.update(Work::Purge(vec![crate::Purge { id: "c".to_owned(), revs: vec![gone] }])).unwrap();
    save(&database, edit("a", Some(&rev), false, &listed(&["eve"])));
    drop(database);
    for is_salvaged in [false, true] {
        let catalog = open(&engine);
        if is_salvaged {
            assert_eq!(catalog.salvage("db", 3).unwrap().losses, []);
        }
        let database = catalog.database("db").unwrap();
        assert_eq!(database.access(), AccessControl::PerDocument);
        for (name, expected) in [("ann", vec!["b"]), ("bob", vec!["b"]), ("eve", vec!["a"])] {
            assert_eq!(ids(&database.read_as(&reader(name), Waiting::Allowed).unwrap()), expected, "{name}");
        }
        assert_eq!(ids(&database.read_as(&anonymous(), Waiting::Allowed).unwrap()), [""; 0]);
    }
}

#[test]
fn a_database_without_lists_stores_none_of_their_entries() {
    let database = database();
    save(&database, new("a", &listed(&["ann"])));
    let view = database.read_as(&reader("eve"), Waiting::Allowed).unwrap();
    assert_eq!((ids(&view), view.head("a").unwrap().unwrap().stored.access), (vec!["a".to_owned()], 0));
    let scan = |space| {
        let mut rows = view.snapshot().scan(space, Default::default(), Direction::Forward, crate::Expect::All).unwrap();
        let mut keys = Vec::new();
        while let Some((key, _)) = rows.next().unwrap() {
            keys.push(String::from_utf8_lossy(key).into_owned());
        }
        keys
    };
    assert_eq!(scan(Keyspace::IndexEntries), [""; 0]);
    assert!(scan(Keyspace::Catalog).iter().all(|key| !key.starts_with("access/")));
}
