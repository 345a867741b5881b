//! Han characters in CouchDB's order, by radical and stroke: [`exchange`].
//!
//! The collation library and ICU agree that Han characters come after all other scripts, that each has a primary weight
//! of its own, and nothing else about them but the order: the library has them by code point. So before a string is given
//! to the library, each Han character is exchanged for another one that stands where the first should stand. The table is
//! made by `data/han.mjs` from ICU 76, the ICU of the CouchDB 3.5.2 that Settee is compared with.
//!
//! Left as they are: ideographs that ICU 76 does not know (the library has them after all others), and characters that
//! merely sort near an ideograph, such as radicals (U+2E80 to U+2FD5) and circled or squared ideographs; these stand
//! among the ideographs, where the library has the ideograph that they resemble.

use std::borrow::Cow;

/// For each code point of [`RANGES`] in their order the code point to use instead, or 0, in 3 bytes, little-endian.
static TABLE: &[u8] = include_bytes!("../../data/han.bin");

/// First and last code point.
const RANGES: [(u32, u32); 4] = [(0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xf900, 0xfaff), (0x20000, 0x323af)];

/// First byte of U+3000, below which no character is exchanged.
const FIRST_LEAD_BYTE: u8 = 0xe3;

/// The text with its Han characters exchanged.
pub(super) fn exchange(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte >= FIRST_LEAD_BYTE) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|character| substitute(character).unwrap_or(character)).collect())
}

/// The character to use instead of a Han character, which may be itself; `None` for all others.
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
