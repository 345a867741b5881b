//! Sizes of commits and values are bounded, independent of the size of an index and of its changes.

use std::sync::Arc;

use settee_storage::Engine;
use settee_storage::counting::{CountingEngine, Largest};
use settee_storage_testing::engine;

use super::crashes::check_stored;
use super::host::TestHost;
use super::{ask, core, ddoc, settings};
use crate::pace::Urgency;
use crate::query::{Reduce, ViewQuery};

const COMMIT_BYTES: usize = 300_000;

const VALUE_BYTES: usize = 700;

#[test]
fn commits_do_not_grow_with_the_index() {
    let counting = Arc::new(CountingEngine::new(engine()));
    let engine: Arc<dyn Engine> = Arc::clone(&counting) as Arc<dyn Engine>;
    let host = TestHost::new(Arc::clone(&engine));
    let ddoc = ddoc(r#""each": {"map": "each list", "reduce": "_count"}"#);
    let core = core(settings(1, 1 << 20));
    let put = |from: usize, count: usize, rows: usize| {
        for number in from..from + count {
            let list = (0..rows).map(|row| (number * 10_000 + row).to_string()).collect::<Vec<_>>().join(",");
            host.put(&format!("doc{number:05}"), Some(&format!("\"list\":[{list}]")));
        }
    };
    let check = |label: &str, rows: usize| -> Largest {
        core.update(&host, &ddoc, Urgency::Client).unwrap();
        let largest = counting.take_largest();
        println!("{label}: {largest:?}");
        assert!(largest.commit_bytes < COMMIT_BYTES && largest.value_bytes < VALUE_BYTES, "{label}: {largest:?}");
        let found = ask(&core, &host, &ddoc, "each", &ViewQuery::default()).unwrap();
        assert_eq!(found.reduce[0].1, rows.to_string(), "{label}");
        assert_eq!(check_stored(&host, &engine), [], "{label}");
        largest
    };
    put(0, 3_000, 2);
    check("a load", 6_000);
    for round in 0..20 {
        put(100 * round, 100, 1);
        check("an update", 6_000 - 100 * (round + 1));
    }
    put(0, 2_500, 2);
    let largest = check("a load of an index that was updated often", 6_000);
    assert!(largest.writes < 1_000, "{largest:?}");
    put(0, 50, 4_000);
    check("few documents with many rows", 2 * 2_950 + 50 * 4_000);
    put(0, 50, 1);
    check("which lose them again", 2 * 2_950 + 50);
}

#[test]
fn long_rows_are_stored_in_short_values() {
    let counting = Arc::new(CountingEngine::new(engine()));
    let engine: Arc<dyn Engine> = Arc::clone(&counting) as Arc<dyn Engine>;
    let host = TestHost::new(Arc::clone(&engine));
    let ddoc = ddoc(r#""plain": {"map": "value k v", "reduce": "_count"}, "each": {"map": "each list"}"#);
    let core = core(settings(1, 1 << 20));
    let value = |number: usize, length: usize| format!("\"{number}{}\"", "x".repeat(length));
    let put = |number: usize, length: usize| {
        let long = value(number, length);
        host.put(&format!("doc{number:03}"), Some(&format!("\"k\":{long},\"v\":{long},\"list\":[{long}]")));
    };
    let lengths = [10, 5_000, 650, 20_000, 100];
    for (round, count) in [(0, 60), (1, 40), (2, 60), (3, 5), (4, 60)] {
        (0..count).for_each(|number| put(number, lengths[(number + round) % lengths.len()]));
        core.update(&host, &ddoc, Urgency::Client).unwrap();
        let found =
            ask(&core, &host, &ddoc, "plain", &ViewQuery { reduce: Reduce::Off, ..ViewQuery::default() }).unwrap();
        let mut rows: Vec<(String, String)> = found.map.into_iter().map(|(_, id, value)| (id, value)).collect();
        rows.sort();
        let documents = host.documents.lock();
        assert_eq!(rows.len(), documents.by_id.len());
        for ((id, value), (known, document)) in rows.iter().zip(&documents.by_id) {
            assert!(id == known && document.json.as_ref().unwrap().contains(value), "{id} in round {round}");
        }
        drop(documents);
        assert_eq!(check_stored(&host, &engine), [], "round {round}");
    }
    let largest = counting.take_largest();
    // Back-pointers that changed since the last load are stored individually.
    assert!(largest.value_bytes < 50_000, "{largest:?}");
}
