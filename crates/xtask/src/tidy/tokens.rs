//! [`Token`]: Rust source as words and punctuation, without comments, the text of strings, and code that is compiled
//! for tests only. Sufficient to find names; grammar is not parsed.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// An identifier, `::`, a single other character, or `"` for any literal string ([`with_strings`] keeps its text).
    pub(super) text: &'a str,
    pub(super) line: usize,
}

pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    Lexer::new(source, false).all()
}

/// Literal strings have their text, with its quotes.
pub(super) fn with_strings(source: &str) -> Vec<Token<'_>> {
    Lexer::new(source, true).all()
}

pub(super) fn texts(source: &str) -> Vec<(&str, usize)> {
    let mut lexer = Lexer::new(source, false);
    let mut texts = Vec::new();
    while !lexer.rest.is_empty() {
        let (before, line) = (lexer.rest, lexer.line);
        lexer.step();
        let text = &before[..before.len() - lexer.rest.len()];
        if before.starts_with("//") || string_len(before).is_some() {
            texts.push((text, line));
        }
    }
    texts
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    keeps_strings: bool,
    found: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn new(source: &'a str, keeps_strings: bool) -> Self {
        Self { rest: source, line: 1, keeps_strings, found: Vec::new() }
    }

    fn all(mut self) -> Vec<Token<'a>> {
        while !self.rest.is_empty() {
            self.step();
        }
        self.found
    }

    fn step(&mut self) {
        let rest = self.rest;
        let first = rest.chars().next().expect("the caller checked that something is left");
        if rest.starts_with("//") {
            self.skip(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.skip(block_comment_len(rest));
        } else if let Some(len) = string_len(rest) {
            let text = if self.keeps_strings { &rest[..len] } else { "\"" };
            self.found.push(Token { text, line: self.line });
            self.skip(len);
        } else if first == '\'' {
            self.skip(quote_len(rest));
        } else if first == '_' || first.is_alphanumeric() {
            let len = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            self.take(len);
        } else if rest.starts_with("::") {
            self.take(2);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.take(first.len_utf8());
        }
    }

    fn take(&mut self, len: usize) {
        self.found.push(Token { text: &self.rest[..len], line: self.line });
        self.skip(len);
    }

    fn skip(&mut self, len: usize) {
        let (gone, rest) = self.rest.split_at(len);
        self.line += gone.matches('\n').count();
        self.rest = rest;
    }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Includes the prefix; `None` if `text` does not start with a string literal.
fn string_len(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| {
            let hashes = if prefix.ends_with('r') { rest.trim_start_matches('#') } else { rest };
            hashes.starts_with('"')
        })
    })?;
    let rest = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let body = &rest[hashes + 1..];
        return Some(body.find(&end).map_or(text.len(), |at| prefix.len() + hashes + 1 + at + end.len()));
    }
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// The length of a character literal, or of the quote of a lifetime.
fn quote_len(text: &str) -> usize {
    let mut after = text[1..].chars();
    match (after.next(), after.next()) {
        (Some('\\'), Some(escaped)) => {
            let body = 2 + escaped.len_utf8();
            text[body..].find('\'').map_or(text.len(), |at| body + at + 1)
        }
        (Some(character), Some('\'')) => 2 + character.len_utf8(),
        _ => 1,
    }
}

/// Omits the items that are compiled for tests only, and returns the names of modules in files of their own that are.
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !starts_with(&tokens[at..], &["#", "[", "cfg", "("]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let condition_end = closing(tokens, at + 3);
        let condition = &tokens[at + 4..condition_end.min(tokens.len())];
        let for_tests = condition.iter().any(|token| token.text == "test")
            && condition.iter().all(|token| !["not", "any"].contains(&token.text));
        if !for_tests {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut item = closing(tokens, at + 1) + 1;
        while starts_with(&tokens[item.min(tokens.len())..], &["#", "["]) {
            item = closing(tokens, item + 1) + 1;
        }
        at = item_end(tokens, item);
        let header = &tokens[item.min(tokens.len())..at];
        if let Some(module) = header.iter().position(|token| token.text == "mod")
            && header.last().is_some_and(|token| token.text == ";")
            && let Some(name) = header.get(module + 1)
        {
            modules.push(name.text);
        }
    }
    (kept, modules)
}

pub(super) fn starts_with(tokens: &[Token<'_>], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.text == *text)
}

pub(super) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// An item ends with its block or with a semicolon.
fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut at = start;
    while at < tokens.len() {
        match tokens[at].text {
            ";" => return at + 1,
            "{" => return (closing(tokens, at) + 1).min(tokens.len()),
            "(" | "[" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    tokens.len()
}
