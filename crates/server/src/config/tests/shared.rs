//! Tests of nodes on one store: shared settings are in the store, settings of a single node are not.

use settee_database::Catalog;
use settee_storage::memory::MemoryEngine;

use super::*;

fn node(store: &MemoryEngine, seed: u64, local: &str) -> (Directory, Configuration, Vec<String>) {
    let directory = Directory::with(local);
    let configuration = directory.open();
    let catalog = Arc::new(Catalog::open(Arc::new(store.user()), seed).unwrap());
    let ignored_setting_warnings = configuration.share(&catalog).unwrap();
    (directory, configuration, ignored_setting_warnings)
}

#[test]
fn the_first_node_determines_the_shared_settings() {
    let store = MemoryEngine::new();
    let (_one, first, ignored_setting_warnings) = node(
        &store,
        1,
        "secret = s1\n[admins]\nann = pw\n[vendor]\nname = One\n[log]\nlevel = debug\n[mine]\nkey = 1\n",
    );
    assert_eq!(ignored_setting_warnings, Vec::<String>::new());
    let (_two, second, ignored_setting_warnings) = node(
        &store,
        2,
        "[admins]\nann = other\nbob = pw\n[vendor]\nname = Two\n[log]\nlevel = error\n[cors]\nmax_age = 7\n",
    );
    let without = |name: &str| {
        format!(
            "{name} is set here but ignored: the nodes on this store share the setting, and the store has another value"
        )
    };
    assert_eq!(
        ignored_setting_warnings,
        [without("[admins] bob"), without("[cors] max_age"), without("[vendor] name")]
    );
    for (path, expected) in [
        ("vendor/name", Some("One")),
        ("mine/key", Some("1")),
        ("chttpd_auth/secret", Some("s1")),
        ("cors/max_age", None),
        ("admins/bob", None),
    ] {
        assert_eq!(get(&second, path).as_deref(), expected, "{path}");
        assert_eq!(get(&first, path).as_deref(), expected, "{path}");
    }
    assert!(verifies(&get(&second, "admins/ann").unwrap(), "pw"));
    assert_eq!(get(&first, "admins/ann"), get(&second, "admins/ann"), "one hash");
    assert_eq!(get(&first, "cluster/secret"), get(&second, "cluster/secret"));
    assert_eq!(get(&first, "couchdb/uuid"), get(&second, "couchdb/uuid"));
    assert_eq!([&first, &second].map(|node| get(node, "log/level").unwrap()), ["debug", "error"]);
    second.reload().unwrap();
    assert_eq!(get(&second, "vendor/name").as_deref(), Some("One"));
    assert_eq!(get(&second, "admins/bob"), None);
}

#[test]
fn changes_of_one_node_are_followed_by_the_others() {
    let store = MemoryEngine::new();
    let (one, first, _) = node(&store, 1, "[admins]\nann = pw\n");
    let (_two, second, _) = node(&store, 2, "");
    let changes: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&changes);
    second.on_change(move |change| {
        noted.lock().unwrap().push(format!("{}/{} {:?}", change.section, change.key, change.value));
    });
    let file = one.read("local.ini");
    assert_eq!(first.set("vendor", "name", "X", Persist::Disk).unwrap(), None);
    assert_eq!(one.read("local.ini"), file, "the file is not where it is kept");
    assert_eq!(get(&second, "vendor/name").as_deref(), None);
    second.follow().unwrap();
    assert_eq!(get(&second, "vendor/name").as_deref(), Some("X"));
    let version = second.version();
    second.follow().unwrap();
    assert_eq!(second.version(), version, "nothing is read that did not change");
    second.set("cors", "max_age", "5", Persist::Memory).unwrap();
    first.set("admins", "bob", "pw", Persist::Disk).unwrap();
    first.set("log", "level", "debug", Persist::Disk).unwrap();
    assert_eq!(first.delete("vendor", "name", Persist::Disk).unwrap().as_deref(), Some("X"));
    second.follow().unwrap();
    assert_eq!(get(&second, "cors/max_age").as_deref(), Some("5"));
    assert_eq!(get(&first, "cors/max_age"), None);
    assert!(verifies(&get(&second, "admins/bob").unwrap(), "pw"));
    assert_ne!(get(&second, "log/level").as_deref(), Some("debug"));
    assert!(one.read("local.ini").contains("level = debug"));
    assert_eq!(get(&second, "vendor/name"), None);
    let names: Vec<String> =
        changes.lock().unwrap().iter().map(|change| change.split(',').next().unwrap().to_owned()).collect();
    assert_eq!(names[0], r#"vendor/name Some("X")"#);
    assert!(names.iter().any(|change| change.starts_with("admins/bob Some")), "{names:?}");
    assert_eq!(names.last().unwrap(), "vendor/name None");
}

#[test]
fn two_nodes_do_not_remove_the_last_administrator() {
    let store = MemoryEngine::new();
    let wide = "[admins]\nann = pw\nbob = pw\n[chttpd]\nbind_address = 0.0.0.0\n";
    let (_one, first, _) = node(&store, 1, wide);
    let (_two, second, _) = node(&store, 2, wide);
    first.delete("admins", "ann", Persist::Disk).unwrap();
    let refused = reason(second.delete("admins", "bob", Persist::Disk));
    assert_eq!(refused, "The last admin cannot be removed while the server listens on 0.0.0.0");
    second.follow().unwrap();
    assert_eq!(second.section("admins").len(), 1);
}

#[test]
fn shared_settings_are_copied_to_a_directory() {
    let store = MemoryEngine::new();
    let (_one, shared, _) = node(&store, 1, "[admins]\nann = pw\n[vendor]\nname = Us\n[log]\nlevel = debug\n");
    let moved = Arc::new(store.fork());
    let catalog = Catalog::open(moved, 2).unwrap();
    let directory = Directory::with("[vendor]\nname = Them\n");
    let alone = directory.open();
    for _ in 0..2 {
        alone.unshare(&catalog).unwrap();
        for path in ["admins/ann", "vendor/name", "couchdb/uuid", "chttpd_auth/secret"] {
            assert_eq!(get(&alone, path), get(&shared, path), "{path}");
        }
        assert_ne!(get(&alone, "log/level").as_deref(), Some("debug"), "that was the other machine's own");
        assert_eq!(catalog.shared_settings().unwrap(), None);
    }
    alone.set("vendor", "name", "Me", Persist::Disk).unwrap();
    assert!(directory.read("local.ini").contains("name = Me"));
    assert_eq!(get(&directory.open(), "admins/ann"), get(&shared, "admins/ann"));
}
