//! Tests of INI text: parsing, and that changes preserve everything else.

use super::*;

#[track_caller]
fn check_read(text: &str, expect: &[&str]) {
    let ini = Ini::parse(text);
    let entries: Vec<String> =
        ini.entries().map(|(section, key, value)| format!("{section} {key}={}", value.unwrap_or("(empty)"))).collect();
    assert_eq!(entries, expect, "{text:?}");
    assert_eq!(ini.to_string(), text, "written as read");
}

#[test]
fn reading() {
    for text in [
        "",
        "k",
        "\n",
        "[s]",
        "[s]\n",
        "=",
        "= =",
        ";",
        " ;",
        "k = v",
        "[s]\n;k = v",
        "[s\nk=v",
        "s]\nk=v",
        ";[s]\nk = v",
        "[s]\n\t;k = v",
        "[s]\nk ;=v",
        "[]\nk = v",
        "[s] x\nk = v",
        "[s]\n= v",
        "[s]\n = v",
    ] {
        check_read(text, &[]);
    }
    for (line, expect) in [
        ("k=v", "s k=v"),
        ("k = v", "s k=v"),
        ("k=  v  ", "s k=v"),
        ("  k  = v", "s k=v"),
        ("k = v ; comment", "s k=v"),
        ("k = v\t; comment", "s k=v"),
        ("k = v1;v2;v3 ;c1; c2", "s k=v1;v2;v3"),
        ("k =;v", "s k=;v"),
        ("k=;", "s k=;"),
        ("k==v", "s k==v"),
        ("k=v=", "s k=v="),
        ("k = =v", "s k==v"),
        ("k= = v", "s k==v"),
        ("==k== = v", "s ==k===v"),
        ("k = a = b", "s k=a = b"),
        ("k = é日😀", "s k=é日😀"),
        ("k = [{nodelay, true}]", "s k=[{nodelay, true}]"),
        ("k=", "s k=(empty)"),
        ("k = ", "s k=(empty)"),
        ("k = ;v", "s k=(empty)"),
    ] {
        for (before, after) in [("[s]\n", ""), ("[s]\r\n", "\r\n"), (" [s] ; comment\n\n", "\n;end")] {
            check_read(&format!("{before}{line}{after}"), &[expect]);
        }
    }
    let long = "x".repeat(1 << 20);
    check_read(&format!("[s]\nk = {long}\n"), &[&format!("s k={long}")]);
    check_read("[a]\nk=1\nk=2\n[b]\rk=3\x1a[a]\r\nk=4", &["a k=1", "a k=2", "b k=3", "a k=4"]);
    check_read("[s ]\nk=1\n[cors:http://x.example]\nk=2", &["s  k=1", "cors:http://x.example k=2"]);
}

#[track_caller]
fn check_set(text: &str, section: &str, key: &str, value: &str, expect: &str) {
    let mut ini = Ini::parse(text);
    ini.set(section, key, value);
    assert_eq!(ini.to_string(), expect, "[{section}] {key} = {value} in {text:?}");
    assert_eq!(ini, Ini::parse(expect), "the same as read");
}

#[test]
fn setting() {
    check_set("", "s", "k", "v", "[s]\nk = v\n");
    check_set("; mine\n", "s", "k", "v", "; mine\n\n[s]\nk = v\n");
    check_set("[s]", "s", "k", "v", "[s]\nk = v\n");
    check_set("[s]\na = 1", "s", "k", "v", "[s]\na = 1\nk = v\n");
    check_set("[s]\r\na = 1\r\n", "s", "k", "v", "[s]\r\na = 1\r\nk = v\r\n");
    check_set("[s]\nk=1\n ; a\n\tk =2 ; why\nz=1\n", "s", "k", "v", "[s]\nk=1\n ; a\nk = v ; why\nz=1\n");
    let file = "[a]\nx = 1\n;y = 2\n\n; about b\n[b]\nx = 1\n";
    check_set(file, "a", "k", "v", "[a]\nx = 1\nk = v\n;y = 2\n\n; about b\n[b]\nx = 1\n");
    check_set(file, "c", "k", "v", "[a]\nx = 1\n;y = 2\n\n; about b\n[b]\nx = 1\n\n[c]\nk = v\n");
    check_set("[a]\n;k = 1\n[b]\nk = 2\n", "a", "k", "v", "[a]\nk = v\n;k = 1\n[b]\nk = 2\n");
    check_set("[a]\n[b]\n[a]\nx=1\n[c]\n", "a", "k", "v", "[a]\n[b]\n[a]\nx=1\nk = v\n[c]\n");
    check_set("[s]\nk = 1\n", "s", "k", "", "[s]\nk = \n");
}

/// Values that contain the start of a comment are in force until the file is read again. Regression: each new value
/// kept the end of the previous one.
#[test]
fn values_that_look_like_comments_replace_each_other() {
    let mut ini = Ini::parse("[s]\nk = 1 ; why\n");
    for value in ["a ;b", "c ;d", "e"] {
        ini.set("s", "k", value);
        let entries: Vec<_> = ini.entries().collect();
        assert_eq!(entries, [("s", "k", Some(value))]);
    }
    assert_eq!(ini.to_string(), "[s]\nk = e\n");
}

