//! 64 bytes are flipped in every kind of file. `verify` must find the damage, `doctor` must report it, and all other
//! data must be salvaged. `SETTEE_TEST_SCALE=10` tries ten places of each kind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use settee_model::testing::scaled;

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, design, load, number, save, text, wait_for};

const FLIPPED: usize = 64;

const ATTEMPTS_MAX: u64 = 5;

const DATABASES: [&str; 3] = ["one", "two", "three"];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

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

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

type Wanted = fn(&str) -> bool;

const KINDS: [(&str, Wanted); 5] = [
    ("sorted files", |name| name.ends_with(".sst")),
    ("blob files", |name| name.ends_with(".blob")),
    ("logs", |name| name.ends_with(".log")),
    ("lists of files", |name| {
        name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-") || ["CURRENT", "IDENTITY"].contains(&name)
    }),
    ("files of the server", |name| ["version", "local.ini", "databases"].contains(&name)),
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

fn written(directory: &Directory) -> Contents {
    let mut random = Random(11);
    let server = Server::start(directory);
    fill(&mut server.client(), &mut random);
    for database in DATABASES {
        server.client().post(&format!("/{database}/_compact"), "").expect(202);
    }
    assert!(server.terminate().0.success());
    // The start writes the log to sorted files. Later writes stay in a new log.
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

fn flip(path: &Path, random: &mut Random) -> String {
    flip_in(path, 100, random)
}

fn flip_in(path: &Path, percent: usize, random: &mut Random) -> String {
    flip_existing(path, percent, random).unwrap()
}

/// A running server may remove the file at any time. It is then not created again.
fn flip_existing(path: &Path, percent: usize, random: &mut Random) -> io::Result<String> {
    let file = File::options().read(true).write(true).open(path)?;
    let size = file.metadata()?.len() as usize;
    let length = FLIPPED.min(size);
    let start = random.below((size * percent / 100).saturating_sub(length) + 1);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start as u64)?;
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&bytes, start as u64)?;
    Ok(format!("{} at {start}", path.file_name().unwrap().to_str().unwrap()))
}

#[test]
fn flipped_bytes_are_reported_and_everything_else_is_salvaged() {
    let directory = Directory::new();
    let expected = written(&directory);
    let verified = run(program(&["verify", "--data"]).arg(directory.path()));
    assert!(verified.status.success(), "{}", output_text(&verified));
    for (kind, is_wanted) in KINDS {
        let mut lost = 0;
        for seed in 1..=scaled(1) {
            lost += check(&directory, &expected, is_wanted, seed);
        }
        println!("{kind}: {} places, {lost} of {} documents lost", scaled(1), expected.len() as u64 * scaled(1));
    }
}

fn check(directory: &Directory, expected: &Contents, is_wanted: fn(&str) -> bool, seed: u64) -> u64 {
    let (hurt, new) = (Directory::new(), Directory::new());
    copy(directory.path(), hurt.path());
    fs::remove_file(new.path().join("local.ini")).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let files = files(hurt.path(), is_wanted);
    let path = &files[random.below(files.len())];
    let label = format!("seed {seed}, {}", flip(path, &mut random));
    let name = path.file_name().unwrap().to_str().unwrap();

    let verified = run(program(&["verify", "--data"]).arg(hurt.path()));
    let verify_output = output_text(&verified);
    assert!(verify_output.contains(name), "{label}: verify says {verify_output}");
    let examined = output_text(&run(program(&["doctor", "--data"]).arg(hurt.path())));
    assert!(
        examined.contains(name) || verify_output.contains("a crash leaves this"),
        "{label}: doctor says {examined}"
    );
    let salvaged = run(program(&["salvage", "--data"]).arg(hurt.path()).arg("--to").arg(new.path()));
    let list = output_text(&salvaged);
    assert!(salvaged.status.success(), "{label}: {list}");
    let verified = run(program(&["verify", "--data"]).arg(new.path()));
    assert!(verified.status.success(), "{label}: what was salvaged: {}", output_text(&verified));

    let server = Server::start_as(&new, &mut serve(&new));
    let found = contents(&mut server.client());
    let whole = fs::read_to_string(new.path().join("salvage.txt")).unwrap();
    let lost: Vec<&String> =
        expected.iter().filter(|(id, text)| found.get(*id) != Some(text)).map(|(id, _)| id).collect();
    for id in &lost {
        let is_listed = whole.contains(id.as_str()) || whole.contains("may be lost");
        assert!(is_listed, "{label}: {id} is lost and not listed:\n{whole}");
    }
    assert!(found.keys().all(|id| expected.contains_key(id)), "{label}: something came back");
    for database in DATABASES.iter().filter(|database| found.keys().any(|id| id.starts_with(**database))) {
        let status = server.client().get(&format!("/{database}/_design/d/_view/v")).status;
        let is_design_listed = whole.contains("_design/d") || whole.contains("may be lost");
        assert!(status == 200 || is_design_listed, "{label}: the view answers {status}:\n{whole}");
        save(&mut server.client(), &format!("/{database}/new"), "{}");
    }
    assert!(lost.len() * 5 < expected.len(), "{label}: {} documents are lost", lost.len());
    lost.len() as u64
}

