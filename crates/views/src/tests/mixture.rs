//! All events of an index in random order. Afterwards the index equals a rebuilt one.

use std::sync::Arc;

use settee_design::{DesignDocument, RunError, Swap};
use settee_model::testing::Random;
use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::memory::MemoryEngine;
use settee_storage::{Engine, StorageError};

use super::crashes::check_stored;
use super::host::TestHost;
use super::random::{NAMES, VIEWS, change, compare_one, id, query};
use super::resume::hurried;
use super::{Rows, ask, counted_core, ddoc, model, run_directory};
use crate::error::ViewError;
use crate::pace::Urgency;
use crate::query::ViewQuery;
use crate::shared::Core;
use crate::testing::CountedRules;

const SPACE: u64 = 400;

/// Values that are arrays and objects, and functions that throw.
const MORE_VIEWS: &str = r#"
    "sums": {"map": "value k pair", "reduce": "_sum"},
    "members": {"map": "value k object", "reduce": "_sum"},
    "places": {"map": "value k pair", "reduce": "_stats"},
    "lists": {"map": "value k list", "reduce": "_bottom_2"},
    "failing": {"map": "throw", "reduce": "_count"}"#;
const MORE_NAMES: [&str; 5] = ["sums", "members", "places", "lists", "failing"];

fn names() -> Vec<&'static str> {
    [&NAMES[..], &MORE_NAMES].concat()
}

fn editions() -> Vec<DesignDocument> {
    let edits: [&[(&str, &str)]; 4] = [
        &[],
        &[("\"_sum\"", "\"_count\""), ("_top_3", "_top_7"), ("\"summary\"}", "\"count\"}")],
        &[("value k v", "value v v"), ("each list", "value _id k")],
        &[("value k pair", "value v pair"), ("_stats", "_approx_count_distinct"), ("_sum", "_first")],
    ];
    let all = format!("{VIEWS},{MORE_VIEWS}");
    let edition =
        |edits: &&[(&str, &str)]| ddoc(&edits.iter().fold(all.clone(), |views, (from, to)| views.replace(from, to)));
    edits.iter().map(edition).collect()
}

struct Mixture {
    random: Random,
    faulty: Arc<FaultyEngine>,
    host: TestHost,
    core: Core,
    language: CountedRules,
    editions: Vec<DesignDocument>,
    crashes: u64,
    stale: u64,
}

impl Mixture {
    fn new(mut random: Random) -> Self {
        let faulty = Arc::new(FaultyEngine::new());
        let host = TestHost::new(faulty.clone());
        let mut editions = editions();
        random.shuffle(&mut editions);
        let (core, language) = counted_core(hurried(&run_directory(), 20_000));
        Self { random, faulty, host, core, language, editions, crashes: 0, stale: 0 }
    }

    fn present(&self) -> &DesignDocument {
        self.editions.last().unwrap()
    }

    fn restart(&mut self) {
        let memory_bytes = self.random.pick(&[2_000, 20_000, 1 << 20]);
        (self.core, self.language) = counted_core(hurried(&run_directory(), memory_bytes));
    }

    /// Continues with a possible state after a crash. Documents are synced before they are visible.
    fn crash(&mut self) {
        let mut images: Vec<MemoryEngine> = self.faulty.crash_images().collect();
        let image = images.swap_remove(self.random.below(images.len()));
        self.faulty = Arc::new(FaultyEngine::over(image));
        self.host = self.host.over(self.faulty.clone());
        self.crashes += 1;
        self.restart();
    }

    fn edit(&mut self) {
        let chosen = self.random.below(self.editions.len());
        let mut edition = self.editions.remove(chosen);
        edition.swap = self.random.pick(&[Swap::Never, Swap::Online]);
        self.editions.push(edition);
    }

    fn step(&mut self) {
        let (host, random) = (&self.host, &mut self.random);
        match random.below(20) {
            0..=5 => {
                let count = random.pick(&[1, 20, 300]);
                change(host, random, count, SPACE);
            }
            6 | 7 => (0..random.below(30)).for_each(|_| host.put_conflict(&id(random, SPACE))),
            8 | 9 => {
                for _ in 0..random.below(30) {
                    let leaves_something = random.one_in(3);
                    host.purge(&id(random, SPACE), leaves_something);
                }
            }
            10 => host.forget_purges(),
            11 => self.core.compact(host, self.editions.last().unwrap()).unwrap(),
            12 => drop(self.core.collect(host, std::slice::from_ref(self.editions.last().unwrap()), 0).unwrap()),
            13 => self.restart(),
            14 | 15 => self.crash(),
            16 => self.fail_once(),
            17 => self.end_build(),
            _ => self.edit(),
        }
    }

