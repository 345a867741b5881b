//! Dependencies of test nodes: everything in memory and a stopped clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_auth::Authenticator;
use settee_database::tasks::Tasks;
use settee_database::{Catalog, Engine};
use settee_design::{Language, LimitsSource};
use settee_search::{Caches, Searches};
use settee_views::{Languages, Views};

use crate::tests::live::Values;
use crate::{Identity, NodeDependencies, Operation, Platform};

pub(crate) fn parts(engine: Arc<dyn Engine>, languages: Vec<Arc<dyn Language>>) -> NodeDependencies {
    let catalog = Arc::new(Catalog::open(engine, 1).unwrap());
    let tasks = Tasks::new(|| 0);
    let indexing = settee_views::Settings {
        threads: 1,
        memory_bytes: 1 << 20,
        run_directory: std::env::temp_dir().join("settee-api-tests"),
        checkpoint_interval_ms: u64::MAX,
        clock: settee_views::Clock::stopped(),
        limits: LimitsSource::default(),
        seed: 1,
    };
    let languages: Languages = Arc::new(move |name| languages.iter().find(|language| language.name() == name).cloned());
    let views = Views::new(Arc::clone(&catalog), Arc::clone(&languages), tasks.clone(), Arc::new(|_| {}), indexing);
    let views = Arc::new(views);
    let searches = Searches::new(Arc::clone(&views), tasks.clone(), Arc::new(|_| {}), Caches::new(1 << 20, 1 << 20), 1);
    let numbers = AtomicU64::new(1);
    NodeDependencies {
        catalog,
        views,
        searches: Arc::new(searches),
        languages,
        tasks,
        settings: Arc::new(Values::default()),
        authenticator: Authenticator::new([7; 32]),
        uuids: Box::new(|count| vec!["uuid".to_owned(); count]),
        identity: Identity {
            couchdb_version: "3.5.2".to_owned(),
            version: "0".to_owned(),
            node: "node".to_owned(),
            uuid: "0123456789abcdef".to_owned(),
        },
        clock_ms: Box::new(|| 0),
        entropy: Box::new(move || numbers.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)),
        platform: Platform::default(),
        operation: Operation::none(),
    }
}
