//! [`Highlighter`]: fragments of stored texts with the matching words of a query.

use std::collections::HashSet;

use super::automata::{Fuzzy, Pattern, Words};
use crate::analysis::{Analyzers, Token};
use crate::answer::Highlight;
use crate::error::Result;
use crate::field::StoredValue;
use crate::limits::{SearchLimits, Steps};
use crate::query::{Interval, Query};
use crate::request::Highlighting;

/// Further tokens of a text are ignored.
const MAX_TOKENS: usize = 100_000;

const MAX_FIELDS: usize = 1_000;

pub(super) struct Highlighter<'a> {
    analyzers: &'a Analyzers,
    how: &'a Highlighting,
    limits: &'a SearchLimits,
    words: Vec<FoundWords<'a>>,
}

#[derive(Default)]
struct FoundWords<'a> {
    terms: HashSet<&'a str>,
    prefixes: Vec<&'a str>,
    patterns: Vec<Pattern>,
    fuzzy: Vec<Fuzzy>,
}

struct Fragment {
    found: usize,
    text: String,
}

impl<'a> Highlighter<'a> {
    pub(super) fn new(
        analyzers: &'a Analyzers,
        query: &'a Query,
        how: &'a Highlighting,
        limits: &'a SearchLimits,
    ) -> Result<Self> {
        if how.fields.len() > MAX_FIELDS {
            let reason = format!("at most {MAX_FIELDS} fields are highlighted");
            return Err(crate::Error::bad_request(reason));
        }
        let words = |field: &String| {
            let mut words = FoundWords::default();
            words.add(query, field, limits)?;
            Ok(words)
        };
        let words = how.fields.iter().map(words).collect::<Result<_>>()?;
        Ok(Self { analyzers, how, limits, words })
    }

    pub(super) fn highlights(&self, stored: &[(String, StoredValue)]) -> Result<Vec<Highlight>> {
        let mut highlights = Vec::new();
        for (field, words) in self.how.fields.iter().zip(&self.words) {
            let texts = stored.iter().filter(|(name, _)| name == field).filter_map(|(_, value)| match value {
                StoredValue::String(text) => Some(text.as_str()),
                StoredValue::Double(_) | StoredValue::Bool(_) => None,
            });
            let mut fragments = Vec::new();
            for text in texts {
                fragments.extend(self.of_text(field, text, words)?);
            }
            fragments.truncate(self.how.number);
            if !fragments.is_empty() {
                highlights.push(Highlight { field: field.clone(), fragments });
            }
        }
        Ok(highlights)
    }

    fn of_text(&self, field: &str, text: &str, words: &FoundWords<'_>) -> Result<Vec<String>> {
        let mut steps = self.limits.steps();
        let tokens = self.tokens(field, text)?;
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut at = 0;
        let mut start = 0;
        while start < text.len() {
            // A fragment ends with the word that exceeds its length.
            let wanted = start.saturating_add(self.how.size.max(1));
            let ahead = tokens[at..].iter().map(|token| token.start);
            let end = ahead.clone().find(|&next| next >= wanted).unwrap_or(text.len());
            let inside = ahead.take_while(|next| *next < end).count();
            let fragment = self.fragment(text, (start, end), &tokens[at..at + inside], words, &mut steps)?;
            at += inside;
            fragments.extend(fragment);
            start = end.max(start + 1);
        }
        fragments.sort_by_key(|fragment| std::cmp::Reverse(fragment.found));
        fragments.truncate(self.how.number);
        Ok(fragments.into_iter().map(|fragment| fragment.text).collect())
    }

    fn tokens(&self, field: &str, text: &str) -> Result<Vec<Token>> {
        let (mut steps, mut count) = (self.limits.steps(), 0);
        self.analyzers.of(field).collect(text, |token| {
            steps.take(1)?;
            self.limits.charge(size_of::<Token>() + token.text.len() + 16)?;
            count += 1;
            Ok((count <= MAX_TOKENS).then_some(token))
        })
    }