    fn fail_once(&mut self) {
        let faults =
            [WriteFault::Fail(StorageError::Full("test".to_owned())), WriteFault::LoseRequest, WriteFault::LoseAnswer];
        let fault = faults[self.random.below(faults.len())].clone();
        let nth = self.random.below(4) + 1;
        let last = self.faulty.writes() + nth;
        self.faulty.inject_write(nth, fault);
        while self.faulty.writes() < last {
            change(&self.host, &mut self.random, 5, SPACE);
            let _ = self.core.update(&self.host, self.present(), Urgency::Client);
        }
    }

    fn end_build(&mut self) {
        let last = self.language.mapped.load(std::sync::atomic::Ordering::Relaxed) + self.random.below(300);
        let end = move |mapped| {
            if mapped < last { Ok(()) } else { Err(RunError::Machinery("two processes died".to_owned())) }
        };
        *self.language.watcher.lock() = Some(Box::new(end));
        let _ = self.core.update(&self.host, self.present(), Urgency::Client);
        *self.language.watcher.lock() = None;
    }

    fn run_queries(&mut self) {
        for _ in 0..self.random.below(6) {
            let (name, query) = (self.random.pick(&names()), query(&mut self.random));
            let documents = Arc::clone(&self.host.documents.lock());
            let mut rows = Rows::default();
            match self.core.query((&self.host, None), self.present(), name, &query, &mut rows) {
                Ok(_) if rows.stale.take().is_some() => {
                    let mut others = self.editions.iter().filter(|edition| {
                        edition.view(name).unwrap().reduce.is_some()
                            == self.present().view(name).unwrap().reduce.is_some()
                    });
                    let is_one = |edition: &DesignDocument| rows == model::answer(&documents, edition, name, &query);
                    assert!(others.any(is_one), "{name} {query:?} is no edition's: {rows:?}");
                    self.stale += 1;
                }
                Ok(_) => assert_eq!(rows, model::answer(&documents, self.present(), name, &query), "{name} {query:?}"),
                Err(ViewError::Query(_)) => {
                    compare_one(&self.core, &self.host, self.present(), name, &query, &documents);
                }
                Err(_) => self.core.update(&self.host, self.present(), Urgency::Client).unwrap(),
            }
        }
    }

    fn compare_with_a_new_one(&self) {
        self.core.update(&self.host, self.present(), Urgency::Client).unwrap();
        let engine: Arc<dyn Engine> = self.faulty.clone();
        self.core.collect(&self.host, std::slice::from_ref(self.present()), 0).unwrap();
        assert_eq!(check_stored(&self.host, &engine), []);
        let rebuilt = TestHost::new(Arc::new(MemoryEngine::new()));
        *rebuilt.documents.lock() = Arc::clone(&self.host.documents.lock());
        let (fresh, _) = counted_core(super::settings(1, 1 << 20));
        let documents = Arc::clone(&self.host.documents.lock());
        for name in names() {
            for reduce in [crate::query::Reduce::Default, crate::query::Reduce::Off, crate::query::Reduce::Exact] {
                let query = ViewQuery { reduce, ..ViewQuery::default() };
                let rows = match ask(&self.core, &self.host, self.present(), name, &query) {
                    Err(ViewError::Query(_)) => continue,
                    rows => rows.unwrap(),
                };
                assert_eq!(rows, ask(&fresh, &rebuilt, self.present(), name, &query).unwrap(), "{name} {reduce:?}");
                assert_eq!(rows, model::answer(&documents, self.present(), name, &query), "{name} {reduce:?}");
            }
        }
    }
}

#[test]
fn an_index_after_anything_is_one_that_was_built_afterwards() {
    let (mut crashes, mut stale) = (0, 0);
    for seed in 0..12 {
        println!("seed {seed}");
        let mut mixture = Mixture::new(if seed < 11 { Random::of(seed) } else { Random::new() });
        change(&mixture.host, &mut mixture.random, 500, SPACE);
        for _ in 0..40 {
            mixture.step();
            mixture.run_queries();
        }
        mixture.compare_with_a_new_one();
        crashes += mixture.crashes;
        stale += mixture.stale;
    }
    assert!(crashes > 10 && stale > 10, "{crashes} crashes, {stale} answers of earlier editions");
}
