//! Tests: stale indexes of a database in memory are found and updated.

use std::sync::atomic::AtomicU64;

use settee_database::tasks::Tasks;
use settee_database::{DatabaseOptions, DocUpdate, EditMode, Layout, Work};
use settee_design::{Language, LimitsSource};
use settee_mango::MangoLanguage;
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};
use settee_search::Caches;
use settee_storage::memory::MemoryEngine;
use settee_views::{BuildStatus, Clock};

use super::*;
use crate::config::Options;

struct Directory(std::path::PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("settee-indexing-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Fixture {
    indexing: Arc<Indexing>,
    database: Arc<Database>,
    _directory: Directory,
}

fn write(database: &Arc<Database>, text: &str) {
    let json = Json::parse(text.as_bytes()).unwrap();
    let mut document = Document::parse(json.value()).unwrap();
    let id = document.id.take().unwrap();
    let mode = EditMode::Interactive;
    let update = DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap();
    database.update(Work::Documents(vec![update])).unwrap();
}

fn fixture(settings: &str) -> Fixture {
    let directory = Directory::new();
    std::fs::write(directory.0.join("local.ini"), settings).unwrap();
    let configuration = Configuration::open(Options {
        data_dir: directory.0.clone(),
        file: None,
        preset: Vec::new(),
        overrides: Vec::new(),
        admin: None,
        entropy: Arc::new(|bytes: &mut [u8]| bytes.fill(7)),
    });
    let catalog = Arc::new(Catalog::open(Arc::new(MemoryEngine::new()), 1).unwrap());
    let database =
        catalog.create("db", DatabaseOptions { created_ms: 0, instance: 1, layout: Layout::Whole, q: 1 }).unwrap();
    let settings = settee_views::Settings {
        threads: 1,
        memory_bytes: 1 << 20,
        run_directory: directory.0.join("spill"),
        checkpoint_interval_ms: 1000,
        clock: Clock::stopped(),
        limits: LimitsSource::default(),
        seed: 1,
    };
    let languages = Arc::new(|_: &str| Some(Arc::new(MangoLanguage) as Arc<dyn Language>));
    let tasks = Tasks::new(|| 0);
    let views = Arc::new(Views::new(catalog, languages, tasks.clone(), Arc::new(|_| {}), settings));
    let searches =
        Arc::new(Searches::new(Arc::clone(&views), tasks, Arc::new(|_| {}), Caches::new(1 << 20, 1 << 20), 1));
    let indexing = Indexing::new(views, searches, Arc::new(configuration.unwrap()));
    write(&database, &design("d", true));
    write(&database, &design("manual", false));
    write(&database, r#"{"_id":"a","f":1}"#);
    Fixture { indexing, database, _directory: directory }
}

fn design(name: &str, autoupdate: bool) -> String {
    format!(
        r#"{{"_id":"_design/{name}","language":"query","autoupdate":{autoupdate},
            "views":{{"v":{{"map":{{"fields":{{"{name}":"asc"}}}},"reduce":"_count"}}}}}}"#
    )
}

impl Fixture {
    fn status(&self, name: &str) -> BuildStatus {
        let designs = design_documents(&self.database).unwrap();
        let design = designs.iter().find(|design| design.id.ends_with(name)).unwrap();
        self.indexing.views.build_state(&self.database, design).unwrap().status
    }

    fn changed(&self) {
        self.indexing
            .note(&[("db".to_owned(), DatabaseEventKind::Updated), ("gone".to_owned(), DatabaseEventKind::Updated)]);
    }

    async fn until_current(&self) {
        let current = async {
            while self.status("/d") != BuildStatus::Current {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), current).await.expect("the index is never current");
    }
}

#[test]
fn lagging_indexes_are_updated_unless_left_to_queries() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = fixture("[ken]\ndelay = 1\n");
        let loops = fixture.indexing.start();
        fixture.changed();
        fixture.until_current().await;
        assert_eq!(fixture.status("manual"), BuildStatus::Lagging);
        write(&fixture.database, r#"{"_id":"b","f":1}"#);
        assert_eq!(fixture.status("/d"), BuildStatus::Lagging);
        fixture.changed();
        fixture.until_current().await;
        let stopped = tokio::time::timeout(Duration::from_secs(60), fixture.indexing.stop());
        stopped.await.expect("indexing does not stop");
        loops.iter().for_each(JoinHandle::abort);
    });
}

#[test]
fn background_work_can_be_switched_off() {
    let fixture = fixture("[ken]\nenabled = false\nmax_incremental_updates = 5\ndelay = 20\n[ken.ignore]\ndb = true\n");
    let settings = IndexingSettings { is_enabled: false, max_incremental_updates: 5, delay: Duration::from_millis(20) };
    assert_eq!(fixture.indexing.settings(), settings);
    assert!(fixture.indexing.is_ignored("db") && !fixture.indexing.is_ignored("other"));
}

#[test]
fn the_budget_follows_the_configuration() {
    let fixture = fixture("[ken]\ncpu_percent = 20\nbytes_per_second = 5000\n");
    assert_eq!(budget(&fixture.indexing.configuration), Budget { cpu_percent: 20, bytes_per_s: 5000 });
    let defaults = Budget { cpu_percent: 50, bytes_per_s: u64::MAX };
    assert_eq!(budget(&self::fixture("").indexing.configuration), defaults);
}

#[test]
fn unused_indexes_are_removed() {
    let fixture = fixture("[view_cleanup]\ngrace = 0\n");
    let designs = design_documents(&fixture.database).unwrap();
    fixture.indexing.views.update(&fixture.database, &designs[0], Urgency::Client).unwrap();
    fixture.indexing.collect();
    let left = || fixture.database.read().unwrap().attached_with_prefix(b"index/").unwrap().len();
    assert_eq!(left(), 1);
    let id = &designs[0].id;
    let rev = fixture.database.read().unwrap().head(id).unwrap().unwrap().rev;
    write(&fixture.database, &format!(r#"{{"_id":"{id}","_rev":"{rev}","_deleted":true}}"#));
    fixture.indexing.collect();
    assert_eq!(left(), 0);
}
