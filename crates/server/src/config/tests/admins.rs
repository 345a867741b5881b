//! Tests of admins: their sources, that no password stays in plain text, and that the last admin cannot be deleted.

use super::*;

#[test]
fn passwords_of_all_sources_are_hashed() {
    let old = "-hashed-28bb0461fdec074a04c19fae421fbb5c376999a3,0123456789abcdef0123456789abcdef";
    let directory = Directory::with(&format!("[admins]\n; the boss\nanna = geheim ; plain\nold = {old}\n"));
    directory.write("local.d/a.ini", "[admins]\nberta = a=b\n");
    let configuration = directory.open_with(&[("admins", "clara", "from flags")]).unwrap();
    let check = |name: &str, password: &str| {
        let stored = configuration.get("admins", name).unwrap();
        assert!(stored.starts_with("-pbkdf2:sha256-") && stored.ends_with(",2"), "{name}: {stored}");
        assert!(verifies(&stored, password), "{name}: {stored}");
        stored
    };
    let (anna, berta) = (check("anna", "geheim"), check("berta", "a=b"));
    let clara = check("clara", "from flags");
    assert_eq!(
        directory.read("local.ini"),
        format!("{BASE}[admins]\n; the boss\nanna = {anna} ; plain\nold = {old}\n")
    );
    assert_eq!(directory.read("local.d/a.ini"), format!("[admins]\nberta = {berta}\n"));
    assert_eq!(get(&configuration, "admins/old"), text(old));

    assert_eq!(configuration.set("admins", "anna", "neu", Persist::Disk).unwrap(), Some(anna.clone()));
    let changed = check("anna", "neu");
    assert_ne!(changed.split(',').nth(1), anna.split(',').nth(1), "a fresh salt");
    assert_eq!(directory.read("local.d/a.ini"), format!("[admins]\nberta = {berta}\nanna = {changed}\n"));
    configuration.set("admins", "anna", old, Persist::Disk).unwrap();
    assert_eq!(get(&configuration, "admins/anna"), text(old));

    directory.write("local.d/a.ini", "[admins]\ndora = edited\n");
    configuration.reload().unwrap();
    let dora = check("dora", "edited");
    assert_eq!(directory.read("local.d/a.ini"), format!("[admins]\ndora = {dora}\n"));
    assert_eq!(check("clara", "from flags"), clara, "hashed once");
}

#[test]
fn the_admin_of_the_environment() {
    let directory = Directory::with("[admins]\nanna = geheim\n");
    let open = |name: &str, password: &str| {
        let admin = Some(AdminSeed { name: name.to_owned(), password: password.to_owned() });
        Configuration::open(Options { admin, ..directory.options() })
    };
    let configuration = open("env", "first").unwrap();
    let stored = get(&configuration, "admins/env").unwrap();
    assert!(verifies(&stored, "first"));
    assert!(directory.read("local.ini").ends_with(&format!("\nenv = {stored}\n")));
    configuration.set("admins", "env", "second", Persist::Disk).unwrap();
    assert!(verifies(&get(&open("env", "first").unwrap(), "admins/env").unwrap(), "second"));
    assert!(verifies(&get(&open("anna", "first").unwrap(), "admins/anna").unwrap(), "geheim"));
    assert_eq!(reason(open("a]b", "x")), "Invalid configuration key");
    assert_eq!(reason(open("b", "")), "The password of b must not be empty");
}

#[test]
fn the_server_starts_without_a_writable_configuration() {
    let directory = Directory::new();
    directory.write("data", "");
    let admin = Some(AdminSeed { name: "env".to_owned(), password: "first".to_owned() });
    let data_dir = directory.0.join("data");
    let (section, key, value) = ("chttpd_auth".to_owned(), "iterations".to_owned(), "3".to_owned());
    let overrides = vec![Override { section, key, value, source: "--set".to_owned() }];
    let options = Options { data_dir, admin, overrides, ..directory.options() };
    let result = Configuration::open(options);
    assert!(reason(result).contains("data/local.ini"));

    let directory = Directory::with("[admins]\nanna = geheim\n");
    fs::create_dir(directory.0.join(".local.ini.new")).unwrap();
    let admin = Some(AdminSeed { name: "env".to_owned(), password: "first".to_owned() });
    let configuration = Configuration::open(Options { admin, ..directory.options() }).unwrap();
    let warnings = configuration.warnings();
    assert!(warnings[0].contains("plain text on disk") && warnings[1].contains("in memory only"), "{warnings:?}");
    let (anna, env) = (get(&configuration, "admins/anna").unwrap(), get(&configuration, "admins/env").unwrap());
    assert!(verifies(&anna, "geheim") && verifies(&env, "first"));
    configuration.reload().unwrap();
    assert_eq!(get(&configuration, "admins/env"), Some(env));
    assert!(reason(configuration.set("s", "k", "v", Persist::Disk)).starts_with("io: "));
    assert_eq!(get(&configuration, "s/k"), None);
    assert!(reason(configuration.delete("admins", "anna", Persist::Disk)).starts_with("io: "));
    assert!(get(&configuration, "admins/anna").is_some());
}

#[test]
fn the_last_admin_cannot_be_removed_from_a_reachable_server() {
    let directory = Directory::with("[admins]\nanna = x\nberta = y\n");
    for (address, party) in
        [("127.0.0.1", true), ("::1", true), ("localhost", true), ("0.0.0.0", false), ("::", false), ("any", false)]
    {
        let configuration = directory.open_with(&[("chttpd", "bind_address", address)]).unwrap();
        let delete = |name| reason(configuration.delete("admins", name, Persist::Memory));
        let refusal = format!("The last admin cannot be removed while the server listens on {address}");
        assert_eq!(delete("nobody"), "ok");
        assert_eq!(delete("anna"), "ok", "{address}");
        assert_eq!(delete("berta"), if party { "ok" } else { refusal.as_str() }, "{address}");
        assert_eq!(configuration.section("admins").is_empty(), party, "{address}");

        configuration.reload().unwrap();
        let file = directory.read("local.ini");
        directory.write("local.ini", BASE);
        assert_eq!(reason(configuration.reload()), if party { "ok" } else { refusal.as_str() }, "{address}");
        assert_eq!(configuration.section("admins").is_empty(), party, "{address}");
        directory.write("local.ini", &file);
    }
}
