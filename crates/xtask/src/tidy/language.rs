//! [`check`]: language of comments, strings and documentation: the number of expressions to replace ([`EXPRESSIONS`]),
//! of documentation comments that start with a question word, and of words of comments, for each crate and for the
//! pages in `docs`. The file [`FILE`] contains the limits, which may only decrease. A number above its limit is an
//! error; one below it is a warning. `cargo xtask tidy --lower` writes the lower limits. Identifiers in [`NAMES`] are
//! errors everywhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::finding::{Finding, Severity};
use super::prose::{self, Piece};
use super::tokens;
use super::tree::Tree;

/// A line for each area with its name and three numbers.
pub(super) const FILE: &str = "crates/xtask/tidy-language.txt";
const RULE: &str = "language";
const DOCS: &str = "docs";

const LISTS: &[&str] = &["crates/xtask/src/tidy/language.rs", "docs/internals/glossary.md"];

/// Single words do not change limits of comment words, which are multiples of this number.
const WORDS_STEP: u64 = 250;

/// Documentation comments must not start with these words.
const QUESTIONS: &[&str] =
    &["what", "whatever", "whether", "how", "who", "whoever", "whom", "whose", "where", "which", "why"];

/// `docs/internals/glossary.md` contains the terms to write instead.
const EXPRESSIONS: &[&str] = &[
    "nobody",
    "somebody",
    "everybody",
    "anybody",
    "who",
    "whoever",
    "whom",
    "is known",
    "are known",
    "was known",
    "knows",
    "what is known",
    "looks at",
    "look at",
    "looked at",
    "looks after",
    "look after",
    "looks again",
    "look again",
    "tell",
    "tells",
    "told",
    "begin",
    "begins",
    "begun",
    "began",
    "anew",
    "once more",
    "goes on",
    "go on",
    "went on",
    "stands",
    "stood",
    "lies",
    "lay",
    "so many",
    "so long",
    "that much",
    "beside",
    "gives up",
    "give up",
    "gave up",
    "given up",
    "gives way",
    "give way",
    "in vain",
    "hears",
    "hear",
    "heard",
    "takes turns",
    "taking turns",
    "its turn",
    "their turn",
    "a turn",
    "meanwhile",
    "at a time",
    "judge",
    "judges",
    "judged",
    "premise",
    "premises",
    "presume",
    "presumes",
    "presumed",
    "a trip",
    "trips",
    "strangers",
    "stranger",
    "mend",
    "mends",
    "mended",
    "mending",
    "counts for nothing",
    "silence",
    "sign of life",
    "signs of life",
];

/// Identifiers that must not be used, in the notation of functions and modules. Other notations of the same name are
/// included: `begin_anew` also means `BeginAnew` and `BEGIN_ANEW`. A name that ends with `_` is a prefix.
const NAMES: &[&str] = &[
    "told",
    "is_told",
    "was_told",
    "premise",
    "premises",
    "presume",
    "presumed",
    "presuming",
    "courier",
    "couriers",
    "pulse",
    "pulses",
    "patience",
    "nobody",
    "somebody",
    "everybody",
    "hopes",
    "anew",
    "begin_anew",
    "made_anew",
    "passer_by",
    "herald",
    "remark",
    "remarks",
    "mend",
    "mended",
    "mending",
    "heal",
    "healing",
    "tend",
    "tended",
    "who",
    "who_",
    "what_",
    "nobody_",
    "somebody_",
    "everybody_",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    expressions: u64,
    questions: u64,
    words: u64,
}

type Areas = BTreeMap<String, Numbers>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (limits, mut findings) = parse(tree.text(FILE).unwrap_or_default());
    for (area, numbers) in measure(tree) {
        let limit = limits.get(&area).copied().unwrap_or_default();
        findings.extend(compared(&area, numbers, limit));
    }
    findings.extend(names(tree));
    findings
}

/// Limits never rise; areas without limits get their numbers.
pub(super) fn lowered(tree: &Tree) -> String {
    let limits = parse(tree.text(FILE).unwrap_or_default()).0;
    let mut text =
        "# Limits of `cargo xtask tidy`: area, expressions to replace, documentation comments that start with a\n\
                    # question word, words of comments. They only decrease: `cargo xtask tidy --lower` writes them.\n"
            .to_owned();
    for (area, numbers) in measure(tree) {
        let limit = limits.get(&area).copied().unwrap_or(Numbers {
            expressions: u64::MAX,
            questions: u64::MAX,
            words: u64::MAX,
        });
        let expressions = numbers.expressions.min(limit.expressions);
        let questions = numbers.questions.min(limit.questions);
        let words = rounded(numbers.words).min(limit.words);
        let _ = writeln!(text, "{area} {expressions} {questions} {words}");
    }
    text
}

