//! The databases that a directory contains.

use settee_couch_files::DataDirectory;
use settee_couch_files::directory::is_couchdb;

use crate::support::{data_directory, file};

fn names(directory: &DataDirectory) -> Vec<String> {
    let count = |files: usize, q: Option<usize>| format!("{files}/{}", q.map_or("-".to_owned(), |q| q.to_string()));
    directory
        .databases
        .iter()
        .map(|database| format!("{} {}", database.name, count(database.files.len(), database.q)))
        .collect()
}

#[test]
fn a_shard_map_lists_the_databases() {
    let data = data_directory();
    let directory = DataDirectory::open(data.path()).unwrap();
    let expected = [
        "_global_changes 0/2",
        "_replicator 2/2",
        "_users 2/2",
        "fx_deflate 2/2",
        "fx_none 1/1",
        "fx_part 2/2",
        "fx_snappy 2/2",
    ];
    assert_eq!(names(&directory), expected);
    assert_eq!(directory.notes, Vec::<String>::new());
    for database in &directory.databases {
        assert_eq!(database.is_partitioned, database.name == "fx_part");
        assert_eq!(database.missing.len(), if database.name == "_global_changes" { 2 } else { 0 });
    }
}

#[test]
fn directories_of_couchdb_are_recognized() {
    let data = data_directory();
    assert!(is_couchdb(data.path()));
    assert!(!is_couchdb(&data.path().join("nosuch")));
    std::fs::remove_file(data.path().join("_dbs.couch")).unwrap();
    std::fs::remove_file(data.path().join("_nodes.couch")).unwrap();
    assert!(is_couchdb(data.path()), "shards are enough");
    std::fs::rename(data.path().join("shards"), data.path().join("other")).unwrap();
    assert!(!is_couchdb(data.path()));
    std::fs::create_dir_all(data.path().join("shards/notes")).unwrap();
    assert!(!is_couchdb(data.path()), "only ranges are shards");
    std::fs::write(data.path().join("old.couch"), "").unwrap();
    assert!(is_couchdb(data.path()), "a database of version 1 is enough");
}

#[test]
fn missing_and_additional_shards_are_reported() {
    let data = data_directory();
    let shards = data.path().join("shards/80000000-ffffffff");
    std::fs::rename(shards.join("fx_part.1795752233.couch"), shards.join("fx_part.1111111111.couch")).unwrap();
    std::fs::write(shards.join("gone.1111111111.couch"), "").unwrap();
    std::fs::write(shards.join("fx_part.1795752233.couch.compact.data"), "").unwrap();
    std::fs::write(shards.join("nonsense.couch"), "").unwrap();
    std::fs::write(data.path().join("old.20200101.120000.deleted.couch"), "").unwrap();
    let directory = DataDirectory::open(data.path()).unwrap();
    let part = directory.databases.iter().find(|database| database.name == "fx_part").unwrap();
    assert_eq!((part.files.len(), &part.missing[..]), (1, &["80000000-ffffffff".to_owned()][..]));
    let mut notes = directory.notes.clone();
    notes.sort();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes[0].ends_with("old.20200101.120000.deleted.couch: a deleted database"), "{notes:?}");
    assert!(notes[1].ends_with("fx_part.1111111111.couch: the shard map of fx_part does not list it"), "{notes:?}");
    assert!(notes[2].ends_with("gone.1111111111.couch: the shard map does not list its database"), "{notes:?}");
    assert!(notes[3].ends_with("nonsense.couch: its name is not that of a shard"), "{notes:?}");
}

#[test]
fn without_a_shard_map_the_newest_files_are_used() {
    let data = data_directory();
    std::fs::remove_file(data.path().join("_dbs.couch")).unwrap();
    std::fs::write(data.path().join("shards/80000000-ffffffff/fx_part.0795752233.couch"), "").unwrap();
    let directory = DataDirectory::open(data.path()).unwrap();
    assert_eq!(directory.databases.len(), 6);
    let part = directory.databases.iter().find(|database| database.name == "fx_part").unwrap();
    assert_eq!((part.files.len(), part.q), (2, Some(2)));
    assert!(
        directory.notes.iter().any(|note| note.contains("fx_part.0795752233.couch: an older database of this name"))
    );
    std::fs::write(data.path().join("_dbs.couch"), "x").unwrap();
    let directory = DataDirectory::open(data.path()).unwrap();
    assert_eq!(directory.databases.len(), 6);
    assert!(directory.notes.iter().any(|note| note.contains("no valid header")), "{:?}", directory.notes);
}

#[test]
fn a_directory_of_version_1_has_one_file_for_each_database() {
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(data.path().join("deep/er")).unwrap();
    std::fs::create_dir_all(data.path().join(".delete")).unwrap();
    std::fs::create_dir_all(data.path().join("one_design")).unwrap();
    let shard = file("shards/00000000-ffffffff/fx_none.1795752227.couch");
    for name in ["one.couch", "deep/er/two.couch", "_users.couch", "torn.couch.compact", ".delete/x.couch"] {
        std::fs::write(data.path().join(name), &shard).unwrap();
    }
    std::fs::write(data.path().join("one.couch.compact"), "").unwrap();
    let directory = DataDirectory::open(data.path()).unwrap();
    assert_eq!(names(&directory), ["_users 1/-", "deep/er/two 1/-", "one 1/-", "torn 1/-"]);
    assert_eq!(directory.notes, Vec::<String>::new());
}
