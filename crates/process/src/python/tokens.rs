//! [`tokens`]: tokens of Python source. It rejects all source that versions of Python may interpret differently.
//! Accepting invalid Python is harmless, because such a function never runs.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Start of a logical line; the text is its indentation. Lines without code have no such token.
    Line,
    Name,
    Number,
    /// A string without prefix, or with `u`; the text between the marks, which has no escapes and no line breaks.
    Plain,
    Formatted,
    Text,
    Operator,
}

/// Longest first. All other operators are rejected, including backticks and `!`.
const OPERATORS: [&str; 48] = [
    "**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", "<=", ">=", "==", "!=", "<>", "->", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "@=", ":=", "+", "-", "*", "/", "%", "@", "&", "|", "^", "~", "<", ">", "(", ")",
    "[", "]", "{", "}", ".", ",", ":", ";", "=",
];

pub(super) fn tokens(source: &str) -> Option<Vec<Token<'_>>> {
    let bytes = source.as_bytes();
    // A form feed resets the column. In some versions a zero byte ends the source, and a lone carriage return is a line
    // break.
    let is_strange = |byte: u8| (byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0x7f;
    if bytes.iter().any(|&byte| is_strange(byte)) || source.replace("\r\n", "\n").contains('\r') {
        return None;
    }
    let mut tokenizer = Tokenizer { source, bytes, at: 0, closing: Vec::new(), tokens: Vec::new() };
    tokenizer.line_start()?;
    while tokenizer.at < bytes.len() {
        tokenizer.step()?;
    }
    tokenizer.closing.is_empty().then_some(tokenizer.tokens)
}

struct Tokenizer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    closing: Vec<u8>,
    tokens: Vec<Token<'a>>,
}

