//! JSON text of terms: [`write_json`]. CouchDB stores an object as a tuple with one element, the list of its members; a
//! member is a pair of name and value. Arrays are lists, strings are binaries, literals are atoms. Numbers are integers
//! of any size, or doubles.

use settee_model::json::{MAX_DEPTH, MAX_NUMBER_LEN, write_string, write_u64};

use crate::error::NotJson;
use crate::term::{Elements, Kind, Term};

/// Maximum number of bytes of an integer: each byte has more than 2.4 digits.
const MAX_MAGNITUDE: usize = MAX_NUMBER_LEN * 10 / 24;

/// Atoms other than literals become strings.
pub fn write_json(out: &mut Vec<u8>, term: Term<'_>) -> Result<(), NotJson> {
    write(out, term, 0)
}

pub(crate) fn write_members(out: &mut Vec<u8>, members: Elements<'_>) -> Result<(), NotJson> {
    object(out, members, 1)
}

fn write(out: &mut Vec<u8>, term: Term<'_>, depth: usize) -> Result<(), NotJson> {
    if depth > MAX_DEPTH {
        return Err(NotJson::TooDeep);
    }
    match term.kind() {
        Kind::Integer(value) => {
            if value < 0 {
                out.push(b'-');
            }
            write_u64(out, value.unsigned_abs());
        }
        Kind::Big { magnitude, is_negative } => big(out, magnitude, is_negative)?,
        Kind::Float(value) => out.extend_from_slice(format!("{value:?}").as_bytes()),
        Kind::Atom(literal @ (b"true" | b"false" | b"null")) => out.extend_from_slice(literal),
        Kind::Atom(text) | Kind::Binary(text) => string(out, text)?,
        Kind::Bytes(bytes) => {
            settee_model::json::write_array(out, bytes, |out, byte| write_u64(out, u64::from(*byte)));
        }
        Kind::Tuple(_) => {
            let [members] = term.array().ok_or(NotJson::Structure)?;
            object(out, members.list().ok_or(NotJson::Structure)?, depth + 1)?;
        }
        Kind::List(elements) => {
            out.push(b'[');
            for (number, element) in elements.enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                write(out, element, depth + 1)?;
            }
            out.push(b']');
        }
        Kind::Map => return Err(NotJson::Structure),
    }
    Ok(())
}

fn object(out: &mut Vec<u8>, members: Elements<'_>, depth: usize) -> Result<(), NotJson> {
    out.push(b'{');
    for (number, member) in members.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let [name, value] = member.array().ok_or(NotJson::Structure)?;
        match name.kind() {
            Kind::Atom(text) | Kind::Binary(text) => string(out, text)?,
            _ => return Err(NotJson::Structure),
        }
        out.push(b':');
        write(out, value, depth)?;
    }
    out.push(b'}');
    Ok(())
}

fn string(out: &mut Vec<u8>, text: &[u8]) -> Result<(), NotJson> {
    write_string(out, std::str::from_utf8(text).map_err(|_| NotJson::NotUtf8)?);
    Ok(())
}

fn big(out: &mut Vec<u8>, magnitude: &[u8], is_negative: bool) -> Result<(), NotJson> {
    const GROUP: u64 = 1_000_000_000;
    if magnitude.len() > MAX_MAGNITUDE {
        return Err(NotJson::NumberTooLarge);
    }
    let mut limbs: Vec<u32> = magnitude
        .chunks(4)
        .map(|bytes| bytes.iter().rev().fold(0, |limb, byte| limb << 8 | u32::from(*byte)))
        .collect();
    let mut groups = Vec::new();
    while !limbs.is_empty() {
        let mut rest = 0;
        for limb in limbs.iter_mut().rev() {
            let value = rest << 32 | u64::from(*limb);
            *limb = (value / GROUP) as u32;
            rest = value % GROUP;
        }
        groups.push(rest);
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
    }
    if is_negative {
        out.push(b'-');
    }
    let mut groups = groups.iter().rev();
    write_u64(out, groups.next().copied().unwrap_or(0));
    groups.for_each(|group| out.extend_from_slice(format!("{group:09}").as_bytes()));
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::term::Tape;

    fn json(bytes: &[u8]) -> Result<String, NotJson> {
        let tape = Tape::decode([&[131], bytes].concat()).unwrap();
        let mut out = Vec::new();
        write_json(&mut out, tape.root())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_of_each_kind() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(json(bytes).unwrap(), expected);
        check(&[98, 255, 255, 255, 254], "-2");
        check(&[110, 11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "-1208925819614629174706176");
        check(&[110, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], "1208925819614629174706176");
        check(&[110, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255], "18446744073709551615");
        check(&[107, 0, 2, 1, 200], "[1,200]");
        check(&[106], "[]");
        check(&[104, 1, 106], "{}");
        check(&[108, 0, 0, 0, 2, 119, 4, b't', b'r', b'u', b'e', 119, 1, b'x', 106], "[true,\"x\"]");
        check(&[70, 0x7e, 0x37, 0xe4, 0x3c, 0x88, 0, 0x75, 0x9c], "1e300");
        check(&[70, 0x40, 0, 0, 0, 0, 0, 0, 0], "2.0");
        let object = [&[104, 1, 108, 0, 0, 0, 1, 104, 2, 109, 0, 0, 0, 1, b'a', 119, 4][..], b"null", &[106]].concat();
        check(&object, "{\"a\":null}");
    }

    #[test]
    fn other_terms_are_errors() {
        assert_eq!(json(&[104, 0]), Err(NotJson::Structure));
        assert_eq!(json(&[104, 2, 97, 1, 97, 1]), Err(NotJson::Structure));
        assert_eq!(json(&[116, 0, 0, 0, 0]), Err(NotJson::Structure));
        assert_eq!(json(&[109, 0, 0, 0, 1, 255]), Err(NotJson::NotUtf8));
        let arrays = |depth: usize| {
            let mut bytes = [108, 0, 0, 0, 1].repeat(depth);
            bytes.push(106);
            bytes.extend(vec![106; depth]);
            bytes
        };
        assert_eq!(json(&arrays(MAX_DEPTH)).unwrap().len(), 2 * MAX_DEPTH + 2);
        assert_eq!(json(&arrays(MAX_DEPTH + 1)), Err(NotJson::TooDeep));
        let mut huge = vec![111, 0, 1, 0, 0, 0];
        huge.extend(vec![255; 65_536]);
        assert_eq!(json(&huge), Err(NotJson::NumberTooLarge));
    }
}
