//! Automata agree with slow definitions, and their size is bounded by the pattern.

use std::sync::atomic::AtomicUsize;

use tantivy_fst::Automaton as _;

use super::*;
use crate::limits::Requester;
use crate::limits::tests::Client;

fn edits(word: &str, other: &str) -> usize {
    let (word, other): (Vec<char>, Vec<char>) = (word.chars().collect(), other.chars().collect());
    let mut table = vec![vec![0; other.len() + 1]; word.len() + 1];
    for at in 0..=word.len() {
        for to in 0..=other.len() {
            let mut least = if at == 0 || to == 0 { at + to } else { usize::MAX };
            if at > 0 && to > 0 {
                least = (table[at - 1][to] + 1).min(table[at][to - 1] + 1);
                least = least.min(table[at - 1][to - 1] + usize::from(word[at - 1] != other[to - 1]));
            }
            if at > 1 && to > 1 && word[at - 1] == other[to - 2] && word[at - 2] == other[to - 1] {
                least = least.min(table[at - 2][to - 2] + 1);
            }
            table[at][to] = least;
        }
    }
    table[word.len()][other.len()]
}

fn words(length: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut from = 0;
    for _ in 0..length {
        let to = all.len();
        for at in from..to {
            all.extend(['a', 'b', 'é'].map(|c| format!("{}{c}", all[at])));
        }
        from = to;
    }
    all
}

fn accepts<W: Words>(automaton: &Utf8<W>, word: &str) -> bool {
    let mut state = automaton.start();
    for byte in word.bytes() {
        if !automaton.can_match(&state) {
            return false;
        }
        state = automaton.accept(&state, byte);
    }
    automaton.is_match(&state)
}

#[test]
fn fuzzy_words_are_those_that_few_edits_lead_to() {
    let all = words(5);
    for word in all.iter().step_by(7) {
        for most in 0..=2 {
            let automaton = Utf8(Fuzzy::new(word, most));
            for other in &all {
                let expected = edits(word, other) <= usize::from(most);
                assert_eq!(accepts(&automaton, other), expected, "{word} {other} {most}");
                assert_eq!(automaton.0.holds(other), expected, "{word} {other} {most}");
            }
        }
    }
}

#[test]
fn patterns_are_those_of_lucene() {
    let limits = SearchLimits::none();
    for (pattern, matching, others) in [
        ("f.x", &["fox", "féx"][..], &["fx", "foox", "fox "][..]),
        ("(a|b)*c", &["c", "abac"], &["ab", "cc"]),
        ("a{2,3}", &["aa", "aaa"], &["a", "aaaa"]),
        ("[^a-c]+", &["xyz", "é"], &["xa", ""]),
        ("\\d+", &["12", "٣"], &["1x"]),
        ("<8-10>", &["8", "9", "10", "010"], &["7", "11"]),
        ("ab@", &["ab", "abc\n"], &["a"]),
        ("#", &[], &["", "a"]),
        ("()", &[""], &["a"]),
        ("(a*)*b", &["b", "aab"], &["a"]),
        ("(a|b){2}|", &["", "ab"], &["a"]),
    ] {
        let automaton = Utf8(Pattern::regex(pattern, &limits).unwrap());
        for (words, expected) in [(matching, true), (others, false)] {
            for word in words {
                assert_eq!(accepts(&automaton, word), expected, "{pattern} {word}");
            }
        }
    }
    for (pattern, matching, others) in [
        ("qui*", &["quick", "qui"][..], &["qu"][..]),
        ("q?ick", &["quick", "qéick"], &["qick"]),
        ("*", &["", "abc"], &[]),
        ("q*k*", &["quick", "qk"], &["q"]),
        ("a\\*c", &["a*c"], &["abc"]),
        ("**a**", &["a", "xay"], &["x"]),
    ] {
        let pattern_of = Pattern::wildcard(pattern, &limits).unwrap();
        for (words, expected) in [(matching, true), (others, false)] {
            for word in words {
                assert_eq!(pattern_of.holds(word), expected, "{pattern} {word}");
            }
        }
    }
}

#[test]
fn hostile_patterns_are_refused_or_take_little() {
    let memory = Arc::new(AtomicUsize::new(64 << 20));
    let limits =
        || SearchLimits::of(Arc::new(Client { memory: Arc::clone(&memory), ..Client::new() }) as Arc<dyn Requester>);
    let word = "abcdefghij".repeat(20);
    let optional = ".?".repeat(499);
    let classes = "\\w?".repeat(333);
    let nested = format!("{}a{}", "(".repeat(40), ")*".repeat(40));
    for pattern in [&*optional, &classes, &nested, "(.*a){100}", "(.*.*.*.*.*.*x)*", "(a|ab|abc)*d", "(a?){500}"] {
        let limits = limits();
        match Pattern::regex(pattern, &limits) {
            Ok(automaton) => drop(automaton.holds(&word)),
            Err(error) => assert!(matches!(error, Error::TooLarge(_)), "{pattern}: {error}"),
        }
    }
    for pattern in ["((((a{99}){99}){99}){99})", "(a{1000}){1000}", "(.{999}){999}", "((a|b){500}){500}"] {
        assert!(matches!(Pattern::regex(pattern, &limits()), Err(Error::TooLarge(_))), "{pattern}");
    }
    assert!(Pattern::regex("(){4000000000}", &limits()).unwrap().holds(""));
    assert!(Pattern::regex(&"(".repeat(500), &limits()).is_err());
    let exponential = Pattern::regex("(a|b)*a(a|b){20}", &limits()).unwrap();
    let mut number: u32 = 1;
    let mut random = || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if number >> 31 == 0 { 'a' } else { 'b' }
    };
    let letters: String = (0..300_000).map(|_| random()).collect();
    exponential.holds(&letters);
    assert!(matches!(exponential.limits.check(), Err(Error::TooLarge(_))));
}

#[test]
fn a_search_that_is_over_computes_no_states() {
    let limits = SearchLimits::of(Arc::new(Client { gone_after: 10, ..Client::new() }));
    let pattern = Pattern::regex(".*x.*y", &limits).unwrap();
    assert!(!pattern.holds(&"abcdefghijklmnop".repeat(10)));
    assert!(matches!(limits.check(), Err(Error::Disconnected)));
}