const fn rounded(words: u64) -> u64 {
    words.next_multiple_of(WORDS_STEP)
}

fn measure(tree: &Tree) -> Areas {
    let mut areas = Areas::new();
    for (name, _, text) in tree.sources().filter(|(_, path, _)| !LISTS.contains(path)) {
        let comments = prose::comments(text);
        let numbers = areas.entry(name.to_owned()).or_default();
        numbers.words += comments.iter().map(|piece| prose::words(piece.text).len() as u64).sum::<u64>();
        numbers.expressions += expressions(&comments) + expressions(&prose::strings(text));
        let opens_with_question =
            |piece: &Piece<'_>| prose::words(piece.text).first().is_some_and(|word| QUESTIONS.contains(&word.as_str()));
        numbers.questions +=
            prose::openings(&comments).iter().filter(|piece| opens_with_question(piece)).count() as u64;
    }
    for (_, text) in tree.pages().filter(|(path, _)| !LISTS.contains(path)) {
        let numbers = areas.entry(DOCS.to_owned()).or_default();
        let page = [Piece { text, line: 1, is_documentation: false }];
        numbers.words += prose::words(text).len() as u64;
        numbers.expressions += expressions(&page);
    }
    areas
}

/// Expressions that continue on the next line of a comment are not found.
fn expressions(pieces: &[Piece<'_>]) -> u64 {
    let count = |piece: &Piece<'_>| {
        let words = prose::words(piece.text);
        let at = |at: usize| EXPRESSIONS.iter().any(|expression| starts_with(&words[at..], expression));
        // "Round trips" is a term of the glossary.
        let is_term = |at: usize| at > 0 && words[at - 1] == "round";
        (0..words.len()).filter(|&start| at(start) && !is_term(start)).count() as u64
    };
    pieces.iter().map(count).sum()
}

fn starts_with(words: &[String], expression: &str) -> bool {
    let mut words = words.iter();
    expression.split(' ').all(|wanted| words.next().is_some_and(|word| word == wanted))
}

fn compared(area: &str, numbers: Numbers, limit: Numbers) -> Vec<Finding> {
    let rows = [
        ("expressions to replace (the list is in docs/internals/glossary.md)", numbers.expressions, limit.expressions),
        ("documentation comments that start with a question word", numbers.questions, limit.questions),
        ("words of comments", numbers.words, limit.words),
    ];
    let finding = |(counted, number, limit): (&str, u64, u64)| {
        let is_words = counted == "words of comments";
        if number > limit {
            let message = format!("`{area}` has {number} {counted}, at most {limit} are permitted");
            return Some(Finding { severity: Severity::Error, rule: RULE, path: FILE.to_owned(), line: 0, message });
        }
        let is_lower = if is_words { rounded(number) < limit } else { number < limit };
        let message = format!("`{area}` has {number} {counted} now: lower the limit by `cargo xtask tidy --lower`");
        is_lower.then(|| Finding { severity: Severity::Warning, rule: RULE, path: FILE.to_owned(), line: 0, message })
    };
    rows.into_iter().filter_map(finding).collect()
}

fn parse(text: &str) -> (Areas, Vec<Finding>) {
    let (mut areas, mut findings) = (Areas::new(), Vec::new());
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    for (index, line) in lines {
        let mut parts = line.split_whitespace();
        let name = parts.next().unwrap_or_default().to_owned();
        let numbers: Vec<u64> = parts.filter_map(|part| part.parse().ok()).collect();
        if let [expressions, questions, words] = numbers[..] {
            areas.insert(name, Numbers { expressions, questions, words });
        } else {
            let message = "a line must be `AREA EXPRESSIONS QUESTIONS WORDS`".to_owned();
            let (path, line) = (FILE.to_owned(), index + 1);
            findings.push(Finding { severity: Severity::Error, rule: RULE, path, line, message });
        }
    }
    (areas, findings)
}

fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, text) in tree.sources() {
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for token in tokens::tokens(text).into_iter().filter(|token| is_listed(token.text)) {
            found.entry(token.text).or_insert(token.line);
        }
        findings.extend(found.into_iter().map(|(name, line)| {
            let message = format!("`{name}` is a listed name: use a term of docs/internals/glossary.md");
            Finding { severity: Severity::Error, rule: "name", path: path.to_owned(), line, message }
        }));
    }
    findings
}

fn is_listed(name: &str) -> bool {
    let name = snake_case(name);
    NAMES.iter().any(|listed| if listed.ends_with('_') { name.starts_with(listed) } else { name == *listed })
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    let mut was_lower = false;
    for character in name.chars() {
        if character.is_uppercase() && was_lower {
            text.push('_');
        }
        was_lower = character.is_lowercase();
        text.extend(character.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(source: &str, limits: &str) -> Tree {
        let mut tree = Tree::default();
        tree.insert("crates/model/src/lib.rs", source);
        tree.insert("docs/page.md", "Nobody reads `nobody`.\n");
        tree.insert(FILE, limits);
        tree
    }

    fn messages(source: &str, limits: &str) -> Vec<String> {
        check(&tree(source, limits)).iter().map(ToString::to_string).collect()
    }

    const SOURCE: &str = "//! What a crate is.\n//! Which continues.\n\n/// Tells nobody. `nobody` is code.\nconst TEXT: \
                          &str = \"it is told, once more\";\n// How it is.\nconst NAME: &str = \"nobody\";\n";

    #[test]
    fn expressions_question_words_and_words_are_counted() {
        let areas = measure(&tree(SOURCE, ""));
        assert_eq!(areas["model"], Numbers { expressions: 4, questions: 1, words: 13 });
        assert_eq!(areas[DOCS], Numbers { expressions: 1, questions: 0, words: 2 });
    }

    #[test]
    fn terms_and_keywords_are_no_expressions() {
        for text in ["two round trips", "BEGIN; COMMIT", "-----BEGIN PUBLIC KEY-----", "a stranded beginning"] {
            assert_eq!(expressions(&[Piece { text, line: 1, is_documentation: false }]), 0, "{text}");
        }
        for text in ["two trips", "Begin; commit", "around trips"] {
            assert_eq!(expressions(&[Piece { text, line: 1, is_documentation: false }]), 1, "{text}");
        }
    }

    #[test]
    fn a_number_above_its_limit_is_an_error_and_one_below_it_a_warning() {
        assert_eq!(messages(SOURCE, "docs 1 0 250\nmodel 4 1 250\n"), [""; 0]);
        let found = messages(SOURCE, "docs 2 0 250\nmodel 3 0 250\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("warning[language]") && found[0].contains("`docs` has 1 expressions"),
            "{found:?}"
        );
        assert!(found[1].starts_with("error[language]") && found[1].contains("at most 3"), "{found:?}");
        assert!(found[2].starts_with("error[language]") && found[2].contains("question word, at most 0"), "{found:?}");
        let found = messages(SOURCE, "docs 1 0 500\nmodel 4 1 12\n");
        assert!(found[0].starts_with("warning") && found[1].starts_with("error") && found.len() == 2, "{found:?}");
        let found = messages(SOURCE, "docs 1 0 250\nmodel 4 1\n");
        assert!(found[0].contains("tidy-language.txt:2: a line must be"), "{found:?}");
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let lowered = |limits| lowered(&tree(SOURCE, limits)).lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lowered(""), ["docs 1 0 250", "model 4 1 250"]);
        assert_eq!(lowered("docs 5 5 5000\nmodel 3 0 10\n"), ["docs 1 0 250", "model 3 0 10"]);
    }

    #[test]
    fn listed_names_are_errors_in_every_notation() {
        for name in ["told", "Premise", "PATIENCE", "HOPES", "begin_anew", "BeginAnew", "who_knows", "WHAT_IS"] {
            assert!(is_listed(name), "{name}");
        }
        for name in ["retold", "premises_of", "impatience", "whole", "whatever", "renew", "extend", "Told2"] {
            assert!(!is_listed(name), "{name}");
        }
        let found = messages("//! A told crate.\nfn told() { told() }\n", "docs 1 0 250\nmodel 1 0 250\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("error[name] crates/model/src/lib.rs:2: `told`"), "{found:?}");
    }
}
