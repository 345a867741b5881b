//! Conversions and comparisons by the rules of ECMAScript. Conversions that depend on scripts (own `toString` members,
//! dates as text) and rare ones end the run and are left to the engine.

use std::cmp::Ordering;

use bumpalo::Bump;

use super::value::{Array, Lazy, Object, Val};
use crate::code_units;
use crate::reason::{Reason, Steps, Stop};
use crate::text;

const JOIN_DEPTH: usize = 16;

/// Longer texts of numbers are left to the engine.
const NUMBER_BYTES: usize = 20;

#[inline]
pub(super) fn truthy(value: Val<'_>) -> bool {
    match value {
        Val::Unset | Val::Undefined | Val::Null => false,
        Val::Bool(value) => value,
        Val::Number(number) => number != 0.0 && !number.is_nan(),
        Val::Text(text) => !text.is_empty(),
        Val::Lazy(_) | Val::Array(_) | Val::Object(_) | Val::Date(_) | Val::Pattern(_) | Val::Function(_) => true,
    }
}

pub(super) fn type_of(value: Val<'_>) -> Result<&'static [u8], Stop> {
    Ok(match value {
        Val::Undefined => b"undefined",
        Val::Bool(_) => b"boolean",
        Val::Number(_) => b"number",
        Val::Text(_) => b"string",
        Val::Null | Val::Lazy(_) | Val::Array(_) | Val::Object(_) | Val::Date(_) | Val::Pattern(_) => b"object",
        Val::Unset | Val::Function(_) => return Err(Stop::BailOut(Reason::Conversion)),
    })
}

pub(super) struct Converter<'a, 's> {
    pub(super) arena: &'a Bump,
    pub(super) steps: &'s mut Steps,
}

impl<'a> Converter<'a, '_> {
    pub(super) fn number(&mut self, value: Val<'a>) -> Result<f64, Stop> {
        match value {
            Val::Undefined => Ok(f64::NAN),
            Val::Null => Ok(0.0),
            Val::Bool(value) => Ok(f64::from(u8::from(value))),
            Val::Number(number) => Ok(number),
            Val::Text(text) => text_to_number(text),
            Val::Date(time) => Ok(time.get()),
            Val::Array(_) | Val::Lazy(_) | Val::Object(_) => text_to_number(self.text(value)?),
            Val::Unset | Val::Pattern(_) | Val::Function(_) => Err(Stop::BailOut(Reason::Conversion)),
        }
    }

    pub(super) fn text(&mut self, value: Val<'a>) -> Result<&'a [u8], Stop> {
        match value {
            Val::Text(text) => Ok(text),
            Val::Undefined => Ok(b"undefined"),
            Val::Null => Ok(b"null"),
            Val::Bool(true) => Ok(b"true"),
            Val::Bool(false) => Ok(b"false"),
            Val::Number(number) => self.number_text(number),
            Val::Array(array) => {
                let mut out = Vec::new();
                self.join(array, b",", &mut out, 0)?;
                self.keep(&out)
            }
            Val::Lazy(lazy) => self.lazy_text(lazy),
            Val::Object(object) => self.object_text(object),
            Val::Unset | Val::Date(_) | Val::Pattern(_) | Val::Function(_) => Err(Stop::BailOut(Reason::Conversion)),
        }
    }

    /// Objects are `[object Object]`, unless they have members that affect the conversion.
    fn lazy_text(&mut self, lazy: &'a Lazy<'a>) -> Result<&'a [u8], Stop> {
        for name in [&b"toString"[..], b"valueOf"] {
            if lazy.get(self.arena, name, self.steps)?.is_some() {
                return Err(Stop::BailOut(Reason::Conversion));
            }
        }
        Ok(b"[object Object]")
    }

    fn object_text(&mut self, object: &'a Object<'a>) -> Result<&'a [u8], Stop> {
        for name in [&b"toString"[..], b"valueOf"] {
            if object.get(name, self.steps)?.is_some() {
                return Err(Stop::BailOut(Reason::Conversion));
            }
        }
        Ok(b"[object Object]")
    }

    pub(super) fn keep(&mut self, text: &[u8]) -> Result<&'a [u8], Stop> {
        self.steps.charge_bytes(text.len())?;
        Ok(self.arena.alloc_slice_copy(text))
    }

    pub(super) fn number_text(&mut self, number: f64) -> Result<&'a [u8], Stop> {
        if number.is_nan() {
            return Ok(b"NaN");
        }
        if number.is_infinite() {
            return Ok(if number > 0.0 { b"Infinity" } else { b"-Infinity" });
        }
        let mut out = Vec::with_capacity(24);
        text::write_number(&mut out, number);
        self.keep(&out)
    }

    pub(super) fn join(
        &mut self,
        array: &'a Array<'a>,
        separator: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > JOIN_DEPTH {
            return Err(Stop::BailOut(Reason::Conversion));
        }
        for index in 0..array.len(self.arena) {
            if index > 0 {
                out.extend_from_slice(separator);
            }
            self.steps.charge(1)?;
            self.steps.charge_bytes(separator.len())?;
            match array.get(self.arena, index) {
                None | Some(Val::Undefined | Val::Null) => {}
                Some(Val::Array(inner)) => self.join(inner, b",", out, depth + 1)?,
                Some(value) => {
                    let text = self.text(value)?;
                    self.steps.charge_bytes(text.len())?;
                    out.extend_from_slice(text);
                }
            }
        }
        Ok(())
    }

    pub(super) fn primitive(&mut self, value: Val<'a>) -> Result<Val<'a>, Stop> {
        match value {
            Val::Array(_) | Val::Lazy(_) | Val::Object(_) => Ok(Val::Text(self.text(value)?)),
            Val::Unset | Val::Date(_) | Val::Pattern(_) | Val::Function(_) => Err(Stop::BailOut(Reason::Conversion)),
            plain => Ok(plain),
        }
    }

    pub(super) fn loose_equal(&mut self, left: Val<'a>, right: Val<'a>) -> Result<bool, Stop> {
        match (left, right) {
            (Val::Undefined | Val::Null, Val::Undefined | Val::Null) => Ok(true),
            (Val::Undefined | Val::Null, _) | (_, Val::Undefined | Val::Null) => Ok(false),
            (Val::Number(_), Val::Number(_)) | (Val::Text(_), Val::Text(_)) | (Val::Bool(_), Val::Bool(_)) => {
                Ok(strict_equal(left, right))
            }
            (Val::Bool(value), _) => self.loose_equal(Val::Number(f64::from(u8::from(value))), right),
            (_, Val::Bool(value)) => self.loose_equal(left, Val::Number(f64::from(u8::from(value)))),
            (Val::Number(number), Val::Text(text)) | (Val::Text(text), Val::Number(number)) =>
            {
                #[expect(clippy::float_cmp, reason = "as the language compares")]
                Ok(text_to_number(text)? == number)
            }
            (Val::Number(_) | Val::Text(_), _) => {
                let right = self.primitive(right)?;
                self.loose_equal(left, right)
            }
            (_, Val::Number(_) | Val::Text(_)) => {
                let left = self.primitive(left)?;
                self.loose_equal(left, right)
            }
            _ => Ok(strict_equal(left, right)),
        }
    }

    pub(super) fn compare(&mut self, left: Val<'a>, right: Val<'a>) -> Result<Option<Ordering>, Stop> {
        if let (Val::Number(left), Val::Number(right)) = (left, right) {
            return Ok(left.partial_cmp(&right));
        }
        let primitive = |maker: &mut Self, value: Val<'a>| match value {
            Val::Date(time) => Ok(Val::Number(time.get())),
            value => maker.primitive(value),
        };
        let (left, right) = (primitive(self, left)?, primitive(self, right)?);
        if let (Val::Text(left), Val::Text(right)) = (left, right) {
            return compare_text(left, right).map(Some);
        }
        Ok(self.number(left)?.partial_cmp(&self.number(right)?))
    }

    pub(super) fn add(&mut self, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>, Stop> {
        if let (Val::Number(left), Val::Number(right)) = (left, right) {
            return Ok(Val::Number(left + right));
        }
        let (left, right) = (self.primitive(left)?, self.primitive(right)?);
        if matches!(left, Val::Text(_)) || matches!(right, Val::Text(_)) {
            let (left, right) = (self.text(left)?, self.text(right)?);
            return Ok(Val::Text(self.concat(left, right)?));
        }
        Ok(Val::Number(self.number(left)? + self.number(right)?))
    }

    pub(super) fn concat(&mut self, left: &'a [u8], right: &'a [u8]) -> Result<&'a [u8], Stop> {
        if left.is_empty() {
            return Ok(right);
        }
        if right.is_empty() {
            return Ok(left);
        }
        self.steps.charge_bytes(left.len() + right.len())?;
        let both = self.arena.alloc_slice_fill_copy(left.len() + right.len(), 0u8);
        both[..left.len()].copy_from_slice(left);
        both[left.len()..].copy_from_slice(right);
        Ok(both)
    }

    pub(super) fn integer(&mut self, value: Val<'a>) -> Result<f64, Stop> {
        let number = self.number(value)?;
        Ok(match exact_i32(number) {
            Some(_) => number,
            None if number.is_nan() => 0.0,
            None => number.trunc(),
        })
    }
}

