//! Tests that a start opens all data or is refused without changes, and that commands overwrite no files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::server::{Directory, Server, program, run};
use crate::{load, save, text};

fn image(directory: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(image(&path));
        }
        found.insert(path.clone(), kind.is_file().then(|| fs::read(&path).unwrap()));
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(fs::copy(entry.path(), target).unwrap()),
            _ => {}
        }
    }
}

fn printed_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn serve_at(data: &Path) -> Command {
    let mut command = program(&["serve", "--port", "0", "--data"]);
    command.arg(data);
    command
}

const DOCUMENTS: i64 = 51;

fn written(data: &Path) {
    let place = Directory::new();
    let server = Server::start_as(&place, &mut serve_at(data));
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 50, 200);
    client.post("/db/_compact", "").expect(202);
    assert!(server.terminate().0.success());
    let server = Server::start_as(&place, &mut serve_at(data));
    save(&mut server.client(), "/db/late", &format!("{{\"long\":\"{}\"}}", "x".repeat(40_000)));
    assert!(server.terminate().0.success());
}

fn is_whole(data: &Path) -> bool {
    let place = Directory::new();
    let server = Server::start_as(&place, &mut serve_at(data));
    let reply = server.client().get("/db");
    reply.status == 200 && crate::number(reply.json().value(), "doc_count") == DOCUMENTS
}

#[test]
fn a_start_without_one_of_its_files_is_rejected_or_has_all_data() {
    let base = Directory::new();
    let origin = base.path().join("origin");
    written(&origin);
    let mut paths: Vec<PathBuf> =
        image(&origin).into_keys().map(|path| path.strip_prefix(&origin).unwrap().to_owned()).collect();
    paths.push("engine/*".into());
    for (number, path) in paths.iter().enumerate() {
        let name = path.display().to_string();
        let data = base.path().join(format!("data{number}"));
        copy(&origin, &data);
        match &*name {
            "engine/*" => {
                fs::remove_dir_all(data.join("engine")).unwrap();
                fs::create_dir(data.join("engine")).unwrap();
            }
            _ if data.join(path).is_dir() => fs::remove_dir_all(data.join(path)).unwrap(),
            _ => fs::remove_file(data.join(path)).unwrap(),
        }
        let before = image(&data);
        let must_be_refused = name == "engine"
            || name == "engine/*"
            || name == "engine/CURRENT"
            || [".sst", ".log", ".blob"].iter().any(|kind| name.starts_with("engine/") && name.ends_with(kind))
            || name.starts_with("engine/MANIFEST");
        if !must_be_refused {
            assert!(is_whole(&data), "{name}");
            continue;
        }
        let refused = run(&mut serve_at(&data));
        let response = printed_text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{name}: {response}");
        assert!(image(&data) == before, "{name}: a start that was refused changed files: {response}");
        let missing = path.file_name().unwrap().to_str().unwrap().trim_start_matches('*');
        assert!(response.contains(missing) && response.contains("settee restore"), "{name}: {response}");
        let examined = run(program(&["doctor", "--data"]).arg(&data));
        assert!(
            !examined.status.success() && printed_text(&examined).contains("would not start"),
            "{name}: {}",
            printed_text(&examined)
        );
        assert!(image(&data) == before, "{name}: the doctor changed files");
    }
}

