//! Base64 as documents carry attachments: standard alphabet, padded.

/// The bits of a symbol, or [`NONE`] or [`SPACE`].
const SEXTETS: [u8; 256] = sextets();
const NONE: u8 = 0xff;
const SPACE: u8 = 0xfe;

const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const fn sextets() -> [u8; 256] {
    let mut table = [NONE; 256];
    let mut value = 0;
    while value < 64 {
        table[SYMBOLS[value] as usize] = value as u8;
        value += 1;
    }
    table[b' ' as usize] = SPACE;
    table[b'\t' as usize] = SPACE;
    table[b'\r' as usize] = SPACE;
    table[b'\n' as usize] = SPACE;
    table
}

/// Encodes data that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder {
    /// Bytes that do not make a whole group yet.
    carry: [u8; 2],
    carried: usize,
}

impl Encoder {
    /// Appends the symbols of the groups that `bytes` complete.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        if self.carried > 0 {
            let mut group = [self.carry[0], self.carry[1], 0];
            while self.carried < 3
                && let Some((first, rest)) = bytes.split_first()
            {
                group[self.carried] = *first;
                self.carried += 1;
                bytes = rest;
            }
            if self.carried < 3 {
                self.carry = [group[0], group[1]];
                return;
            }
            out.extend_from_slice(&symbols(group));
        }
        out.reserve(bytes.len() / 3 * 4 + 8);
        let mut groups = bytes.chunks_exact(3);
        for group in groups.by_ref() {
            out.extend_from_slice(&symbols([group[0], group[1], group[2]]));
        }
        let rest = groups.remainder();
        self.carry[..rest.len()].copy_from_slice(rest);
        self.carried = rest.len();
    }

    /// Appends what is left, padded.
    pub fn finish(self, out: &mut Vec<u8>) {
        match self.carried {
            0 => {}
            1 => {
                let [first, second, ..] = symbols([self.carry[0], 0, 0]);
                out.extend_from_slice(&[first, second, b'=', b'=']);
            }
            _ => {
                let [first, second, third, _] = symbols([self.carry[0], self.carry[1], 0]);
                out.extend_from_slice(&[first, second, third, b'=']);
            }
        }
    }
}

/// Appends the text of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut encoder = Encoder::default();
    encoder.push(bytes, out);
    encoder.finish(out);
}

/// The bytes of `text`; `None` if it is not base64. As in Erlang white space counts for nothing and padding must be there.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0u32);
    let mut rest = text.iter();
    for &symbol in rest.by_ref() {
        match SEXTETS[usize::from(symbol)] {
            SPACE => continue,
            NONE if symbol == b'=' => return finish_padded(out, bits, held, rest.as_slice()),
            NONE => return None,
            sextet => bits = (bits << 6) | u32::from(sextet),
        }
        held += 1;
        if held == 4 {
            let [_, group @ ..] = bits.to_be_bytes();
            out.extend_from_slice(&group);
            (bits, held) = (0, 0);
        }
    }
    (held == 0).then_some(out)
}

/// The end of a text behind its first `=`.
fn finish_padded(mut out: Vec<u8>, bits: u32, held: u32, rest: &[u8]) -> Option<Vec<u8>> {
    let padding = rest.iter().filter(|symbol| **symbol == b'=').count();
    let only_padding = rest.iter().all(|&symbol| symbol == b'=' || SEXTETS[usize::from(symbol)] == SPACE);
    match (held, padding, only_padding) {
        (2, 1, true) => out.push((bits >> 4) as u8),
        (3, 0, true) => out.extend_from_slice(&[(bits >> 10) as u8, (bits >> 2) as u8]),
        _ => return None,
    }
    Some(out)
}

fn symbols(group: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
    [18, 12, 6, 0].map(|shift| SYMBOLS[(bits >> shift) as usize & 63])
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
}
