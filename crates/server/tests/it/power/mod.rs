//! Tests of power losses of the whole data directory. A server is recorded while it is set up, configured, written to,
//! killed, and started on the data of an older version. On each image of [`Disk`] a server must start, have everything
//! that was acknowledged by then, and accept writes. Twenty images at scale 1.

mod disk;
mod history;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use settee_model::json::Value;
use settee_model::testing::{Random, scaled};

use crate::disk::preload;
use crate::server::{Directory, Server, program};
use crate::{Client, design, number, rows, save, text};
use disk::{Disk, Event};
use history::{History, NOTHING};

/// `ann:pw`, the administrator in the environment.
const ANN: &str = "Basic YW5uOnB3";

const IMAGES: u64 = 20;
const IMAGES_OF_A_RECORD: u64 = 100;

#[test]
fn every_power_loss_keeps_acknowledged_writes() {
    let images = scaled(IMAGES);
    let mut random = Random::new();
    let mut done = 0;
    while done < images {
        let recorded = Recorded::make(&mut random);
        let count = IMAGES_OF_A_RECORD.min(images - done);
        recorded.check_images(count, &mut random);
        done += count;
        eprintln!("{done} images are whole, {} events in the last record", recorded.events.len());
    }
}

struct Recorded {
    events: Vec<(Event, u64)>,
    ends: Vec<u64>,
    history: History,
    root: PathBuf,
    root_inode: u64,
}

impl Recorded {
    fn make(random: &mut Random) -> Self {
        let life = Life::new();
        let root_inode = fs::metadata(&life.root).unwrap().ino();
        let (history, ends) = life.live(random);
        let record = fs::read(&life.record).unwrap();
        let (mut events, mut at) = (Vec::new(), 0);
        while let Some((event, length)) = Event::read(&record[at..]) {
            at += length;
            events.push((event, at as u64));
        }
        assert_eq!(at, record.len(), "the record ends with half an event");
        let recorded = Self { events, ends, history, root: life.root.clone(), root_inode };
        recorded.is_complete(&life);
        recorded
    }

