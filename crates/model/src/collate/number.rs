//! Numbers: exact comparison and an encoding in which equal values have equal bytes.
//!
//! A number without fraction and exponent is an integer of any size, any other the nearest double. An integer and a
//! double are compared exactly: `1` equals `1.0`.
//!
//! The encoding extends the order of IEEE doubles, whose bits, read as an integer, ascend with the value: the 11 bits
//! of the exponent, then the bits of the fraction, of which integers beyond 2^53 have as many as needed (up to 1,023).
//! Each byte contains seven bits, highest first; its lowest bit is 1 if more bits follow that are not all zero. So `1`
//! takes two bytes and its tag, a year three, `0.1` nine. The bytes of negative numbers are inverted. Integers of
//! 2^1024 and beyond have tags of their own, the count of their digits (8 bytes) and the digits.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::collate::tag;

/// 2^1024, the first integer beyond the exponents of doubles.
pub(super) const FIRST_HUGE: &[u8] =
    b"1797693134862315907729305190789024733617976978942306572734300811577326758055009631327084\
7732240753602112011387987139335765878976881441662249284743063947412437776789342486548527630221960124609411945308295\
2085005768838150682342462881473913110540827237163350510684586298239947245938479716304835356329624224137216";

const LIMBS: usize = 16;

const FRACTION_BITS: u32 = 52;
const EXPONENT_BITS: u32 = 11;
const EXPONENT_BIAS: u32 = 1023;

enum Text<'a> {
    Integer { negative: bool, digits: &'a [u8] },
    Double(f64),
}

impl Text<'_> {
    /// Returns `None` unless the conversion is exact; integers of more than 15 digits are not tried.
    fn as_exact_double(&self) -> Option<f64> {
        match *self {
            Text::Double(value) => Some(value),
            Text::Integer { negative, digits } if digits.len() <= 15 => {
                let value = small(digits)? as f64;
                Some(if negative { -value } else { value })
            }
            Text::Integer { .. } => None,
        }
    }
}

fn read(text: &[u8]) -> Text<'_> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.iter().all(u8::is_ascii_digit) {
        Text::Integer { negative, digits }
    } else {
        let text = std::str::from_utf8(text).expect("numbers are ASCII");
        Text::Double(text.parse().expect("every JSON number is a Rust float literal"))
    }
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (read(a), read(b)) {
        (Text::Double(a), Text::Double(b)) => a.partial_cmp(&b).expect("JSON has no NaN"),
        (Text::Integer { negative: false, digits: a }, Text::Integer { negative: false, digits: b }) => {
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        }
        (Text::Integer { negative: true, digits: a }, Text::Integer { negative: true, digits: b }) => {
            b.len().cmp(&a.len()).then_with(|| b.cmp(a))
        }
        (a_read, b_read) => match (a_read.as_exact_double(), b_read.as_exact_double()) {
            (Some(a), Some(b)) => a.partial_cmp(&b).expect("JSON has no NaN"),
            _ => {
                let mut keys = [Vec::new(), Vec::new()];
                encode(a, &mut keys[0]);
                encode(b, &mut keys[1]);
                keys[0].cmp(&keys[1])
            }
        },
    }
}

pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    if let Some(value) = short(text) {
        return encode_double(false, f64::from(value), out);
    }
    match read(text) {
        Text::Double(value) => encode_double(value.is_sign_negative(), value.abs(), out),
        Text::Integer { negative, digits } => match small(digits) {
            Some(value) if value >> (FRACTION_BITS + 1) == 0 => encode_double(negative, value as f64, out),
            Some(value) => encode_integer(negative, &[value], out),
            None if is_huge(digits) => encode_huge(negative, digits, out),
            None => encode_integer(negative, &limbs(digits), out),
        },
    }
}

pub(super) fn content_len(first: u8, rest: &[u8]) -> usize {
    let flag = match first {
        tag::POSITIVE => 0,
        tag::NEGATIVE => 1,
        tag::HUGE_POSITIVE | tag::HUGE_NEGATIVE => {
            let Some(&count) = rest.first_chunk::<8>() else {
                return rest.len();
            };
            let count = u64::from_be_bytes(count) ^ if first == tag::HUGE_NEGATIVE { u64::MAX } else { 0 };
            return usize::try_from(count).map_or(rest.len(), |count| count.saturating_add(8).min(rest.len()));
        }
        _ => return 0,
    };
    rest.iter().position(|byte| byte & 1 == flag).map_or(rest.len(), |last| last + 1)
}

fn short(text: &[u8]) -> Option<u32> {
    if text.len() > 9 {
        return None;
    }
    text.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u32::from(byte - b'0')))
}

