//! Base64: the standard alphabet, as basic credentials use it, and that of addresses, as cookies and tokens do.

/// The bytes of `text`; `None` if it is not base64. Padding may be missing, because some clients leave it out.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let padded = text.trim_end_matches('=');
    let padding = text.len() - padded.len();
    let symbols = padded.as_bytes();
    if symbols.len() % 4 == 1 || padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() / 4 * 3 + 2);
    for group in symbols.chunks(4) {
        let mut bits = 0u32;
        for &symbol in group {
            bits = (bits << 6) | sextet(symbol)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, decoded @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&decoded[..group.len() - 1]);
    }
    Some(bytes)
}

/// The bytes of `text` in the alphabet of addresses, without padding; `None` if it is not that.
pub(crate) fn decode_url(text: &str) -> Option<Vec<u8>> {
    if text.contains(['+', '/', '=']) {
        return None;
    }
    decode(&text.replace('-', "+").replace('_', "/"))
}

/// `bytes` in the alphabet of addresses, without padding.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits =
            group.iter().enumerate().fold(0u32, |bits, (index, byte)| bits | u32::from(*byte) << (16 - 8 * index));
        for index in 0..=group.len() {
            text.push(char::from(SYMBOLS[(bits >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}

fn sextet(symbol: u8) -> Option<u32> {
    let value = match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (bytes, expected) in
            [(&b""[..], ""), (b"a", "YQ"), (b"ab", "YWI"), (b"abc", "YWJj"), (&[0xfb, 0xff, 0xbf, 0x00], "-_-_AA")]
        {
            assert_eq!(encode_url(bytes), expected);
            assert_eq!(decode_url(expected).as_deref(), Some(bytes));
        }
        for bad in ["YQ==", "+/+/AA", "Y", "é"] {
            assert_eq!(decode_url(bad), None, "{bad}");
        }
    }

    #[test]
    fn vectors() {
        let decoded: &[(&str, &[u8])] = &[
            ("", b""),
            ("YQ==", b"a"),
            ("YQ", b"a"),
            ("YWI=", b"ab"),
            ("YWI", b"ab"),
            ("YWJj", b"abc"),
            ("YWRtaW46c2VjcmV0", b"admin:secret"),
            ("+/+/AA==", &[0xfb, 0xff, 0xbf, 0x00]),
        ];
        for (text, expect) in decoded {
            assert_eq!(decode(text).as_deref(), Some(*expect), "{text}");
        }
        for bad in ["nonsense!", "Y", "YWJjY", "YQ=", "YQ===", "Y=Q=", "YQ==\n", "é", "===="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
