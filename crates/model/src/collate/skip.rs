//! Length of an encoded value without decoding it: [`encoded_len`] and [`group_prefix`]. The input must be that of
//! [`encode`](super::encode). For other bytes the length is meaningless, but within the input.

use crate::collate::{END, number, tag};

/// Returns the length in bytes of the first value in `encoded`, of either collation.
pub fn encoded_len(encoded: &[u8]) -> usize {
    // A counter suffices, because tags and ends of containers are separate bytes, so their pairing is irrelevant.
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&first) = encoded.get(at) {
        at += 1;
        let rest = &encoded[at..];
        if first == END {
            depth = depth.saturating_sub(1);
        } else if is_array(first) || first == tag::UNICODE.object || first == tag::RAW.object {
            depth += 1;
        } else if first == tag::UNICODE.string || first == tag::RAW.string {
            at += memchr::memchr(END, rest).map_or(rest.len(), |end| end + 1);
        } else {
            at += number::content_len(first, rest);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the key by which a reduced view groups rows with `group_level`: the encoding of the first `elements`
/// elements of an array, without the end mark, so that it is a prefix of every array in the group. Returns the whole
/// encoding if it is not an array or has fewer elements.
pub fn group_prefix(encoded: &[u8], elements: usize) -> &[u8] {
    if !encoded.first().is_some_and(|&first| is_array(first)) {
        return encoded;
    }
    let mut at = 1;
    for _ in 0..elements {
        match encoded.get(at) {
            None | Some(&END) => return encoded,
            Some(_) => at += encoded_len(&encoded[at..]),
        }
    }
    &encoded[..at]
}

fn is_array(first: u8) -> bool {
    first == tag::UNICODE.array || first == tag::RAW.array
}