fn small(digits: &[u8]) -> Option<u64> {
    (digits.len() <= 19).then(|| digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

fn is_huge(digits: &[u8]) -> bool {
    digits.len().cmp(&FIRST_HUGE.len()).then_with(|| digits.cmp(FIRST_HUGE)).is_ge()
}

/// Highest limb first, without leading zeros. The integer must be below 2^1024.
fn limbs(digits: &[u8]) -> SmallVec<[u64; LIMBS]> {
    let mut limbs = SmallVec::<[u64; LIMBS]>::new();
    for chunk in digits.chunks(19) {
        let mut carry = u128::from(small(chunk).expect("a chunk has 19 digits or fewer"));
        let scale = u128::from(10u64.pow(u32::try_from(chunk.len()).expect("a chunk has 19 digits or fewer")));
        for limb in &mut limbs {
            carry += u128::from(*limb) * scale;
            *limb = carry as u64;
            carry >>= 64;
        }
        if carry != 0 {
            limbs.push(carry as u64);
        }
    }
    limbs.reverse();
    limbs
}

fn encode_double(negative: bool, magnitude: f64, out: &mut Vec<u8>) {
    // Negative zero equals zero.
    let mut bits = Bits::start(negative && magnitude != 0.0, out);
    bits.finish(magnitude.to_bits() << 1);
}

fn encode_integer(negative: bool, limbs: &[u64], out: &mut Vec<u8>) {
    let (first, rest) = limbs.split_first().expect("an integer that is not small has limbs");
    let rest = &rest[..rest.iter().rposition(|&limb| limb != 0).map_or(0, |last| last + 1)];
    let unused = first.leading_zeros();
    let lower_limbs = u32::try_from(limbs.len() - 1).expect("an integer has 16 limbs at most");
    let exponent = u64::from(EXPONENT_BIAS + 64 * lower_limbs + 63 - unused) << FRACTION_BITS << 1;
    let fraction = first.checked_shl(unused + 1).unwrap_or(0);

    let mut bits = Bits::start(negative, out);
    match rest.split_last() {
        None if fraction == 0 => bits.finish(exponent),
        None => {
            bits.append(exponent, EXPONENT_BITS);
            bits.finish(fraction);
        }
        Some((&last, between)) => {
            bits.append(exponent, EXPONENT_BITS);
            bits.append(fraction, 63 - unused);
            for &limb in between {
                bits.append(limb, 64);
            }
            bits.finish(last);
        }
    }
}

fn encode_huge(negative: bool, digits: &[u8], out: &mut Vec<u8>) {
    let (tag, mask) = if negative { (tag::HUGE_NEGATIVE, 0xff) } else { (tag::HUGE_POSITIVE, 0) };
    let count = (digits.len() as u64).to_be_bytes();
    out.push(tag);
    out.extend(count.iter().chain(digits).map(|byte| byte ^ mask));
}

/// Writes seven bits per byte; the lowest bit of each byte is 1 if more non-zero bits follow.
struct Bits<'a> {
    out: &'a mut Vec<u8>,
    mask: u8,
    partial: u8,
    partial_len: u32,
}

impl<'a> Bits<'a> {
    fn start(negative: bool, out: &'a mut Vec<u8>) -> Bits<'a> {
        let (tag, mask) = if negative { (tag::NEGATIVE, 0xff) } else { (tag::POSITIVE, 0) };
        out.reserve(11);
        out.push(tag);
        Bits { out, mask, partial: 0, partial_len: 0 }
    }

    /// Appends the highest `len` bits. A bit that is 1 must follow later.
    fn append(&mut self, mut bits: u64, mut len: u32) {
        while len > 0 {
            let taken = len.min(7 - self.partial_len);
            self.partial = self.partial << taken | (bits >> (64 - taken)) as u8;
            self.partial_len += taken;
            bits <<= taken;
            len -= taken;
            if self.partial_len == 7 {
                self.out.push((self.partial << 1 | 1) ^ self.mask);
                self.partial = 0;
                self.partial_len = 0;
            }
        }
    }

    /// Appends `bits` up to the last 1, and ends the number.
    fn finish(&mut self, mut bits: u64) {
        let mut bytes = [0; 10];
        for (written, byte) in (1..).zip(&mut bytes) {
            let taken = 7 - self.partial_len;
            let seven = self.partial << taken | (bits >> (64 - taken)) as u8;
            bits <<= taken;
            *byte = (seven << 1 | u8::from(bits != 0)) ^ self.mask;
            if bits == 0 {
                // Copying all bytes is two instructions; copying some of them is a function call.
                let before = self.out.len();
                self.out.extend_from_slice(&bytes);
                return self.out.truncate(before + written);
            }
            self.partial = 0;
            self.partial_len = 0;
        }
        unreachable!("64 bits and less than seven before them fit in ten bytes");
    }
}
