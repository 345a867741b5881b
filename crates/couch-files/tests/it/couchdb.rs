//! The contents of database files of CouchDB 3.5.2 equal its own responses.

use std::collections::BTreeMap;

use settee_couch_files::Database;
use settee_model::json::{Json, Value};

use crate::support::{canonical, database, documents, expected, local_documents};

const LOW: &str = "shards/00000000-7fffffff";
const HIGH: &str = "shards/80000000-ffffffff";

fn check(name: &str, files: &[String]) {
    let shards: Vec<Database> = files.iter().map(|file| database(file)).collect();
    let expected = expected(name);
    let expected = |member: &str| expected.value().get(member).unwrap();

    let found: BTreeMap<String, Vec<String>> = shards.iter().flat_map(documents).collect();
    let mut wanted = BTreeMap::new();
    for (id, leaves) in expected("docs").members() {
        let mut leaves: Vec<String> = leaves.elements().map(canonical).collect();
        leaves.sort();
        wanted.insert(id.to_text(), leaves);
    }
    assert!(wanted.len() > 100);
    assert!(found.keys().eq(wanted.keys()), "{name}: {:?}", found.keys());
    for (id, leaves) in &wanted {
        assert_eq!(&found[id], leaves, "{name} {id}");
    }

    let local: BTreeMap<String, String> = shards.iter().flat_map(local_documents).collect();
    let wanted: BTreeMap<String, String> =
        expected("local").members().map(|(id, document)| (id.to_text(), canonical(document))).collect();
    assert!(!wanted.is_empty());
    assert_eq!(local, wanted, "{name}");

    let count = |of: fn(&Database) -> Option<u64>| shards.iter().map(|shard| of(shard).unwrap()).sum::<u64>();
    let info = expected("info");
    assert_eq!(Some(count(|shard| shard.header().doc_count)), info.get("doc_count").and_then(Value::as_u64));
    assert_eq!(Some(count(|shard| shard.header().deleted_count)), info.get("doc_del_count").and_then(Value::as_u64));
    for shard in &shards {
        let security = Json::parse(&shard.security().unwrap().unwrap()).unwrap();
        assert_eq!(canonical(security.value()), canonical(expected("security")));
        assert_eq!(Some(shard.header().revs_limit), expected("revs_limit").as_u64());
        assert_eq!(shard.header().tail, 0);
        assert_eq!(shard.header().disk_version, 8);
        let partitioned = info.get("props").and_then(|props| props.get("partitioned")).and_then(Value::as_bool);
        assert_eq!(shard.is_partitioned().unwrap(), partitioned.unwrap_or(false));
        let props = Json::parse(&shard.props().unwrap()).unwrap();
        assert_eq!(props.value().get("partitioned").and_then(Value::as_bool), partitioned);
    }
}

#[test]
fn a_database_compressed_by_snappy() {
    check("fx_snappy", &[LOW, HIGH].map(|range| format!("{range}/fx_snappy.1795752226.couch")));
}

#[test]
fn a_database_without_compression() {
    check("fx_none", &["shards/00000000-ffffffff/fx_none.1795752227.couch".to_owned()]);
}

#[test]
fn a_database_compressed_by_deflate() {
    check("fx_deflate", &[LOW, HIGH].map(|range| format!("{range}/fx_deflate.1795752228.couch")));
}

#[test]
fn a_partitioned_database() {
    check("fx_part", &[LOW, HIGH].map(|range| format!("{range}/fx_part.1795752233.couch")));
}

#[test]
fn purges_are_listed() {
    let shards = [LOW, HIGH].map(|range| database(&format!("{range}/fx_snappy.1795752226.couch")));
    let purges: Vec<_> = shards.iter().flat_map(|shard| shard.purges().unwrap()).map(Result::unwrap).collect();
    assert_eq!(purges.len(), 1);
    assert_eq!((purges[0].seq, purges[0].revs.len()), (1, 1));
    assert!(!shards.iter().any(|shard| documents(shard).contains_key(&purges[0].id)));
}

#[test]
fn users_have_their_hashes() {
    let users: BTreeMap<String, Vec<String>> = [LOW, HIGH]
        .iter()
        .flat_map(|range| documents(&database(&format!("{range}/_users.1795752226.couch"))))
        .collect();
    assert!(users.keys().eq(["_design/_auth", "org.couchdb.user:ann", "org.couchdb.user:bob"]), "{:?}", users.keys());
    assert!(users["org.couchdb.user:ann"][0].contains("derived_key"), "{users:?}");
    let replications: Vec<String> = [LOW, HIGH]
        .iter()
        .flat_map(|range| documents(&database(&format!("{range}/_replicator.1795752226.couch"))).into_keys())
        .collect();
    assert_eq!(replications.iter().filter(|id| !id.starts_with("_design/")).count(), 1, "{replications:?}");
}

#[test]
fn both_trees_list_the_same_documents() {
    for range in [LOW, HIGH] {
        let shard = database(&format!("{range}/fx_snappy.1795752226.couch"));
        let mut by_id: Vec<_> = shard.documents(None).map(Result::unwrap).collect();
        let by_seq: Vec<_> = shard.changes().map(Result::unwrap).collect();
        by_id.sort_by_key(|document| document.update_seq);
        assert!(by_id.len() > 40);
        assert_eq!(by_id, by_seq);
        assert_eq!(shard.recover().count(), 0);
    }
}

#[test]
fn a_walk_starts_after_any_document() {
    let shard = database(&format!("{LOW}/fx_part.1795752233.couch"));
    let ids: Vec<String> = shard.documents(None).map(|document| document.unwrap().id).collect();
    for (index, id) in ids.iter().enumerate() {
        let rest: Vec<String> = shard.documents(Some(id)).map(|document| document.unwrap().id).collect();
        assert_eq!(rest, ids[index + 1..]);
        let between = format!("{id}\u{1}");
        assert_eq!(shard.documents(Some(&between)).count(), ids.len() - index - 1);
    }
    assert_eq!(shard.documents(Some("")).count(), ids.len());
}
