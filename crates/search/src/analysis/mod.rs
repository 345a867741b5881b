//! Analyzers of design documents. Lucene's dictionary-based analysis (Chinese, Japanese, Thai) is not supported.

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

const TERM_BYTES: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `_nouveau`: a field has a single type.
    Nouveau,
    /// `_search`: a field may have texts and numbers.
    Clouseau,
}

#[derive(Clone)]
pub struct Analyzer {
    name: String,
    stopwords: Option<Vec<String>>,
    chain: TextAnalyzer,
    /// Part of the chain that also applies to patterns, because it does not need whole words.
    folding: Folding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folding {
    None,
    Lowercase,
    Ascii,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Position among the words of the text, including removed ones.
    pub(crate) position: u32,
    /// Byte range in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Analyzer {
    /// Returns an error if the name is unknown. `stopwords` replaces the default stop words.
    pub fn named(dialect: Dialect, name: &str, stopwords: Option<&[String]>) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::bad_request("analyzer must not be empty"));
        }
        let canonical = match (dialect, name) {
            // Design documents still use this name of a former version of Nouveau.
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

    pub fn analyze(&self, text: &str, limits: &SearchLimits) -> Result<Vec<String>> {
        let mut steps = limits.steps();
        self.collect(text, |token| {
            steps.take(1)?;
            limits.charge(TERM_BYTES + token.text.len())?;
            Ok(Some(token.text))
        })
    }

    /// Collects results of `of` until it returns `None`.
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

    #[must_use]
    pub fn is_keyword(&self) -> bool {
        self.name == "keyword"
    }

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

    /// Normalizes a part of a word, such as that of a wildcard, range or fuzzy term.
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Analyzers {
    pub default: Analyzer,
    pub fields: Vec<(String, Analyzer)>,
}

impl Analyzers {
    #[must_use]
    pub fn of_all(default: Analyzer) -> Self {
        Self { default, fields: Vec::new() }
    }

    #[must_use]
    pub fn of(&self, field: &str) -> &Analyzer {
        self.fields.iter().find(|(name, _)| name == field).map_or(&self.default, |(_, analyzer)| analyzer)
    }
}

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
            let normalize_token = Apply::new(|term| {
                classic::normalize_token(term);
                true
            });
            (
                plain(Split::lowercase(classic::word)).filter(normalize_token).filter(stop(languages::ENGLISH)).build(),
                lower,
            )
        }
        "cjk" | "chinese" | "japanese" => {
            (TextAnalyzer::builder(Bigrams::new()).filter(stop(languages::CJK)).build(), lower)
        }
        language => (languages::chain(language, own)?, lower),
    })
}

#[cfg(test)]
mod tests;
