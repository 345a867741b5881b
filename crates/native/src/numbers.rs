//! Arithmetic by the rules of ECMAScript.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use super::convert::{to_int32, to_uint32};
use super::tree::{Binary, Math};
use crate::reason::{Reason, Stop};

/// The four basic operations; `None` for other operators.
#[inline]
pub(super) fn basic(operator: Binary, left: f64, right: f64) -> Option<f64> {
    match operator {
        Binary::Add => Some(left + right),
        Binary::Subtract => Some(left - right),
        Binary::Multiply => Some(left * right),
        Binary::Divide => Some(left / right),
        _ => None,
    }
}

pub(super) fn arithmetic(operator: Binary, left: f64, right: f64) -> f64 {
    if let Some(number) = basic(operator, left, right) {
        return number;
    }
    match operator {
        Binary::Remainder => left % right,
        Binary::Power => power(left, right),
        Binary::ShiftLeft => f64::from(to_int32(left) << (to_uint32(right) & 31)),
        Binary::ShiftRight => f64::from(to_int32(left) >> (to_uint32(right) & 31)),
        Binary::ShiftRightUnsigned => f64::from(to_uint32(left) >> (to_uint32(right) & 31)),
        Binary::BitAnd => f64::from(to_int32(left) & to_int32(right)),
        Binary::BitOr => f64::from(to_int32(left) | to_int32(right)),
        Binary::BitXor => f64::from(to_int32(left) ^ to_int32(right)),
        _ => f64::NAN,
    }
}

fn power(base: f64, exponent: f64) -> f64 {
    if exponent.is_nan() || (base.abs() == 1.0 && exponent.is_infinite()) { f64::NAN } else { base.powf(exponent) }
}

pub(super) fn math(function: Math, numbers: &[f64]) -> Result<f64, Stop> {
    let first = numbers.first().copied().unwrap_or(f64::NAN);
    let second = numbers.get(1).copied().unwrap_or(f64::NAN);
    Ok(match function {
        Math::Abs => first.abs(),
        Math::Ceil => first.ceil(),
        Math::Floor => first.floor(),
        Math::Trunc => first.trunc(),
        Math::Sqrt => first.sqrt(),
        Math::Sin => first.sin(),
        Math::Cos => first.cos(),
        Math::Atan2 => first.atan2(second),
        Math::Log => first.ln(),
        Math::Random => random(),
        Math::Pow => power(first, second),
        Math::Round => round(first),
        Math::Sign => {
            if first == 0.0 || first.is_nan() {
                first
            } else {
                first.signum()
            }
        }
        Math::Max => numbers.iter().copied().fold(f64::NEG_INFINITY, |most, number| {
            if most.is_nan() || number.is_nan() {
                f64::NAN
            } else if number > most || (number == 0.0 && most == 0.0 && most.is_sign_negative()) {
                number
            } else {
                most
            }
        }),
        Math::Min => numbers.iter().copied().fold(f64::INFINITY, |least, number| {
            if least.is_nan() || number.is_nan() {
                f64::NAN
            } else if number < least || (number == 0.0 && least == 0.0 && number.is_sign_negative()) {
                number
            } else {
                least
            }
        }),
    })
}

pub(super) fn random() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
    }
    let mut state = STATE.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    STATE.set(state);
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    let bits = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64;
    bits / 9_007_199_254_740_992.0
}

/// Halves are rounded up.
fn round(number: f64) -> f64 {
    if !number.is_finite() || number.abs() >= 4_503_599_627_370_496.0 {
        return number;
    }
    let whole = number.floor();
    let rounded = if number - whole >= 0.5 { whole + 1.0 } else { whole };
    rounded.copysign(number)
}

/// `toFixed`: halves are rounded away from zero.
pub(super) fn to_fixed(number: f64, digits: usize) -> Result<String, Stop> {
    if !number.is_finite() || number.abs() >= 1e21 || digits > 20 {
        return Err(Stop::BailOut(Reason::Number));
    }
    let exact = format!("{:.*}", 2 * digits + 25, number.abs());
    let point = exact.find('.').ok_or(Stop::BailOut(Reason::Number))?;
    let rest = &exact.as_bytes()[point + 1 + digits..];
    let half = rest[0] == b'5' && rest[1..].iter().all(|digit| *digit == b'0');
    let sign = if number < 0.0 { "-" } else { "" };
    let rounded = if half {
        let kept: String = exact[..point + 1 + digits].chars().filter(char::is_ascii_digit).collect();
        let up = kept.parse::<u128>().map_err(|_| Stop::BailOut(Reason::Number))? + 1;
        let up = format!("{up:0width$}", width = digits + 1);
        let (whole, fraction) = up.split_at(up.len() - digits);
        if digits == 0 { whole.to_owned() } else { format!("{whole}.{fraction}") }
    } else {
        format!("{:.*}", digits, number.abs())
    };
    Ok(format!("{sign}{rounded}"))
}

/// `parseInt` of a text without surrounding white space.
pub(super) fn parse_int(text: &[u8], radix: i32) -> Result<f64, Stop> {
    if radix != 0 && radix != 10 {
        return Err(Stop::BailOut(Reason::Number));
    }
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if radix == 0 && digits.len() > 1 && digits[0] == b'0' && matches!(digits[1], b'x' | b'X') {
        return Err(Stop::BailOut(Reason::Number));
    }
    let mut length = 0;
    let mut number = 0u64;
    for digit in digits.iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10) {
        length += 1;
        if length > 15 {
            return Err(Stop::BailOut(Reason::Number));
        }
        number = number * 10 + u64::from(digit);
    }
    if length == 0 {
        return Ok(f64::NAN);
    }
    #[expect(clippy::cast_precision_loss, reason = "fifteen digits are less than 2^53")]
    let number = number as f64;
    Ok(if negative { -number } else { number })
}
