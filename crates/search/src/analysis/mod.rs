//! Analyzers: what makes terms of a text, by the names that design documents give them. An [`Analyzer`] is a way of splitting
//! and a row of filters; [`Analyzers`] are those of an index, field by field.
//!
//! What Lucene does by dictionaries (Chinese, Japanese, Thai) is not here.

mod classic;
mod filters;
mod languages;
mod light;
mod split;
mod url;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

use tantivy::tokenizer::{StopWordFilter, TextAnalyzer, TokenStream};

use self::filters::{Apply, Bigrams, Split};
use crate::error::{Error, Result};
use crate::limits::SearchLimits;

/// About the bytes of a term in a list of them, besides its text.
const TERM_BYTES: usize = 48;

/// Whose rules an index goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `_nouveau`: a field has one type.
    Nouveau,
    /// `_search`: a field may have texts and numbers.
    Clouseau,
}

/// What makes terms of a text.
#[derive(Clone)]
pub struct Analyzer {
    name: String,
    stopwords: Option<Vec<String>>,
    chain: TextAnalyzer,
    /// What is done to patterns: everything that does not need whole words.
    folding: Folding,
}

/// What is done to single characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folding {
    None,
    Lowercase,
    Ascii,
}

/// A term of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Its place among the words of the text, those that were left out included.
    pub(crate) position: u32,
    /// The bytes of the text it was made of.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Analyzer {
    /// The analyzer of this name. `stopwords` takes the place of those that it has.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn named(dialect: Dialect, name: &str, stopwords: Option<&[String]>) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::bad_request("analyzer must not be empty"));
        }
        let canonical = match (dialect, name) {
            // The name that a former version of Nouveau knew stands in design documents.
            (Dialect::Nouveau, "portugese") | (Dialect::Clouseau, "brazilian" | "portuguese") => "portuguese",
            (Dialect::Nouveau, "portuguese") => "",
            (_, name) => name,
        };
        let unknown = || match dialect {
            Dialect::Nouveau => Error::bad_request(format!("{name} is not a valid analyzer name")),
            Dialect::Clouseau => Error::bad_request("no_such_analyzer"),
        };
        let (chain, folding) = chain(canonical, stopwords).ok_or_else(unknown)?;
        Ok(Self { name: canonical.to_owned(), stopwords: stopwords.map(<[String]>::to_vec), chain, folding })
    }

    /// The terms of a text, in their order.
    ///
    /// # Errors
    /// If they exceed the limits.
    pub fn analyze(&self, text: &str, limits: &SearchLimits) -> Result<Vec<String>> {
        let mut steps = limits.steps();
        self.collect(text, |token| {
            steps.take(1)?;
            limits.charge(TERM_BYTES + token.text.len())?;
            Ok(Some(token.text))
        })
    }

    /// Collects what a function makes of tokens, until it makes nothing of one.
    pub(crate) fn collect<T>(&self, text: &str, mut of: impl FnMut(Token) -> Result<Option<T>>) -> Result<Vec<T>> {
        let (mut all, mut outcome) = (Vec::new(), Ok(()));
        self.each(text, &mut |token| match of(token) {
            Ok(Some(item)) => {
                all.push(item);
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Break(()),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        });
        outcome.map(|()| all)
    }

    /// Whether it leaves a text as it is.
    #[must_use]
    pub fn is_keyword(&self) -> bool {
        self.name == "keyword"
    }

    /// Calls a function with each token of a text, until it breaks off.
    pub(crate) fn each(&self, text: &str, take: &mut dyn FnMut(Token) -> ControlFlow<()>) {
        let mut chain = self.chain.clone();
        let mut stream = chain.token_stream(text);
        while stream.advance() {
            let token = stream.token();
            let taken = take(Token {
                text: token.text.clone(),
                position: u32::try_from(token.position).unwrap_or(u32::MAX),
                start: token.offset_from,
                end: token.offset_to,
            });
            if taken.is_break() {
                return;
            }
        }
    }

    /// What is done to a part of a word: of a wildcard, a range, a fuzzy term.
    pub(crate) fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        match self.folding {
            Folding::None => {}
            Folding::Lowercase => filters::lowercase(&mut text),
            Folding::Ascii => {
                filters::lowercase(&mut text);
                filters::fold_to_ascii(&mut text);
            }
        }
        text
    }

    pub(crate) fn chain(&self) -> &TextAnalyzer {
        &self.chain
    }
}

impl PartialEq for Analyzer {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.stopwords) == (&other.name, &other.stopwords)
    }
}

impl Eq for Analyzer {}

impl Hash for Analyzer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, &self.stopwords).hash(state);
    }
}

impl fmt::Debug for Analyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analyzer").field("name", &self.name).field("stopwords", &self.stopwords).finish_non_exhaustive()
    }
}

/// The analyzers of an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Analyzers {
    /// Of all fields but these.
    pub default: Analyzer,
    /// Of single fields.
    pub fields: Vec<(String, Analyzer)>,
}

impl Analyzers {
    /// One for all fields.
    #[must_use]
    pub fn of_all(default: Analyzer) -> Self {
        Self { default, fields: Vec::new() }
    }

    /// The analyzer of a field.
    #[must_use]
    pub fn of(&self, field: &str) -> &Analyzer {
        self.fields.iter().find(|(name, _)| name == field).map_or(&self.default, |(_, analyzer)| analyzer)
    }
}

/// The row of filters of a name.
fn chain(name: &str, own: Option<&[String]>) -> Option<(TextAnalyzer, Folding)> {
    let plain = |split: Split| TextAnalyzer::builder(split);
    let stop = |words: &[&str]| {
        let words = own.map_or_else(|| words.iter().map(|&word| word.to_owned()).collect(), <[String]>::to_vec);
        StopWordFilter::remove(words)
    };
    let lower = Folding::Lowercase;
    Some(match name {
        "keyword" => (plain(Split::raw(split::whole)).build(), Folding::None),
        "whitespace" => (plain(Split::raw(split::not_blank)).build(), Folding::None),
        "simple" => (plain(Split::lowercase(split::letters)).filter(stop(&[])).build(), lower),
        "simple_asciifolding" => {
            let fold = Apply::new(|term| {
                filters::fold_to_ascii(term);
                true
            });
            (plain(Split::lowercase(split::letters)).filter(fold).build(), Folding::Ascii)
        }
        "standard" => (plain(Split::lowercase(split::word)).filter(stop(&[])).build(), lower),
        "email" => (plain(Split::lowercase(url::word_or_address)).filter(stop(languages::ENGLISH)).build(), lower),
        "classic" => {
            let tidy = Apply::new(|term| {
                classic::tidy(term);
                true
            });
            (plain(Split::lowercase(classic::word)).filter(tidy).filter(stop(languages::ENGLISH)).build(), lower)
        }
        "cjk" | "chinese" | "japanese" => {
            (TextAnalyzer::builder(Bigrams::new()).filter(stop(languages::CJK)).build(), lower)
        }
        language => (languages::chain(language, own)?, lower),
    })
}

#[cfg(test)]
mod tests;
