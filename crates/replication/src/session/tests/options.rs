//! Random databases and random options: the content of the target follows a list of rules.

use std::collections::{BTreeMap, BTreeSet};

use settee_model::json::Json;
use settee_model::testing::Random;

use crate::session::Outcome;
use crate::spec::{Filter, Spec};
use crate::testing::{Leaf, Sequences, Server, Sides, Unsupported, services, spec};

const IDS: [&str; 9] = ["a", "b", "_design/d", "_design/d/e", "c/d?e", "\"q\"", "\\", "\u{e9}\u{1f600}", "%41+ "];

fn write_some(server: &Server, random: &mut Random, name: &str) {
    for _ in 0..random.below(25_u64) {
        let id = random.pick(&IDS);
        let database = server.database(name);
        let leaves = database.leaves(id);
        let parent = if random.one_in(3) { None } else { leaves.first().copied() };
        let mut leaf = parent.cloned().unwrap_or_else(|| Leaf::new(&[], "{}"));
        leaf.history.insert(0, format!("{}-{:06x}", leaf.history.len() + 1, random.below(1_u64 << 24)));
        let value = Json::parse(random.json().as_bytes()).unwrap();
        leaf.body = format!("{{\"n\":{}}}", String::from_utf8(value.into_bytes()).unwrap());
        leaf.deleted = random.one_in(6);
        if leaf.deleted || random.one_in(3) {
            leaf.attachments.clear();
        } else if random.one_in(3) {
            let generation = leaf.history.len() as u64;
            leaf = leaf.with(random.pick(&["n", "m/o", "\u{e9}"]), generation, &random.bytes(40));
        }
        server.write(name, id, leaf);
    }
}

fn options(random: &mut Random, last_seq: u64) -> Spec {
    let mut members = vec![format!("\"worker_batch_size\":{}", 1 + random.below(6_u64))];
    if random.one_in(3) {
        let mut id = || format!("{:?}", random.pick(&IDS).replace('%', "%25"));
        members.push(format!("\"doc_ids\":[{},{}]", id(), id()));
    }
    if random.one_in(3) {
        members.push(format!("\"since_seq\":\"{}-g1AAAA\"", random.below(last_seq + 2)));
    }
    if random.one_in(3) {
        members.push("\"winning_revs_only\":true".to_owned());
    }
    if random.one_in(3) {
        members.push("\"use_checkpoints\":false".to_owned());
    }
    if random.one_in(3) {
        members.push("\"use_bulk_get\":false".to_owned());
    }
    let mut spec = spec("a", "b", &members.join(","));
    if spec.filter == Filter::All && random.one_in(4) {
        spec.filter = Filter::AllButDesign;
    }
    spec
}

fn wanted(server: &Server, spec: &Spec) -> BTreeMap<String, BTreeSet<String>> {
    let since = spec.since_seq.as_ref().map_or(0, |since| Sequences::Strings.read(&since.value().to_text()));
    let source = server.database("a");
    let mut wanted = BTreeMap::new();
    for (id, (seq, _)) in &source.documents {
        let is_wanted = match &spec.filter {
            Filter::DocIds(ids) => ids.contains(id),
            Filter::AllButDesign => !id.starts_with("_design/"),
            _ => true,
        };
        if *seq <= since || !is_wanted {
            continue;
        }
        let most = if spec.winning_revs_only { 1 } else { usize::MAX };
        let revs = source.leaves(id).into_iter().take(most).map(|leaf| leaf.history[0].clone()).collect();
        wanted.insert(id.clone(), revs);
    }
    wanted
}

async fn check(seed: u64) -> usize {
    let mut random = Random::of(seed);
    let missing = Unsupported { bulk_get: random.one_in(4), multipart: random.one_in(4) };
    let server = Server::new(Sequences::Strings, missing);
    for name in ["a", "b"] {
        server.databases.lock().insert(name.to_owned(), Default::default());
    }
    write_some(&server, &mut random, "a");
    if random.one_in(2) {
        write_some(&server, &mut random, "b");
    }
    let spec = options(&mut random, server.database("a").seq);
    let context = format!("seed {seed}, {spec:?}");
    let before = server.database("b");
    let wanted = wanted(&server, &spec);
    let sides = Sides { source: server.clone(), target: server.clone() };
    let (outcome, statistics) = sides.run(&spec, &services()).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
    let (source, target) = (server.database("a"), server.database("b"));
    let mut brought = 0;
    for id in source.documents.keys().chain(before.documents.keys()) {
        let revs = wanted.get(id).cloned().unwrap_or_default();
        for rev in &revs {
            let (there, here) = (target.leaf(id, rev), source.leaf(id, rev));
            assert!(there.is_some(), "{context}: {id} {rev} is missing");
            if before.leaf(id, rev).is_none() {
                assert_eq!(there, here, "{context}: {id} {rev}");
                brought += 1;
            }
        }
        for leaf in target.leaves(id) {
            let rev = &leaf.history[0];
            assert!(before.has(id, rev) || revs.contains(rev), "{context}: {id} {rev} was not asked for");
        }
        for leaf in before.leaves(id) {
            assert!(target.has(id, &leaf.history[0]), "{context}: {id} {} is gone", leaf.history[0]);
        }
    }
    let asked: usize = wanted.values().map(BTreeSet::len).sum();
    assert_eq!(statistics.revisions_checked, asked as u64, "{context}");
    let brought_distinct = target.writes.len() - before.writes.len();
    assert_eq!(statistics.docs_written, brought_distinct as u64, "{context}");
    assert!(spec.tuning.use_checkpoints || target.locals.is_empty() && source.locals.is_empty(), "{context}");
    let (again, _) = sides.run(&spec, &services()).await;
    assert!(matches!(again, Outcome::Completed(_)), "{context}: {again:?}");
    assert_eq!(server.database("b").state(), target.state(), "{context}");
    assert!(server.database("b").writes.values().all(|count| *count == 1), "{context}");
    brought
}

#[tokio::test(start_paused = true)]
async fn requested_documents_are_replicated() {
    let mut brought = 0;
    for seed in 0..400 {
        brought += check(seed).await;
    }
    assert!(brought > 1_000, "only {brought} revisions");
}
