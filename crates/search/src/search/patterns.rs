//! Syntax of patterns, and conversion of Lucene's regular expressions to Rust's.

use crate::error::{Error, Result};

const MAX_PATTERN_CHARS: usize = 1_000;

const MAX_NUMBERS: u64 = 1_000;

const ANY: &str = "(?s:.)";

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(c);
}

pub(super) fn check(pattern: &str) -> Result<()> {
    if pattern.chars().count() <= MAX_PATTERN_CHARS {
        return Ok(());
    }
    Err(Error::TooLarge(format!("a pattern has at most {MAX_PATTERN_CHARS} characters")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Anything,
    Any,
    Is(char),
}

pub(super) fn parts(pattern: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let part = match c {
            '*' => Part::Anything,
            '?' => Part::Any,
            '\\' => Part::Is(chars.next().unwrap_or('\\')),
            c => Part::Is(c),
        };
        if part != Part::Anything || parts.last() != Some(&part) {
            parts.push(part);
        }
    }
    parts
}

pub(super) fn of_regex(pattern: &str) -> Result<String> {
    check(pattern)?;
    let mut out = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '.' => out.push_str(ANY),
            '@' => {
                out.push_str(ANY);
                out.push('*');
            }
            '#' => out.push_str("[^\\s\\S]"),
            '*' | '+' | '?' | '|' | '(' | ')' | '}' => out.push(c),
            '{' => {
                // The numbers of a repetition are not literal.
                out.push(c);
                let rest_of_it = rest.as_str().find(|c: char| !c.is_ascii_digit() && c != ',');
                let numbers = rest_of_it.unwrap_or(rest.as_str().len());
                out.push_str(&rest.as_str()[..numbers]);
                rest = rest.as_str()[numbers..].chars();
            }
            '"' => {
                for c in rest.by_ref().take_while(|&c| c != '"') {
                    push_literal(&mut out, c);
                }
            }
            '\\' => match rest.next() {
                Some(class @ ('d' | 'D' | 'w' | 'W' | 's' | 'S')) => out.extend(['\\', class]),
                Some(c) => push_literal(&mut out, c),
                None => return Err(Error::bad_request(format!("unexpected end of the regular expression {pattern}"))),
            },
            '[' => push_class(&mut out, &mut rest),
            '<' => push_numbers(&mut out, &mut rest, pattern)?,
            '~' | '&' => {
                return Err(Error::bad_request(format!("{c} is not supported in regular expressions: {pattern}")));
            }
            c => push_literal(&mut out, c),
        }
    }
    Ok(out)
}

fn push_class(out: &mut String, rest: &mut std::str::Chars<'_>) {
    out.push('[');
    let mut is_first = true;
    while let Some(c) = rest.next() {
        match c {
            '^' if is_first => out.push('^'),
            ']' => break,
            '-' => out.push('-'),
            '\\' => match rest.next() {
                Some(class @ ('d' | 'D' | 'w' | 'W' | 's' | 'S')) => out.extend(['\\', class]),
                Some(c) => push_literal(out, c),
                None => {}
            },
            c => push_literal(out, c),
        }
        is_first = false;
    }
    out.push(']');
}

fn push_numbers(out: &mut String, rest: &mut std::str::Chars<'_>, pattern: &str) -> Result<()> {
    let interval: String = rest.by_ref().take_while(|&c| c != '>').collect();
    let numbers =
        interval.split_once('-').and_then(|(from, to)| Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?)));
    let Some((from, to)) = numbers.filter(|(from, to)| from <= to && to - from < MAX_NUMBERS) else {
        return Err(Error::bad_request(format!("not an interval of numbers in the regular expression {pattern}")));
    };
    let all: Vec<_> = (from..=to).map(|number| number.to_string()).collect();
    out.push_str(&format!("(0*({}))", all.join("|")));
    Ok(())
}

pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=0x0010_ffff).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_rewritten() {
        for (pattern, expected) in [
            ("f.x", "f(?s:.)x"),
            ("a^b$", "a\\^b\\$"),
            ("\"a.b\"c", "a\\.bc"),
            ("[^a-c\\]]+", "[^a-c\\]]+"),
            ("<8-10>", "(0*(8|9|10))"),
            ("a@", "a(?s:.)*"),
            ("a{2,3}b", "a{2,3}b"),
            ("\\d\\.", "\\d\\."),
        ] {
            assert_eq!(of_regex(pattern).unwrap(), expected, "{pattern}");
        }
        assert!(of_regex("a~b").is_err() && of_regex("a\\").is_err() && of_regex("<1-100000>").is_err());
        let expected = [Part::Is('a'), Part::Anything, Part::Is('.'), Part::Any, Part::Is('*')];
        assert_eq!(parts("a**.?\\*"), expected);
        assert!(check(&"x".repeat(1_001)).is_err());
    }

    #[test]
    fn a_prefix_sorts_before_its_successor() {
        assert_eq!(after_prefix("ab").unwrap(), "ac");
        assert_eq!(after_prefix("a\u{10ffff}").unwrap(), "b");
        assert_eq!(after_prefix("\u{d7ff}").unwrap(), "\u{e000}");
        assert_eq!((after_prefix(""), after_prefix("\u{10ffff}")), (None, None));
    }
}