#[test]
fn a_failed_start_leaves_no_files() {
    let base = Directory::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let data = base.path().join("data");
    written(&data);
    let before = image(&data);
    for (further, reason) in [
        (["--port", &port], "is another server running there"),
        (["--bind", "0.0.0.0"], "administrator"),
        (["--set", "chttpd/prot=1"], "prot"),
        (["--config", "/nosuch"], "/nosuch"),
    ] {
        let free: &[&str] = if further[0] == "--port" { &[] } else { &["--port", "0"] };
        for data in [&base.path().join("a/b/data"), &data] {
            let output = run(program(&["serve"]).args(free).args(further).arg("--data").arg(data));
            let text = printed_text(&output);
            assert!(!output.status.success() && text.contains(reason), "{further:?}: {text}");
            assert!(
                !base.path().join("a").exists() && image(&base.path().join("data")) == before,
                "{further:?}: {text}"
            );
        }
    }
    fs::remove_dir_all(data.join("spill")).unwrap();
    fs::write(data.join("spill"), "").unwrap();
    let before = image(&data);
    let output = run(&mut serve_at(&data));
    assert!(!output.status.success() && printed_text(&output).contains("temporary files"), "{}", printed_text(&output));
    assert!(image(&data) == before, "a file in place of spill: files were changed");
    let unrelated = base.path().join("unrelated");
    fs::create_dir(&unrelated).unwrap();
    fs::write(unrelated.join("notes.txt"), "mine").unwrap();
    let output = run(&mut serve_at(&unrelated));
    assert!(!output.status.success() && printed_text(&output).contains("notes.txt"), "{}", printed_text(&output));
    assert_eq!(image(&unrelated).len(), 1);
    for (name, content) in
        [("version", "99\n"), ("version", "2\n"), ("databases", ""), ("engine", "no directory"), ("engine/x", "y")]
    {
        let data = base.path().join("odd");
        fs::create_dir_all(data.join(name).parent().unwrap()).unwrap();
        fs::write(data.join(name), content).unwrap();
        let before = image(&data);
        let output = run(&mut serve_at(&data));
        assert_eq!(output.status.code(), Some(1), "{name}: {}", printed_text(&output));
        assert!(image(&data) == before, "{name}: {}", printed_text(&output));
        fs::remove_dir_all(data).unwrap();
    }
}

#[test]
fn special_files_are_rejected() {
    let base = Directory::new();
    let data = base.path().join("data");
    written(&data);
    let backups = base.path().join("backups");
    let made = run(program(&["backup", "--data"]).arg(&data).arg("--to").arg(&backups));
    let backup = PathBuf::from(String::from_utf8(made.stdout).unwrap().lines().next().unwrap());
    let fifo = |path: &Path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let table = image(&backup).into_keys().find(|path| path.extension().is_some_and(|kind| kind == "sst")).unwrap();
    for (name, path) in [("manifest", backup.join("manifest.json")), ("table", table)] {
        let copied = base.path().join(name);
        copy(&backup, &copied);
        let path = copied.join(path.strip_prefix(&backup).unwrap());
        fifo(&path);
        let restored = base.path().join("restored");
        for arguments in [vec!["--check"], vec!["--data", restored.to_str().unwrap()]] {
            let output = run(program(&["restore", "--from"]).arg(&copied).args(&arguments));
            assert!(
                !output.status.success() && printed_text(&output).contains("not a regular file"),
                "{name}: {}",
                printed_text(&output)
            );
        }
        let _ = fs::remove_dir_all(&restored);
        fs::remove_file(&path).unwrap();
        let _socket = UnixListener::bind(&path).unwrap();
        let output = run(program(&["restore", "--check", "--from"]).arg(&copied));
        assert!(
            !output.status.success() && printed_text(&output).contains("not a regular file"),
            "{name}: {}",
            printed_text(&output)
        );
    }
    for name in ["version", "local.ini", "databases", "engine/CURRENT"] {
        let hurt = base.path().join("hurt");
        copy(&data, &hurt);
        fifo(&hurt.join(name));
        for command in [&["serve", "--port", "0"][..], &["doctor"], &["verify"]] {
            let output = run(program(command).arg("--data").arg(&hurt));
            assert!(!output.status.success(), "{name} {command:?}: {}", printed_text(&output));
        }
        fs::remove_dir_all(&hurt).unwrap();
    }
    for path in image(&data.join("engine")).into_keys() {
        let (hurt, new) = (base.path().join("hurt"), base.path().join("new"));
        copy(&data, &hurt);
        fifo(&hurt.join(path.strip_prefix(&data).unwrap()));
        let output = run(&mut serve_at(&hurt));
        assert!(
            !output.status.success() && printed_text(&output).contains("not a regular file"),
            "{path:?}: {}",
            printed_text(&output)
        );
        let output = run(program(&["salvage", "--data"]).arg(&hurt).arg("--to").arg(&new));
        assert!(output.status.success(), "{path:?}: {}", printed_text(&output));
        fs::remove_dir_all(&hurt).unwrap();
        fs::remove_dir_all(&new).unwrap();
    }
}

