//! Splits a query into tokens. As in Lucene, the longest token wins; a character has other meanings in a range and
//! after `fn:`.

use super::grammar::{Grammar, MAX_CLAUSES, too_many_clauses};
use super::tree::Text;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    And,
    Or,
    Not,
    Plus,
    Minus,
    Open,
    Close,
    Colon,
    Equal,
    Less,
    LessEqual,
    More,
    MoreEqual,
    Caret,
    At,
    Tilde,
    Quoted(Text),
    Number(String),
    Term(Text),
    Regex(String),
    RangeStart(bool),
    RangeEnd(bool),
    To,
    Bound(Text),
    Function(String),
}

const SPECIAL: &str = "+-!():^[]\"{}~\\/";
const SPECIAL_OF_STANDARD: &str = "@<>=";

/// Upper bound for the maximum number of clauses, each with a field, a sign, a range and parentheses.
const MAX_TOKENS: usize = 32 * MAX_CLAUSES;

struct Lexer<'a> {
    grammar: Grammar,
    text: &'a str,
    at: usize,
}

pub(super) fn tokens(grammar: Grammar, text: &str) -> Result<Vec<Token>, String> {
    let mut lexer = Lexer { grammar, text, at: 0 };
    let mut tokens = Vec::new();
    let mut in_range = false;
    while let Some(c) = lexer.skip_blanks() {
        let token = if in_range { lexer.in_range(c) } else { lexer.token(c) }
            .ok_or_else(|| format!("Lexical error at column {}, at {c:?}", lexer.at))?;
        match token {
            Token::RangeStart(_) => in_range = true,
            Token::RangeEnd(_) => in_range = false,
            _ => {}
        }
        tokens.push(token);
        if tokens.len() > MAX_TOKENS {
            return Err(too_many_clauses());
        }
    }
    Ok(tokens)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{3000}')
}

impl Lexer<'_> {
    fn skip_blanks(&mut self) -> Option<char> {
        while let Some(c) = self.text[self.at..].chars().next() {
            if !is_blank(c) {
                return Some(c);
            }
            self.at += c.len_utf8();
        }
        None
    }

    fn take(&mut self, length: usize, token: Token) -> Option<Token> {
        self.at += length;
        Some(token)
    }

    fn token(&mut self, c: char) -> Option<Token> {
        let rest = &self.text[self.at..];
        let is_standard = self.grammar == Grammar::Standard;
        if is_standard && let Some(name) = rest.strip_prefix("fn:") {
            let length = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
            let name = name[..length].to_owned();
            return self.take(3 + length, Token::Function(name));
        }
        if is_standard {
            let two = [("<=", Token::LessEqual), (">=", Token::MoreEqual)];
            if let Some((_, token)) = two.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
                return self.take(2, token);
            }
            match c {
                '<' => return self.take(1, Token::Less),
                '>' => return self.take(1, Token::More),
                '=' => return self.take(1, Token::Equal),
                '@' => return self.take(1, Token::At),
                _ => {}
            }
        }
        match c {
            '+' => self.take(1, Token::Plus),
            '-' => self.take(1, Token::Minus),
            '!' => self.take(1, Token::Not),
            '(' => self.take(1, Token::Open),
            ')' => self.take(1, Token::Close),
            ':' => self.take(1, Token::Colon),
            '^' => self.take(1, Token::Caret),
            '~' => self.take(1, Token::Tilde),
            '[' => self.take(1, Token::RangeStart(true)),
            '{' => self.take(1, Token::RangeStart(false)),
            '"' => self.quoted(),
            '/' => self.regex(),
            _ => self.term(),
        }
    }

    fn in_range(&mut self, c: char) -> Option<Token> {
        let rest = &self.text[self.at..];
        match c {
            ']' => return self.take(1, Token::RangeEnd(true)),
            '}' => return self.take(1, Token::RangeEnd(false)),
            '"' => {
                if let Some(token) = self.quoted() {
                    return Some(match token {
                        Token::Quoted(text) => Token::Bound(text),
                        token => token,
                    });
                }
            }
            _ => {}
        }
        let length = rest.find([' ', ']', '}']).unwrap_or(rest.len());
        let image = &rest[..length];
        let token = if image == "TO" { Token::To } else { Token::Bound(Text::unescape(image)?) };
        self.take(length, token)
    }

    fn quoted(&mut self) -> Option<Token> {
        let rest = &self.text[self.at + 1..];
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    let text = Text::unescape(&rest[..at])?;
                    return self.take(at + 2, Token::Quoted(text));
                }
                '\\' => {
                    chars.next()?;
                }
                _ => {}
            }
        }
        None
    }

    fn regex(&mut self) -> Option<Token> {
        let rest = &self.text[self.at + 1..];
        let mut before = '\0';
        for (at, c) in rest.char_indices() {
            if c == '/' && before != '\\' {
                let pattern = rest[..at].replace("\\/", "/");
                return self.take(at + 2, Token::Regex(pattern));
            }
            before = c;
        }
        None
    }

    fn term(&mut self) -> Option<Token> {
        let rest = &self.text[self.at..];
        let is_special = |c: char| {
            is_blank(c)
                || (SPECIAL.contains(c) && c != '\\')
                || (self.grammar == Grammar::Standard && SPECIAL_OF_STANDARD.contains(c))
        };
        let mut length = 0;
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            let is_part = !is_special(c) || (length > 0 && (c == '-' || c == '+'));
            if !is_part {
                break;
            }
            length += c.len_utf8();
            if c == '\\' {
                length += chars.next()?.len_utf8();
            }
        }
        let image = &rest[..length];
        let token = match image {
            "" => return None,
            "AND" | "&&" => Token::And,
            "OR" | "||" => Token::Or,
            "NOT" => Token::Not,
            image if is_number(image) => Token::Number(image.to_owned()),
            image => Token::Term(Text::unescape(image)?),
        };
        self.take(length, token)
    }
}

fn is_number(image: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match image.split_once('.') {
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
        None => is_digits(image),
    }
}