pub(super) fn strict_equal<'a>(left: Val<'a>, right: Val<'a>) -> bool {
    match (left, right) {
        (Val::Undefined, Val::Undefined) | (Val::Null, Val::Null) => true,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        #[expect(clippy::float_cmp, reason = "as the language compares")]
        (Val::Number(left), Val::Number(right)) => left == right,
        (Val::Text(left), Val::Text(right)) => left == right,
        (Val::Lazy(left), Val::Lazy(right)) => std::ptr::eq(left, right),
        (Val::Array(left), Val::Array(right)) => std::ptr::eq(left, right),
        (Val::Object(left), Val::Object(right)) => std::ptr::eq(left, right),
        (Val::Date(left), Val::Date(right)) => std::ptr::eq(left, right),
        _ => false,
    }
}

/// Strings are compared by UTF-16 code units.
pub(super) fn compare_text(left: &[u8], right: &[u8]) -> Result<Ordering, Stop> {
    let order = left.cmp(right);
    // Only characters beyond the basic plane sort differently, compared with those from U+E000 on.
    let high = |text: &[u8]| text.iter().any(|byte| *byte >= 0xee);
    if order != Ordering::Equal && (high(left) || high(right)) {
        return Ok(code_units::as_str(left)?.encode_utf16().cmp(code_units::as_str(right)?.encode_utf16()));
    }
    Ok(order)
}

