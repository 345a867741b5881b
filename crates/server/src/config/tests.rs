//! Tests of the configuration: layers, persistence, and protection of secrets.

use super::*;
use settee_auth::PasswordHash;
use settee_settings::{chttpd, couchdb};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

mod admins;
mod shared;
mod sources;

struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("settee-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("local.d")).unwrap();
        Directory(path)
    }

    fn with(local: &str) -> Directory {
        let directory = Directory::new();
        directory.write("local.ini", &format!("{BASE}{local}"));
        directory
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }

    fn options(&self) -> Options {
        let next = AtomicU32::new(0);
        let counting = move |bytes: &mut [u8]| {
            for byte in bytes {
                *byte = next.fetch_add(1, Relaxed).to_le_bytes()[0];
            }
        };
        Options {
            data_dir: self.0.clone(),
            file: None,
            preset: Vec::new(),
            overrides: Vec::new(),
            admin: None,
            entropy: Arc::new(counting),
        }
    }

    fn open(&self) -> Configuration {
        Configuration::open(self.options()).unwrap()
    }

    fn open_with(&self, overrides: &[(&str, &str, &str)]) -> Result<Configuration, SettingsError> {
        let owned = |(section, key, value): &(&str, &str, &str)| Override {
            section: (*section).to_owned(),
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            source: format!("--set {section}/{key}"),
        };
        Configuration::open(Options { overrides: overrides.iter().map(owned).collect(), ..self.options() })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const BASE: &str = "[couchdb]\nuuid = 00112233445566778899aabbccddeeff\n[chttpd_auth]\niterations = 2\n";

fn get(configuration: &Configuration, path: &str) -> Option<String> {
    let (section, key) = path.split_once('/').unwrap();
    configuration.get(section, key)
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn verifies(stored: &str, password: &str) -> bool {
    PasswordHash::parse(stored).is_ok_and(|hash| hash.verify(password.as_bytes()))
}

fn reason<T>(result: Result<T, SettingsError>) -> String {
    match result {
        Err(SettingsError::Invalid(reason) | SettingsError::Mistakes(reason)) => reason,
        Err(SettingsError::Io(error)) => format!("io: {error}"),
        Err(SettingsError::Store(error)) => format!("store: {error}"),
        Ok(_) => "ok".to_owned(),
    }
}

#[test]
fn layers() {
    let directory = Directory::with("[s]\na = local\nb = local\nc = local\nd = local\n[chttpd]\nport = 1\n");
    directory.write("local.d/20.ini", "[s]\nb = 20\nc =\n[chttpd]\nport =\n");
    directory.write("local.d/10.ini", "[s]\nb = 10\nc = 10\n");
    directory.write("local.d/30.ini.bak", "[s]\na = backup\n");
    let configuration = directory.open_with(&[("s", "d", "override")]).unwrap();
    for (path, expect) in [
        ("s/a", text("local")),
        ("s/b", text("20")),
        ("s/c", None),
        ("s/d", text("override")),
        ("chttpd/port", text("5984")),
        ("chttpd/bind_address", text("127.0.0.1")),
        ("chttpd/max_uri_length", None),
        ("couchdb/database_dir", text(&directory.0.display().to_string())),
        ("couchdb/uuid", text("00112233445566778899aabbccddeeff")),
        ("nosuch/k", None),
    ] {
        assert_eq!(get(&configuration, path), expect, "{path}");
    }
    let section = [("a", "local"), ("b", "20"), ("d", "override")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(configuration.section("s"), section);
    assert_eq!(configuration.section("nosuch"), []);
    let all = configuration.all();
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["chttpd", "chttpd_auth", "couchdb", "s"]);
    assert_eq!(all[3].1, section);
    let idle = |warning: &String| warning.contains("[s]") && warning.ends_with("is not known, and changes nothing");
    assert!(configuration.warnings().iter().all(idle), "{:?}", configuration.warnings());
}

#[test]
fn the_file_may_be_missing_only_at_its_default_place() {
    let directory = Directory::new();
    let data_dir = directory.0.join("deep/data");
    let configuration = Configuration::open(Options { data_dir: data_dir.clone(), ..directory.options() }).unwrap();
    let uuid = get(&configuration, "couchdb/uuid").unwrap();
    assert_eq!(uuid, "000102030405060708090a0b0c0d0e0f");
    assert_eq!(fs::read_to_string(data_dir.join("local.ini")).unwrap(), format!("[couchdb]\nuuid = {uuid}\n"));
    let named = Options { file: Some(directory.0.join("nosuch.ini")), ..directory.options() };
    assert!(reason(Configuration::open(named)).contains("nosuch.ini"));

    fs::create_dir_all(directory.0.join("etc/local.d")).unwrap();
    directory.write("etc/my.ini", BASE);
    directory.write("etc/local.d/a.ini", "[s]\nk = v\n");
    let named = Options { file: Some(directory.0.join("etc/my.ini")), ..directory.options() };
    assert_eq!(get(&Configuration::open(named).unwrap(), "s/k"), text("v"));
    directory.write("etc/local.d/b.ini", "x");
    fs::write(directory.0.join("etc/local.d/b.ini"), b"[s]\nk = \xff\n").unwrap();
    let named = Options { file: Some(directory.0.join("etc/my.ini")), ..directory.options() };
    assert!(reason(Configuration::open(named)).contains("b.ini: not UTF-8"));
}

#[test]
fn files_override_a_preset_and_a_deleted_setting_stays_deleted() {
    let directory = Directory::with("[cors]\norigins = https://a.example\n");
    let preset = || presets::Preset::Pouchdb.given();
    let open = || Configuration::open(Options { preset: preset(), ..directory.options() }).unwrap();
    let configuration = open();
    assert_eq!(get(&configuration, "cors/origins"), text("https://a.example"));
    assert_eq!(configuration.effective("chttpd", "enable_cors"), text("true"));
    configuration.set("cors", "credentials", "false", Persist::Disk).unwrap();
    configuration.delete("cors", "methods", Persist::Disk).unwrap();
    configuration.reload().unwrap();
    for configuration in [&configuration, &open()] {
        assert_eq!(get(configuration, "cors/credentials"), text("false"));
        assert_eq!(get(configuration, "cors/methods"), None);
    }
    assert_eq!(directory.open().effective("chttpd", "enable_cors"), text("false"));
}

#[test]
fn a_configuration_directory_of_couchdb_is_read_first() {
    let directory = Directory::with("[s]\nc = own\n");
    for folder in ["etc/default.d", "etc/local.d"] {
        fs::create_dir_all(directory.0.join(folder)).unwrap();
    }
    directory.write("etc/default.ini", "[s]\nz = of CouchDB\n");
    directory.write("etc/default.d/1.ini", "[s]\na = default.d\nb = default.d\nc = default.d\n");
    directory.write("etc/local.ini", "[s]\nb = local\n");
    directory.write("etc/local.d/2.ini", "# [s]\n# b = comment\nd = local.d\n[s]\nd = local.d\n");
    let options = Options { file: Some(directory.0.join("etc")), ..directory.options() };
    let configuration = Configuration::open(options).unwrap();
    let expected = [("a", "default.d"), ("b", "local"), ("c", "own"), ("d", "local.d")];
    assert_eq!(configuration.section("s"), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    configuration.set("s", "a", "changed", Persist::Disk).unwrap();
    assert!(directory.read("local.ini").contains("a = changed"));
    assert!(!directory.read("etc/default.d/1.ini").contains("changed"));
}

#[test]
fn changes_answer_the_old_value_and_reach_the_disk() {
    let directory = Directory::with("; kept\n[s]\nk = 1 ; note\n");
    let configuration = directory.open();
    let set = |key: &str, value: &str, persist| configuration.set("s", key, value, persist).unwrap();
    let delete = |key: &str, persist| configuration.delete("s", key, persist).unwrap();
    assert_eq!(set("k", "2", Persist::Disk), text("1"));
    assert_eq!(set("new", " padded ", Persist::Disk), None);
    assert_eq!(set("new", "a = b", Persist::Disk), text("padded"));
    assert_eq!(set("memory", "x", Persist::Memory), None);
    assert_eq!(directory.read("local.ini"), format!("{BASE}; kept\n[s]\nk = 2 ; note\nnew = a = b\n"));
    assert_eq!(get(&directory.open(), "s/new"), text("a = b"));
    assert_eq!(get(&configuration, "s/memory"), text("x"));

    assert_eq!(delete("memory", Persist::Disk), text("x"));
    assert_eq!(delete("k", Persist::Memory), text("2"));
    assert_eq!(delete("k", Persist::Disk), None);
    assert_eq!(delete("new", Persist::Disk), text("a = b"));
    assert_eq!(configuration.section("s"), []);
    assert_eq!(directory.read("local.ini"), format!("{BASE}; kept\n[s]\nk = 2 ; note\n"));
    assert!(!configuration.all().is_empty());
}

#[test]
fn changes_go_to_the_last_file_which_overrides_the_others() {
    let directory = Directory::with("[s]\nk = 1\nk= = 1\n[admins]\nanna = -hashed-x\n");
    directory.write("local.d/a.ini", "[s]\nk = 2\n");
    directory.write("local.d/z.ini", "; last\n");
    let configuration = directory.open();
    assert_eq!(configuration.set("s", "k", "3", Persist::Disk).unwrap(), text("2"));
    assert_eq!(directory.read("local.d/z.ini"), "; last\n\n[s]\nk = 3\n");
    assert_eq!(configuration.delete("s", "k", Persist::Disk).unwrap(), text("3"));
    assert_eq!(get(&configuration, "s/k"), None);
    assert_eq!(get(&directory.open(), "s/k"), None);
    assert_eq!(directory.read("local.d/a.ini"), "[s]\nk = 2\n");
    assert!(configuration.delete("admins", "anna", Persist::Disk).unwrap().is_some());
    assert_eq!(directory.open().section("admins"), []);
    assert_eq!(reason(configuration.delete("s", "k=", Persist::Disk)), "Invalid configuration value");
    assert_eq!(get(&configuration, "s/k="), text("1"));
}

#[test]
fn edits_by_hand_are_not_lost() {
    let directory = Directory::with("");
    let configuration = directory.open();
    directory.write("local.ini", &format!("{BASE}; by hand\n[s]\na = hand\n"));
    configuration.set("s", "b", "api", Persist::Disk).unwrap();
    assert_eq!(directory.read("local.ini"), format!("{BASE}; by hand\n[s]\na = hand\nb = api\n"));
    assert_eq!(get(&configuration, "s/a"), None);
    configuration.reload().unwrap();
    assert_eq!(get(&configuration, "s/a"), text("hand"));
}

#[test]
fn rejected_changes_have_no_effect() {
    let directory = Directory::with("");
    let configuration = directory.open();
    let file = directory.read("local.ini");
    for (section, key, value, expect) in [
        ("chttpd", "port", "x", "[chttpd] port must be an integer from 0 to 65535"),
        ("chttpd", "port", "70000", "[chttpd] port must be an integer from 0 to 65535"),
        (
            "uuids",
            "algorithm",
            "uuid_v9",
            "[uuids] algorithm must be one of sequential, random, utc_random, utc_id, uuid_v7",
        ),
        ("httpd", "enable_cors", "yes", "[httpd] enable_cors must be true or false"),
        ("couchdb", "max_document_size", "-1", "[couchdb] max_document_size must be an integer or infinity"),
        ("chttpd", "changes_timeout", "60s", "[chttpd] changes_timeout must be milliseconds or infinity"),
        ("cors", "max_age", "infinity", "[cors] max_age must be a number of seconds"),
        ("s[", "k", "v", "Invalid configuration section"),
        ("s", "k\n", "v", "Invalid configuration key"),
        ("s", "k", "v\n[admins]", "Invalid configuration value"),
        ("admins", "anna", "", "The password of anna must not be empty"),
    ] {
        for persist in [Persist::Disk, Persist::Memory] {
            assert_eq!(reason(configuration.set(section, key, value, persist)), expect);
        }
        assert_ne!(configuration.get(section, key), text(value));
    }
    assert_eq!(directory.read("local.ini"), file);
    for (section, key, value) in [
        ("chttpd", "port", ""),
        ("chttpd", "port", "0"),
        ("httpd", "port", "anything"),
        ("couchdb", "max_document_size", "infinity"),
        ("uuids", "algorithm", "uuid_v7"),
        ("unknown", "port", "x"),
    ] {
        assert_eq!(reason(configuration.set(section, key, value, Persist::Memory)), "ok", "{section}/{key}");
    }
    assert_eq!(
        reason(directory.open_with(&[("chttpd", "port", "x")])),
        "--set chttpd/port: [chttpd] port = x: it must be an integer from 0 to 65535"
    );
}

#[test]
fn invalid_settings_stop_the_start_and_are_reported_with_their_location() {
    let check = |ini: &str, expected: &[&str]| {
        let directory = Directory::new();
        let file = format!("{BASE}{ini}");
        directory.write("local.ini", &file);
        let path = directory.0.join("local.ini");
        let expected: Vec<String> = expected.iter().map(|line| format!("{}:{line}", path.display())).collect();
        assert_eq!(reason(Configuration::open(directory.options())), expected.join("\n"), "{ini}");
        assert_eq!(directory.read("local.ini"), file, "nothing is written");
    };
    check("[chttpd]\nport = 59x\n", &["6: [chttpd] port = 59x: it must be an integer from 0 to 65535"]);
    check(
        "[chttpd]\nprot = 5985\n[chtpd]\nport = 1\n",
        &[
            "6: [chttpd] prot is not known; did you mean [chttpd] port?",
            "8: [chtpd] port is not known; did you mean [chttpd] port?",
        ],
    );
    check(
        "[chttpd]\nbind_address = here\n",
        &["6: [chttpd] bind_address = here: it must be an IP address, localhost or any"],
    );
    let directory = Directory::with("[ioq]\nratio = 0.01\n[mine]\nown = 1\n[couchdb]\nfsync_options = []\n");
    let warnings = directory.open().warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings[0].ends_with("[ioq] ratio is a setting of CouchDB that changes nothing here"), "{warnings:?}");
    let set = |key| reason(directory.open().set("chttpd", key, "1", Persist::Memory));
    assert_eq!(set("prot"), "[chttpd] prot is not known; did you mean [chttpd] port?");
    assert_eq!(set("anything"), "ok");
}

#[test]
fn effective_settings_are_shown_with_their_source_and_without_secrets() {
    let directory = Directory::with("[chttpd]\nport = 1\n[httpd]\nenable_cors = true\n[admins]\nann = -pbkdf2-1,1,1\n");
    let shown = directory.open_with(&[("couchdb", "max_document_size", "7")]).unwrap().show().unwrap();
    let path = directory.0.join("local.ini");
    for line in [
        format!("port = 1 ; {}:6", path.display()),
        format!("enable_cors = true ; {}:8", path.display()),
        format!("ann = **** ; {}:10", path.display()),
        "max_document_size = 7 ; --set couchdb/max_document_size".to_owned(),
        "bind_address = 127.0.0.1 ; default".to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}

#[test]
fn shared_settings_are_shown_instead_of_local_ones() {
    let directory = Directory::with("[log]\nlevel = debug\n[cors]\ncredentials = true\n[vendor]\nname = Own\n");
    let configuration = directory.open_with(&[("cors", "max_age", "7")]).unwrap();
    let stored = [("vendor", "name", "Us"), ("admins", "ann", "-pbkdf2-1,1,1"), ("cors", "max_age", "7")];
    let stored = stored.map(|(section, key, value)| ((section.to_owned(), key.to_owned()), value.to_owned()));
    let ignored_setting_warnings = configuration.read_shared(stored.into()).unwrap();
    for (of, counts) in
        [("[vendor] name", false), ("[cors] credentials", false), ("[cors] max_age", true), ("[log]", true)]
    {
        assert_eq!(
            ignored_setting_warnings.iter().any(|notice| notice.starts_with(of)),
            !counts,
            "{of}: {ignored_setting_warnings:?}"
        );
    }
    let shown = configuration.show().unwrap();
    for line in [
        "name = Us ; shared by all nodes".to_owned(),
        "ann = **** ; shared by all nodes".to_owned(),
        "max_age = 7 ; shared by all nodes".to_owned(),
        "credentials = false ; default".to_owned(),
        format!("level = debug ; {}:6", directory.0.join("local.ini").display()),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}

#[test]
fn values_in_force() {
    let directory = Directory::with(
        "[httpd]\nenable_cors = true\nport = 5986\n[couch_httpd_auth]\ntimeout = 30\n[chttpd]\n\
         changes_timeout = infinity\n[cors]\nmax_age = 5\n[couchdb]\nmax_document_size =\n[s]\nn = 7\n",
    );
    let configuration = directory.open();
    directory.write("local.ini", &format!("{}[chttpd]\nmax_uri_length = many\n", directory.read("local.ini")));
    configuration.reload().unwrap();
    for (path, expect) in [
        ("chttpd/enable_cors", text("true")),
        ("chttpd/port", text("5984")),
        ("chttpd_auth/timeout", text("30")),
        ("chttpd/max_uri_length", text("8000")),
        ("couchdb/max_document_size", text("8000000")),
        ("cors/origins", None),
        ("s/n", text("7")),
        ("s/nosuch", None),
    ] {
        let (section, key) = path.split_once('/').unwrap();
        assert_eq!(configuration.effective(section, key), expect, "{path}");
    }
    let warnings = configuration.warnings();
    assert!(
        warnings.iter().any(|warning| warning.contains("[chttpd] max_uri_length = many: it must be")),
        "{warnings:?}"
    );
    assert_eq!(couchdb::MAX_DOCUMENT_ID_LENGTH.of(&configuration), u64::MAX);

    assert_eq!(configuration.delete("chttpd", "port", Persist::Disk).unwrap(), text("5984"));
    assert_eq!(configuration.delete("chttpd", "port", Persist::Disk).unwrap(), None);
    assert_eq!(chttpd::PORT.of(&configuration), 5984);
    configuration.reload().unwrap();
    assert_eq!(get(&configuration, "chttpd/port"), text("5984"));
}

#[test]
fn reload_discards_memory_and_listeners_are_notified() {
    let directory = Directory::with("[s]\na = 1\nb = 1\nc = 1\n");
    let configuration = Arc::new(directory.open());
    let received = Arc::new(Mutex::new(Vec::new()));
    let (log, reader) = (Arc::clone(&received), Arc::downgrade(&configuration));
    configuration.on_change(move |change| {
        let now = reader.upgrade().and_then(|configuration| configuration.get(change.section, change.key));
        assert_eq!(now.as_deref(), change.value);
        log.lock().unwrap().push(format!("{}/{}={}", change.section, change.key, change.value.unwrap_or("-")));
    });
    let expect = |expected: &[&str]| assert_eq!(std::mem::take(&mut *received.lock().unwrap()), expected);
    configuration.set("s", "a", "2", Persist::Memory).unwrap();
    configuration.set("s", "new", "x", Persist::Memory).unwrap();
    configuration.delete("s", "b", Persist::Memory).unwrap();
    configuration.delete("s", "nosuch", Persist::Memory).unwrap();
    expect(&["s/a=2", "s/new=x", "s/b=-"]);
    directory.write("local.ini", &format!("{BASE}[s]\na = 1\nb = 1\nc = 3\n"));
    configuration.reload().unwrap();
    expect(&["s/new=-", "s/a=1", "s/b=1", "s/c=3"]);
    configuration.reload().unwrap();
    expect(&[]);
}

#[test]
fn settings_that_lock_all_users_out_or_admit_all_are_rejected() {
    const HANDLERS: (&str, &str) = ("chttpd", "authentication_handlers");
    let proxy = "{chttpd_auth, proxy_authentication_handler}";
    let directory = Directory::with("[chttpd_auth]\nhash_algorithms = sha256\n");
    let configuration = directory.open();
    let set = |value: &str| configuration.set(HANDLERS.0, HANDLERS.1, value, Persist::Disk);
    set(proxy).unwrap();
    for nonsense in
        ["{chttpd_auth, nonsense}", "cookie", "[]", "{foo, bar}, {chttpd_auth, null_authentication_handler}"]
    {
        assert!(reason(set(nonsense)).contains("no user could log in"), "{nonsense}");
        directory.write("local.d/9.ini", &format!("[chttpd]\nauthentication_handlers = {nonsense}\n"));
        assert!(reason(configuration.reload()).contains("no user could log in"), "{nonsense}");
        assert_eq!(configuration.effective(HANDLERS.0, HANDLERS.1), text(proxy), "{nonsense}");
    }
    directory.write("local.d/9.ini", "[couch_httpd_auth]\nhash_algorithms = md5\n");
    assert!(reason(configuration.reload()).starts_with("[couch_httpd_auth] hash_algorithms must be"));
    assert_eq!(configuration.effective("chttpd_auth", "hash_algorithms"), text("sha256"));
    fs::remove_file(directory.0.join("local.d/9.ini")).unwrap();
    configuration.reload().unwrap();
}

#[test]
fn an_invalid_guard_denies_access() {
    for (line, expected) in [
        ("", false),
        ("[chttpd]\nrequire_valid_user =\n", false),
        ("[chttpd]\nrequire_valid_user = false\n", false),
        ("[chttpd]\nrequire_valid_user = yes\n", true),
        ("[chttpd]\nrequire_valid_user = True\n", true),
        ("[httpd]\nrequire_valid_user = 1\n", true),
        ("[httpd]\nrequire_valid_user = yes\n[chttpd]\nrequire_valid_user = false\n", false),
    ] {
        // Some of these values prevent a start, but a running server may read them.
        let configuration = Configuration::open_without_corrections(Directory::with(line).options()).unwrap();
        assert_eq!(chttpd::REQUIRE_VALID_USER.of(&configuration), expected, "{line}");
    }
}

#[test]
fn threads_lose_no_change() {
    let directory = Directory::with("");
    let configuration = directory.open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let configuration = &configuration;
            scope.spawn(move || {
                for number in 0..10 {
                    configuration.set("s", &format!("k{thread}{number}"), "v", Persist::Disk).unwrap();
                }
            });
        }
    });
    assert_eq!(configuration.section("s").len(), 40);
    assert_eq!(directory.open().section("s").len(), 40);
    assert!(!directory.0.join(".local.ini.new").exists());
}

#[cfg(unix)]
#[test]
fn files_keep_their_mode_and_links_stay_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = Directory::new();
    directory.open();
    assert_eq!(mode(&directory.0.join("local.ini")), 0o600);

    directory.write("real.ini", BASE);
    fs::set_permissions(directory.0.join("real.ini"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../real.ini", directory.0.join("local.d/linked.ini")).unwrap();
    directory.open().set("s", "k", "v", Persist::Disk).unwrap();
    assert!(fs::symlink_metadata(directory.0.join("local.d/linked.ini")).unwrap().is_symlink());
    assert_eq!(directory.read("real.ini"), format!("{BASE}\n[s]\nk = v\n"));
    assert_eq!(mode(&directory.0.join("real.ini")), 0o640);
}

#[test]
fn debug_output_hides_secrets() {
    let directory = Directory::with(
        "[admins]\nanna = geheim\n[ssl]\npassword = p4ss\n[chttpd_auth]\nsecret = s3cr3t\n[jwt_keys]\nhmac:a = aGk=\n[s]\nk = shown\n",
    );
    let text = format!("{:?}", directory.open());
    assert!(text.contains("\"s/k\": \"shown\"") && text.contains("\"admins/anna\": \"****\""), "{text}");
    for hidden in ["geheim", "-pbkdf2", "p4ss", "s3cr3t", "aGk="] {
        assert!(!text.contains(hidden), "{text}");
    }
}

#[test]
fn the_table_of_defaults_is_sound() {
    let text = guide::render(Path::new("/data"));
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix(';') {
            Some(rest) if !rest.starts_with([' ', '\n']) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let ini = ini::Ini::parse(&uncommented);
    for setting in settee_settings::SETTINGS {
        let name = format!("[{}] {}", setting.section, setting.key);
        let value = setting.default_for(Path::new("/data")).unwrap_or_default();
        assert_eq!(setting.kind.violation(&value), None, "{name}");
        assert_eq!(ini::check_entry(setting.section, setting.key, &value), Ok(()), "{name}");
        assert!(!setting.doc.is_empty() && !setting.doc.contains(" = ") && !setting.doc.ends_with('.'), "{name}");
        let same = settee_settings::SETTINGS
            .iter()
            .filter(|other| (other.section, other.key) == (setting.section, setting.key));
        assert_eq!(same.count(), 1, "{name}");
        let read: Vec<_> = ini.entries().filter(|(s, k, _)| (*s, *k) == (setting.section, setting.key)).collect();
        let expect = Some(value.as_str()).filter(|text| !text.is_empty());
        assert_eq!(read, [(setting.section, setting.key, expect)], "{name}");
    }
    assert_eq!(ini.entries().count(), settee_settings::SETTINGS.len() + 1, "nothing else but the example of an admin");
    let directory = Directory::new();
    directory.write("local.ini", &text);
    let (plain, rendered) = (Directory::new().open(), directory.open());
    assert_eq!(plain.section("chttpd"), rendered.section("chttpd"));
    let mut sections: Vec<&str> = settee_settings::SETTINGS.iter().map(|setting| setting.section).collect();
    sections.dedup();
    let explained: Vec<&str> = guide::sections().into_iter().filter(|section| *section != "admins").collect();
    assert_eq!(explained, sections, "each section is one block of the table and is explained in guide.rs");
}

#[test]
fn a_change_reports_when_it_applies() {
    use settee_settings::Applies;
    for (section, key, expected) in [
        ("log", "level", Applies::AtOnce),
        ("chttpd", "port", Applies::AfterRestart),
        ("httpd", "max_uri_length", Applies::AtOnce),
        ("admins", "ann", Applies::AtOnce),
        ("mine", "own", Applies::Nowhere),
    ] {
        assert_eq!(settee_settings::applies(section, key), expected, "{section}/{key}");
    }
}

#[test]
fn readers_see_the_current_settings() {
    use settee_settings::Settings;
    let directory = Directory::with("[httpd]\nenable_cors = true\n[couchdb]\nmax_document_size = infinity\n");
    let configuration: &dyn Settings = &directory.open();
    assert_eq!(couchdb::MAX_DOCUMENT_SIZE.of(configuration), u64::MAX);
    assert_eq!(couchdb::MAX_ATTACHMENT_SIZE.of(configuration), 1 << 30);
    assert!(chttpd::ENABLE_CORS.of(configuration));
    assert!(chttpd::ADMIN_ONLY_ALL_DBS.of(configuration));
    assert_eq!(couchdb::UUID.text(configuration).map(|uuid| uuid.len()), Some(32));
    let (disk, memory) = (settee_settings::Persist::Yes, settee_settings::Persist::No);
    assert_eq!(configuration.set("s", "k", "1", memory), Ok(None));
    assert!(!directory.read("local.ini").contains("k = 1"));
    assert_eq!(configuration.set("s", "k", "2", disk), Ok(text("1")));
    assert!(directory.read("local.ini").contains("k = 2"));
    assert_eq!(configuration.delete("s", "k", disk), Ok("2".to_owned()));
    assert_eq!(configuration.delete("s", "k", disk), Err(settee_settings::SettingsError::Unknown));
    let refusal = "Invalid configuration key".to_owned();
    assert_eq!(configuration.set("s", "[", "v", disk), Err(settee_settings::SettingsError::Invalid(refusal)));
}