#[test]
fn removing() {
    for (text, expect) in [
        ("[s]\nk = 1\n", "[s]\n"),
        ("[s]\nk = 1\n;k\nz=1\nk=2\n[t]\nk = 3\n[s]\nk", "[s]\n;k\nz=1\n[t]\nk = 3\n[s]\nk"),
        ("[t]\nk = 1\n", "[t]\nk = 1\n"),
    ] {
        let mut ini = Ini::parse(text);
        assert_eq!(ini.remove("s", "k"), text != expect, "{text:?}");
        assert_eq!(ini.to_string(), expect, "{text:?}");
    }
}

#[test]
fn rewriting() {
    let mut ini = Ini::parse("[t]\na = x\n[s]\na=x ; note\nb = y\nc =\na=x\n");
    let upper = |value: &str| (value == "x").then(|| "X".to_owned());
    assert!(ini.rewrite("s", upper));
    let expect = "[t]\na = x\n[s]\na = X ; note\nb = y\nc =\na = X\n";
    assert_eq!(ini.to_string(), expect);
    assert_eq!(ini, Ini::parse(expect));
    assert!(!ini.rewrite("s", upper));
}

#[test]
fn writable_settings() {
    let (section, key, value) = (Err(InvalidEntry::Section), Err(InvalidEntry::Key), Err(InvalidEntry::Value));
    for (entry, expect) in [
        (("s", "k", "v"), Ok(())),
        (("s", "k", ""), Ok(())),
        (("s", "k", "a = b"), Ok(())),
        (("s", "k", "a;b"), Ok(())),
        (("s", "k", "quo\"te"), Ok(())),
        (("s", "k", "é日😀"), Ok(())),
        (("s", "k", "a\tb"), Ok(())),
        (("s", "k", "[{nodelay, true}]"), Ok(())),
        (("cors:http://x.example:80", "k", "v"), Ok(())),
        (("s", "hmac:a=", "v"), Ok(())),
        (("s", "two words", "v"), Ok(())),
        (("s", "k", "a ;b"), Ok(())),
        (("s", "k", "a\t;b"), Ok(())),
        (("s", "k", ";b"), Ok(())),
        (("s", "k", " v"), Ok(())),
        (("", "k", "v"), section),
        (("s[", "k", "v"), section),
        (("s\n", "k", "v"), section),
        (("s ;t", "k", "v"), section),
        (("s", "", "v"), key),
        (("s", "k]", "v"), key),
        (("s", "k\r", "v"), key),
        (("s", ";k", "v"), key),
        (("s", " k", "v"), key),
        (("s", "k = l", "v"), key),
        (("s", "k", "v\nx = 1"), value),
        (("s", "k", "v\u{1a}"), value),
    ] {
        assert_eq!(check_entry(entry.0, entry.1, entry.2), expect, "{entry:?}");
    }
}

#[test]
fn random_changes() {
    for seed in 1..=300u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut pick = |from: &[&'static str]| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            from[usize::try_from(state >> 33).unwrap_or(0) % from.len()]
        };
        let lines =
            ["[a]", "[b]", "", "; note", "x = 1", "y=2 ; two", "x=3", "z =", "junk", "[a] ; again", " x = 4", "k= = 5"];
        let ends = ["\n", "\n", "\r\n"];
        let text: String = (0..12).flat_map(|_| [pick(&lines), pick(&ends)]).collect();
        let mut ini = Ini::parse(&text);
        for _ in 0..4 {
            let (section, key, value) =
                (pick(&["a", "b", "c"]), pick(&["x", "y", "k=", "new"]), pick(&["v", "a=b", "a = b", ""]));
            let writable = if key == "k=" && value.is_empty() { Err(InvalidEntry::Value) } else { Ok(()) };
            assert_eq!(check_entry(section, key, value), writable);
            if writable.is_err() {
                continue;
            }
            let others = |ini: &Ini| -> Vec<String> {
                ini.entries().filter(|(s, k, _)| (*s, *k) != (section, key)).map(|entry| format!("{entry:?}")).collect()
            };
            let before = others(&ini);
            ini.set(section, key, value);
            let case = format!("seed {seed}: [{section}] {key} = {value} in {text:?}: {ini}");
            assert_eq!(ini, Ini::parse(&ini.to_string()), "{case}");
            let last = ini.entries().filter(|(s, k, _)| (*s, *k) == (section, key)).last();
            assert_eq!(last, Some((section, key, Some(value).filter(|text| !text.is_empty()))), "{case}");
            assert_eq!(others(&ini), before, "{case}");
        }
        assert_eq!(ini.to_string().matches("; note").count(), text.matches("; note").count(), "seed {seed}");
    }
}
