//! Fragments of stored texts with the words that a query found in them.

use super::patterns;
use crate::analysis::{Analyzers, Token};
use crate::answer::Highlight;
use crate::field::StoredValue;
use crate::query::{Interval, Query};
use crate::request::Highlighting;

/// So many tokens of a text are looked at.
const MAX_TOKENS: usize = 100_000;

/// A word of a query.
enum Word<'a> {
    Is(&'a str),
    BeginsWith(&'a str),
    IsLike(&'a str),
    IsNear(&'a str, usize),
}

impl Word<'_> {
    fn is_found(&self, text: &str) -> bool {
        match self {
            Self::Is(word) => text == *word,
            Self::BeginsWith(prefix) => text.starts_with(prefix),
            Self::IsLike(pattern) => patterns::is_like(text, pattern),
            Self::IsNear(word, edits) => patterns::is_near(text, word, *edits),
        }
    }
}

/// The fragments of a hit with these stored fields.
pub(super) fn highlights(
    analyzers: &Analyzers,
    query: &Query,
    how: &Highlighting,
    stored: &[(String, StoredValue)],
) -> Vec<Highlight> {
    let mut highlights = Vec::new();
    for field in &how.fields {
        let mut words = Vec::new();
        push_words(query, field, &mut words);
        let texts = stored.iter().filter(|(name, _)| name == field).filter_map(|(_, value)| match value {
            StoredValue::String(text) => Some(text.as_str()),
            StoredValue::Double(_) | StoredValue::Bool(_) => None,
        });
        let mut fragments = Vec::new();
        for text in texts {
            fragments.extend(of_text(analyzers, field, text, &words, how));
        }
        fragments.truncate(how.number);
        if !fragments.is_empty() {
            highlights.push(Highlight { field: field.clone(), fragments });
        }
    }
    highlights
}

fn push_words<'a>(query: &'a Query, wanted: &str, out: &mut Vec<Word<'a>>) {
    match query {
        Query::Term { field, text } if field == wanted => out.push(Word::Is(text)),
        Query::Phrase { field, terms, .. } if field == wanted => {
            out.extend(terms.iter().map(|(_, text)| Word::Is(text)));
        }
        Query::Prefix { field, prefix } if field == wanted => out.push(Word::BeginsWith(prefix)),
        Query::Wildcard { field, pattern } if field == wanted => out.push(Word::IsLike(pattern)),
        Query::Fuzzy { field, text, edits } if field == wanted => out.push(Word::IsNear(text, usize::from(*edits))),
        Query::Intervals { field, source } if field == wanted => push_interval(source, wanted, out),
        Query::Boost(inner, _) | Query::Constant(inner, _) => push_words(inner, wanted, out),
        Query::Boolean(boolean) => {
            let all = boolean.must.iter().chain(&boolean.should).chain(&boolean.filter);
            all.for_each(|query| push_words(query, wanted, out));
        }
        _ => {}
    }
}

fn push_interval<'a>(source: &'a Interval, wanted: &str, out: &mut Vec<Word<'a>>) {
    match source {
        Interval::Term(text) => out.push(Word::Is(text)),
        Interval::Terms(query) => push_words(query, wanted, out),
        Interval::Phrase(parts)
        | Interval::Ordered(parts)
        | Interval::Unordered(parts)
        | Interval::Or(parts)
        | Interval::AtLeast(_, parts) => parts.iter().for_each(|part| push_interval(part, wanted, out)),
        Interval::UnorderedNoOverlaps(one, other) => {
            push_interval(one, wanted, out);
            push_interval(other, wanted, out);
        }
        Interval::MaxWidth(_, part)
        | Interval::MaxGaps(_, part)
        | Interval::Extend(part, ..)
        | Interval::Filter(_, part, _)
        | Interval::Within(part, ..) => push_interval(part, wanted, out),
    }
}

/// The best fragments of a text: those with the most found words, then the first.
fn of_text(analyzers: &Analyzers, field: &str, text: &str, words: &[Word<'_>], how: &Highlighting) -> Vec<String> {
    let mut tokens = analyzers.of(field).tokens(text);
    tokens.truncate(MAX_TOKENS);
    let is_found = |token: &Token| words.iter().any(|word| word.is_found(&token.text));
    let mut fragments: Vec<(usize, usize, String)> = Vec::new();
    let mut at = 0;
    let mut start = 0;
    while start < text.len() {
        // A fragment ends where the word ends that makes it too long.
        let wanted = start + how.size.max(1);
        let end = tokens.iter().skip(at).map(|token| token.start).find(|&next| next >= wanted).unwrap_or(text.len());
        let mut out = String::new();
        let (mut copied, mut found) = (start, 0);
        while let Some(token) = tokens.get(at).filter(|token| token.start < end) {
            at += 1;
            if is_found(token) && token.start >= copied {
                out.push_str(&text[copied..token.start]);
                out.push_str(&how.pre_tag);
                out.push_str(&text[token.start..token.end]);
                out.push_str(&how.post_tag);
                copied = token.end;
                found += 1;
            }
        }
        out.push_str(&text[copied.min(end)..end]);
        if found > 0 {
            fragments.push((found, fragments.len(), out));
        }
        start = end.max(start + 1);
    }
    fragments.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    fragments.truncate(how.number);
    fragments.into_iter().map(|(_, _, text)| text).collect()
}
