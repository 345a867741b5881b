//! Purged documents lose their rows after any sequence of refreshes.

use std::sync::Arc;

use settee_storage_testing::engine;

use super::host::TestHost;
use super::random::{NAMES, VIEWS, change, compare, id};
use super::{ask, core, ddoc, settings};
use crate::pace::Urgency;
use crate::query::{Update, ViewQuery};
use settee_model::testing::Random;

fn purge(host: &TestHost, random: &mut Random, count: u64, space: u64) {
    for _ in 0..count {
        let id = id(random, space);
        host.purge(&id, random.below(4) == 0);
    }
}

fn check(seed: u64) {
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let host = TestHost::new(engine());
    let ddoc = ddoc(VIEWS);
    let mut core_now = core(settings(2, 100_000));
    for _ in 0..15 {
        let count = random.pick(&[1, 30, 400]);
        change(&host, &mut random, count, 300);
        let count = random.pick(&[0, 1, 20, 200]);
        purge(&host, &mut random, count, 300);
        if random.below(3) == 0 {
            change(&host, &mut random, 20, 300);
        }
        if random.below(5) == 0 {
            host.forget_purges();
            purge(&host, &mut random, 3, 300);
        }
        if random.below(4) == 0 {
            core_now = core(settings(1, 100_000));
        }
        let count = random.pick(&[0, 1, 10]);
        compare(&core_now, &host, &ddoc, &mut random, count);
    }
    core_now.update(&host, &ddoc, Urgency::Client).unwrap();
    assert_eq!(core_now.info(&host, &ddoc).unwrap().purge_seq, host.documents.lock().purged());
    let rebuilt = TestHost::new(engine());
    *rebuilt.documents.lock() = Arc::clone(&host.documents.lock());
    let fresh = core(settings(1, 1 << 20));
    for name in NAMES {
        let query = ViewQuery { update: Update::True, ..ViewQuery::default() };
        let rows = ask(&core_now, &host, &ddoc, name, &query).unwrap();
        assert_eq!(rows, ask(&fresh, &rebuilt, &ddoc, name, &query).unwrap(), "{name}");
    }
}

#[test]
fn an_index_after_purges_is_one_that_was_built_after_them() {
    (0..8).for_each(check);
}

#[test]
fn more_purges_than_one_batch_or_round() {
    let mut random = Random::of(5);
    let host = TestHost::new(engine());
    let ddoc = ddoc(VIEWS);
    let core = core(settings(2, 1 << 20));
    change(&host, &mut random, 30_000, 40_000);
    compare(&core, &host, &ddoc, &mut random, 5);
    let ids: Vec<String> = host.documents.lock().by_id.keys().cloned().collect();
    ids.iter().skip(10).for_each(|id| host.purge(id, false));
    compare(&core, &host, &ddoc, &mut random, 20);
}
