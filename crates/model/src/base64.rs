//! Base64 in the forms that clients send: attachments in documents, basic credentials, and the URL-safe alphabet.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64URL_NOPAD, Encoding, Specification};

/// Standard alphabet, padded. As in Erlang, white space and trailing bits are ignored.
static LENIENT: LazyLock<Encoding> = LazyLock::new(|| lenient(&BASE64, Some('='), " \t\r\n"));
static UNPADDED: LazyLock<Encoding> = LazyLock::new(|| lenient(&BASE64, None, ""));

static ADDRESS: LazyLock<Encoding> = LazyLock::new(|| lenient(&BASE64URL_NOPAD, None, ""));

fn lenient(strict: &Encoding, padding: Option<char>, ignored: &str) -> Encoding {
    let mut specification: Specification = strict.specification();
    specification.padding = padding;
    specification.check_trailing_bits = false;
    specification.ignore.push_str(ignored);
    specification.encoding().expect("a standard alphabet with other padding")
}

/// Incremental encoder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    carry: [u8; 2],
    carried: usize,
}

impl Encoder {
    /// Appends the symbols of all groups that `bytes` completes.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        if self.carried > 0 {
            let (missing, rest) = bytes.split_at(bytes.len().min(3 - self.carried));
            let group = [&self.carry[..self.carried], missing].concat();
            bytes = rest;
            if group.len() < 3 {
                self.carry[..group.len()].copy_from_slice(&group);
                self.carried = group.len();
                return;
            }
            encode(&group, out);
        }
        let (groups, rest) = bytes.split_at(bytes.len() - bytes.len() % 3);
        encode(groups, out);
        self.carry[..rest.len()].copy_from_slice(rest);
        self.carried = rest.len();
    }

    /// Appends the remaining symbols, padded.
    pub fn finish(self, out: &mut Vec<u8>) {
        encode(&self.carry[..self.carried], out);
    }
}

/// Appends the encoding of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let old = out.len();
    out.resize(old + BASE64.encode_len(bytes.len()), 0);
    BASE64.encode_mut(bytes, &mut out[old..]);
}

/// Decodes `text`; `None` if it is not base64. As in Erlang, white space is ignored and padding is required.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    // Several concatenated texts are invalid, even if each ends with its padding.
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    let is_one = text[end..].iter().all(|symbol| matches!(symbol, b'=' | b' ' | b'\t' | b'\r' | b'\n'));
    is_one.then(|| LENIENT.decode(text).ok())?
}

/// Decodes `text`; `None` if it is not base64. Padding is optional, because some clients omit it in credentials.
#[must_use]
pub fn decode_unpadded(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    let padding = text.len() - bare.len();
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    UNPADDED.decode(bare.as_bytes()).ok()
}

/// Decodes `text` in the URL-safe alphabet without padding; `None` if it is invalid.
#[must_use]
pub fn decode_url(text: &str) -> Option<Vec<u8>> {
    ADDRESS.decode(text.as_bytes()).ok()
}

/// Encodes `bytes` in the URL-safe alphabet without padding.
#[must_use]
pub fn encode_url(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors() {
        let vectors: &[(&[u8], &str)] = &[
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xfb, 0xff, 0xbf, 0x00], "+/+/AA=="),
        ];
        for (bytes, text) in vectors {
            let mut out = Vec::new();
            encode(bytes, &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(*bytes), "{text}");
        }
        assert_eq!(decode(b"AAEC\nAwQF \r\n"), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(decode(b"Zg=\n="), Some(vec![b'f']));
        for bad in ["!!!", "Z", "Zg", "Zg=", "Zm8", "Zg===", "=", "====", "Zm9v=", "Zg==Zg==", "Zm8=x", "Zm9v-_", "é"]
        {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn pieces_give_the_text_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut whole = Vec::new();
        encode(&bytes, &mut whole);
        assert_eq!(decode(&whole).as_ref(), Some(&bytes));
        for size in 1..20 {
            let (mut encoder, mut out) = (Encoder::default(), Vec::new());
            bytes.chunks(size).for_each(|piece| encoder.push(piece, &mut out));
            encoder.finish(&mut out);
            assert_eq!(out, whole, "pieces of {size}");
        }
    }

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
    fn padding_may_be_missing_in_credentials() {
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
            assert_eq!(decode_unpadded(text).as_deref(), Some(*expect), "{text}");
        }
        for bad in ["nonsense!", "Y", "YWJjY", "YQ=", "YQ===", "Y=Q=", "YQ==\n", "é", "===="] {
            assert_eq!(decode_unpadded(bad), None, "{bad}");
        }
    }
}
