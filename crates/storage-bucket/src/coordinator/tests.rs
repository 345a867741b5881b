//! Tests of [`Coordinator`]: tables of heartbeats and claims, and random ones.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn beat(name: &str, claims: &[Claim]) -> Beat {
    let announced = Some((name.to_owned(), format!("http://{name}/")));
    Beat { announced, claims: claims.to_vec(), is_fresh: true, ..Beat::default() }
}

fn claim(key: &str, epoch: u64) -> Claim {
    Claim { key: key.to_owned(), epoch }
}

fn first() -> Coordinator {
    Coordinator::new(Duration::ZERO, 1..100, Handover::default())
}

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);

#[test]
fn a_claim_belongs_to_one_process_until_it_is_released_or_expires() {
    let mut coordinator = first();
    assert_eq!(coordinator.claim(Duration::ZERO, A, "work"), None, "a process without a heartbeat");
    coordinator.heartbeat(Duration::ZERO, A, &beat("a", &[]));
    coordinator.heartbeat(Duration::ZERO, B, &beat("b", &[]));
    let epoch = coordinator.claim(SECOND, A, "work").expect("it is free");
    assert_eq!(coordinator.claim(SECOND, B, "work"), None);
    coordinator.release(B, &claim("work", epoch));
    coordinator.release(A, &claim("work", epoch + 1));
    assert_eq!(coordinator.claim(SECOND, B, "work"), None, "only its holder releases it");
    coordinator.heartbeat(3 * SECOND, B, &beat("b", &[]));
    assert_eq!(coordinator.claim(EXPIRY - SECOND / 10, B, "work"), None, "its holder may still rely on it");
    assert!(coordinator.claim(EXPIRY, B, "work").is_some_and(|later| later > epoch));
    let answer = coordinator.heartbeat(EXPIRY, A, &beat("a", &[claim("work", epoch)]));
    assert_eq!(answer.held, [], "the earlier holder learns that it has lost the claim");
}

#[test]
fn an_expired_process_keeps_claims_that_nobody_took() {
    let mut coordinator = first();
    coordinator.heartbeat(Duration::ZERO, A, &beat("a", &[]));
    let held = claim("work", coordinator.claim(Duration::ZERO, A, "work").expect("it is free"));
    coordinator.heartbeat(2 * EXPIRY, B, &beat("b", &[]));
    let late = Beat { is_fresh: false, ..beat("a", std::slice::from_ref(&held)) };
    let answer = coordinator.heartbeat(2 * EXPIRY, A, &late);
    assert_eq!(answer.held, [held]);
    assert_eq!(coordinator.claim(2 * EXPIRY, B, "work"), None);
}

#[test]
fn a_successor_takes_over_the_claims_of_the_others_and_frees_those_of_the_failed_coordinator() {
    let mut before = first();
    for (node, name) in [(A, "a"), (B, "b"), (C, "c")] {
        before.heartbeat(Duration::ZERO, node, &beat(name, &[]));
    }
    let epochs =
        [A, B, C].map(|node| before.claim(Duration::ZERO, node, &format!("writer/3/{}", node.0)).expect("free"));
    let seen = before.heartbeat(Duration::ZERO, B, &beat("b", &[claim("writer/3/2", epochs[1])]));
    // A grant that the successor does not know.
    let own = claim("build", before.claim(Duration::ZERO, C, "build").expect("free"));
    let freed = ["writer/3/1".to_owned()].into();
    let handover = Handover { live: vec![B, C], writers: seen.writers, freed, is_incomplete: false };
    let mut after = Coordinator::new(Duration::ZERO, 100..200, handover);
    after.heartbeat(Duration::ZERO, B, &beat("b", &[claim("writer/3/2", epochs[1])]));
    assert!(after.claim(Duration::ZERO, B, "writer/3/1").is_some_and(|epoch| epoch >= 100), "its holder has ended");
    assert_eq!(after.claim(Duration::ZERO, B, "writer/3/3"), None, "its holder has not sent a heartbeat yet");
    assert_eq!(after.claim(Duration::ZERO, B, "build"), None, "an unknown process may have it");
    let answer = after.heartbeat(SECOND, C, &beat("c", &[claim("writer/3/3", epochs[2]), own.clone()]));
    assert_eq!(answer.held, [own, claim("writer/3/3", epochs[2])]);
    assert_eq!(after.claim(SECOND, B, "build"), None);
    assert!(after.claim(SECOND, B, "other").is_some());
}

#[test]
fn a_coordinator_without_knowledge_waits_for_unknown_processes() {
    let mut after = Coordinator::new(Duration::ZERO, 100..200, Handover { is_incomplete: true, ..Handover::default() });
    after.heartbeat(Duration::ZERO, B, &beat("b", &[]));
    assert_eq!(after.claim(Duration::ZERO, B, "work"), None);
    after.heartbeat(EXPIRY, B, &beat("b", &[]));
    assert_eq!(after.claim(EXPIRY, B, "work"), Some(100));
}

