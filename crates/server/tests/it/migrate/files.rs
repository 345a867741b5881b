//! Tests of `settee import-files` with the data directory of a CouchDB 3.5.2.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use settee_couch_files::{Database, Purge};
use settee_model::json::{Json, Value, object};

use super::{BOB, succeeds};
use crate::client::Client;
use crate::server::{Directory, Server, program, run};

struct Import {
    couchdb: Directory,
    target: Server,
    _directory: Directory,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../couch-files/tests/fixtures")
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&std::fs::read(path).unwrap()[..]).read_to_end(&mut out).unwrap();
    out
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() { copy(&from, &to) } else { std::fs::write(to.with_extension(""), gunzip(&from)).unwrap() }
    }
}

pub(crate) fn fixture(to: &Path) {
    copy(&fixtures().join("data"), to);
}

impl Import {
    fn start() -> Self {
        let [couchdb, directory] = [Directory::new(), Directory::new()];
        fixture(&couchdb.path().join("data"));
        directory.configure("[admins]\nbob = secret\n[log]\nlevel = warn\n");
        let target = Server::start(&directory);
        Self { couchdb, target, _directory: directory }
    }

    fn run(&self, further: &[&str]) -> Output {
        let target = format!("http://bob:secret@{}", self.target.address);
        let data = self.couchdb.path().join("data");
        run(program(&["import-files", data.to_str().unwrap(), "--to", &target]).args(further))
    }

    fn client(&self) -> Client {
        self.target.client().with(BOB)
    }

    fn shard(&self, name: &str) -> PathBuf {
        self.couchdb.path().join("data/shards").join(name)
    }
}

fn canonical(value: Value<'_>) -> String {
    if value.is_object() {
        let members: BTreeMap<String, String> =
            value.members().map(|(name, value)| (name.to_text(), canonical(value))).collect();
        return format!("{members:?}");
    }
    if value.is_array() {
        return format!("{:?}", value.elements().map(canonical).collect::<Vec<_>>());
    }
    let raw = std::str::from_utf8(value.raw()).unwrap();
    match value.as_str() {
        Some(text) => format!("s{text}"),
        None if value.is_integer() => raw.to_owned(),
        None => raw.parse::<f64>().map_or_else(|_| raw.to_owned(), |number| format!("f{:x}", number.to_bits())),
    }
}

/// Records in the files and at the target, sorted.
fn purges(import: &Import, name: &str, files: &[&str]) -> [Vec<String>; 2] {
    let listed = import.client().get(&format!("/{name}/_purged_infos")).json();
    let there = listed.value().get("purged_infos").unwrap().elements().map(canonical).collect();
    let of = |file: &&str| Database::open(&import.shard(file)).unwrap().purges().unwrap();
    let here = files.iter().flat_map(of).map(|purge| {
        let Purge { id, revs, .. } = purge.unwrap();
        let record = object(|object| {
            object.string("id", &id).strings("revs", revs.iter().map(ToString::to_string));
        });
        canonical(Json::parse(&record).unwrap().value())
    });
    [here.collect(), there].map(|mut purges: Vec<String>| {
        purges.sort();
        purges
    })
}

#[track_caller]
fn equals_couchdb(client: &mut Client, name: &str) {
    let text = gunzip(&fixtures().join(format!("expected/{name}.json.gz")));
    let expected = Json::parse(&text).unwrap();
    let expected = |member: &str| expected.value().get(member).unwrap();
    for (id, leaves) in expected("docs").members() {
        let id = id.to_text();
        let address = match id.strip_prefix("_design/") {
            Some(design) => format!("_design/{}", design.replace('/', "%2F")),
            None => id.replace('/', "%2F"),
        };
        let path = format!("/{name}/{address}?open_revs=all&revs=true&attachments=true");
        let found = client.request("GET", &path, &[("Accept", "application/json")], b"").unwrap().expect(200);
        let found = Json::parse(found.text().as_bytes()).unwrap();
        let mut found: Vec<String> = found.value().elements().map(|row| canonical(row.get("ok").unwrap())).collect();
        let mut leaves: Vec<String> = leaves.elements().map(canonical).collect();
        found.sort();
        leaves.sort();
        assert_eq!(found, leaves, "{name} {id}");
    }
    for (id, document) in expected("local").members() {
        let found = client.get(&format!("/{name}/{}", id.to_text())).expect(200);
        assert_eq!(canonical(found.json().value()), canonical(document), "{name} {}", id.to_text());
    }
    let security = client.get(&format!("/{name}/_security")).json();
    assert_eq!(canonical(security.value()), canonical(expected("security")));
    let limit = client.get(&format!("/{name}/_revs_limit")).json();
    assert_eq!(canonical(limit.value()), canonical(expected("revs_limit")));
    let info = client.get(&format!("/{name}")).json();
    for count in ["doc_count", "doc_del_count"] {
        assert_eq!(
            info.value().get(count).map(Value::raw),
            expected("info").get(count).map(Value::raw),
            "{name} {count}"
        );
    }
    let partitioned = |info: Value<'_>| info.get("props")?.get("partitioned")?.as_bool();
    assert_eq!(partitioned(info.value()), partitioned(expected("info")));
}

