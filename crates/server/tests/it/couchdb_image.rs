//! Tests of the conventions of CouchDB's image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::migrate::fixture;
use crate::server::{Directory, Server, program, run};

const ADMIN: &str = "Basic YWRtaW46c2VjcmV0";

struct Container {
    root: Directory,
}

impl Container {
    fn new() -> Self {
        let root = Directory::new();
        for folder in ["data", "etc/default.d", "etc/local.d"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    fn settee(&self, arguments: &[&str]) -> Command {
        let mut command = program(arguments);
        command.env("SETTEE_DATA", self.path("data/settee")).env("SETTEE_CONFIG", self.path("etc"));
        command.env("SETTEE_CHTTPD_AUTH__ITERATIONS", "10");
        command
    }

    fn serve(&self) -> Command {
        self.settee(&["serve", "--port", "0"])
    }

    fn start(&self, command: &mut Command) -> Server {
        Server::start_as(&self.root, command)
    }
}

fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64)> {
    let mut files = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if path.ends_with("data/settee") {
        } else if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files.insert(path.clone(), (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mtime_nsec()));
        }
    }
    files
}

#[test]
fn the_variables_of_the_image_are_those_of_couchdb() {
    let container = Container::new();
    container.write("user", "admin\n");
    container.write("password", "secret\n");
    let mut command = container.serve();
    command.env("COUCHDB_USER_FILE", container.path("user")).env("COUCHDB_PASSWORD_FILE", container.path("password"));
    command.env("COUCHDB_SECRET", "of-cookies").env("NODENAME", "couchdb.1");
    let server = container.start(&mut command);
    let mut admin = server.client().with(ADMIN);
    let config = |admin: &mut crate::Client, key: &str| {
        let found = admin.get(&format!("/_node/couchdb@couchdb.1/_config/{key}")).expect(200);
        found.json().value().to_text()
    };
    assert_eq!(config(&mut admin, "chttpd_auth/secret"), "of-cookies");
    let members = admin.get("/_membership").expect(200).text();
    assert!(members.contains("\"couchdb@couchdb.1\""), "{members}");
    server.client().get("/_all_dbs").expect(401);
    drop(server);
    let mut missing = container.serve();
    missing.env("COUCHDB_USER", "admin").env("COUCHDB_PASSWORD_FILE", container.path("nosuch"));
    let output = run(&mut missing);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("COUCHDB_PASSWORD_FILE"), "{text}");
}

#[test]
fn the_configuration_directory_is_that_of_couchdb() {
    let container = Container::new();
    container.write("etc/default.ini", "[chttpd]\nport = 5984\n[couchdb]\nmax_document_size = 1\n");
    container.write("etc/default.d/chart.ini", "[chttpd]\nbind_address = any\n[s]\na = chart\nb = chart\n");
    container.write("etc/local.ini", "[s]\nb = local\nc = local\n");
    container.write("etc/local.d/10-docker.ini", "[admins]\nadmin = secret\n[s]\nc = docker\n");
    let server = container.start(&mut container.serve());
    let mut admin = server.client().with(ADMIN);
    let section = |admin: &mut crate::Client| admin.get("/_node/_local/_config/s").expect(200).text();
    assert_eq!(section(&mut admin).trim_end(), r#"{"a":"chart","b":"local","c":"docker"}"#);
    assert!(!container.path("etc/local.d/docker.ini").exists());
    let docker = fs::read_to_string(container.path("etc/local.d/10-docker.ini")).unwrap();
    assert!(docker.contains("admin = -pbkdf2"), "{docker}");
    let files = snapshot(&container.path("etc"));
    admin.put("/_node/_local/_config/s/a", "\"changed\"").expect(200);
    assert_eq!(snapshot(&container.path("etc")), files);
    drop(server);
    let server = container.start(&mut container.serve());
    let mut admin = server.client().with(ADMIN);
    assert_eq!(section(&mut admin).trim_end(), r#"{"a":"changed","b":"local","c":"docker"}"#);
    let doctor = run(&mut container.settee(&["doctor"]));
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.status.success(), "{text}");
}

#[test]
fn data_of_couchdb_in_the_volume_is_reported_and_not_modified() {
    let container = Container::new();
    fixture(&container.path("data"));
    container.write("etc/local.d/docker.ini", "[admins]\nadmin = secret\n[cors]\norigins = https://a.example\n");
    let before = snapshot(&container.path("data"));
    let server = container.start(&mut container.serve());
    let data = container.path("data").canonicalize().unwrap();
    let command = format!(
        "settee import-files {} --config {} --to http://USER:PASSWORD@127.0.0.1:5984\n",
        data.display(),
        container.path("etc").display()
    );
    assert!(server.greeting.contains(&command), "{}", server.greeting);
    let mut admin = server.client().with(ADMIN);
    assert_eq!(admin.get("/_all_dbs").expect(200).text().trim_end(), r#"["_replicator","_users"]"#);
    let to = format!("http://admin:secret@{}", server.address);
    let mut import: Vec<&str> = command.trim_end().split(' ').skip(1).collect();
    *import.last_mut().unwrap() = &to;
    let imported = run(&mut container.settee(&import));
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stdout));
    assert!(admin.get("/fx_part").expect(200).text().contains("\"partitioned\":true"));
    drop(server);
    assert_eq!(snapshot(&container.path("data")), before);
    let among = run(container.serve().env("SETTEE_DATA", &data));
    let text = String::from_utf8_lossy(&among.stderr).into_owned();
    assert!(!among.status.success() && text.contains("settee import-files"), "{text}");
    assert_eq!(snapshot(&container.path("data")), before);
}

#[test]
fn a_server_that_is_started_as_root_continues_as_its_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let container = Container::new();
    let program = container.path("settee");
    fs::copy(env!("CARGO_BIN_EXE_settee"), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["serve", "--port", "0"]).env("SETTEE_DATA", container.path("data/settee"));
    command.env("SETTEE_USER", "5984:5984").env_remove("COUCHDB_USER").env_remove("COUCHDB_PASSWORD");
    command.env("SETTEE_CHTTPD_AUTH__ITERATIONS", "10");
    let server = container.start(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(
        (line("Uid:"), line("Gid:")),
        ("5984\t5984\t5984\t5984".to_owned(), "5984\t5984\t5984\t5984".to_owned())
    );
    assert_eq!((line("Groups:"), line("CapEff:")), ("5984".to_owned(), "0000000000000000".to_owned()));
    server.client().put("/db", "").expect(201);
    for file in ["data/settee", "data/settee/engine"] {
        assert_eq!(fs::metadata(container.path(file)).unwrap().uid(), 5984, "{file}");
    }
    drop(server);
    for file in ["data/other/x.couch", "data/else/x"] {
        let file = container.path(file);
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        let refused = run(command.env("SETTEE_DATA", file.parent().unwrap()));
        assert!(!refused.status.success(), "{refused:?}");
        for path in [file.as_path(), file.parent().unwrap()] {
            assert_eq!(fs::metadata(path).unwrap().uid(), 0, "{}", path.display());
        }
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
    let wrong = run(command.env("SETTEE_USER", "root"));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("SETTEE_USER=root is not a user"), "{wrong:?}");
}
