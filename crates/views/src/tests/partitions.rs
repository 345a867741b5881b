//! A query of a partition returns the rows of the partition's documents.

use std::sync::Arc;

use settee_database::Layout;
use settee_storage_testing::engine;

use super::host::TestHost;
use super::random::{NAMES, VIEWS, change_ids, compare_one, id, query};
use super::{ask, core, ddoc, settings};
use crate::error::QueryError;
use crate::error::ViewError;
use crate::query::ViewQuery;
use settee_model::testing::Random;

/// Some are prefixes of others or contain bytes that keys use as marks.
const PARTITIONS: [&str; 8] = ["a", "aa", "a\0", "a\0\0", "ab", "b", "\u{10ffff}", "nobody"];

fn host() -> TestHost {
    TestHost::with_layout(engine(), Layout::Partitioned)
}

fn pick<'a>(random: &mut Random, among: &[&'a str]) -> &'a str {
    among[usize::try_from(random.below(among.len() as u64)).unwrap()]
}

fn check(seed: u64) {
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let host = host();
    let ddoc = ddoc(VIEWS);
    let core = core(settings(2, 10_000));
    for _ in 0..8 {
        let count = [1, 60, 900][usize::try_from(random.below(3)).unwrap()];
        change_ids(&host, &mut random, count, |random| {
            format!("{}:{}", pick(random, &PARTITIONS[..7]), id(random, 60))
        });
        for _ in 0..25 {
            let partition = pick(&mut random, &PARTITIONS);
            let query = ViewQuery { partition: Some(partition.to_owned()), ..query(&mut random) };
            let documents = Arc::clone(&host.documents.lock());
            compare_one(&core, &host, &ddoc, pick(&mut random, &NAMES), &query, &documents);
        }
    }
}

#[test]
fn a_partition_answers_with_its_rows_and_counts_all() {
    (0..6).for_each(check);
}

#[test]
fn the_partition_must_be_named_where_there_are_some_and_nowhere_else() {
    let core = core(settings(1, 1 << 20));
    let mut global = ddoc(VIEWS);
    global.partitioned = Some(false);
    let partitioned = ddoc(VIEWS);
    let (host, whole) = (host(), TestHost::new(engine()));
    host.put("a:1", Some("\"k\":1,\"v\":1"));
    host.put("b:1", Some("\"k\":2,\"v\":2"));
    let of = |partition: Option<&str>| ViewQuery { partition: partition.map(str::to_owned), ..ViewQuery::default() };
    let check = |host: &TestHost, ddoc, partition, expected: Result<usize, QueryError>| match (
        ask(&core, host, ddoc, "plain", &of(partition)),
        expected,
    ) {
        (Ok(rows), Ok(count)) => assert_eq!(rows.map.len(), count),
        (Err(ViewError::Query(error)), Err(expected)) => assert_eq!(error, expected),
        (answer, _) => panic!("{answer:?}"),
    };
    check(&host, &partitioned, Some("a"), Ok(1));
    check(&host, &partitioned, None, Err(QueryError::PartitionMissing));
    check(&host, &global, None, Ok(2));
    check(&host, &global, Some("a"), Err(QueryError::PartitionOnGlobal));
    check(&whole, &partitioned, Some("a"), Err(QueryError::PartitionOnGlobal));
}
