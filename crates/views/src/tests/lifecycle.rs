//! Random lifetimes of indexes: after any changes of a database, its design documents and its server, an index equals
//! one that is built from scratch.

use std::sync::Arc;

use settee_design::{DesignDocument, RunError, Swap};
use settee_storage::Engine;
use settee_storage::faulty::FaultyEngine;
use settee_storage::memory::MemoryEngine;

use super::crashes::check_stored;
use super::host::TestHost;
use super::random::{change, id};
use super::resume::hurried;
use super::{Rows, counted_core, ddoc, model, run_directory};
use crate::error::ViewError;
use crate::pace::Urgency;
use crate::query::{Reduce, Update, ViewQuery};
use crate::shared::Core;
use crate::testing::CountedRules;
use settee_model::testing::Random;

/// All built-in reduce functions that accept any value, and one of the language.
const REDUCES: [&str; 8] = ["_count", "_stats", "_sum", "_approx_count_distinct", "_first", "_last", "_top_3", "count"];
const MAPS: [&str; 4] = ["value k v", "value v k", "each list", "none"];

fn design(random: &mut Random) -> DesignDocument {
    let mut views = Vec::new();
    for number in 0..3 {
        let map = MAPS[usize::try_from(random.below(4)).unwrap()];
        let reduce = REDUCES[usize::try_from(random.below(8)).unwrap()];
        // Sums need numbers, which `each list` emits.
        let map = if matches!(reduce, "_sum" | "_stats" | "_top_3") { "each list" } else { map };
        views.push(format!(r#""v{number}": {{"map": "{map}", "reduce": "{reduce}"}}"#));
    }
    DesignDocument { swap: if random.below(2) == 0 { Swap::Online } else { Swap::AtOnce }, ..ddoc(&views.join(",")) }
}

struct LifecycleModel {
    random: Random,
    engine: Arc<FaultyEngine>,
    host: Arc<TestHost>,
    core: Arc<Core>,
    language: CountedRules,
    ddoc: DesignDocument,
    files: std::path::PathBuf,
}

impl LifecycleModel {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let files = run_directory();
        let (core, language) = counted_core(hurried(&files, 30_000));
        let ddoc = design(&mut random);
        let engine = Arc::new(FaultyEngine::new());
        let host = Arc::new(TestHost::new(engine.clone()));
        Self { random, engine, host, core: Arc::new(core), language, ddoc, files }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0 | 1 => change(&self.host, &mut self.random, 30, 1_500),
            2 => change(&self.host, &mut self.random, 1_500, 1_500),
            3 => {
                for _ in 0..10 {
                    let id = id(&mut self.random, 1_500);
                    self.host.purge(&id, self.random.below(4) == 0);
                }
            }
            4 => self.host.forget_purges(),
            5 => self.ddoc = design(&mut self.random),
            6 => self.crash(),
            7 => self.command(Core::pause),
            8 => self.command(Core::cancel),
            9 => self.lose_workers(),
            10 => drop(self.core.collect(&*self.host, std::slice::from_ref(&self.ddoc), 0).unwrap()),
            _ => self.compare(),
        }
    }

    /// Simulates a crash of the process, possibly during a build; the engine loses some unsynced commits.
    fn crash(&mut self) {
        self.language.watcher.lock().replace(dies_after(self.random.below(1_500)));
        let _ = self.core.update(&*self.host, &self.ddoc, Urgency::Background);
        let images: Vec<MemoryEngine> = self.engine.crash_images().collect();
        let index = usize::try_from(self.random.below(images.len() as u64)).unwrap();
        self.engine = Arc::new(FaultyEngine::over(images.into_iter().nth(index).unwrap()));
        self.host = Arc::new(self.host.over(self.engine.clone()));
        let (core, language) = counted_core(hurried(&self.files, 30_000));
        (self.core, self.language) = (Arc::new(core), language);
    }

    fn command(&mut self, command: fn(&Core, &dyn crate::host::IndexHost, &DesignDocument) -> Result<(), ViewError>) {
        let (core, host, ddoc) = (Arc::clone(&self.core), Arc::clone(&self.host), self.ddoc.clone());
        let mut left: u64 = self.random.below(10);
        *self.language.watcher.lock() = Some(Box::new(move |_| {
            if left == 0 {
                command(&core, &*host, &ddoc).unwrap();
            }
            left = left.wrapping_sub(1);
            Ok(())
        }));
        let result = self.core.update(&*self.host, &self.ddoc, Urgency::Background);
        assert!(matches!(result, Ok(()) | Err(ViewError::Paused | ViewError::Cancelled)), "{result:?}");
        *self.language.watcher.lock() = None;
        self.core.resume(&*self.host, &self.ddoc).unwrap();
    }

    fn lose_workers(&mut self) {
        for _ in 0..2 {
            self.language.watcher.lock().replace(dies_after(self.random.below(500)));
            let _ = self.core.update(&*self.host, &self.ddoc, Urgency::Background);
        }
        *self.language.watcher.lock() = None;
    }

    fn compare(&mut self) {
        for name in ["v0", "v1", "v2"] {
            let reduce = [Reduce::Off, Reduce::Exact, Reduce::Level(1), Reduce::Default];
            let reduce = reduce[usize::try_from(self.random.below(4)).unwrap()];
            let query = ViewQuery { reduce, update: Update::True, ..ViewQuery::default() };
            let mut rows = Rows::default();
            let _ = self.core.query((&*self.host, None), &self.ddoc, name, &query, &mut rows).unwrap();
            // The former view may serve the query only if the result reports it.
            if rows.stale.is_some() {
                assert_eq!(self.ddoc.swap, Swap::Online);
                self.core.update(&*self.host, &self.ddoc, Urgency::Background).unwrap();
                rows = Rows::default();
                let _ = self.core.query((&*self.host, None), &self.ddoc, name, &query, &mut rows).unwrap();
            }
            assert_eq!(rows, model::answer(&self.host.documents.lock().clone(), &self.ddoc, name, &query), "{name}");
        }
    }
}

