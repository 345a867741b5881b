//! 64 flipped bytes in places of every kind of file: found by `verify`, named by `doctor`, and everything else salvaged and
//! compared with what was written. `SETTEE_DAMAGE_PLACES=10` tries ten places of each kind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, design, load, save, text};

/// How many bytes are flipped in one place.
const FLIPPED: usize = 64;

const DATABASES: [&str; 3] = ["one", "two", "three"];

/// A generator whose numbers follow from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// What no compression makes smaller.
fn noise(random: &mut Random, length: usize) -> String {
    (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

fn fill(client: &mut Client, random: &mut Random) {
    for database in DATABASES {
        client.put(&format!("/{database}"), "").expect(201);
        load(client, &format!("/{database}"), 1000, 100);
        for n in 0..40 {
            let long = noise(random, 20_000);
            save(client, &format!("/{database}/long{n}"), &format!("{{\"long\":\"{long}\"}}"));
        }
        for n in 0..5 {
            let path = format!("/{database}/with{n}");
            let rev = save(client, &path, "{}");
            let bytes = noise(random, 150_000);
            let headers = [("Content-Type", "image/png")];
            let target = format!("{path}/a?rev={rev}");
            client.request("PUT", &target, &headers, bytes.as_bytes()).unwrap().expect(201);
        }
        let rev = save(client, &format!("/{database}/gone"), "{}");
        client.delete(&format!("/{database}/gone?rev={rev}")).expect(200);
        client.put(&format!("/{database}/_local/mark"), "{\"n\":1}").expect(201);
        save(client, &format!("/{database}/_design/d"), &design("function (doc) { emit(doc.n, 1); }", Some("_sum")));
        client.get(&format!("/{database}/_design/d/_view/v")).expect(200);
    }
}

type Contents = BTreeMap<String, String>;

/// All documents with their leaves and attachments.
fn contents(client: &mut Client) -> Contents {
    let mut found = Contents::new();
    for database in DATABASES {
        let changes = client.get(&format!("/{database}/_changes?style=all_docs"));
        if changes.status == 404 {
            continue;
        }
        for row in changes.json().value().get("results").unwrap().elements() {
            let id = text(row, "id");
            let path = format!("/{database}/{id}?open_revs=all&revs=true&attachments=true");
            let all = client.request("GET", &path, &[("Accept", "application/json")], b"").unwrap().text();
            found.insert(format!("{database}, document {id}:"), all);
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether a file of this path is of a kind.
type Wanted = fn(&str) -> bool;

/// The kinds of files, each by what their names are like.
const KINDS: [(&str, Wanted); 5] = [
    ("sorted files", |name| name.ends_with(".sst")),
    ("blob files", |name| name.ends_with(".blob")),
    ("logs", |name| name.ends_with(".log")),
    ("lists of files", |name| {
        name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-") || ["CURRENT", "IDENTITY"].contains(&name)
    }),
    ("files of the server", |name| ["version", "local.ini"].contains(&name)),
];

fn files(data: &Path, is_wanted: fn(&str) -> bool) -> Vec<PathBuf> {
    let directories = [data.to_owned(), data.join("engine")];
    let entries = directories.iter().flat_map(|directory| fs::read_dir(directory).unwrap());
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        is_wanted(path.file_name().unwrap().to_str().unwrap()) && fs::metadata(path).is_ok_and(|data| data.len() > 0)
    });
    paths.sort();
    paths
}

/// A stopped server with data in all kinds of files.
fn written(directory: &Directory) -> Contents {
    let mut random = Random(11);
    let server = Server::start(directory);
    fill(&mut server.client(), &mut random);
    for database in DATABASES {
        server.client().post(&format!("/{database}/_compact"), "").expect(202);
    }
    assert!(server.terminate().0.success());
    // The start writes the log to sorted files; what comes now stays in a new one.
    let server = Server::start(directory);
    let mut client = server.client();
    for database in DATABASES {
        for n in 0..100 {
            save(&mut client, &format!("/{database}/late{n}"), &format!("{{\"n\":{n}}}"));
        }
    }
    let contents = contents(&mut client);
    assert!(server.terminate().0.success());
    contents
}

#[test]
fn flipped_bytes_are_found_named_and_everything_else_is_salvaged() {
    let places: u64 = std::env::var("SETTEE_DAMAGE_PLACES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let directory = Directory::new();
    let expected = written(&directory);
    let verified = run(program(&["verify", "--data"]).arg(directory.path()));
    assert!(verified.status.success(), "{}", told(&verified));
    for (kind, is_wanted) in KINDS {
        let mut lost = 0;
        for seed in 1..=places {
            lost += check(&directory, &expected, is_wanted, seed);
        }
        println!("{kind}: {places} places, {lost} of {} documents lost", expected.len() as u64 * places);
    }
}

/// Flips bytes in one place. Tells how many documents that costs.
fn check(directory: &Directory, expected: &Contents, is_wanted: fn(&str) -> bool, seed: u64) -> u64 {
    let (hurt, new) = (Directory::new(), Directory::new());
    copy(directory.path(), hurt.path());
    fs::remove_file(new.path().join("local.ini")).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let files = files(hurt.path(), is_wanted);
    let path = &files[random.below(files.len())];
    let mut bytes = fs::read(path).unwrap();
    let length = FLIPPED.min(bytes.len());
    let start = random.below(bytes.len() - length + 1);
    bytes[start..start + length].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(path, bytes).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let what = format!("seed {seed}, {name} at {start}");

    let verified = run(program(&["verify", "--data"]).arg(hurt.path()));
    let told_verified = told(&verified);
    assert!(told_verified.contains(name), "{what}: verify says {told_verified}");
    let examined = told(&run(program(&["doctor", "--data"]).arg(hurt.path())));
    assert!(examined.contains(name) || told_verified.contains("a crash leaves this"), "{what}: doctor says {examined}");
    let salvaged = run(program(&["salvage", "--data"]).arg(hurt.path()).arg("--to").arg(new.path()));
    let list = told(&salvaged);
    assert!(salvaged.status.success(), "{what}: {list}");
    let verified = run(program(&["verify", "--data"]).arg(new.path()));
    assert!(verified.status.success(), "{what}: what was salvaged: {}", told(&verified));

    let server = Server::start_as(&new, &mut serve(&new));
    let found = contents(&mut server.client());
    let whole = fs::read_to_string(new.path().join("salvage.txt")).unwrap();
    let lost: Vec<&String> =
        expected.iter().filter(|(id, text)| found.get(*id) != Some(text)).map(|(id, _)| id).collect();
    for id in &lost {
        let is_listed = whole.contains(id.as_str()) || whole.contains("may be lost");
        assert!(is_listed, "{what}: {id} is lost and not listed:\n{whole}");
    }
    assert!(found.keys().all(|id| expected.contains_key(id)), "{what}: something came back");
    for database in DATABASES.iter().filter(|database| found.keys().any(|id| id.starts_with(**database))) {
        server.client().get(&format!("/{database}/_design/d/_view/v")).expect(200);
        save(&mut server.client(), &format!("/{database}/new"), "{}");
    }
    assert!(lost.len() * 5 < expected.len(), "{what}: {} documents are lost", lost.len());
    lost.len() as u64
}

/// A running server is verified as well, and says itself what is in its databases.
#[test]
fn a_running_server_is_verified() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/one", "").expect(201);
    load(&mut client, "/one", 2000, 50);
    let verified = run(program(&["verify", "--data"]).arg(directory.path()));
    let text = told(&verified);
    assert!(verified.status.success() && text.contains("one: 2000 documents"), "{text}");
    assert!(text.contains("Everything is as it was written"), "{text}");
    let refused = run(program(&["salvage", "--to", "/nowhere/new", "--data"]).arg(directory.path()));
    assert!(!refused.status.success());
}
