//! [`Bookmark`]: the end of a page of results, an opaque text: the last document and, for a query that reads an index,
//! the index and the key. The next page continues there, whatever the planner would now choose.

use std::borrow::Cow;

use settee_model::json::{Json, Value, write_string};

use crate::error::Refusal;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bookmark {
    Primary { id: String },
    Index { design: String, name: String, key: Json, id: String },
    Text { design: String, name: String, place: String },
}

pub(crate) fn invalid(text: &str) -> Refusal {
    let mut shown = Vec::new();
    write_string(&mut shown, text);
    Refusal::InvalidBookmark(String::from_utf8_lossy(&shown).into_owned())
}

impl Bookmark {
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let invalid = || invalid(text);
        let json = decode(text).and_then(|bytes| Json::parse(&bytes).ok()).ok_or_else(invalid)?;
        let parts: Vec<Value<'_>> = json.value().elements().collect();
        let text = |value: Value<'_>| value.as_str().map(Cow::into_owned).ok_or_else(invalid);
        match parts.as_slice() {
            [id] => Ok(Self::Primary { id: text(*id)? }),
            [design, name, key, id] if key.is_array() => Ok(Self::Index {
                design: text(*design)?,
                name: text(*name)?,
                key: Json::trusted(key.raw().to_vec()),
                id: text(*id)?,
            }),
            [design, name, place] => {
                Ok(Self::Text { design: text(*design)?, name: text(*name)?, place: text(*place)? })
            }
            _ => Err(invalid()),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let mut out = b"[".to_vec();
        match self {
            Self::Primary { id } => write_string(&mut out, id),
            Self::Index { design, name, key, id } => {
                write_string(&mut out, design);
                out.push(b',');
                write_string(&mut out, name);
                out.push(b',');
                out.extend_from_slice(key.as_bytes());
                out.push(b',');
                write_string(&mut out, id);
            }
            Self::Text { design, name, place } => {
                write_string(&mut out, design);
                out.push(b',');
                write_string(&mut out, name);
                out.push(b',');
                write_string(&mut out, place);
            }
        }
        out.push(b']');
        encode(&out)
    }
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([&0; 3]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        for digit in 0..=group.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | DIGITS.iter().position(|known| known == digit)? as u32;
        }
        let whole = bits << (6 * (4 - group.len()));
        bytes.extend(whole.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_survive_the_way_through_a_client() {
        let key = Json::parse(r#"["é",1.50,{"a":null}]"#.as_bytes()).unwrap();
        for id in ["", "a", "ab", "abc", "abcd", "日本\u{1}\"\\/"] {
            let index = Bookmark::Index {
                design: "_design/d".to_owned(),
                name: "n".to_owned(),
                key: key.clone(),
                id: id.to_owned(),
            };
            let text = Bookmark::Text { design: "_design/d".to_owned(), name: "n".to_owned(), place: id.to_owned() };
            for bookmark in [Bookmark::Primary { id: id.to_owned() }, index, text] {
                assert_eq!(Bookmark::parse(&bookmark.to_text()), Ok(bookmark));
            }
        }
    }

    #[test]
    fn invalid_bookmarks_are_rejected() {
        for text in ["nil", "nosuch", "!", "W10", "WzFd", "eyJhIjoxfQ", "g1AAAAB5eJzLYWBgYMpgSmHgK", "é"] {
            let shown = format!("\"{text}\"");
            assert_eq!(Bookmark::parse(text), Err(Refusal::InvalidBookmark(shown)), "{text}");
        }
    }
}