pub(super) fn text_to_number(text: &[u8]) -> Result<f64, Stop> {
    let text = code_units::trim(text)?;
    if text.is_empty() {
        return Ok(0.0);
    }
    let (negative, rest) = match text[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == b"Infinity" {
        return Ok(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if rest.len() > 1 && rest[0] == b'0' && rest[1].is_ascii_alphabetic() && !rest[1].eq_ignore_ascii_case(&b'e') {
        return Err(Stop::BailOut(Reason::Conversion));
    }
    if decimal_length(rest) != rest.len() || rest.is_empty() {
        return Ok(f64::NAN);
    }
    parse_decimal(text)
}

/// `text` must be a valid decimal literal.
pub(super) fn parse_decimal(text: &[u8]) -> Result<f64, Stop> {
    if text.len() > NUMBER_BYTES {
        return Err(Stop::BailOut(Reason::Conversion));
    }
    code_units::as_str(text)?.parse().map_err(|_| Stop::BailOut(Reason::Conversion))
}

/// Returns the length of the unsigned decimal literal at the start, or 0.
pub(super) fn decimal_length(text: &[u8]) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    let mut fraction = 0;
    if text.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return 0;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        if end + 1 + sign <= text.len() {
            let exponent = digits(end + 1 + sign);
            if exponent > 0 {
                end += 1 + sign + exponent;
            }
        }
    }
    end
}

pub(super) fn to_int32(number: f64) -> i32 {
    to_uint32(number).cast_signed()
}

/// Returns a 32-bit integer unchanged: a fast path, because truncation and division are library calls.
#[inline]
fn exact_i32(number: f64) -> Option<i32> {
    #[expect(clippy::cast_possible_truncation, reason = "what does not fit does not come back either")]
    let whole = number as i32;
    #[expect(clippy::float_cmp, reason = "the comparison is about exactly that")]
    let is_same = f64::from(whole) == number;
    is_same.then_some(whole)
}

pub(super) fn to_uint32(number: f64) -> u32 {
    if let Some(whole) = exact_i32(number) {
        return whole.cast_unsigned();
    }
    if !number.is_finite() {
        return 0;
    }
    let whole = number.trunc() % 4_294_967_296.0;
    let whole = if whole < 0.0 { whole + 4_294_967_296.0 } else { whole };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 32 bits")]
    let whole = whole as u32;
    whole
}
