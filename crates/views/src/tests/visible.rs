//! Queries of members of databases with per-document access: the results equal those of a database that contains only
//! the visible documents.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use settee_database::{
    AccessControl, Catalog, Database, DatabaseOptions, DocUpdate, EditMode, Layout, Member, MemoryGrant, Purge,
    ReadClient, Reader, UpdateOutcome, Waiting, Work,
};
use settee_design::DesignDocument;
use settee_model::json::Json;
use settee_model::testing::Random;
use settee_model::{Document, Rev, RevisionHasher};
use settee_storage_testing::engine;

use super::database::views;
use super::host::{Documents, TestHost};
use super::random::{NAMES, VIEWS, body, change, change_ids, check_answer, id, query};
use super::{Rows, core, ddoc, settings};
use crate::error::{Result, ViewError};
use crate::index::Meta;
use crate::query::visible::VisibleDocuments;
use crate::query::{Header, Update, ViewQuery};
use crate::shared::Core;
use crate::views::Views;

/// About `share` of 100 documents, which depend on the seed.
struct Share<'a> {
    documents: &'a Documents,
    seed: u64,
    share: u64,
}

impl Share<'_> {
    fn has(&self, id: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        (id, self.seed).hash(&mut hasher);
        hasher.finish() % 100 < self.share
    }

    fn visible(&self) -> Documents {
        let mut documents = self.documents.clone();
        documents.by_id.retain(|id, _| self.has(id));
        documents
    }
}

impl VisibleDocuments for Share<'_> {
    fn for_each_batch(&self, _: &Meta, each: &mut dyn FnMut(&[&str]) -> Result<()>) -> Result<()> {
        let ids: Vec<&str> = self.documents.by_id.keys().map(String::as_str).filter(|id| self.has(id)).collect();
        ids.chunks(7).try_for_each(each)
    }

    fn take_memory(&self, _: usize) -> Result<MemoryGrant> {
        Ok(Box::new(()))
    }
}

fn compare(core: &Core, host: &TestHost, ddoc: &DesignDocument, random: &mut Random, partition: Option<&str>) {
    let documents = Arc::clone(&host.documents.lock());
    let share = Share { documents: &documents, seed: random.below(1000), share: random.pick(&[0, 2, 10, 50, 100]) };
    let name = random.pick(&NAMES);
    let query = ViewQuery { partition: partition.map(str::to_owned), ..query(random) };
    let mut rows = Rows::default();
    let answer = core.query((host, Some(&share)), ddoc, name, &query, &mut rows).map(|_| rows);
    check_answer(answer, ddoc, name, &query, &share.visible());
}

#[test]
fn answers_are_those_of_a_database_with_only_the_visible_documents() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let host = TestHost::new(engine());
        let ddoc = ddoc(VIEWS);
        let core = core(settings(2, 2_000));
        for _ in 0..10 {
            let count = random.pick(&[1, 5, 60, 900]);
            change(&host, &mut random, count, 300 + 700 * (seed % 2));
            (0..20).for_each(|_| compare(&core, &host, &ddoc, &mut random, None));
        }
    }
}

#[test]
fn a_partition_answers_with_its_visible_rows() {
    let mut random = Random::of(5);
    let host = TestHost::with_layout(engine(), Layout::Partitioned);
    let ddoc = ddoc(VIEWS);
    let core = core(settings(1, 1 << 20));
    for _ in 0..6 {
        change_ids(&host, &mut random, 300, |random| format!("{}:{}", random.pick(&["a", "b", "c"]), id(random, 60)));
        for _ in 0..20 {
            let partition = random.pick(&["a", "b", "d"]);
            compare(&core, &host, &ddoc, &mut random, Some(partition));
        }
    }
}