    fn is_complete(&self, life: &Life) {
        let mut disk = Disk::new(&self.root, self.root_inode);
        self.events.iter().for_each(|(event, _)| disk.apply(event.clone()));
        let copy = life.directory.path().join("copy");
        disk.copy(&copy);
        let (copied, there) = (files(&copy), files(&life.root));
        assert_eq!(copied.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
        for (path, bytes) in &there {
            assert!(copied[path] == *bytes, "{} differs from its record", path.display());
        }
    }

    fn check_images(&self, count: u64, random: &mut Random) {
        let mut moments: Vec<usize> = (0..count).map(|_| self.moment(random)).collect();
        moments.sort_unstable();
        let mut disk = Disk::new(&self.root, self.root_inode);
        let mut applied = 0;
        for moment in moments {
            self.events[applied..moment].iter().for_each(|(event, _)| disk.apply(event.clone()));
            applied = moment;
            let directory = Directory::new();
            disk.image(&directory.path().join("root"), random);
            let record_length = moment.checked_sub(1).map_or(0, |last| self.events[last].1);
            let mut image = Image { directory, history: &self.history, moment: record_length, is_fine: false };
            image.check();
        }
    }

    /// Returns the number of events before the power loss. All phases have the same probability.
    fn moment(&self, random: &mut Random) -> usize {
        let part = random.below(self.ends.len());
        let index = |end: u64| self.events.partition_point(|(_, at)| *at <= end);
        let begin = part.checked_sub(1).map_or(0, |before| index(self.ends[before]));
        begin + random.below(index(self.ends[part]) - begin + 1)
    }
}

/// Files that must equal the record: no sockets, not the store's information log, and not the reserve file.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (name, kind) = (PathBuf::from(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|(path, bytes)| (name.join(path), bytes)));
        } else if !kind.is_socket() && !name.to_string_lossy().starts_with("LOG") && name != Path::new("reserve") {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn data(root: &Path) -> PathBuf {
    root.join("a/data")
}

fn start(directory: &Directory, data: &Path, prepare: impl FnOnce(&mut Command)) -> Server {
    let mut command = program(&["serve", "--port", "0", "--set", "chttpd_auth/iterations=10", "--data"]);
    command.arg(data).env("COUCHDB_USER", "ann").env("COUCHDB_PASSWORD", "pw");
    prepare(&mut command);
    Server::start_as(directory, &mut command)
}

struct Life {
    directory: Directory,
    root: PathBuf,
    record: PathBuf,
    recorder: PathBuf,
}

impl Life {
    fn new() -> Self {
        let directory = Directory::new();
        let base = directory.path().canonicalize().unwrap();
        let (root, record) = (base.join("root"), base.join("record"));
        fs::create_dir(&root).unwrap();
        fs::write(&record, "").unwrap();
        let recorder = preload("power/recorder.c", &directory);
        Self { directory, root, record, recorder }
    }

    fn live(&self, random: &mut Random) -> (History, Vec<u64>) {
        let (mut history, mut ends) = (History::default(), Vec::new());
        let server = self.start(&mut history);
        ends.push(self.now());
        self.configure(&server, &mut history, 0);
        self.set_up(&server, &mut history);
        self.write(&server, &mut history, random);
        ends.push(self.now());
        server.kill();
        let server = self.start(&mut history);
        ends.push(self.now());
        self.configure(&server, &mut history, 1);
        self.write(&server, &mut history, random);
        self.drop_database(&server, &mut history);
        self.compact(&server);
        assert!(server.terminate().0.success());
        ends.push(self.now());
        self.age(random);
        let server = self.start(&mut history);
        self.configure(&server, &mut history, 2);
        self.write(&server, &mut history, random);
        server.kill();
        ends.push(self.now());
        (history, ends)
    }

    fn start(&self, history: &mut History) -> Server {
        let sent = self.now();
        let server = start(&self.directory, &data(&self.root), |command| {
            command.env("LD_PRELOAD", &self.recorder).env("SETTEE_RECORD_ROOT", &self.root);
            command.env("SETTEE_RECORD_FILE", &self.record);
        });
        let uuid = server.client().get("/").expect(200);
        history.note("uuid", sent, self.now(), text(uuid.json().value(), "uuid"));
        history.note("admin", sent, self.now(), "ann".to_owned());
        server
    }

    fn configure(&self, server: &Server, history: &mut History, round: usize) {
        let mut client = server.client().with(ANN);
        for value in 0..3 {
            let (sent, value) = (self.now(), format!("{round}-{value}"));
            client.put("/_node/_local/_config/mine/key", &format!("\"{value}\"")).expect(200);
            history.note("setting", sent, self.now(), value);
        }
    }

    fn set_up(&self, server: &Server, history: &mut History) {
        let mut client = server.client().with(ANN);
        for name in ["kept", "dropped"] {
            let sent = self.now();
            client.put(&format!("/{name}"), "").expect(201);
            history.note(&format!("database {name}"), sent, self.now(), "there".to_owned());
            let map = "function (doc) { if (doc.n !== undefined) emit(doc.n, null); }";
            save(&mut client, &format!("/{name}/_design/d"), &design(map, None));
        }
    }

    fn write(&self, server: &Server, history: &mut History, random: &mut Random) {
        thread::scope(|scope| {
            let writers: Vec<_> = ["kept", "dropped"]
                .into_iter()
                .filter(|name| history.last(&format!("database {name}")) == Some("there"))
                .map(|name| {
                    let (client, random, response) = (server.client().with(ANN), random.fork(), history.clone());
                    scope.spawn(move || {
                        Writer { life: self, client, random, name, response, new: History::default() }.run()
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| history.add(writer.join().unwrap()));
        });
        let mut client = server.client().with(ANN);
        client.get("/kept/_design/d/_view/v").expect(200);
    }

    fn drop_database(&self, server: &Server, history: &mut History) {
        let sent = self.now();
        server.client().with(ANN).delete("/dropped").expect(200);
        let now = self.now();
        for name in history.names("dropped/") {
            history.note(&name, sent, now, NOTHING.to_owned());
        }
        history.note("database dropped", sent, now, NOTHING.to_owned());
    }

    fn compact(&self, server: &Server) {
        let mut client = server.client().with(ANN);
        client.post("/kept/_compact", "{}").expect(202);
        crate::wait_for("the end of the compaction", || {
            let info = client.get("/kept").expect(200).json();
            (info.value().get("compact_running").and_then(Value::as_bool) == Some(false)).then_some(())
        });
    }

    /// Changes the layout mark to that of a version that did not sync it, or had none.
    fn age(&self, random: &mut Random) {
        let version = data(&self.root).join("version");
        let parent = fs::metadata(version.parent().unwrap()).unwrap().ino();
        if random.one_in(2) {
            fs::remove_file(&version).unwrap();
            self.note_event(8, 0, version.to_str().unwrap());
        } else {
            let inode = fs::metadata(&version).unwrap().ino();
            fs::write(&version, "").unwrap();
            self.note_event(4, inode, "");
            self.note_event(6, inode, "");
        }
        self.note_event(6, parent, "");
    }

    fn note_event(&self, kind: u8, inode: u64, path: &str) {
        let mut event = vec![kind];
        event.extend_from_slice(&inode.to_le_bytes());
        event.extend_from_slice(&0_u64.to_le_bytes());
        event.extend_from_slice(&u32::try_from(path.len()).unwrap().to_le_bytes());
        event.extend_from_slice(path.as_bytes());
        event.extend_from_slice(&0_u32.to_le_bytes());
        fs::File::options().append(true).open(&self.record).unwrap().write_all(&event).unwrap();
    }

    fn now(&self) -> u64 {
        fs::metadata(&self.record).unwrap().len()
    }
}

struct Writer<'a> {
    life: &'a Life,
    client: Client,
    random: Random,
    name: &'static str,
    response: History,
    new: History,
}

impl Writer<'_> {
    fn run(mut self) -> History {
        for _ in 0..30 {
            match self.random.below(10) {
                0..6_u64 => self.save(0),
                6 => self.save(200_000),
                7 => self.delete(),
                _ => self.save_many(),
            }
        }
        self.new
    }

    fn state(&self, id: &str) -> Option<&str> {
        let name = format!("{}/{id}", self.name);
        self.new.last(&name).or_else(|| self.response.last(&name)).filter(|state| *state != NOTHING)
    }

    fn save(&mut self, attachment_bytes: usize) {
        let (id, n) = (format!("d{}", self.random.below(40_u32)), self.random.below(1000_u32));
        let rev = self.state(&id).map(|state| format!("\"_rev\":\"{}\",", state.split(' ').next().unwrap()));
        let content = "QUFB".repeat(attachment_bytes / 3);
        let attachment = match attachment_bytes {
            0 => String::new(),
            _ => format!("\"_attachments\":{{\"a\":{{\"data\":\"{content}\"}}}},"),
        };
        let sent = self.life.now();
        let body = format!("{{{}{attachment}\"n\":{n}}}", rev.unwrap_or_default());
        let reply = self.client.put(&format!("/{}/{id}", self.name), &body).expect(201);
        self.note(&id, sent, &text(reply.json().value(), "rev"), n, attachment_bytes / 3 * 3);
    }

    fn save_many(&mut self) {
        let numbers: Vec<(String, u32)> =
            (0..100).map(|_| (format!("b{:08x}", self.random.below(1_u64 << 32)), self.random.below(1000))).collect();
        let docs: Vec<String> = numbers.iter().map(|(id, n)| format!("{{\"_id\":\"{id}\",\"n\":{n}}}")).collect();
        let sent = self.life.now();
        let reply =
            self.client.post(&format!("/{}/_bulk_docs", self.name), &format!("{{\"docs\":[{}]}}", docs.join(",")));
        for (row, (id, n)) in reply.expect(201).json().value().elements().zip(numbers) {
            self.note(&id, sent, &text(row, "rev"), n, 0);
        }
    }

    fn delete(&mut self) {
        let id = format!("d{}", self.random.below(40_u32));
        let Some(rev) = self.state(&id).map(|state| state.split(' ').next().unwrap().to_owned()) else { return };
        let sent = self.life.now();
        self.client.delete(&format!("/{}/{id}?rev={rev}", self.name)).expect(200);
        let now = self.life.now();
        self.new.note(&format!("{}/{id}", self.name), sent, now, NOTHING.to_owned());
    }

    fn note(&mut self, id: &str, sent: u64, rev: &str, n: u32, attachment_bytes: usize) {
        let state = state(rev, i64::from(n), attachment_bytes);
        self.new.note(&format!("{}/{id}", self.name), sent, self.life.now(), state);
    }
}

fn state(rev: &str, n: i64, attachment_bytes: usize) -> String {
    format!("{rev} n={n} attached={attachment_bytes}")
}

struct Image<'a> {
    directory: Directory,
    history: &'a History,
    moment: u64,
    is_fine: bool,
}

impl Image<'_> {
    fn check(&mut self) {
        let data = data(&self.directory.path().join("root"));
        let mut found = BTreeMap::new();
        let ini = fs::read_to_string(data.join("local.ini")).unwrap_or_default();
        if ini.lines().any(|line| line.starts_with("ann = -pbkdf2")) {
            found.insert("admin".to_owned(), "ann".to_owned());
        }
        if let Some(uuid) = ini.lines().find_map(|line| line.strip_prefix("uuid = ")) {
            found.insert("uuid".to_owned(), uuid.to_owned());
        }
        let server = start(&self.directory, &data, |_| {});
        let mut client = server.client().with(ANN);
        let setting = client.get("/_node/_local/_config/mine/key");
        if setting.status == 200 {
            found.insert("setting".to_owned(), setting.text().trim().trim_matches('"').to_owned());
        }
        let all = client.get("/_all_dbs").expect(200).json();
        for name in all.value().elements().filter_map(|name| name.as_str().map(std::borrow::Cow::into_owned)) {
            if !name.starts_with('_') {
                documents(&mut client, &name, &mut found);
                found.insert(format!("database {name}"), "there".to_owned());
            }
        }
        self.history.check(self.moment, &found);
        client.put("/after", "").expect(201);
        client.put("/after/a", "{}").expect(201);
        server.kill();
        self.is_fine = true;
    }
}