impl<'a> Tokenizer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) -> Option<()> {
        self.tokens.push(Token { kind, text: self.source.get(start..end)? });
        Some(())
    }

    fn skip(&mut self, is_in: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && is_in(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    /// At the first column: skips lines without code, and the indentation of the first line with code.
    fn line_start(&mut self) -> Option<()> {
        loop {
            let start = self.at;
            self.skip(|byte| matches!(byte, b' ' | b'\t'));
            match self.peek(0) {
                _ if self.at == self.bytes.len() => return Some(()),
                b'\r' | b'\n' => self.skip(|byte| matches!(byte, b'\r' | b'\n')),
                b'#' => self.comment()?,
                // The indentation of such a line differs between versions.
                b'\\' => return None,
                _ => return self.push(Kind::Line, start, self.at),
            }
        }
    }

    fn comment(&mut self) -> Option<()> {
        let start = self.at;
        self.skip(|byte| byte != b'\n');
        let comment = self.source.get(start..self.at)?;
        // A declaration of another encoding changes the meaning of the bytes.
        let declares_another = |rest: &str| {
            let name = rest.strip_prefix([':', '=']).map(str::trim_start);
            let is_end = |c: char| !c.is_alphanumeric() && !"-_.".contains(c);
            name.is_some_and(|name| name.split(is_end).next() != Some("utf-8"))
        };
        (!comment.split("coding").skip(1).any(declares_another)).then_some(())
    }

    fn step(&mut self) -> Option<()> {
        let start = self.at;
        match self.peek(0) {
            b' ' | b'\t' | b'\r' => self.at += 1,
            b'\n' => {
                self.at += 1;
                if self.closing.is_empty() {
                    self.line_start()?;
                }
            }
            b'#' => self.comment()?,
            b'\\' => {
                self.at += 1 + usize::from(self.peek(1) == b'\r');
                if self.peek(0) != b'\n' {
                    return None;
                }
                self.at += 1;
            }
            b'\'' | b'"' => self.string(start)?,
            b'0'..=b'9' => self.number()?,
            b'.' if self.peek(1).is_ascii_digit() => self.number()?,
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                let name = self.source.get(start..self.at)?;
                if matches!(self.peek(0), b'\'' | b'"') && is_prefix(name) {
                    self.string(start)?;
                } else {
                    self.push(Kind::Name, start, self.at)?;
                }
            }
            _ => self.operator()?,
        }
        Some(())
    }

    /// A number must end at a token boundary: `1if x` and `0xfor x` are two tokens in Python.
    fn number(&mut self) -> Option<()> {
        let start = self.at;
        let is_power = |bytes: &[u8], at: usize| {
            matches!(bytes[at], b'+' | b'-')
                && matches!(bytes[at - 1], b'e' | b'E')
                && !matches!(bytes[start + 1], b'x' | b'X')
        };
        while self.at < self.bytes.len()
            && (self.bytes[self.at].is_ascii_alphanumeric()
                || matches!(self.bytes[self.at], b'_' | b'.')
                || (self.at > start && is_power(self.bytes, self.at)))
        {
            self.at += 1;
        }
        let text = self.source.get(start..self.at)?.to_ascii_lowercase();
        let digits = |text: &str, radix| text.chars().all(|c| c == '_' || c.is_digit(radix));
        let is_good = if let Some(rest) = text.strip_prefix("0x") {
            digits(rest.strip_suffix('l').unwrap_or(rest), 16)
        } else if let Some(rest) = text.strip_prefix("0o").or_else(|| text.strip_prefix("0b")) {
            digits(rest, 8)
        } else {
            let text = text.strip_suffix(['l', 'j']).unwrap_or(&text);
            let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let power = power.strip_prefix(['+', '-']).unwrap_or(power);
            digits(whole, 10) && digits(fraction, 10) && digits(power, 10) && !power.is_empty()
        };
        is_good.then_some(())?;
        self.push(Kind::Number, start, self.at)
    }

    fn operator(&mut self) -> Option<()> {
        let rest = self.source.get(self.at..)?;
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator))?;
        match operator.as_bytes() {
            b"(" => self.closing.push(b')'),
            b"[" => self.closing.push(b']'),
            b"{" => self.closing.push(b'}'),
            [close @ (b')' | b']' | b'}')] => (self.closing.pop()? == *close).then_some(())?,
            _ => {}
        }
        self.at += operator.len();
        self.push(Kind::Operator, self.at - operator.len(), self.at)
    }

    fn string(&mut self, start: usize) -> Option<()> {
        let prefix = self.source.get(start..self.at)?.to_ascii_lowercase();
        let quote = self.peek(0);
        let is_long = self.peek(1) == quote && self.peek(2) == quote;
        let marks = if is_long { 3 } else { 1 };
        self.at += marks;
        let inner = self.at;
        loop {
            match self.bytes.get(self.at)? {
                b'\\' => self.at += 2,
                b'\n' if !is_long => return None,
                byte if *byte == quote && (!is_long || (self.peek(1) == quote && self.peek(2) == quote)) => break,
                _ => self.at += 1,
            }
        }
        let text = self.source.get(inner..self.at)?;
        let end = self.at;
        self.at += marks;
        let kind = match prefix.as_str() {
            "" | "u" if !text.contains(['\\', '\n', '\r']) => Kind::Plain,
            "f" | "fr" | "rf" => is_simple_format(text).then_some(Kind::Formatted)?,
            // Template strings exist since 3.14; before, the letter is a separate name.
            "t" | "tr" | "rt" => return None,
            _ => Kind::Text,
        };
        self.push(kind, inner, end)
    }
}

fn is_prefix(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "r" | "b" | "u" | "f" | "t" | "br" | "rb" | "ur" | "fr" | "rf" | "tr" | "rt")
}

/// Returns true if all versions agree on the end of a formatted string and its fields contain no strings. Since 3.12
/// fields may contain any expression; before, the first quotation mark ended the string.
fn is_simple_format(text: &str) -> bool {
    let mut is_open = false;
    for byte in text.bytes() {
        match byte {
            b'{' if !is_open => is_open = true,
            b'}' if is_open => is_open = false,
            b'{' | b'}' | b'\'' | b'"' | b'\\' | b'#' | b'\n' | b'\r' => return false,
            _ => {}
        }
    }
    text.is_ascii() && !is_open
}
