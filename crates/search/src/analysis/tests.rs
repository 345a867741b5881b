//! Analyzers yield the terms of CouchDB for the texts in `golden/analyze.txt`.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

const GOLDEN: &str = include_str!("../golden/analyze.txt");

fn terms(analyzer: &Analyzer, text: &str) -> Vec<String> {
    analyzer.analyze(text, &SearchLimits::none()).unwrap()
}

fn tokens(analyzer: &Analyzer, text: &str) -> Vec<Token> {
    analyzer.collect(text, |token| Ok(Some(token))).unwrap()
}

fn check(name: &str, text: &str, expected: &str) {
    let terms = Analyzer::named(Dialect::Nouveau, name, None).unwrap().analyze(text, &SearchLimits::none()).unwrap();
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
    assert_eq!(terms(&analyzer, "the X y"), ["the", "y"]);
    let portuguese = Analyzer::named(Dialect::Clouseau, "portuguese", None).unwrap();
    assert_eq!(terms(&portuguese, "as casas"), ["casa"]);
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
        for token in tokens(&analyzer, text) {
            assert!(token.start < token.end && text.get(token.start..token.end).is_some(), "{name} {token:?}");
        }
        assert!(analyzer.normalize("ÄB").to_lowercase().ends_with('b'), "{name}");
    }
    let english = Analyzer::named(Dialect::Nouveau, "english", None).unwrap();
    let places: Vec<_> = tokens(&english, "jumps over the lazy dog").iter().map(|token| token.position).collect();
    assert_eq!(places, [0, 1, 3, 4]);
}

#[test]
fn long_words_are_taken_apart() {
    let standard = Analyzer::named(Dialect::Nouveau, "standard", None).unwrap();
    let lengths: Vec<_> = terms(&standard, &"x".repeat(600)).iter().map(String::len).collect();
    assert_eq!(lengths, [255, 255, 90]);
}

/// All analyzers, and texts without word ends, or with ends that a naive tokenizer would search repeatedly.
const NAMES: &str = "arabic armenian basque bulgarian catalan chinese cjk classic czech danish dutch email english finnish french \
    galician german greek hindi hungarian indonesian irish italian japanese keyword latvian norwegian persian polish portugese \
    romanian russian simple simple_asciifolding spanish standard swedish thai turkish whitespace";

const ENDLESS: [&str; 30] = [
    "a",
    "中",
    "ひ",
    "カ",
    "ก",
    "한",
    "\u{301}",
    "a\u{301}",
    "中\u{301}",
    "_",
    "_\u{301}",
    ".",
    "'",
    "a.",
    "a'",
    "1,",
    "a-",
    "a_",
    "-",
    "a@",
    "@a",
    "a!",
    "a@b.",
    "http://a.",
    "😀\u{200d}",
    "😀\u{301}",
    "🇩🇪",
    "ก\u{e31}",
    "\u{200d}",
    "é'",
];

#[test]
fn the_time_of_a_text_grows_with_its_length() {
    let on_processor = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    };
    let time = |analyzer: &Analyzer, text: &str| {
        let run = || {
            let begun = on_processor();
            analyzer.each(text, &mut |_| std::ops::ControlFlow::Continue(()));
            on_processor() - begun
        };
        (0..3).map(|_| run()).min().unwrap()
    };
    for name in NAMES.split_whitespace() {
        let analyzer = Analyzer::named(Dialect::Nouveau, name, None).unwrap();
        for unit in ENDLESS {
            let text = |bytes: usize| unit.repeat(bytes / unit.len());
            let (short, long) = (text(4 << 10), text(64 << 10));
            let growth = || {
                let (short, long) = (time(&analyzer, &short), time(&analyzer, &long));
                long.as_secs_f64() / short.as_secs_f64().max(20e-6)
            };
            let growth = (0..3).map(|_| growth()).find(|growth| *growth < 80.0);
            assert!(growth.is_some(), "{name} {unit:?}");
        }
    }
}

#[test]
fn one_character_without_end_is_many_words() {
    for name in NAMES.split_whitespace().filter(|name| *name != "keyword") {
        let analyzer = Analyzer::named(Dialect::Nouveau, name, None).unwrap();
        for unit in ENDLESS {
            for token in tokens(&analyzer, &unit.repeat(1_000)) {
                assert!(token.end - token.start <= 4 * 2 * 256, "{name} {unit:?}: {}", token.end - token.start);
            }
        }
    }
}
