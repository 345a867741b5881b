//! Integers of any size in the external term format.

use super::SMALL_INTEGER;

const INTEGER: u8 = 98;
const SMALL_BIG: u8 = 110;
const LARGE_BIG: u8 = 111;

/// Integers of at most this many digits fit into 64 bits.
const DIGITS_OF_U64: usize = 19;

/// `text` is decimal digits with an optional minus sign. Returns true for an integer from 0 to 255.
pub(crate) fn write(term: &mut Vec<u8>, text: &[u8]) -> bool {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() > DIGITS_OF_U64 {
        write_big(term, negative, &magnitude(digits));
        return false;
    }
    let number = digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit & 15));
    // Negative zero equals zero.
    if let (Ok(byte), true) = (u8::try_from(number), !negative || number == 0) {
        term.extend_from_slice(&[SMALL_INTEGER, byte]);
        return true;
    }
    let signed = if negative { -i128::from(number) } else { i128::from(number) };
    match i32::try_from(signed) {
        Ok(number) => {
            term.push(INTEGER);
            term.extend_from_slice(&number.to_be_bytes());
        }
        Err(_) => write_big(term, negative, &number.to_le_bytes()),
    }
    false
}

/// `magnitude` is little-endian and may end in zeros.
fn write_big(term: &mut Vec<u8>, negative: bool, magnitude: &[u8]) {
    let length = magnitude.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match u8::try_from(length) {
        Ok(length) => term.extend_from_slice(&[SMALL_BIG, length]),
        Err(_) => {
            term.push(LARGE_BIG);
            super::write_count(term, length);
        }
    }
    term.push(u8::from(negative));
    term.extend_from_slice(&magnitude[..length]);
}

/// Returns the little-endian bytes of a decimal number, in quadratic time.
fn magnitude(digits: &[u8]) -> Vec<u8> {
    const CHUNK: usize = 19;
    let mut limbs: Vec<u64> = Vec::with_capacity(digits.len() / CHUNK + 1);
    let mut append = |digits: &[u8]| {
        let scale = 10u64.pow(u32::try_from(digits.len()).expect("a chunk is short"));
        let mut carry = digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit & 15));
        for limb in &mut limbs {
            let wide = u128::from(*limb) * u128::from(scale) + u128::from(carry);
            *limb = wide as u64;
            carry = (wide >> 64) as u64;
        }
        if carry != 0 {
            limbs.push(carry);
        }
    };
    let (head, rest) = digits.split_at(digits.len() % CHUNK);
    append(head);
    rest.chunks_exact(CHUNK).for_each(append);
    limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect()
}
