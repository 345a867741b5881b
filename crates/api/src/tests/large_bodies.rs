//! Requests with bodies above a megabyte run on low-priority threads; all others, also reads of large documents, do
//! not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::Platform;
use crate::tests::node::{Ask, World};

const LANE: &str = "settee-lane";
const LANE_WORK: &str = "settee-large";

fn world() -> (World, Arc<Mutex<BTreeSet<String>>>) {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&names);
    let give_way = Arc::new(move || noted.lock().extend(thread::current().name().map(str::to_owned)));
    let world = World::within(Platform { give_way, ..Platform::default() });
    world.make_database("db");
    (world, names)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_above_a_megabyte_run_on_low_priority_threads() {
    let (world, names) = world();
    let of_lane = || names.lock().iter().any(|name| name == LANE || name == LANE_WORK);
    let text = |bytes| format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
    let reply = world.ask(Ask::new("PUT /db/small").basic("admin", "pw").json(&text(1_000_000))).await;
    assert!(reply.status == 201 && !of_lane(), "{}", reply.line());
    let reply = world.ask(Ask::new("PUT /db/large").basic("admin", "pw").json(&text(2_000_000))).await;
    assert!(reply.status == 201 && names.lock().contains(LANE) && names.lock().contains(LANE_WORK), "{}", reply.line());
    names.lock().clear();
    let reply = world.ask(Ask::new("GET /db/large").basic("admin", "pw")).await;
    assert!(reply.status == 200 && reply.body.len() > 2_000_000 && !of_lane());
}