#[test]
fn a_data_directory_is_imported() {
    let import = Import::start();
    let etc = import.couchdb.path().join("etc");
    std::fs::create_dir_all(etc.join("local.d")).unwrap();
    std::fs::write(etc.join("default.ini"), "[chttpd]\nport = 5984\n[cors]\norigins = *\n").unwrap();
    std::fs::write(etc.join("local.d/x.ini"), "[admins]\neve = -hashed-d1ff,00\n[cors]\norigins = https://a.example\n")
        .unwrap();
    let printed = succeeds(&import.run(&["--config", etc.to_str().unwrap()]));
    assert!(printed.contains("set [cors] origins = https://a.example"), "{printed}");
    assert!(printed.contains("created the administrator eve"), "{printed}");
    let mut client = import.client();
    for name in ["fx_snappy", "fx_none", "fx_deflate", "fx_part"] {
        equals_couchdb(&mut client, name);
    }
    assert_eq!(client.get("/replicator_paused/_all_docs").json().value().get("rows").unwrap().elements().count(), 1);
    let equal = import.run(&["--verify"]);
    let report = String::from_utf8_lossy(&equal.stdout).into_owned();
    assert!(report.ends_with("both sides are equal\n"), "{report}");
    assert!(report.contains("equal  fx_part: 121 documents"), "{report}");
    import.target.client().with("Basic YW5uOnB3YW5u").get("/_session").expect(200);
    client.put("/fx_snappy/_purged_infos_limit", "7").expect(200);
    succeeds(&import.run(&[]));
    equals_couchdb(&mut client, "fx_snappy");
    assert_eq!(client.get("/fx_snappy/_purged_infos_limit").text().trim(), "1000");
    let shards = ["00000000-7fffffff", "80000000-ffffffff"].map(|range| format!("{range}/fx_snappy.1795752226.couch"));
    let [here, there] = purges(&import, "fx_snappy", &shards.each_ref().map(String::as_str));
    assert_eq!(here, there);
    assert!(!here.is_empty());
    client.put("/fx_none/new", "{}").expect(201);
    client.put("/fx_none/_local/l0", "{\"_rev\":\"0-1\",\"v\":\"other\"}").expect(201);
    let output = import.run(&["--verify", "--database", "fx_none"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{report}");
    assert!(report.contains("new: at the target its leaves are 1-"), "{report}");
    assert!(report.contains("_local/l0 is not the same"), "{report}");
}

#[test]
fn torn_and_damaged_files_are_imported_as_far_as_possible() {
    let import = Import::start();
    let torn = import.shard("00000000-ffffffff/fx_none.1795752227.couch");
    let mut bytes = std::fs::read(&torn).unwrap();
    bytes.extend_from_slice(&[7; 5000]);
    std::fs::write(&torn, &bytes).unwrap();
    std::fs::remove_file(import.shard("80000000-ffffffff/fx_snappy.1795752226.couch")).unwrap();
    let output = import.run(&["--database", "fx_none", "--database", "fx_snappy"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("5000 bytes follow the last valid header"), "{printed}");
    assert!(printed.contains("the shard 80000000-ffffffff: the directory does not contain its file"), "{printed}");
    equals_couchdb(&mut import.client(), "fx_none");
    let output = import.run(&["--verify", "--database", "fx_none"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_directory_without_databases_is_refused() {
    let import = Import::start();
    std::fs::remove_dir_all(import.couchdb.path().join("data")).unwrap();
    std::fs::create_dir_all(import.couchdb.path().join("data")).unwrap();
    let output = import.run(&[]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains("contains no databases"), "{printed}");
}
