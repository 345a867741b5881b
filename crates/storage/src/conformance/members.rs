//! Properties of the membership of a store that two processes use.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::fixture::OpenTwice;
use crate::Engine;
use crate::members::{Claim, Node, NodeId};

const TIMEOUT: Duration = Duration::from_secs(30);

fn until<T>(label: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < TIMEOUT, "{label}");
        thread::yield_now();
    }
}

fn claim(engine: &dyn Engine, key: &str) -> Option<Claim> {
    engine.members().claim(key).expect("the engine can be written")
}

fn names(engine: &dyn Engine) -> Vec<String> {
    engine.members().live().iter().map(|node| node.name.clone()).collect()
}

pub fn names_are_of_one_node(open: OpenTwice<'_>) {
    let engines = open();
    let [one, other] = [&*engines[0], &*engines[1]];
    assert_ne!(one.members().this(), other.members().this(), "the ids of two processes");
    assert_eq!(names(one), Vec::<String>::new(), "members that were not announced");
    let is_gone = |node| other.members().is_gone(node).expect("the engine can be read");
    assert!(!is_gone(one.members().this()) && !is_gone(other.members().this()), "nodes without a name");
    assert!(is_gone(NodeId(u128::MAX)), "a node that never was");
    one.members().announce("b", "http://b").expect("the name is free");
    assert_eq!(names(one), ["b"], "a node that was announced");
    until("the other one sees it", || (names(other) == ["b"]).then_some(()));
    other.members().announce("b", "http://c").expect_err("the name is taken");
    other.members().announce("a", "http://a").expect("the name is free");
    for engine in [one, other] {
        until("both see both", || (names(engine) == ["a", "b"]).then_some(()));
        let live = engine.members().live();
        let seen = |node: &Node| (node.id, node.address.clone());
        let wanted = [(other.members().this(), "http://a".to_owned()), (one.members().this(), "http://b".to_owned())];
        assert_eq!(live.iter().map(seen).collect::<Vec<_>>(), wanted);
    }
    assert!(!is_gone(one.members().this()), "a node with a name");
    one.members().leave().expect("the engine can be written");
    assert!(is_gone(one.members().this()), "a node that has left is gone at once");
    until("one has left", || (names(other) == ["a"]).then_some(()));
    assert!(!names(one).contains(&"b".to_owned()), "a node that has left");
    other.members().announce("b", "http://b").expect("the name is free again");
}

/// All successful claims of several threads to one key belong to one process.
pub fn claims_are_exclusive(open: OpenTwice<'_>) {
    const THREADS: usize = 4;
    let engines = &open();
    let mut last = 0;
    for round in 0..20 {
        let begin = &Barrier::new(2 * THREADS);
        let attempts: Vec<_> = thread::scope(|scope| {
            let spawn = |user: usize| {
                scope.spawn(move || {
                    begin.wait();
                    (user, claim(&*engines[user], "work"))
                })
            };
            let threads: Vec<_> = (0..2 * THREADS).map(|number| spawn(number % 2)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it claims")).collect()
        });
        let got: Vec<_> = attempts.into_iter().filter_map(|(user, claim)| Some((user, claim?))).collect();
        let (user, held) = got.iter().max_by_key(|(_, claim)| claim.epoch).expect("one process gets it").clone();
        assert!(got.iter().all(|(of, _)| *of == user) && got.len() == THREADS, "{got:?}");
        let epochs: HashSet<u64> = got.iter().map(|(_, claim)| claim.epoch).collect();
        assert!(epochs.len() == THREADS && epochs.iter().all(|epoch| *epoch > last), "round {round}: {epochs:?}");
        last = held.epoch;
        assert!(engines[user].members().holds(&held) && !engines[1 - user].members().holds(&held));
        assert_eq!(claim(&*engines[1 - user], "work"), None);
        assert!(claim(&*engines[1 - user], "other work").is_some(), "claims are apart");
        for engine in engines {
            let other = claim(&**engine, "other work");
            other.iter().for_each(|other| engine.members().release(other).expect("it can be released"));
        }
        engines[user].members().release(&held).expect("it can be released");
        assert!(!engines[user].members().holds(&held), "what was released is held");
    }
}

/// A claim that its process releases, or that ends with the process, is available at once with a greater epoch.
pub fn released_claims_are_free(open: OpenTwice<'_>) {
    let engines = open();
    let [one, other] = [&*engines[0], &*engines[1]];
    let replaced = claim(one, "work").expect("it is free");
    let first = claim(one, "work").expect("it holds the claim");
    assert!(first.epoch > replaced.epoch, "{first:?} after {replaced:?}");
    one.members().release(&replaced).expect("nothing to release");
    other.members().release(&first).expect("nothing to release");
    assert!(one.members().holds(&first) && claim(other, "work").is_none(), "a claim that another one released");
    one.members().release(&first).expect("it can be released");
    let second = claim(other, "work").expect("it was released");
    assert!(second.epoch > first.epoch, "{second:?} after {first:?}");
    one.members().release(&first).expect("it was released before");
    assert!(other.members().holds(&second), "a claim whose predecessor was released again");
    other.members().leave().expect("the engine can be written");
    assert!(!other.members().holds(&second), "a claim of a node that has left");
    let third = claim(one, "work").expect("its node has left");
    assert!(third.epoch > second.epoch, "{third:?} after {second:?}");
}

pub fn the_holder_of_a_claim_is_notified_of_waiters(open: OpenTwice<'_>) {
    let engines = open();
    let [one, other] = [&*engines[0], &*engines[1]];
    let [held, further] = ["work", "other work"].map(|key| claim(one, key).expect("it is free"));
    let is_awaited = |claim: &Claim| one.members().is_awaited(claim);
    let announce_wait_at =
        |engine: &dyn Engine, key| engine.members().announce_wait(key).expect("the engine can be asked");
    assert!(!is_awaited(&held), "the claim has no waiter yet");
    announce_wait_at(one, "other work");
    until("the wait is observed", || {
        announce_wait_at(other, "work");
        is_awaited(&held).then_some(())
    });
    assert!(!is_awaited(&further), "it is awaited by its own process");
    let foreign = claim(other, "further work").expect("it is free");
    assert!(!other.members().is_awaited(&foreign) && !other.members().is_awaited(&held));
    one.members().release(&held).expect("it can be released");
    let second_claim = claim(one, "work").expect("it is free");
    until("the claim has no waiter any more", || (!is_awaited(&second_claim)).then_some(()));
}

pub fn claims_of_failed_nodes_are_taken_over(open: OpenTwice<'_>) {
    let [dying, living] = open();
    dying.members().announce("dying", "").expect("the name is free");
    living.members().announce("living", "").expect("the name is free");
    until("they see each other", || (names(&*living).len() == 2).then_some(()));
    let before = claim(&*dying, "work").expect("it is free");
    let kept = claim(&*living, "other work").expect("it is free");
    assert_eq!(claim(&*living, "work"), None);
    let dead = dying.members().this();
    drop(dying);
    until("its failure is detected", || (names(&*living) == ["living"]).then_some(()));
    let after = until("its work is taken over", || claim(&*living, "work"));
    assert!(living.members().is_gone(dead).expect("the engine can be read"), "whose claims were taken");
    assert!(after.epoch > before.epoch, "{after:?} after {before:?}");
    assert!(living.members().holds(&kept), "the claim of a live process");
}