#[test]
fn memory_of_the_client_limits_the_rows() {
    struct NoMemory<'a>(Share<'a>);
    impl VisibleDocuments for NoMemory<'_> {
        fn for_each_batch(&self, meta: &Meta, each: &mut dyn FnMut(&[&str]) -> Result<()>) -> Result<()> {
            self.0.for_each_batch(meta, each)
        }

        fn take_memory(&self, bytes: usize) -> Result<MemoryGrant> {
            if bytes > 200 { Err(ViewError::Memory) } else { Ok(Box::new(())) }
        }
    }
    let (host, core) = (TestHost::new(engine()), core(settings(1, 1 << 20)));
    change(&host, &mut Random::of(1), 500, 300);
    let documents = Arc::clone(&host.documents.lock());
    let documents = NoMemory(Share { documents: &documents, seed: 0, share: 100 });
    let query = ViewQuery::default();
    let answer = core.query((&host, Some(&documents)), &ddoc(VIEWS), "plain", &query, &mut Rows::default());
    assert!(matches!(answer, Err(ViewError::Memory)), "{answer:?}");
}

struct World {
    views: Views,
    database: Arc<Database>,
    design: DesignDocument,
}

impl World {
    fn new(functions: &str) -> Self {
        let design = ddoc(functions);
        let (catalog, views): (Arc<Catalog>, Views) = views(engine());
        let options = DatabaseOptions { created_ms: 0, instance: 1, layout: Layout::Whole, q: 1 };
        let database = catalog.create_with("db", options, AccessControl::PerDocument).unwrap();
        Self { views, database, design }
    }