#[test]
fn commands_do_not_overwrite_files_or_migrate_a_server_to_itself() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    server.client().put("/db", "").expect(201);
    let url = format!("http://{}", server.address);
    let (database, file) = (format!("{url}/db"), directory.path().join("mine"));
    for command in [&["backup", "--database", &database, "--to"][..], &["export", &database, "--to"]] {
        fs::write(&file, "mine").unwrap();
        let output = run(program(command).arg(&file));
        assert!(
            !output.status.success() && printed_text(&output).contains("--force"),
            "{command:?}: {}",
            printed_text(&output)
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine", "{command:?}");
        let output = run(program(command).arg(&file).arg("--force"));
        assert!(
            output.status.success() && fs::read_to_string(&file).unwrap() != "mine",
            "{command:?}: {}",
            printed_text(&output)
        );
        let output = run(program(command).args(["/dev/full", "--force"]));
        assert!(
            !output.status.success() && printed_text(&output).contains("is not a file"),
            "{command:?}: {}",
            printed_text(&output)
        );
    }
    let before = server.client().get("/_all_dbs").expect(200).text();
    let other = url.replace("127.0.0.1", "localhost");
    for further in [&["--force"][..], &[], &["--verify"]] {
        let output = run(program(&["migrate", &url, "--to", &other]).args(further));
        assert!(
            !output.status.success() && printed_text(&output).contains("same server"),
            "{further:?}: {}",
            printed_text(&output)
        );
        assert!(
            printed_text(&output).contains(concat!("Settee ", env!("CARGO_PKG_VERSION"))),
            "{}",
            printed_text(&output)
        );
    }
    assert_eq!(server.client().get("/_all_dbs").expect(200).text(), before);
    let is_up = || run(program(&["doctor", "--up", "--data"]).arg(directory.path()));
    assert!(is_up().status.success(), "{}", printed_text(&is_up()));
    server.client().put("/_node/_local/_config/couchdb/maintenance_mode", "\"true\"").expect(200);
    assert!(!is_up().status.success(), "{}", printed_text(&is_up()));
    server.kill();
    assert!(!is_up().status.success(), "{}", printed_text(&is_up()));
}

#[test]
fn a_document_of_the_highest_generation_can_be_edited_deleted_and_purged() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let most = i64::MAX as u64 - (1 << 32);
    let write = |rev: &str| format!("{{\"new_edits\":false,\"docs\":[{{\"_id\":\"d\",{rev}}}]}}");
    for beyond in [most + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        client.post("/db/_bulk_docs", &write(&format!("\"_rev\":\"{beyond}-a\""))).expect(400);
        client
            .post("/db/_bulk_docs", &write(&format!("\"_revisions\":{{\"start\":{beyond},\"ids\":[\"a\"]}}")))
            .expect(400);
        client.put("/db/d?new_edits=false", &format!("{{\"_rev\":\"{beyond}-a\"}}")).expect(400);
    }
    client.get("/db/d").expect(404);
    client.post("/db/_bulk_docs", &write(&format!("\"_rev\":\"{most}-a\""))).expect(201);
    let edited = client.put("/db/d", &format!("{{\"_rev\":\"{most}-a\"}}")).expect(201).json();
    let rev = text(edited.value(), "rev");
    assert!(rev.starts_with(&format!("{}-", most + 1)), "{rev}");
    let deleted = client.delete(&format!("/db/d?rev={rev}")).expect(200).json();
    let rev = text(deleted.value(), "rev");
    client.post("/db/_purge", &format!("{{\"d\":[\"{rev}\"]}}")).expect(201);
    client.get(&format!("/db/d?rev={rev}")).expect(404);
}
