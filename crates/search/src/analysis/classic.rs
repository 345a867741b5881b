//! Words of Lucene's classic tokenizer: hosts, mail addresses, companies (`AT&T`), acronyms and signed numbers.

use super::split::MAX_WORD_CHARS;

struct Run {
    end: usize,
    has_digit: bool,
    is_alpha: bool,
    chars: usize,
}

pub(super) fn word(text: &str, from: usize) -> Option<(usize, usize)> {
    let start = from + text[from..].find(is_part)?;
    let runs = runs(text, start);
    let separator = |index: usize| text.as_bytes()[runs[index].end];
    let mut end = runs[0].end;
    for candidate in [
        host(&runs, separator),
        mail(&runs, separator),
        joined(&runs, separator, b"'", true),
        company(&runs, separator),
        number(&runs, separator),
        acronym(text, &runs),
    ] {
        end = end.max(candidate.unwrap_or(0));
    }
    let first = text[start..].chars().next()?;
    Some((start, if is_ideograph(first) { start + first.len_utf8() } else { end }))
}

pub(super) fn normalize_token(term: &mut String) {
    if term.ends_with("'s") {
        term.truncate(term.len() - 2);
    }
    let is_acronym = term.len() > 1 && term.ends_with('.');
    if is_acronym {
        term.retain(|c| c != '.');
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c), 0x3041..=0x309f | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff)
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric()
}

/// Returns the runs that are joined by single signs, up to the maximum length of a word.
fn runs(text: &str, start: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut at = start;
    let mut left = MAX_WORD_CHARS;
    loop {
        let mut run = Run { end: at, has_digit: false, is_alpha: true, chars: 0 };
        for c in text[at..].chars().take_while(|&c| is_part(c) && !is_ideograph(c)).take(left) {
            run.end += c.len_utf8();
            run.has_digit |= c.is_numeric();
            run.is_alpha &= c.is_alphabetic();
            run.chars += 1;
        }
        let is_empty = run.chars == 0;
        if is_empty && !runs.is_empty() {
            return runs;
        }
        at = run.end + 1;
        left = left.saturating_sub(run.chars + 1);
        let goes_on =
            !is_empty && left > 0 && text.as_bytes().get(run.end).is_some_and(|sign| b"._-/,&@'".contains(sign));
        runs.push(run);
        if !goes_on {
            return runs;
        }
    }
}

fn host(runs: &[Run], separator: impl Fn(usize) -> u8) -> Option<usize> {
    joined(runs, separator, b".", false)
}

fn joined(runs: &[Run], separator: impl Fn(usize) -> u8, signs: &[u8], alpha: bool) -> Option<usize> {
    let mut last = 0;
    while last + 1 < runs.len()
        && signs.contains(&separator(last))
        && (!alpha || (runs[last].is_alpha && runs[last + 1].is_alpha))
    {
        last += 1;
    }
    (last > 0).then(|| runs[last].end)
}

fn mail(runs: &[Run], separator: impl Fn(usize) -> u8) -> Option<usize> {
    let mut at = 0;
    while at + 1 < runs.len() && b"._-".contains(&separator(at)) {
        at += 1;
    }
    if at + 1 >= runs.len() || separator(at) != b'@' {
        return None;
    }
    let host = at + 1;
    let mut last = host;
    while last + 1 < runs.len() && b".-".contains(&separator(last)) {
        last += 1;
    }
    (last > host).then(|| runs[last].end)
}

fn company(runs: &[Run], separator: impl Fn(usize) -> u8) -> Option<usize> {
    let is_one = runs.len() > 1 && b"&@".contains(&separator(0)) && runs[0].is_alpha && runs[1].is_alpha;
    is_one.then(|| runs[1].end)
}

fn number(runs: &[Run], separator: impl Fn(usize) -> u8) -> Option<usize> {
    let longest = |parity: usize| {
        let mut last = 0;
        if parity == 0 && !runs[0].has_digit {
            return None;
        }
        while last + 1 < runs.len()
            && b"_-/.,".contains(&separator(last))
            && ((last + 1) % 2 != parity || runs[last + 1].has_digit)
        {
            last += 1;
        }
        (last > 0).then(|| runs[last].end)
    };
    longest(0).max(longest(1))
}

fn acronym(text: &str, runs: &[Run]) -> Option<usize> {
    let is_dot = |run: &Run| text.as_bytes().get(run.end) == Some(&b'.');
    let count = runs.iter().take_while(|run| run.chars == 1 && run.is_alpha && is_dot(run)).count();
    (count > 1).then(|| runs[count - 1].end + 1)
}
