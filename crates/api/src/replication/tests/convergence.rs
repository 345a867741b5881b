//! Sessions between databases of a whole server with faults: at every exchange, and at random. Three databases that are
//! edited and replicated at random converge to the same leaves, winners, histories and attachments. Seeds are printed.

use settee_model::testing::{Random, scaled};
use settee_replication::{
    Control, Identity, Outcome, Peer, Places, Progress, ReplicationId, Request, Services, Session, Spec, Tuning,
};
use tokio::sync::watch;

use super::*;

const ROUNDS: u64 = 25;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Before,
    /// The request takes effect, but its response is lost.
    After,
    Cut,
    /// This exchange and all later ones hang.
    Stall,
}

struct Broken {
    inner: InProcess,
    wrong: Wrong,
    first: u64,
    count: u64,
    exchanges: AtomicU64,
}

impl Transport for Broken {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        let number = self.exchanges.fetch_add(1, Ordering::Relaxed);
        let broken = || TransportError::Broken("injected".to_owned());
        Box::pin(async move {
            if !(self.first..self.first + self.count).contains(&number) {
                return self.inner.call(request).await;
            }
            match self.wrong {
                Wrong::Before => Err(broken()),
                Wrong::Stall => std::future::pending().await,
                Wrong::After => {
                    let _ = self.inner.call(request).await?.into_body().collect().await;
                    Err(broken())
                }
                Wrong::Cut => {
                    let response = self.inner.call(request).await?;
                    let (head, body) = response.into_parts();
                    let whole = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                    let cut = Cut { body: full_body(whole.clone()), left: whole.len().saturating_sub(1) };
                    Ok(http::Response::from_parts(head, cut.boxed_unsync()))
                }
            }
        })
    }
}

impl World {
    fn way(&self, wrong: Wrong, first: u64, count: u64) -> Arc<Broken> {
        let user = User { name: Some("admin".to_owned()), roles: Roles::Given(vec!["_admin".to_owned()]) };
        let inner = InProcess::new(Arc::downgrade(&self.node), Arc::clone(&self.router), user);
        Arc::new(Broken { inner, wrong, first, count, exchanges: AtomicU64::new(0) })
    }

    fn whole(&self) -> Arc<Broken> {
        self.way(Wrong::Before, 0, 0)
    }
}

fn spec(source: &str, target: &str, members: &str) -> Spec {
    let text = format!("{{\"source\":\"{source}\",\"target\":\"{target}\"{members}}}");
    let json = Json::parse(text.as_bytes()).unwrap();
    match Request::parse(json.value(), &User::default(), &Tuning::default()).unwrap() {
        Request::Replicate(spec) => *spec,
        Request::Cancel(_) => unreachable!(),
    }
}

fn services() -> Services {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Services {
        now_s: Arc::new(|| BEGIN_MS / 1000),
        new_uuid: Arc::new(|| format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))),
        places: Places::default(),
        counters: Arc::default(),
    }
}

async fn run(spec: &Spec, source: &Arc<Broken>, target: &Arc<Broken>) -> Option<Outcome> {
    let source = Peer::new(spec.source.clone(), Arc::clone(source) as Arc<_>, &spec.tuning);
    let target = Peer::new(spec.target.clone(), Arc::clone(target) as Arc<_>, &spec.tuning);
    let identity = Identity { uuid: "uuid".to_owned(), hostname: "here".to_owned(), port: 5984 };
    let id = ReplicationId::compute(spec, &identity, &source).await.unwrap();
    let session = Session::new(Arc::new(spec.clone()), id, source, target, services(), Arc::new(Progress::default()));
    let (_control, controlled) = watch::channel(Control::Run);
    tokio::time::timeout(Duration::from_secs(300), session.run(controlled)).await.ok()
}

async fn state(world: &World, name: &str) -> String {
    let (_, changes) = world.get(&format!("/{name}/_changes?style=all_docs")).await;
    let mut documents: Vec<(String, Vec<String>)> = changes
        .value()
        .get("results")
        .unwrap()
        .elements()
        .map(|row| {
            let mut revs: Vec<String> =
                row.get("changes").unwrap().elements().map(|change| text(change, "rev").unwrap()).collect();
            // The winner comes first.
            revs[1..].sort_unstable();
            (text(row, "id").unwrap(), revs)
        })
        .collect();
    documents.sort();
    let asked: Vec<String> = documents
        .iter()
        .flat_map(|(id, revs)| revs.iter().map(move |rev| format!("{{\"id\":\"{id}\",\"rev\":\"{rev}\"}}")))
        .collect();
    let body = format!("{{\"docs\":[{}]}}", asked.join(","));
    let got = world.post(&format!("/{name}/_bulk_get?revs=true&attachments=true"), &body).await;
    assert_eq!(got.value().get("results").unwrap().elements().count(), asked.len());
    format!("{documents:?}\n{}", show(&got))
}

