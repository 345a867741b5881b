//! Fast path for pure ASCII strings, with results identical to those of the library: [`append_key`], [`compare`].
//!
//! In CLDR's root order every ASCII character either is ignored or has one collation element with the common secondary
//! weight, and no two combine. The algorithm of the library then reduces to this:
//!
//! 1. *Primary level.* The primary weight of each character, one to four bytes. For some lead bytes (compressible ones,
//!    among them that of the Latin letters) the lead byte is written only when it changes; leaving such a run is marked
//!    with 3 if the next lead byte is lower and with FF if it is higher.
//! 2. A separator, 1, then the *secondary level*: a count of common weights, in chunks.
//! 3. A separator, then the *tertiary level*: for each run of common weights a count, in chunks, that counts up from the
//!    low end if something lower follows (here: only the end of the string) and down from the high end otherwise; for
//!    each other character (capital letters) its weight.
//!
//! If the library frames samples differently, this fast path is disabled.

use std::cmp::Ordering;
use std::sync::LazyLock;

use crate::collate::string::append_library_key;

const SEPARATOR: u8 = 1;
const LEAVE_DOWNWARDS: u8 = 3;
const LEAVE_UPWARDS: u8 = 0xff;

/// Encoding of counts of common weights: `middle` for each whole chunk, then `low + n` or `high - n` for the rest.
struct Counts {
    low: u8,
    middle: u8,
    high: u8,
    chunk: usize,
}

const SECONDARY: Counts = Counts { low: 0x05, middle: 0x25, high: 0x45, chunk: 0x21 };
const TERTIARY: Counts = Counts { low: 0x05, middle: 0x65, high: 0xc5, chunk: 0x61 };

enum Next {
    Lower,
    Higher,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Weighted,
    Ignored,
    Unknown,
}

#[derive(Clone, Copy)]
struct Weights {
    /// The first byte of the primary weight is the lowest byte; unused bytes are zero.
    primary: u32,
    tail_len: u8,
    /// Lead byte that the next character may omit: the first byte of the primary weight if it is compressible, else 0.
    remembered: u8,
    tertiary: u8,
    class: Class,
}

impl Weights {
    const UNKNOWN: Weights = Weights { primary: 0, tail_len: 0, remembered: 0, tertiary: 0, class: Class::Unknown };
}

struct Table([Weights; 256]);

static TABLE: LazyLock<Option<Table>> = LazyLock::new(Table::learn);

/// Appends the sort key of `text`. Returns false and appends nothing if `text` is not plain ASCII.
pub(super) fn append_key(text: &[u8], out: &mut Vec<u8>) -> bool {
    TABLE.as_ref().is_some_and(|table| table.append_key::<false>(text, out))
}

