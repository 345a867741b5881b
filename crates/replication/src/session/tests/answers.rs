//! Altered responses: equivalent ones change nothing; others end the session without lost or repeated writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::varied;
use crate::session::Outcome;
use crate::spec::Spec;
use crate::testing::{
    Alteration, Altering, HARMFUL, HARMLESS, KINDS, Sequences, Server, Sides, Unsupported, check_file, services, spec,
};

fn spec_of(kind: &str) -> Spec {
    let create = if kind == "create" { ",\"create_target\":true" } else { "" };
    spec(
        "http://h/a",
        "http://h/b",
        &format!("\"worker_batch_size\":4,\"worker_processes\":1,\"retries_per_request\":1{create}"),
    )
}

/// Individual documents are sent concurrently, so the failure that is reported first is random.
fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed(_) => "completed".to_owned(),
        Outcome::Stopped => "stopped".to_owned(),
        Outcome::Failed(failure) => {
            let sent_alone = ["/b/_design/d?", "/b/attached?"];
            sent_alone.iter().fold(failure.to_string(), |text, path| text.replace(path, "/b/{doc}?"))
        }
    }
}

async fn altered(
    server: &Arc<Server>,
    side: &str,
    kind: &'static str,
    change: Alteration,
    count: u64,
) -> Option<Outcome> {
    let altering = Altering::new(server.clone(), kind, change, count);
    let sides = match side {
        "source" => Sides { source: altering.clone(), target: server.clone() },
        _ => Sides { source: server.clone(), target: altering.clone() },
    };
    // A week of the simulated clock: no wait lasts as long.
    let (spec, services) = (spec_of(kind), services());
    let session = tokio::time::timeout(Duration::from_secs(7 * 86_400), sides.run(&spec, &services));
    let (outcome, _) = session.await.unwrap_or_else(|_| panic!("{side} {kind} {change:?} {count}: no end"));
    (altering.altered() > 0).then_some(outcome)
}

/// Asserts that both databases are equal after an unaltered session, and that no revision was written twice.
async fn assert_nothing_lost(server: &Arc<Server>, context: &str) {
    let whole = Sides { source: server.clone(), target: server.clone() };
    let (outcome, _) = whole.run(&spec_of(""), &services()).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
    let (source, target) = (server.database("a"), server.database("b"));
    assert_eq!(source.state(), target.state(), "{context}");
    assert!(target.writes.values().all(|count| *count == 1), "{context}: {:?}", target.writes);
}

async fn outcomes(side: &str, kind: &'static str, count: u64, table: &mut String) {
    let mut by_outcome: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for change in HARMFUL {
        let context = format!("{side} {kind} {change:?} {count}");
        let server = varied(Sequences::Strings, Unsupported::default());
        let Some(outcome) = altered(&server, side, kind, change, count).await else { panic!("{context}: none") };
        if (kind, change) != ("revs_diff", Alteration::Text("{}")) {
            assert_nothing_lost(&server, &context).await;
        }
        by_outcome.entry(shown(&outcome)).or_default().push(format!("{change:?}"));
    }
    let often = if count == 1 { "once" } else { "always" };
    table.push_str(&format!("{side}: {kind}, {often}\n"));
    for (outcome, changes) in by_outcome {
        table.push_str(&format!("  {outcome}\n    {}\n", changes.join(" ")));
    }
}

fn kinds() -> Vec<(&'static str, &'static str)> {
    let both = KINDS.iter().flat_map(|(kind, source, target)| {
        [("source", *kind, *source), ("target", *kind, *target)].into_iter().filter(|(.., has)| *has)
    });
    both.map(|(side, kind, _)| (side, kind)).collect()
}

#[tokio::test(start_paused = true)]
async fn answers_that_say_the_same_in_another_way() {
    for (side, kind) in kinds() {
        for change in HARMLESS {
            let context = format!("{side} {kind} {change:?}");
            let server = varied(Sequences::Strings, Unsupported::default());
            let outcome = altered(&server, side, kind, change, u64::MAX).await;
            assert!(matches!(outcome, Some(Outcome::Completed(_))), "{context}: {outcome:?}");
            assert_eq!(server.database("a").state(), server.database("b").state(), "{context}");
            assert_nothing_lost(&server, &context).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_say_something_else() {
    let mut table = String::new();
    for (side, kind) in kinds() {
        for count in [1, u64::MAX] {
            outcomes(side, kind, count, &mut table).await;
        }
    }
    check_file("altered.txt", &table);
}