async fn edit(world: &World, random: &mut Random) {
    let (name, id) = (NAMES[random.below(3_usize)], format!("doc{}", random.below(5)));
    let (_, changes) = world.get(&format!("/{name}/_changes?style=all_docs")).await;
    let rows = changes.value().get("results").unwrap();
    let row = rows.elements().find(|row| text(*row, "id").as_deref() == Some(&id));
    let revs: Vec<String> = row
        .into_iter()
        .flat_map(|row| row.get("changes").unwrap().elements())
        .map(|change| text(change, "rev").unwrap())
        .collect();
    let mut members = format!("\"_id\":\"{id}\",\"n\":{}", random.below(1000));
    match revs.get(random.below(revs.len() + 1)) {
        Some(rev) => members.push_str(&format!(",\"_rev\":\"{rev}\"")),
        None if !revs.is_empty() => {
            let hash = format!("{:032x}", u128::from(random.below(u64::MAX)));
            let document = format!("{{{members},\"_revisions\":{{\"start\":1,\"ids\":[\"{hash}\"]}}}}");
            let body = format!("{{\"new_edits\":false,\"docs\":[{document}]}}");
            world.post(&format!("/{name}/_bulk_docs"), &body).await;
            return;
        }
        None => {}
    }
    match random.below(6) {
        0 => members.push_str(",\"_deleted\":true"),
        1 | 2 => {
            let data = "QUJD".repeat(1 + random.below(40_usize));
            let kind = ["text/plain", "image/png"][random.below(2_usize)];
            let attachment = format!("{{\"content_type\":\"{kind}\",\"data\":\"{data}\"}}");
            members.push_str(&format!(",\"_attachments\":{{\"x\":{attachment}}}"));
        }
        _ => {}
    }
    // Edits of deleted leaves fail with a conflict, which is ignored.
    world.ask(&admin(), Method::PUT, &format!("/{name}/{id}"), &format!("{{{members}}}")).await;
}

async fn check_round(seed: u64) {
    let mut random = Random::of(seed);
    let world = World::new().await;
    world.databases(&NAMES).await;
    for _ in 0..30 {
        if random.below(3) > 0 {
            edit(&world, &mut random).await;
            continue;
        }
        let (from, to) = (random.below(3_usize), random.below(2_usize));
        let members = ",\"worker_batch_size\":2,\"retries_per_request\":1";
        let spec = spec(NAMES[from], NAMES[(from + 1 + to) % 3], members);
        let mut way = || {
            let wrong = [Wrong::Before, Wrong::After, Wrong::Cut, Wrong::Stall][random.below(4_usize)];
            world.way(wrong, random.below(25), random.below(4))
        };
        let (source, target) = (way(), way());
        run(&spec, &source, &target).await;
    }
    for (source, target) in [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b"), ("c", "b"), ("b", "a")] {
        let outcome = run(&spec(source, target, ""), &world.whole(), &world.whole()).await;
        assert!(matches!(outcome, Some(Outcome::Completed(_))), "seed {seed}: {outcome:?}");
    }
    let first = state(&world, "a").await;
    for name in ["b", "c"] {
        assert_eq!(state(&world, name).await, first, "seed {seed}: {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn databases_converge() {
    for round in 0..scaled(ROUNDS) {
        let seed = 0x5e77_ee00 + round * 7919;
        println!("seed {seed}");
        check_round(seed).await;
    }
}

async fn varied() -> World {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/plain", "{\"x\":1}").await;
    world.put("/a/_design/d", "{\"views\":{}}").await;
    let attached = "{\"_attachments\":{\"t\":{\"content_type\":\"text/plain\",\"data\":\"aGVsbG8=\"},\
                    \"b/c\":{\"content_type\":\"image/png\",\"data\":\"AAEC\"}}}";
    let first = world.put("/a/attached", attached).await;
    let second = format!(
        "{{\"_rev\":\"{}\",\"_attachments\":{{\"t\":{{\"stub\":true}},\"u\":{{\"data\":\"\"}}}}}}",
        rev(&first)
    );
    world.put("/a/attached", &second).await;
    let gone = world.put("/a/gone", "{}").await;
    world.done(Method::DELETE, &format!("/a/gone?rev={}", rev(&gone)), "").await;
    let branches = "{\"new_edits\":false,\"docs\":[\
                    {\"_id\":\"c\",\"_revisions\":{\"start\":3,\"ids\":[\"c\",\"b\",\"a\"]}},\
                    {\"_id\":\"c\",\"_revisions\":{\"start\":2,\"ids\":[\"x\",\"a\"]},\"n\":2},\
                    {\"_id\":\"c\",\"_revisions\":{\"start\":2,\"ids\":[\"y\",\"a\"]},\"_deleted\":true}]}";
    world.post("/a/_bulk_docs", branches).await;
    world
}

#[tokio::test(start_paused = true)]
async fn faults_at_every_exchange_lose_nothing() {
    let members = ",\"worker_batch_size\":2,\"worker_processes\":2,\"checkpoint_interval\":1";
    let spec = spec("a", "b", members);
    for of_source in [true, false] {
        for (wrong, count) in
            [(Wrong::Before, 1), (Wrong::After, 1), (Wrong::Cut, 1), (Wrong::Before, 1 << 40), (Wrong::Stall, 1 << 40)]
        {
            for first in 0.. {
                let context = format!("{wrong:?} x {count} at exchange {first}, of the source: {of_source}");
                let world = varied().await;
                let broken = world.way(wrong, first, count);
                let sides = match of_source {
                    true => (Arc::clone(&broken), world.whole()),
                    false => (world.whole(), Arc::clone(&broken)),
                };
                let outcome = run(&spec, &sides.0, &sides.1).await;
                let ended = broken.exchanges.load(Ordering::Relaxed) <= first;
                let completed = matches!(outcome, Some(Outcome::Completed(_)));
                assert_eq!(completed, ended || count == 1, "{context}: {outcome:?}");
                if !completed {
                    let outcome = run(&spec, &world.whole(), &world.whole()).await;
                    assert!(matches!(outcome, Some(Outcome::Completed(_))), "{context}: {outcome:?}");
                }
                assert_eq!(state(&world, "a").await, state(&world, "b").await, "{context}");
                // No additional documents exist: four are not deleted.
                let (_, info) = world.get("/b").await;
                assert_eq!(info.value().get("doc_count").and_then(Value::as_u64), Some(4), "{context}");
                if ended {
                    assert!(first > 10, "{context}: so few exchanges");
                    break;
                }
            }
        }
    }
}