#[test]
fn a_claim_that_its_process_does_not_know_is_free_after_a_while() {
    let mut coordinator = first();
    coordinator.heartbeat(Duration::ZERO, A, &beat("a", &[]));
    assert!(coordinator.claim(Duration::ZERO, A, "work").is_some());
    coordinator.heartbeat(SECOND, A, &beat("a", &[]));
    coordinator.heartbeat(SECOND, B, &beat("b", &[]));
    assert_eq!(coordinator.claim(SECOND, B, "work"), None, "the answer may be on its way");
    coordinator.heartbeat(GRANT_TIME, A, &beat("a", &[]));
    assert!(coordinator.claim(GRANT_TIME, B, "work").is_some());
}

#[test]
fn a_process_replaces_the_earlier_one_at_its_address() {
    let mut coordinator = first();
    coordinator.heartbeat(Duration::ZERO, A, &beat("a", &[]));
    assert!(coordinator.claim(Duration::ZERO, A, "work").is_some());
    assert!(coordinator.is_name_taken(B, "a") && !coordinator.is_name_taken(A, "a"));
    coordinator.end_earlier(B, "http://other/");
    coordinator.end_earlier(A, "http://a/");
    assert!(!coordinator.is_gone(Duration::ZERO, A));
    coordinator.end_earlier(B, "http://a/");
    assert!(coordinator.is_gone(Duration::ZERO, A) && !coordinator.is_name_taken(B, "a"));
    coordinator.heartbeat(Duration::ZERO, B, &beat("a", &[]));
    assert!(coordinator.claim(Duration::ZERO, B, "work").is_some());
}

#[test]
fn epochs_end_with_their_reservation() {
    let mut coordinator = Coordinator::new(Duration::ZERO, 1..2, Handover::default());
    coordinator.heartbeat(Duration::ZERO, A, &beat("a", &[]));
    assert_eq!(coordinator.claim(Duration::ZERO, A, "work"), Some(1));
    assert_eq!(coordinator.claim(Duration::ZERO, A, "work"), None);
    coordinator.extend(3);
    assert_eq!(coordinator.claim(Duration::ZERO, A, "work"), Some(2));
}

/// Time of the last answered heartbeat, and claims.
type Process = (Option<Duration>, Vec<Claim>);

/// Under random operations no two processes rely on a claim at the same time, and epochs never repeat.
#[test]
fn random_operations_give_a_claim_to_one_process() {
    for seed in 0..200_u64 {
        let mut random = settee_storage::conformance::Generator::new(seed);
        let mut coordinator = first();
        let mut last_epoch = 0;
        let mut nodes: Vec<Process> = vec![(None, Vec::new()); 3];
        let mut now = Duration::ZERO;
        for _ in 0..400 {
            now += Duration::from_millis(random.number() % 900);
            let at = random.below(3);
            let node = NodeId(at as u128);
            match random.below(6) {
                0..=2 => {
                    let is_fresh = nodes[at].0.is_some_and(|sent| now - sent < CLAIM_TIMEOUT);
                    let beat = Beat { is_fresh, ..beat(&at.to_string(), &nodes[at].1) };
                    let answer = coordinator.heartbeat(now, node, &beat);
                    nodes[at].1.retain(|claim| answer.held.contains(claim));
                    nodes[at].0 = Some(now);
                }
                3 => {
                    let key = ["one", "two"][random.below(2)];
                    if let Some(epoch) = coordinator.claim(now, node, key) {
                        assert!(epoch > last_epoch, "seed {seed}");
                        last_epoch = epoch;
                        nodes[at].1.retain(|claim| claim.key != key);
                        nodes[at].1.push(claim(key, epoch));
                    }
                }
                4 => {
                    if let Some(held) = nodes[at].1.pop() {
                        coordinator.release(node, &held);
                    }
                }
                // The coordinator fails; its successor has its last answer to some process.
                _ if random.below(20) == 0 => {
                    let to = random.below(3);
                    let is_fresh = nodes[to].0.is_some_and(|sent| now - sent < CLAIM_TIMEOUT);
                    let beat = Beat { is_fresh, ..beat(&to.to_string(), &nodes[to].1) };
                    let answer = coordinator.heartbeat(now, NodeId(to as u128), &beat);
                    nodes[to].1.retain(|claim| answer.held.contains(claim));
                    nodes[to].0 = Some(now);
                    let live = answer.live.iter().map(|node| node.id).collect();
                    let handover = Handover { live, writers: answer.writers, ..Handover::default() };
                    coordinator = Coordinator::new(now, last_epoch + 1..last_epoch + 1000, handover);
                }
                _ => {}
            }
            for key in ["one", "two"] {
                let relies = |(sent, claims): &&Process| {
                    sent.is_some_and(|sent| now - sent < CLAIM_TIMEOUT) && claims.iter().any(|claim| claim.key == key)
                };
                assert!(nodes.iter().filter(relies).count() <= 1, "seed {seed}: {key} at {now:?}: {nodes:?}");
            }
        }
    }
}
