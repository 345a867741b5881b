//! Analyzers against what CouchDB's answered for the same texts (`golden/analyze.txt`).
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

const GOLDEN: &str = include_str!("../golden/analyze.txt");

fn check(name: &str, text: &str, expected: &str) {
    let terms = Analyzer::named(Dialect::Nouveau, name, None).unwrap().analyze(text);
    assert_eq!(terms.join(" | "), expected, "{name}: {text}");
}

#[test]
fn terms_are_those_that_were_recorded() {
    let mut count = 0;
    for line in GOLDEN.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        check(parts[0], parts[1], parts.get(2).copied().unwrap_or_default());
        count += 1;
    }
    assert!(count > 40, "{count}");
}

#[test]
fn other_texts() {
    for (name, text, expected) in [
        ("cjk", "我是中国人", "我是 | 是中 | 中国 | 国人"),
        ("cjk", "the ＡＢＣ 한국어 x", "abc | 한국 | 국어 | x"),
        ("chinese", "中", "中"),
        ("simple_asciifolding", "Ærøskøbing ß", "aeroskobing | ss"),
        (
            "email",
            "Mail me@x.example.com or see www.example.com/a?b.",
            "mail | me@x.example.com | see | www.example.com/a?b",
        ),
        ("classic", "O'Neill's 12-34 wi-fi", "o'neill | 12-34 | wi | fi"),
        ("armenian", "", ""),
        ("thai", "สวัสดี hello", "สวัสดี | hello"),
    ] {
        check(name, text, expected);
    }
    let own = ["x".to_owned()];
    let analyzer = Analyzer::named(Dialect::Clouseau, "standard", Some(&own)).unwrap();
    assert_eq!(analyzer.analyze("the X y"), ["the", "y"]);
    assert_eq!(Analyzer::named(Dialect::Clouseau, "portuguese", None).unwrap().analyze("as casas"), ["casa"]);
}

#[test]
fn names_that_are_none_are_refused() {
    for (name, reason) in [
        ("nosuch", "nosuch is not a valid analyzer name"),
        ("portuguese", "portuguese is not a valid analyzer name"),
        ("", "analyzer must not be empty"),
    ] {
        assert_eq!(Analyzer::named(Dialect::Nouveau, name, None).unwrap_err().to_string(), reason);
    }
    assert!(Analyzer::named(Dialect::Clouseau, "nosuch", None).is_err());
}

#[test]
fn every_name_has_an_analyzer_that_keeps_places() {
    let names = "arabic armenian basque bulgarian catalan chinese cjk classic czech danish dutch email english finnish french \
                 galician german greek hindi hungarian indonesian irish italian japanese keyword latvian norwegian persian polish \
                 portugese romanian russian simple simple_asciifolding spanish standard swedish thai turkish whitespace";
    let text = "Zwei Wörter 12 und x’y";
    for name in names.split_whitespace() {
        let analyzer = Analyzer::named(Dialect::Nouveau, name, None).unwrap();
        for token in analyzer.tokens(text) {
            assert!(token.start < token.end && text.get(token.start..token.end).is_some(), "{name} {token:?}");
        }
        assert!(analyzer.normalize("ÄB").to_lowercase().ends_with('b'), "{name}");
    }
    let english = Analyzer::named(Dialect::Nouveau, "english", None).unwrap();
    let places: Vec<_> = english.tokens("jumps over the lazy dog").iter().map(|token| token.position).collect();
    assert_eq!(places, [0, 1, 3, 4]);
}

#[test]
fn long_words_are_taken_apart() {
    let standard = Analyzer::named(Dialect::Nouveau, "standard", None).unwrap();
    let lengths: Vec<_> = standard.analyze(&"x".repeat(600)).iter().map(String::len).collect();
    assert_eq!(lengths, [255, 255, 90]);
}