fn dies_after(mut documents: u64) -> crate::testing::Watcher {
    Box::new(move |_| {
        documents = documents.saturating_sub(100);
        if documents > 0 { Ok(()) } else { Err(RunError::Machinery("the process has died".to_owned())) }
    })
}

#[test]
fn an_index_after_any_life_is_one_that_was_built_from_scratch() {
    let lives = std::env::var("SETTEE_LIVES").ok().and_then(|lives| lives.parse().ok()).unwrap_or(6);
    for seed in 0..lives {
        let mut lifecycle = LifecycleModel::new(seed);
        (0..40).for_each(|_| lifecycle.step());
        *lifecycle.language.watcher.lock() = None;
        lifecycle.compare();
        lifecycle.core.update(&*lifecycle.host, &lifecycle.ddoc, Urgency::Client).unwrap();
        let engine: Arc<dyn Engine> = lifecycle.engine.clone();
        lifecycle.core.collect(&*lifecycle.host, std::slice::from_ref(&lifecycle.ddoc), 0).unwrap();
        assert_eq!(check_stored(&lifecycle.host, &engine), []);
        let fresh = lifecycle.host.over(Arc::new(MemoryEngine::new()));
        let (core, _) = counted_core(super::settings(1, 1 << 20));
        for name in ["v0", "v1", "v2"] {
            let query = ViewQuery { reduce: Reduce::Off, ..ViewQuery::default() };
            let (mut one, mut other) = (Rows::default(), Rows::default());
            let _ = lifecycle.core.query((&*lifecycle.host, None), &lifecycle.ddoc, name, &query, &mut one).unwrap();
            let _ = core.query((&fresh, None), &lifecycle.ddoc, name, &query, &mut other).unwrap();
            assert_eq!((one.header, one.map), (other.header, other.map));
        }
    }
}
