//! Bookmarks: the sort values of the last hit of a result.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use settee_storage::codec::{Reader, put_bytes};

use crate::answer::OrderValue;
use crate::error::{Error, Result};

/// CouchDB's bookmark of a result without hits: an empty array.
const NOTHING: &str = "W10";

/// Maximum number of sorts with strings of maximum length.
const MAX_BYTES: usize = 2 << 20;

pub(crate) fn encode(last: Option<&[OrderValue]>, former: Option<&str>) -> String {
    let Some(values) = last else {
        // Without further hits the bookmark is unchanged.
        return former.unwrap_or(NOTHING).to_owned();
    };
    let mut out = Vec::new();
    for value in values {
        match value {
            OrderValue::Null => out.push(0),
            OrderValue::Score(score) => {
                out.push(1);
                out.extend_from_slice(&score.to_be_bytes());
            }
            OrderValue::Double(number) => {
                out.push(2);
                out.extend_from_slice(&number.to_be_bytes());
            }
            OrderValue::String(text) => {
                out.push(3);
                put_bytes(&mut out, text.as_bytes());
            }
        }
    }
    URL_SAFE_NO_PAD.encode(out)
}

pub(super) fn decode(bookmark: &str, sorts: usize) -> Result<Option<Vec<OrderValue>>> {
    if bookmark == NOTHING || bookmark.is_empty() {
        return Ok(None);
    }
    let invalid = || Error::bad_request("Invalid bookmark parameter supplied");
    if bookmark.len() > MAX_BYTES {
        return Err(invalid());
    }
    let bytes = URL_SAFE_NO_PAD.decode(bookmark).map_err(|_| invalid())?;
    let values = read(&bytes, sorts).map_err(|_| invalid())?;
    if values.len() == sorts { Ok(Some(values)) } else { Err(invalid()) }
}

fn read(bytes: &[u8], most: usize) -> Result<Vec<OrderValue>> {
    let mut reader = Reader::new(bytes, "bookmark");
    let mut values = Vec::new();
    while !reader.is_at_end() && values.len() <= most {
        values.push(match reader.byte()? {
            0 => OrderValue::Null,
            1 => OrderValue::Score(f32::from_be_bytes(reader.array()?)),
            2 => OrderValue::Double(f64::from_be_bytes(reader.array()?)),
            3 => OrderValue::String(reader.text()?.to_owned()),
            _ => return Err(Error::bad_request("")),
        });
    }
    Ok(values)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_back() {
        let values = vec![
            OrderValue::Null,
            OrderValue::Score(1.25),
            OrderValue::Double(-0.1),
            OrderValue::String("a\u{0}é".to_owned()),
        ];
        let bookmark = encode(Some(&values), None);
        assert_eq!(decode(&bookmark, 4).unwrap(), Some(values));
        for broken in ["x", "%%", &bookmark[..bookmark.len() - 2]] {
            assert!(decode(broken, 4).is_err(), "{broken}");
        }
        assert!(decode(&bookmark, 3).is_err());
        assert_eq!((encode(None, None).as_str(), encode(None, Some("b")).as_str()), ("W10", "b"));
        assert_eq!(decode("W10", 2).unwrap(), None);
    }
}
