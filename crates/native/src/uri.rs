//! `encodeURI`, `decodeURI` and their variants for components.

/// Letters and digits are never escaped either.
const UNRESERVED: &[u8] = b"-_.!~*'()";
/// Characters of a whole URI that `encodeURI` and `decodeURI` leave unchanged.
const RESERVED: &[u8] = b";/?:@&=+$,#";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Whole,
    Component,
}

pub(super) fn encode(text: &str, scope: Scope) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || UNRESERVED.contains(&byte) || is_kept(byte, scope) {
            out.push(byte);
        } else {
            out.extend([b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
    out
}

/// Returns `None` where JavaScript throws a `URIError`.
pub(super) fn decode(text: &str, scope: Scope) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            out.push(first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let byte = hex_value(digits[0])? << 4 | hex_value(digits[1])?;
        rest = tail;
        if is_kept(byte, scope) {
            out.push(b'%');
            out.extend(digits);
        } else {
            out.push(byte);
        }
    }
    // Characters of the text are complete, so an incomplete escaped character stays invalid.
    std::str::from_utf8(&out).is_ok().then_some(out)
}

fn is_kept(byte: u8, scope: Scope) -> bool {
    scope == Scope::Whole && RESERVED.contains(&byte)
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(value)]
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