    fn fragment(
        &self,
        text: &str,
        (start, end): (usize, usize),
        tokens: &[Token],
        words: &FoundWords<'_>,
        steps: &mut Steps,
    ) -> Result<Option<Fragment>> {
        let Highlighting { pre_tag, post_tag, .. } = self.how;
        let mut out = String::new();
        let (mut copied, mut found) = (start, 0);
        for token in tokens {
            if words.hold(&token.text, steps)? && token.start >= copied {
                self.limits.charge(2 * (token.end - copied + pre_tag.len() + post_tag.len()))?;
                out.push_str(&text[copied..token.start]);
                out.push_str(pre_tag);
                out.push_str(&text[token.start..token.end]);
                out.push_str(post_tag);
                copied = token.end;
                found += 1;
            }
        }
        if found == 0 {
            return Ok(None);
        }
        let rest = &text[copied.min(end)..end];
        self.limits.charge(2 * rest.len() + size_of::<Fragment>())?;
        out.push_str(rest);
        Ok(Some(Fragment { found, text: out }))
    }
}

impl<'a> FoundWords<'a> {
    fn add(&mut self, query: &'a Query, wanted: &str, limits: &SearchLimits) -> Result<()> {
        match query {
            Query::Term { field, text } if field == wanted => {
                self.terms.insert(text);
            }
            Query::Phrase { field, terms, .. } if field == wanted => {
                self.terms.extend(terms.iter().map(|(_, text)| text.as_str()));
            }
            Query::Prefix { field, prefix } if field == wanted => self.prefixes.push(prefix),
            Query::Wildcard { field, pattern } if field == wanted => {
                self.patterns.push(Pattern::wildcard(pattern, limits)?);
            }
            Query::Fuzzy { field, text, edits } if field == wanted => {
                limits.charge(Fuzzy::bytes_of(text))?;
                self.fuzzy.push(Fuzzy::new(text, *edits));
            }
            Query::Intervals { field, source } if field == wanted => self.add_interval(source, wanted, limits)?,
            Query::Boost(inner, _) | Query::Constant(inner, _) => self.add(inner, wanted, limits)?,
            Query::Boolean(boolean) => {
                let mut all = boolean.must.iter().chain(&boolean.should).chain(&boolean.filter);
                all.try_for_each(|query| self.add(query, wanted, limits))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn add_interval(&mut self, source: &'a Interval, wanted: &str, limits: &SearchLimits) -> Result<()> {
        match source {
            Interval::Term(text) => {
                self.terms.insert(text);
                Ok(())
            }
            Interval::Terms(query) => self.add(query, wanted, limits),
            Interval::Phrase(parts)
            | Interval::Ordered(parts)
            | Interval::Unordered(parts)
            | Interval::Or(parts)
            | Interval::AtLeast(_, parts) => parts.iter().try_for_each(|part| self.add_interval(part, wanted, limits)),
            Interval::UnorderedNoOverlaps(one, other) => {
                self.add_interval(one, wanted, limits)?;
                self.add_interval(other, wanted, limits)
            }
            Interval::MaxWidth(_, part)
            | Interval::MaxGaps(_, part)
            | Interval::Extend(part, ..)
            | Interval::Filter(_, part, _)
            | Interval::Within(part, ..) => self.add_interval(part, wanted, limits),
        }
    }

    fn hold(&self, word: &str, steps: &mut Steps) -> Result<bool> {
        steps.take(1 + self.prefixes.len() / 8)?;
        if self.terms.contains(word) || self.prefixes.iter().any(|prefix| word.starts_with(prefix)) {
            return Ok(true);
        }
        let length = 1 + word.len() / 8;
        for pattern in &self.patterns {
            steps.take(length)?;
            if pattern.holds(word) {
                return Ok(true);
            }
        }
        for fuzzy in &self.fuzzy {
            steps.take(length)?;
            if fuzzy.holds(word) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