fn documents(client: &mut Client, name: &str, found: &mut BTreeMap<String, String>) {
    let all = client.get(&format!("/{name}/_all_docs?include_docs=true")).expect(200).json();
    let mut count = 0;
    for row in rows(&all) {
        let (id, doc) = (text(row, "id"), row.get("doc").unwrap());
        if id.starts_with("_design/") {
            continue;
        }
        count += 1;
        let attached = if doc.get("_attachments").is_some() {
            let attachment = client.get(&format!("/{name}/{id}/a")).expect(200).body;
            assert!(attachment.iter().all(|byte| *byte == b'A'), "the attachment of {id} is damaged");
            attachment.len()
        } else {
            0
        };
        found.insert(format!("{name}/{id}"), state(&text(doc, "_rev"), number(doc, "n"), attached));
    }
    let view = client.get(&format!("/{name}/_design/d/_view/v?limit=0"));
    if view.status != 404 {
        assert_eq!(number(view.expect(200).json().value(), "total_rows"), count, "rows of the view of {name}");
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        if !self.is_fine {
            eprintln!("a power loss when the record had {} bytes", self.moment);
            if let Some(kept) = std::env::var_os("SETTEE_KEEP_IMAGE") {
                let _ = fs::rename(self.directory.path(), &kept);
                eprintln!("what it left is in {}", kept.display());
            }
        }
    }
}
