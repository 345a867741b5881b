//! A recursive parser for comparison, which is too simple to be wrong.

use std::iter::Peekable;
use std::str::Chars;

use crate::json::{Kind, Value};

/// Numbers are stored as text.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl From<Value<'_>> for Tree {
    fn from(value: Value<'_>) -> Tree {
        match value.kind() {
            Kind::Null => Tree::Null,
            Kind::Bool => Tree::Bool(value.as_bool().unwrap()),
            Kind::Number => Tree::Number(String::from_utf8(value.raw().to_vec()).unwrap()),
            Kind::String => Tree::String(value.as_str().unwrap().into_owned()),
            Kind::Array => Tree::Array(value.elements().map(Tree::from).collect()),
            Kind::Object => Tree::Object(
                value.members().map(|(name, value)| (name.as_str().unwrap().into_owned(), Tree::from(value))).collect(),
            ),
        }
    }
}

/// Returns `None` for invalid text. The last of repeated members is kept.
pub(super) fn parse(text: &str) -> Option<Tree> {
    let mut chars = text.chars().peekable();
    let tree = value(&mut chars)?;
    chars.next().is_none().then_some(tree)
}

pub(super) fn has_space(text: &str) -> bool {
    let mut in_string = false;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => in_string = !in_string,
            '\\' => drop(chars.next()),
            ' ' | '\t' | '\r' | '\n' if !in_string => return true,
            _ => {}
        }
    }
    false
}

fn space(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|char| matches!(char, ' ' | '\t' | '\r' | '\n')).is_some() {}
}

fn value(chars: &mut Peekable<Chars<'_>>) -> Option<Tree> {
    space(chars);
    let tree = match *chars.peek()? {
        '"' => Tree::String(string(chars)?),
        '{' => object(chars)?,
        '[' => array(chars)?,
        'a'..='z' => {
            let mut word = String::new();
            while let Some(char) = chars.next_if(char::is_ascii_lowercase) {
                word.push(char);
            }
            match word.as_str() {
                "true" => Tree::Bool(true),
                "false" => Tree::Bool(false),
                "null" => Tree::Null,
                _ => return None,
            }
        }
        _ => number(chars)?,
    };
    space(chars);
    Some(tree)
}

fn array(chars: &mut Peekable<Chars<'_>>) -> Option<Tree> {
    chars.next();
    space(chars);
    let mut elements = Vec::new();
    if chars.next_if_eq(&']').is_some() {
        return Some(Tree::Array(elements));
    }
    loop {
        elements.push(value(chars)?);
        match chars.next()? {
            ',' => {}
            ']' => return Some(Tree::Array(elements)),
            _ => return None,
        }
    }
}

fn object(chars: &mut Peekable<Chars<'_>>) -> Option<Tree> {
    chars.next();
    space(chars);
    let mut members: Vec<(String, Tree)> = Vec::new();
    if chars.next_if_eq(&'}').is_some() {
        return Some(Tree::Object(members));
    }
    loop {
        space(chars);
        let name = string(chars)?;
        space(chars);
        chars.next_if_eq(&':')?;
        let value = value(chars)?;
        members.retain(|(other, _)| *other != name);
        members.push((name, value));
        match chars.next()? {
            ',' => {}
            '}' => return Some(Tree::Object(members)),
            _ => return None,
        }
    }
}

fn string(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    chars.next_if_eq(&'"')?;
    let mut units: Vec<u16> = Vec::new();
    loop {
        let escaped = match chars.next()? {
            '"' => return String::from_utf16(&units).ok(),
            '\\' => chars.next()?,
            char if char < ' ' => return None,
            char => {
                units.extend_from_slice(char.encode_utf16(&mut [0; 2]));
                continue;
            }
        };
        units.push(match escaped {
            '"' | '\\' | '/' => escaped as u16,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'u' => {
                let mut unit = 0;
                for _ in 0..4 {
                    unit = unit * 16 + u16::try_from(chars.next()?.to_digit(16)?).unwrap();
                }
                unit
            }
            _ => return None,
        });
    }
}

fn number(chars: &mut Peekable<Chars<'_>>) -> Option<Tree> {
    let mut text = String::new();
    while let Some(char) = chars.next_if(|char| matches!(char, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')) {
        text.push(char);
    }
    let unsigned = text.strip_prefix('-').unwrap_or(&text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "1"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "1"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let valid = digits(whole) && digits(fraction) && digits(exponent) && (whole == "0" || !whole.starts_with('0'));
    let is_float = text.contains(['.', 'e', 'E']);
    (valid && (!is_float || text.parse::<f64>().unwrap().is_finite())).then_some(Tree::Number(text))
}
