//! Failures of other servers, and many concurrent jobs.

use super::*;

async fn running() -> (World, World) {
    let (here, there) = World::pair().await;
    here.databases(&["a"]).await;
    there.databases(&["b"]).await;
    here.put("/_replicator/push", r#"{"source":"a","target":"http://u:p@peer/b","continuous":true}"#).await;
    here.put("/a/x", "{}").await;
    there.until_found("/b/x").await;
    (here, there)
}

#[tokio::test(start_paused = true)]
async fn a_continuous_replication_outlives_faults_of_its_peer() {
    let faults = [
        Fault::Refused,
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Status(403),
        Fault::Cut(10),
    ];
    for fault in faults {
        let (here, there) = running().await;
        *here.network.fault.lock() = Some(fault);
        let before = here.network.calls.load(Ordering::Relaxed);
        here.put("/a/y", "{}").await;
        let deadline = Instant::now() + Duration::from_secs(600);
        while Instant::now() < deadline {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let calls = here.network.calls.load(Ordering::Relaxed) - before;
        assert!((1..=200).contains(&calls), "{fault:?}: {calls} exchanges in ten minutes");
        assert_eq!(there.get("/b/y").await.0, 404, "{fault:?}");
        *here.network.fault.lock() = None;
        there.until_found("/b/y").await;
        here.until_state("push", "running").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_replication_reports_the_state_of_its_peer() {
    for (fault, status) in [(Fault::Refused, 500), (Fault::Status(500), 500), (Fault::Status(401), 401)] {
        let (here, there) = World::pair().await;
        here.databases(&["a"]).await;
        there.databases(&["b"]).await;
        here.put("/a/x", "{}").await;
        *here.network.fault.lock() = Some(fault);
        let body = r#"{"source":"a","target":"http://u:SECRET@peer/b"}"#;
        let (answered, json) = here.ask(&admin(), Method::POST, "/_replicate", body).await;
        assert_eq!(answered, status, "{fault:?}: {}", show(&json));
        assert!(!show(&json).contains("SECRET"), "{}", show(&json));
        assert_eq!(here.jobs().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn both_ways_between_two_servers() {
    let (here, there) = World::pair().await;
    here.databases(&["a"]).await;
    there.databases(&["b"]).await;
    here.put("/_replicator/push", r#"{"source":"a","target":"http://u:p@peer/b","continuous":true}"#).await;
    here.put("/_replicator/pull", r#"{"source":"http://u:p@peer/b","target":"a","continuous":true}"#).await;
    here.put("/a/x", r#"{"from":"here"}"#).await;
    there.put("/b/y", r#"{"from":"there"}"#).await;
    there.until_found("/b/x").await;
    here.until_found("/a/y").await;
    let there = there.restarted().await;
    *here.network.there.lock() = Some((Arc::downgrade(&there.node), Arc::clone(&there.router)));
    there.put("/b/z", "{}").await;
    here.until_found("/a/z").await;
}

#[tokio::test(start_paused = true)]
async fn more_jobs_than_may_run_take_turns() {
    let world = World::new().await;
    world.set("max_jobs", "3");
    world.set("max_churn", "2");
    world.set("interval", "10000");
    world.databases(&["a"]).await;
    for number in 0..12 {
        world.databases(&[&format!("t{number}")]).await;
        let document = format!("{{\"source\":\"a\",\"target\":\"t{number}\",\"continuous\":true}}");
        world.put(&format!("/_replicator/r{number}"), &document).await;
    }
    for round in 0..2 {
        world.put(&format!("/a/x{round}"), "{}").await;
        let begun = Instant::now();
        for number in 0..12 {
            world.until_found(&format!("/t{number}/x{round}")).await;
            let (_, tasks) = world.get("/_active_tasks").await;
            assert!(tasks.value().elements().count() <= 3, "{}", show(&tasks));
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "round {round}: {:?}", begun.elapsed());
    }
}
