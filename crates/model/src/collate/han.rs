//! Han characters in CouchDB's order, by radical and stroke: [`exchange`]. The collation library orders Han characters
//! by code point, ICU by radical and stroke. Therefore each Han character is replaced, before the library gets the
//! string, by the one at its position. `data/han.mjs` generates the table from ICU 76, the ICU of CouchDB 3.5.2. Not
//! replaced: ideographs unknown to ICU 76, and characters that only sort near an ideograph, such as radicals.

use std::borrow::Cow;

/// For each code point of [`RANGES`], in order, the replacement or 0, in 3 bytes, little-endian.
static TABLE: &[u8] = include_bytes!("../../data/han.bin");

const RANGES: [(u32, u32); 4] = [(0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xf900, 0xfaff), (0x20000, 0x323af)];

/// First byte of U+3000. No character below it is replaced.
const FIRST_LEAD_BYTE: u8 = 0xe3;

pub(super) fn exchange(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte >= FIRST_LEAD_BYTE) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|character| substitute(character).unwrap_or(character)).collect())
}

pub(super) fn substitute(character: char) -> Option<char> {
    let code = u32::from(character);
    let mut start = 0;
    for (first, last) in RANGES {
        if code < first {
            return None;
        }
        if code <= last {
            let at = 3 * (start + code - first) as usize;
            let other = u32::from_le_bytes([TABLE[at], TABLE[at + 1], TABLE[at + 2], 0]);
            return if other == 0 { None } else { char::from_u32(other) };
        }
        start += last - first + 1;
    }
    None
}