#[test]
fn a_running_server_is_verified() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/one", "").expect(201);
    load(&mut client, "/one", 2000, 50);
    let verified = run(program(&["verify", "--data"]).arg(directory.path()));
    let text = output_text(&verified);
    assert!(verified.status.success() && text.contains("one: 2000 documents"), "{text}");
    assert!(text.contains("No damage was found"), "{text}");
    let refused = run(program(&["salvage", "--to", "/nowhere/new", "--data"]).arg(directory.path()));
    assert!(!refused.status.success());
}

#[test]
fn damage_below_a_running_server_affects_no_other_database() {
    let directory = Directory::new();
    let expected = written(&directory);
    for seed in 1..=scaled(1) {
        let is_shown = (0..ATTEMPTS_MAX).any(|attempt| {
            let hurt = Directory::new();
            copy(directory.path(), hurt.path());
            damaged_while_it_runs(&hurt, &expected, seed + 1000 * attempt)
        });
        assert!(is_shown, "seed {seed}: compactions replaced every damaged file");
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns false if a compaction replaced the file before it read the damage, so that no damage exists.
fn damaged_while_it_runs(directory: &Directory, expected: &Contents, seed: u64) -> bool {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let server = Server::start(directory);
    let is_data = |name: &str| name.ends_with(".sst") || name.ends_with(".blob");
    let mut paths = files(directory.path(), is_data);
    paths.retain(|path| fs::metadata(path).is_ok_and(|data| data.len() > 20_000));
    let path = &paths[random.below(paths.len())];
    let Ok(flipped) = flip_existing(path, 50, &mut random) else { return false };
    let label = format!("seed {seed}, {flipped}");
    println!("{label}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_over = AtomicBool::new(false);
    let failures: Mutex<BTreeMap<&str, String>> = Mutex::default();
    server.client().put("/new", "").expect(201);
    thread::scope(|scope| {
        for database in DATABASES.into_iter().chain(["new"]) {
            let (mut client, is_over, failures) = (server.client(), &is_over, &failures);
            scope.spawn(move || {
                for n in 0.. {
                    let reply = client.put(&format!("/{database}/during{n}"), "{\"n\":1}");
                    if reply.status != 201 {
                        failures.lock().unwrap().insert(database, reply.text());
                    }
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let _ends = Ends(&is_over);
        let mut client = server.client();
        for _ in 0..3 {
            for database in DATABASES {
                client.post(&format!("/{database}/_compact"), "");
            }
            load(&mut client, "/new", 500, 100 + random.below(900));
            wait_for("compactions", || {
                let tasks = server.client().get("/_active_tasks").expect(200).text();
                (!tasks.contains("database_compaction")).then_some(())
            });
        }
    });
    let verified = output_text(&run(program(&["verify", "--data"]).arg(directory.path())));
    if !path.exists() && verified.contains("No damage was found") {
        return false;
    }
    assert!(verified.contains(name), "{label}: verify says {verified}");
    let mut hurt = Vec::new();
    let all = server.client().get("/_all_dbs").expect(200).json();
    for database in all.value().elements().map(|name| name.as_str().unwrap().into_owned()) {
        let errors = unreadable(&server, &database, expected, &label);
        if errors.is_empty() {
            assert_eq!(failures.lock().unwrap().get(database.as_str()), None, "{label}: {database} is not hurt");
        } else {
            let is_reported =
                |error: &String| error.contains("\"error\":\"file_corruption\"") || error.contains("interrupted");
            assert!(errors.iter().all(is_reported), "{label}: {errors:?}");
            assert!(verified.contains(&database), "{label}: verify says {verified}");
            hurt.push(database);
        }
    }
    println!("{label}: hurts {hurt:?}");
    assert!(hurt.len() < all.value().elements().count() - 1, "{label}: {hurt:?} are hurt");
    let mut client = server.client();
    let reports_damage = |client: &mut Client| client.get("/_up").expect(200).text().contains("\"damage\":");
    assert_eq!(reports_damage(&mut client), !hurt.is_empty(), "{label}");
    let examined = output_text(&run(program(&["doctor", "--data"]).arg(directory.path())));
    assert_eq!(examined.contains("the server found damaged data"), !hurt.is_empty(), "{label}: {examined}");
    assert!(server.terminate().0.success());
    let server = Server::start(directory);
    let mut client = server.client();
    for database in &hurt {
        assert!(!unreadable(&server, database, expected, &label).is_empty(), "{label}: {database}");
        client.delete(&format!("/{database}")).expect(200);
        client.put(&format!("/{database}"), "").expect(201);
    }
    for database in DATABASES.into_iter().chain(["new"]) {
        client.post(&format!("/{database}/_compact"), "").expect(202);
        save(&mut client, &format!("/{database}/last"), "{}");
    }
    assert!(server.terminate().0.success());
    let new = Directory::new();
    fs::remove_file(new.path().join("local.ini")).unwrap();
    let salvaged = run(program(&["salvage", "--data"]).arg(directory.path()).arg("--to").arg(new.path()));
    assert!(salvaged.status.success(), "{label}: {}", output_text(&salvaged));
    let server = Server::start_as(&new, &mut serve(&new));
    let mut client = server.client();
    assert!(!reports_damage(&mut client), "{label}: {}", client.get("/_up").text());
    for database in DATABASES.into_iter().chain(["new"]) {
        client.get(&format!("/{database}/last")).expect(200);
        if !hurt.iter().any(|hurt| hurt == database) {
            assert_eq!(unreadable(&server, database, expected, &label), Vec::<String>::new(), "{label}: {database}");
        }
    }
    true
}

fn unreadable(server: &Server, database: &str, expected: &Contents, label: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut client = server.client();
    let mut ask = |path: &str| {
        let reply = client.request("GET", path, &[("Accept", "application/json")], b"");
        let text = reply.map_or_else(
            |error| {
                client = server.client();
                format!("\"error\" interrupted: {error}")
            },
            |reply| reply.text(),
        );
        if text.contains("\"error\"") {
            errors.push(text);
        } else {
            return Some(text);
        }
        None
    };
    for path in ["_all_docs?include_docs=true", "_changes?include_docs=true"] {
        ask(&format!("/{database}/{path}"));
    }
    if DATABASES.contains(&database) {
        for path in ["_design/d/_view/v?reduce=false", "_local/mark"] {
            ask(&format!("/{database}/{path}"));
        }
    }
    for (about, before) in expected.iter().filter(|(about, _)| about.starts_with(&format!("{database}, "))) {
        let id = about.trim_end_matches(':').rsplit(' ').next().unwrap();
        let found = ask(&format!("/{database}/{id}?open_revs=all&revs=true&attachments=true"));
        assert!(found.as_ref().is_none_or(|found| found == before), "{label}: {about} is {found:?}, and was {before}");
    }
    errors
}

#[test]
fn an_export_skips_and_reports_damaged_data() {
    let directory = Directory::new();
    written(&directory);
    let server = Server::start(&directory);
    let mut client = server.client();
    let document = client.get("/two/long7").expect(200).json();
    let (rev, long) = (text(document.value(), "_rev"), text(document.value(), "long"));
    assert!(server.terminate().0.success());
    flip_where(directory.path(), &long);
    let server = Server::start(&directory);
    let url = |name: &str| format!("http://{}/{name}", server.address);
    let file = directory.path().join("two.jsonl");
    let exported = run(program(&["backup", "--database", &url("two"), "--to"]).arg(&file));
    let printed_text = output_text(&exported);
    assert_eq!(exported.status.code(), Some(1), "{printed_text}");
    assert!(
        printed_text.contains(&format!("left out: long7 {rev}: ")) && printed_text.contains("; 1 were left out"),
        "{printed_text}"
    );
    let lines = fs::read_to_string(&file).unwrap();
    let left_out: Vec<&str> = lines.lines().filter(|line| line.starts_with("{\"left_out\"")).collect();
    let beginning = format!("{{\"left_out\":{{\"id\":\"long7\",\"rev\":\"{rev}\",\"why\":");
    assert!(left_out.len() == 1 && left_out[0].starts_with(&beginning), "{left_out:?}");
    let restored = run(program(&["restore", "--database", &url("copy"), "--from"]).arg(&file));
    let printed_text = output_text(&restored);
    assert!(!restored.status.success() && printed_text.contains("are incomplete: 1 "), "{printed_text}");
    let mut client = server.client();
    let documents = |client: &mut Client, name: &str| number(client.get(name).expect(200).json().value(), "doc_count");
    assert_eq!(documents(&mut client, "/copy") + 1, documents(&mut client, "/two"));
    client.get("/copy/long7").expect(404);
    client.get("/copy/long8").expect(200);
}

/// A large incompressible value is stored uncompressed.
fn flip_where(data: &Path, value: &str) {
    for path in files(data, |name| name.ends_with(".blob")) {
        let mut bytes = fs::read(&path).unwrap();
        let piece = |start: usize| bytes.windows(16).position(|window| window == &value.as_bytes()[start..start + 16]);
        if let Some(at) = (0..20).find_map(|step| piece(5000 + 16 * step)) {
            bytes[at..at + FLIPPED].iter_mut().for_each(|byte| *byte = !*byte);
            return fs::write(&path, bytes).unwrap();
        }
    }
    panic!("the value is in no file");
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect();
    paths.sort();
    paths
}

#[test]
fn flipped_bytes_of_a_backup_are_reported() {
    let (directory, backups) = (Directory::new(), Directory::new());
    written(&directory);
    let output = run(program(&["backup", "--data"]).arg(directory.path()).arg("--to").arg(backups.path()));
    let backup = PathBuf::from(String::from_utf8(output.stdout).unwrap().lines().next().unwrap());
    let mut found = 0;
    for seed in 1..=scaled(1) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut paths = below(&backup);
        paths.retain(|path| fs::metadata(path).unwrap().len() > 0);
        let path = &paths[random.below(paths.len())];
        let before = fs::read(path).unwrap();
        let label = format!("seed {seed}, {}", flip(path, &mut random));
        let checked = run(program(&["restore", "--check", "--from"]).arg(&backup));
        let (printed_text, name) = (output_text(&checked), path.file_name().unwrap().to_str().unwrap());
        assert!(!checked.status.success() && printed_text.contains(name), "{label}: {printed_text}");
        let target = backups.path().join("restored");
        let restored = run(program(&["restore", "--from"]).arg(&backup).arg("--data").arg(&target));
        assert!(!restored.status.success(), "{label}: {}", output_text(&restored));
        let _ = fs::remove_dir_all(&target);
        fs::write(path, before).unwrap();
        found += 1;
    }
    let checked = run(program(&["restore", "--check", "--from"]).arg(&backup));
    assert!(checked.status.success(), "{}", output_text(&checked));
    println!("backups: {} places, {found} found", scaled(1));
}

#[test]
fn a_damaged_log_is_not_opened() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 3000, 200);
    server.kill();
    let logs = files(directory.path(), |name| name.ends_with(".log"));
    let log = logs.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + FLIPPED].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(log, bytes).unwrap();
    let text = output_text(&run(&mut serve(&directory)));
    assert!(text.contains(".log is damaged") && text.contains("settee salvage"), "{text}");
}
