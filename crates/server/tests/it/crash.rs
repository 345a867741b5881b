//! Tests of `kill -9` at random moments during loads and index builds: every acknowledged write must exist, and all
//! redundant counts must agree. `SETTEE_TEST_SCALE=n` multiplies the rounds; `SETTEE_SEED=…` repeats the moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use settee_model::json::{Json, Value};
use settee_model::testing::{Random, scaled};

use crate::server::{Directory, Server};
use crate::{Client, design, number, rows, save, text, wait_for};

const SINGLE_WRITERS: usize = 3;
const BULK_WRITERS: usize = 2;
const GROUPS: i64 = 7;

const ROUNDS: u64 = 5;

type State = (String, Option<i64>);

#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: BTreeMap<String, State>,
    open: BTreeMap<String, Option<i64>>,
}

#[test]
fn nothing_acknowledged_is_lost() {
    let rounds = scaled(ROUNDS) as usize;
    let mut random = Random::new();
    let directory = Directory::new();
    let mut known = vec![Known::default(); SINGLE_WRITERS + BULK_WRITERS];
    let mut server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let map = "function (doc) { if (doc.n !== undefined) emit([doc.n % 7, doc.w], doc.n); }";
    save(&mut client, "/db/_design/d", &design(map, Some("_sum")));
    let (mut writes, mut queries) = (0, 0);
    for round in 0..rounds {
        let after = random.below(800);
        let counted = load_until_killed(server, &mut known, &mut random, after);
        writes += counted.0;
        queries += counted.1;
        server = Server::start(&directory);
        let found = verify(&mut server.client(), round);
        for known in &mut known {
            known.reconcile(&found, round);
        }
        let total: usize = known.iter().map(|known| known.acknowledged.len()).sum();
        assert_eq!(found.len(), total, "documents that no client wrote, after crash {round}");
    }
    assert!(writes > rounds * 5 && queries >= rounds / 4, "{writes} writes and {queries} queries are no load");
    eprintln!("{rounds} crashes, {writes} acknowledged requests, {queries} queries of the view in between");
    assert!(server.terminate().0.success());
}