    fn put(&self, id: &str, rev: Option<&Rev>, list: &str, value: u64) -> Rev {
        let rev = rev.map(|rev| format!(r#""_rev":"{rev}","#)).unwrap_or_default();
        self.put_as(&format!(r#"{{"_id":"{id}",{rev}"_access":[{list}],"k":1,"v":{value}}}"#), EditMode::Interactive)
    }

    fn put_as(&self, text: &str, mode: EditMode) -> Rev {
        let json = Json::parse(text.as_bytes()).unwrap();
        let mut document = Document::parse(json.value()).unwrap();
        let id = document.id.take().unwrap();
        let update = DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap();
        match self.database.update(Work::Documents(vec![update])).unwrap().pop() {
            Some(UpdateOutcome::Saved(rev)) => rev,
            other => panic!("{other:?}"),
        }
    }

    /// Returns ids and values of the rows that ann sees, and their number.
    fn rows(&self, update: Update) -> (Vec<String>, u64) {
        let reader = Reader::Member(Member::new(Some("ann"), []));
        let query = ViewQuery { update, reduce: crate::Reduce::Off, ..ViewQuery::default() };
        let mut rows = Rows::default();
        let client = ReadClient::default();
        let reader = (&reader, &client, Waiting::Allowed);
        let _ = self.views.query_as(&self.database, reader, &self.design, "v", &query, &mut rows).unwrap();
        let Some(Header::Map { total_rows, .. }) = rows.header else { panic!("{:?}", rows.header) };
        (rows.map.iter().map(|(_, id, value)| format!("{id}={value}")).collect(), total_rows)
    }

    fn check(&self, update: Update, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|row| (*row).to_owned()).collect();
        let count = expected.len() as u64;
        assert_eq!(self.rows(update), (expected, count), "{update:?}");
    }
}

#[test]
fn an_old_index_shows_only_revisions_whose_own_list_grants_access() {
    let world = World::new(r#""v": {"map": "value k v", "reduce": "_sum"}"#);
    let (ann, bob) = (r#""ann""#, r#""bob""#);
    let kept = world.put("kept", None, ann, 1);
    let lost = world.put("lost", None, ann, 2);
    let gained = world.put("gained", None, bob, 3);
    let back = world.put("back", None, ann, 4);
    let back = world.put("back", Some(&back), bob, 5);
    world.put("purged", None, ann, 6);
    world.put("same", None, ann, 7);
    world.check(Update::True, &["kept=1", "lost=2", "purged=6", "same=7"]);
    world.put("kept", Some(&kept), ann, 11);
    world.put("lost", Some(&lost), bob, 12);
    world.put("gained", Some(&gained), ann, 13);
    world.put("back", Some(&back), ann, 15);
    world.put("new", None, ann, 18);
    world.check(Update::False, &["kept=1", "purged=6", "same=7"]);
    world.check(Update::True, &["back=15", "gained=13", "kept=11", "new=18", "purged=6", "same=7"]);
    // A purge can have removed a revision that the index shows.
    world.put_as(r#"{"_id":"purged","_rev":"5-x","_access":["bob"],"k":1,"v":16}"#, EditMode::Replicated);
    world.check(Update::True, &["back=15", "gained=13", "kept=11", "new=18", "same=7"]);
    let revs = vec![Rev::parse("5-x").unwrap()];
    world.database.update(Work::Purge(vec![Purge { id: "purged".to_owned(), revs }])).unwrap();
    world.check(Update::False, &["back=15", "gained=13", "kept=11", "new=18", "same=7"]);
    world.check(Update::True, &["back=15", "gained=13", "kept=11", "new=18", "purged=6", "same=7"]);
}

/// Lists name users and roles in any combination, and members have several roles. Rows that several lists grant occur
/// once, also in reductions.
#[test]
fn members_receive_the_rows_of_all_lists_that_name_them() {
    const NAMED: [&str; 6] = ["ann", "bob", "staff", "board", "press", "_users"];
    let some = |random: &mut Random, names: &[&'static str], percent| {
        names.iter().copied().filter(|_| random.chance(percent)).collect::<Vec<&'static str>>()
    };
    let mut random = Random::new();
    let (world, host) = (World::new(VIEWS), TestHost::new(engine()));
    let mut lists: BTreeMap<String, (Rev, Vec<&str>)> = BTreeMap::new();
    for _ in 0..8 {
        for _ in 0..random.pick(&[1, 10, 150]) {
            let id = format!("doc{:04}", random.below(150));
            let old = lists.remove(&id);
            let rev = old.as_ref().map(|(rev, _)| format!(r#""_rev":"{rev}","#)).unwrap_or_default();
            if old.is_some() && random.one_in(6) {
                host.put(&id, None);
                world.put_as(&format!(r#"{{"_id":"{id}",{rev}"_deleted":true}}"#), EditMode::Interactive);
                continue;
            }
            let (list, body) = (some(&mut random, &NAMED, 20), body(&mut random));
            host.put(&id, Some(&body));
            let quoted: Vec<String> = list.iter().map(|name| format!("\"{name}\"")).collect();
            let text = format!(r#"{{"_id":"{id}",{rev}"_access":[{}],{body}}}"#, quoted.join(","));
            lists.insert(id, (world.put_as(&text, EditMode::Interactive), list));
        }
        let all = Arc::clone(&host.documents.lock());
        for _ in 0..40 {
            let (name, roles) = (random.pick(&["ann", "bob", "eve"]), some(&mut random, &NAMED[2..5], 50));
            let reader = Reader::Member(Member::new(Some(name), roles.iter().map(|role| (*role).to_owned())));
            let is_granted = |entry: &&str| *entry == name || *entry == "_users" || roles.contains(entry);
            let mut visible = Documents::clone(&all);
            visible.by_id.retain(|id, _| lists.get(id).is_some_and(|(_, list)| list.iter().any(is_granted)));
            let (view, query, mut rows) = (random.pick(&NAMES), query(&mut random), Rows::default());
            let client = ReadClient::default();
            let asked = (&reader, &client, Waiting::Allowed);
            let answer = world.views.query_as(&world.database, asked, &world.design, view, &query, &mut rows);
            check_answer(answer.map(|_| rows), &world.design, view, &query, &visible);
        }
    }
}
