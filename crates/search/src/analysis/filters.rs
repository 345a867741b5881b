//! Tokenizers and filters for `tantivy`: [`Split`], [`Bigrams`], [`Apply`].

use std::sync::Arc;

use tantivy::tokenizer::{AsciiFoldingFilter, RawTokenizer, TextAnalyzer, Token, TokenFilter, TokenStream, Tokenizer};

use super::split::{self, Class, Next};

/// Converts each character separately, as Java does.
pub(super) fn lowercase(term: &mut String) {
    if term.is_ascii() {
        term.make_ascii_lowercase();
    } else {
        *term = term.chars().map(small).collect();
    }
}

fn small(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

pub(super) fn fold_to_ascii(term: &mut String) {
    if term.is_ascii() {
        return;
    }
    let mut folding = TextAnalyzer::builder(RawTokenizer::default()).filter(AsciiFoldingFilter).build();
    let mut stream = folding.token_stream(term);
    let folded = stream.advance().then(|| stream.token().text.clone());
    drop(stream);
    if let Some(folded) = folded {
        *term = folded;
    }
}

#[derive(Clone)]
pub(super) struct Split {
    next: Next,
    lowercase: bool,
}

impl Split {
    pub(super) fn raw(next: Next) -> Self {
        Self { next, lowercase: false }
    }

    pub(super) fn lowercase(next: Next) -> Self {
        Self { next, lowercase: true }
    }
}

impl Tokenizer for Split {
    type TokenStream<'a> = SplitStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> SplitStream<'a> {
        SplitStream { text, next: self.next, lowercase: self.lowercase, token: Token::default() }
    }
}

pub(super) struct SplitStream<'a> {
    text: &'a str,
    next: Next,
    lowercase: bool,
    token: Token,
}

impl TokenStream for SplitStream<'_> {
    fn advance(&mut self) -> bool {
        let Some((start, end)) = (self.next)(self.text, self.token.offset_to) else {
            return false;
        };
        let word = &self.text[start..end];
        let token = &mut self.token;
        token.text.clear();
        if !self.lowercase {
            token.text.push_str(word);
        } else if word.is_ascii() {
            token.text.push_str(word);
            token.text.make_ascii_lowercase();
        } else {
            token.text.extend(word.chars().map(small));
        }
        (token.offset_from, token.offset_to) = (start, end);
        token.position = token.position.wrapping_add(1);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// Splits text as [`split::word`] does, and forms bigrams of Chinese, Japanese and Korean characters.
#[derive(Clone)]
pub(super) struct Bigrams {}

impl Bigrams {
    pub(super) fn new() -> Self {
        Self {}
    }
}

impl Tokenizer for Bigrams {
    type TokenStream<'a> = Tokens;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Tokens {
        Tokens { tokens: bigrams(text), next: 0 }
    }
}

pub(super) struct Tokens {
    tokens: Vec<Token>,
    next: usize,
}

impl TokenStream for Tokens {
    fn advance(&mut self) -> bool {
        self.next += 1;
        self.next <= self.tokens.len()
    }

    fn token(&self) -> &Token {
        &self.tokens[self.next - 1]
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.tokens[self.next - 1]
    }
}

fn is_hangul(c: char) -> bool {
    matches!(u32::from(c), 0x1100..=0x11ff | 0x3130..=0x318f | 0xac00..=0xd7af)
}

fn narrow(c: char) -> char {
    match u32::from(c) {
        wide @ 0xff01..=0xff5e => char::from_u32(wide - 0xfee0).unwrap_or(c),
        _ => c,
    }
}

fn bigrams(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut row: Vec<(usize, usize)> = Vec::new();
    let push = |tokens: &mut Vec<Token>, start: usize, end: usize| {
        let position = tokens.len();
        let text = text[start..end].chars().map(narrow).map(small).collect();
        tokens.push(Token { offset_from: start, offset_to: end, position, text, position_length: 1 });
    };
    let flush = |tokens: &mut Vec<Token>, row: &mut Vec<(usize, usize)>| {
        match row.as_slice() {
            [] => {}
            [(start, end)] => push(tokens, *start, *end),
            pairs => pairs.windows(2).for_each(|pair| push(tokens, pair[0].0, pair[1].1)),
        }
        row.clear();
    };
    let mut at = 0;
    while let Some((start, end, class)) = split::word_with_class(text, at) {
        at = end;
        let word = &text[start..end];
        let is_paired =
            matches!(class, Class::Ideograph | Class::Hiragana | Class::Katakana) || word.chars().all(is_hangul);
        if row.last().is_some_and(|last| last.1 != start) || !is_paired {
            flush(&mut tokens, &mut row);
        }
        if is_paired {
            row.extend(word.char_indices().map(|(offset, c)| (start + offset, start + offset + c.len_utf8())));
        } else {
            row.push((start, end));
            flush(&mut tokens, &mut row);
        }
    }
    flush(&mut tokens, &mut row);
    tokens
}

type Change = dyn Fn(&mut String) -> bool + Send + Sync;

#[derive(Clone)]
pub(super) struct Apply(Arc<Change>);

impl Apply {
    pub(super) fn new(change: impl Fn(&mut String) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }
}

impl TokenFilter for Apply {
    type Tokenizer<T: Tokenizer> = Applied<T>;

    fn transform<T: Tokenizer>(self, tokenizer: T) -> Applied<T> {
        Applied { tokenizer, change: self.0 }
    }
}

#[derive(Clone)]
pub(super) struct Applied<T> {
    tokenizer: T,
    change: Arc<Change>,
}

impl<T: Tokenizer> Tokenizer for Applied<T> {
    type TokenStream<'a> = AppliedStream<T::TokenStream<'a>>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Self::TokenStream<'a> {
        AppliedStream { tail: self.tokenizer.token_stream(text), change: Arc::clone(&self.change) }
    }
}

pub(super) struct AppliedStream<T> {
    tail: T,
    change: Arc<Change>,
}

impl<T: TokenStream> TokenStream for AppliedStream<T> {
    fn advance(&mut self) -> bool {
        while self.tail.advance() {
            if (self.change)(&mut self.tail.token_mut().text) {
                return true;
            }
        }
        false
    }

    fn token(&self) -> &Token {
        self.tail.token()
    }

    fn token_mut(&mut self) -> &mut Token {
        self.tail.token_mut()
    }
}