fn load_until_killed(server: Server, known: &mut [Known], random: &mut Random, after: usize) -> (usize, usize) {
    let (writes, queries, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for (writer, known) in known.iter_mut().enumerate() {
            let (mut client, mut random) = (server.client(), random.fork());
            let (writes, over) = (&writes, &over);
            scope.spawn(move || {
                let write = if writer < SINGLE_WRITERS { Known::write_one } else { Known::write_many };
                while !over.load(Ordering::Relaxed) && write(known, &mut client, &mut random, writer) {
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (mut client, count) = (server.client(), &queries);
        scope.spawn(move || {
            while let Ok(reply) = client.request("GET", "/db/_design/d/_view/v?group=true", &[], b"") {
                assert_eq!(reply.status, 200, "{}", reply.text());
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_for("the moment of the crash", || (writes.load(Ordering::Relaxed) >= after).then_some(()));
        server.kill();
        over.store(true, Ordering::Relaxed);
    });
    (writes.into_inner(), queries.into_inner())
}

impl Known {
    fn write_one(&mut self, client: &mut Client, random: &mut Random, writer: usize) -> bool {
        let (id, rev) = self.pick(random, writer);
        let n: i64 = random.below(1000);
        let deletes = rev.is_some() && random.below(8) == 0;
        self.open.insert(id.clone(), (!deletes).then_some(n));
        let rev_member = rev.map(|rev| format!("\"_rev\":\"{rev}\",")).unwrap_or_default();
        let deleted = if deletes { "\"_deleted\":true," } else { "" };
        let body = format!("{{{rev_member}{deleted}\"n\":{n},\"w\":{writer}}}");
        let Ok(reply) = client.request("PUT", &format!("/db/{id}"), &[], body.as_bytes()) else {
            return false;
        };
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
        self.acknowledge(id, text(reply.json().value(), "rev"));
        true
    }

    fn write_many(&mut self, client: &mut Client, random: &mut Random, writer: usize) -> bool {
        let mut docs = BTreeMap::new();
        for _ in 0..1 + random.below(100) {
            let (id, rev) = self.pick(random, writer);
            let n: i64 = random.below(1000);
            let rev = rev.map(|rev| format!("\"_rev\":\"{rev}\",")).unwrap_or_default();
            docs.insert(id.clone(), format!("{{\"_id\":\"{id}\",{rev}\"n\":{n},\"w\":{writer}}}"));
            self.open.insert(id, Some(n));
        }
        let body = format!("{{\"docs\":[{}]}}", docs.into_values().collect::<Vec<_>>().join(","));
        let json = [("Content-Type", "application/json")];
        let Ok(reply) = client.request("POST", "/db/_bulk_docs", &json, body.as_bytes()) else {
            return false;
        };
        assert_eq!(reply.status, 201, "{}", reply.text());
        for row in reply.json().value().elements() {
            self.acknowledge(text(row, "id"), text(row, "rev"));
        }
        true
    }

    fn pick(&self, random: &mut Random, writer: usize) -> (String, Option<String>) {
        let new = || (format!("{writer}-{:06x}", self.acknowledged.len() + self.open.len()), None);
        if random.below(3) > 0 || self.acknowledged.is_empty() {
            let (id, rev) = new();
            if !self.acknowledged.contains_key(&id) && !self.open.contains_key(&id) {
                return (id, rev);
            }
        }
        let nth = random.below(self.acknowledged.len().max(1));
        match self.acknowledged.iter().nth(nth) {
            Some((id, (rev, Some(_)))) if !self.open.contains_key(id) => (id.clone(), Some(rev.clone())),
            _ => (format!("{writer}-{:x}-{:08x}", self.acknowledged.len(), random.below(1_u64 << 32)), None),
        }
    }

    fn acknowledge(&mut self, id: String, rev: String) {
        let n = self.open.remove(&id).expect("only what was sent is answered");
        self.acknowledged.insert(id, (rev, n));
    }

    fn reconcile(&mut self, found: &BTreeMap<String, State>, round: usize) {
        for (id, state) in &self.acknowledged {
            let now = found.get(id).unwrap_or_else(|| panic!("{id} is lost after crash {round}"));
            let happened = self.open.get(id).is_some_and(|n| *n == now.1 && now.0 != state.0);
            assert!(now == state || happened, "{id} was {state:?}, is {now:?} after crash {round}");
        }
        for (id, n) in std::mem::take(&mut self.open) {
            let Some(now) = found.get(&id) else { continue };
            assert!(now.1 == n || self.acknowledged.get(&id) == Some(now), "{id} should be {n:?}, is {now:?}");
            self.acknowledged.insert(id, now.clone());
        }
    }
}

fn verify(client: &mut Client, round: usize) -> BTreeMap<String, State> {
    let all = client.get("/db/_all_docs?include_docs=true").expect(200).json();
    let live = rows(&all);
    assert_eq!(number(all.value(), "total_rows"), live.len() as i64, "total_rows after crash {round}");
    let mut found = BTreeMap::new();
    let mut expected_rows = BTreeMap::new();
    for row in &live {
        let (id, doc) = (text(*row, "id"), row.get("doc").unwrap());
        if id.starts_with("_design/") {
            continue;
        }
        let n = number(doc, "n");
        expected_rows.insert((n % GROUPS, number(doc, "w"), id.clone()), n);
        found.insert(id, (text(doc, "_rev"), Some(n)));
    }
    check_changes(client, &mut found, round);
    let info = client.get("/db").expect(200).json();
    assert_eq!(number(info.value(), "doc_count"), live.len() as i64, "doc_count after crash {round}");
    let deleted = found.values().filter(|(_, n)| n.is_none()).count();
    assert_eq!(number(info.value(), "doc_del_count"), deleted as i64, "doc_del_count after crash {round}");
    check_view(client, &expected_rows, round);
    found
}

fn check_changes(client: &mut Client, found: &mut BTreeMap<String, State>, round: usize) {
    let changes = client.get("/db/_changes").expect(200).json();
    let (mut seen, mut last) = (BTreeSet::new(), 0);
    let seq = |text: &str| text.split('-').next().and_then(|seq| seq.parse::<u64>().ok()).unwrap();
    for change in changes.value().get("results").unwrap().elements() {
        let (id, this) = (text(change, "id"), seq(&text(change, "seq")));
        assert!(this > last, "{id} is out of order after crash {round}");
        last = this;
        assert!(seen.insert(id.clone()), "{id} is listed twice after crash {round}");
        let rev = text(change.get("changes").unwrap().elements().next().unwrap(), "rev");
        if change.get("deleted").and_then(Value::as_bool) == Some(true) {
            assert_eq!(found.insert(id.clone(), (rev, None)), None, "{id} is listed and deleted after crash {round}");
        } else if let Some((listed, _)) = found.get(&id) {
            assert_eq!(*listed, rev, "{id} after crash {round}");
        } else {
            assert_eq!(id, "_design/d", "only in the feed after crash {round}");
        }
    }
    let missing: Vec<_> = found.keys().filter(|id| !seen.contains(*id)).collect();
    assert!(missing.is_empty(), "not in the feed after crash {round}: {missing:?}");
    let last_seq = seq(&text(changes.value(), "last_seq"));
    assert_eq!(last_seq, last, "last_seq after crash {round}");
}

fn check_view(client: &mut Client, expected: &BTreeMap<(i64, i64, String), i64>, round: usize) {
    let view = client.get("/db/_design/d/_view/v?reduce=false").expect(200).json();
    assert_eq!(number(view.value(), "total_rows"), expected.len() as i64, "rows of the view after crash {round}");
    let found: Vec<_> = rows(&view).into_iter().map(row).collect();
    let wanted: Vec<_> = expected.iter().map(|((g, w, id), n)| ((*g, *w, id.clone()), *n)).collect();
    assert_eq!(found.len(), wanted.len(), "rows of the view after crash {round}");
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found, wanted, "a row of the view after crash {round}");
    }
    let sums = client.get("/db/_design/d/_view/v?group_level=1").expect(200).json();
    let mut groups = BTreeMap::new();
    for ((g, ..), n) in &wanted {
        *groups.entry(*g).or_insert(0) += n;
    }
    let found: BTreeMap<i64, i64> = rows(&sums).into_iter().map(|row| (key(row, 0), number(row, "value"))).collect();
    assert_eq!(found, groups, "sums of the view after crash {round}");
    let whole: Json = client.get("/db/_design/d/_view/v").expect(200).json();
    let whole: i64 = rows(&whole).first().map_or(0, |row| number(*row, "value"));
    assert_eq!(whole, groups.values().sum::<i64>(), "the sum of the view after crash {round}");
}

fn row(row: Value<'_>) -> ((i64, i64, String), i64) {
    ((key(row, 0), key(row, 1), text(row, "id")), number(row, "value"))
}

fn key(row: Value<'_>, index: usize) -> i64 {
    row.get("key").and_then(|key| key.elements().nth(index)).and_then(Value::as_i64).unwrap()
}