/// As [`append_key`], for the inside of a string literal. Returns false if it contains escapes.
pub(super) fn append_key_of_literal(inside: &[u8], out: &mut Vec<u8>) -> bool {
    TABLE.as_ref().is_some_and(|table| table.append_key::<true>(inside, out))
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Option<Ordering> {
    // Both texts must be ASCII as a whole, because a later character may combine with a letter.
    if a.is_ascii() && b.is_ascii() { Some(TABLE.as_ref()?.compare(a, b)) } else { None }
}

impl Table {
    fn append_key<const LITERAL: bool>(&self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // Per character at most a mark, four primary, one secondary and two tertiary bytes; and two separators.
        out.resize(start + 8 * text.len() + 8, 0);
        let buffer = &mut out[start..];
        let mut at = 0;
        let mut previous = 0;
        let mut weighted = 0;
        let mut tertiaries = 0;
        for &byte in text {
            let weights = &self.0[usize::from(byte)];
            if weights.class != Class::Weighted || LITERAL && byte == b'\\' {
                if weights.class == Class::Ignored {
                    continue;
                }
                out.truncate(start);
                return false;
            }
            let lead = weights.primary as u8;
            let (mut bytes, mut len) = (weights.primary, usize::from(weights.tail_len));
            if lead == previous {
                bytes >>= u8::BITS;
            } else {
                if previous != 0 {
                    buffer[at] = if lead < previous { LEAVE_DOWNWARDS } else { LEAVE_UPWARDS };
                    at += 1;
                }
                previous = weights.remembered;
                len += 1;
            }
            buffer[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
            at += len;
            weighted += 1;
            tertiaries |= weights.tertiary;
        }
        buffer[at] = SEPARATOR;
        at += 1;
        SECONDARY.write(weighted, &Next::Lower, buffer, &mut at);
        buffer[at] = SEPARATOR;
        at += 1;
        let mut run = weighted;
        if tertiaries != 0 {
            run = 0;
            for &byte in text {
                let weights = &self.0[usize::from(byte)];
                if weights.tertiary != 0 {
                    TERTIARY.write(run, &Next::Higher, buffer, &mut at);
                    run = 0;
                    buffer[at] = weights.tertiary;
                    at += 1;
                } else if weights.class == Class::Weighted {
                    run += 1;
                }
            }
        }
        TERTIARY.write(run, &Next::Lower, buffer, &mut at);
        out.truncate(start + at);
        true
    }

    /// Compares by character, because each has one element and the secondary weights are equal.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let common = a.iter().zip(b).take_while(|(left, right)| left == right).count();
        let (mut lefts, mut rights) = (self.weighted(&a[common..]), self.weighted(&b[common..]));
        let mut by_tertiary = Ordering::Equal;
        loop {
            match (lefts.next(), rights.next()) {
                (Some(left), Some(right)) => {
                    let by_primary = left.primary.swap_bytes().cmp(&right.primary.swap_bytes());
                    if by_primary.is_ne() {
                        return by_primary;
                    }
                    by_tertiary = by_tertiary.then(left.tertiary.cmp(&right.tertiary));
                }
                (None, None) => return by_tertiary,
                (left, _) => {
                    return if left.is_some() { Ordering::Greater } else { Ordering::Less };
                }
            }
        }
    }

    fn weighted<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = &'t Weights> {
        text.iter().map(|&byte| &self.0[usize::from(byte)]).filter(|weights| weights.class == Class::Weighted)
    }

    fn learn() -> Option<Table> {
        let mut table = Table([Weights::UNKNOWN; 256]);
        for byte in 0..=0x7f {
            table.0[usize::from(byte)] = learn_character(byte)?;
        }
        table.agrees_with_library().then_some(table)
    }

    fn agrees_with_library(&self) -> bool {
        let ascending: String = ('\0'..='\x7f').collect();
        let descending: String = ascending.chars().rev().collect();
        let mut probes = vec![String::new(), ascending, descending, "a-1 B.c".to_owned()];
        for len in [SECONDARY.chunk, SECONDARY.chunk + 1, TERTIARY.chunk, TERTIARY.chunk + 1, 3 * TERTIARY.chunk] {
            let lower = "x".repeat(len);
            let upper = lower.to_uppercase();
            probes.extend([format!("{lower}A"), format!("{upper}{lower}{upper}"), lower, upper]);
        }
        let (mut expected, mut key) = (Vec::new(), Vec::new());
        probes.iter().all(|probe| {
            expected.clear();
            key.clear();
            append_library_key(probe, &mut expected);
            self.append_key::<false>(probe.as_bytes(), &mut key) && key == expected
        })
    }
}

/// The sort key of a string of one character consists of its weights.
fn learn_character(byte: u8) -> Option<Weights> {
    let (mut key, mut key_of_two) = (Vec::new(), Vec::new());
    append_library_key(&String::from(char::from(byte)), &mut key);
    append_library_key(&String::from_iter([char::from(byte); 2]), &mut key_of_two);
    let mut levels = key.split(|&byte| byte == SEPARATOR);
    let (primary, secondary, tertiary) = (levels.next()?, levels.next()?, levels.next()?);
    if primary.is_empty() && secondary.is_empty() && tertiary.is_empty() {
        return Some(Weights { class: Class::Ignored, ..Weights::UNKNOWN });
    }
    let (&lead, tail_bytes) = primary.split_first()?;
    if levels.next().is_some() || tail_bytes.len() > 3 || secondary != [SECONDARY.low] {
        return None;
    }
    let tertiary = match tertiary {
        [byte] if *byte == TERTIARY.low => 0,
        [byte] if *byte > TERTIARY.high => *byte,
        _ => return None,
    };
    let mut bytes = [0; 4];
    bytes.get_mut(..primary.len())?.copy_from_slice(primary);

    // A compressible lead byte is not repeated.
    let primaries = key_of_two.iter().position(|&byte| byte == SEPARATOR)?;
    let remembered = if primaries == 1 + 2 * tail_bytes.len() { lead } else { 0 };
    let tail_len = u8::try_from(tail_bytes.len()).ok()?;
    Some(Weights { primary: u32::from_le_bytes(bytes), tail_len, remembered, tertiary, class: Class::Weighted })
}

impl Counts {
    fn write(&self, run: usize, next: &Next, buffer: &mut [u8], at: &mut usize) {
        let Some(mut rest) = run.checked_sub(1) else { return };
        while rest >= self.chunk {
            buffer[*at] = self.middle;
            *at += 1;
            rest -= self.chunk;
        }
        let rest = u8::try_from(rest).expect("a chunk is less than 128");
        buffer[*at] = match next {
            Next::Lower => self.low + rest,
            Next::Higher => self.high - rest,
        };
        *at += 1;
    }
}
