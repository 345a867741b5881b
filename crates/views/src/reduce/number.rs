//! [`Number`]: Erlang's arithmetic: integers are exact, an integer and a float yield a float. Differences: integers
//! beyond 128 bits become floats, and floats beyond the range of a double saturate (Erlang raises an error).

use std::cmp::Ordering;
use std::io::Write;

#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    pub(super) const ZERO: Self = Self::Int(0);

    #[inline]
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (negative, digits) = match text {
            [b'-', digits @ ..] => (true, digits),
            _ => (false, text),
        };
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        // 18 digits always fit into 64 bits.
        if digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
            let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
            return Some(Self::Int(i128::from(if negative { -number } else { number })));
        }
        let text = std::str::from_utf8(text).ok()?;
        match text.parse() {
            Ok(number) => Some(Self::Int(number)),
            Err(_) => text.parse().ok().map(Self::float),
        }
    }

    fn float(number: f64) -> Self {
        Self::Float(number.clamp(f64::MIN, f64::MAX))
    }

    #[expect(clippy::cast_precision_loss, reason = "this is where an integer becomes a float")]
    fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    #[inline]
    pub(super) fn add(self, other: Self) -> Self {
        if let (Self::Int(a), Self::Int(b)) = (self, other)
            && let Some(sum) = a.checked_add(b)
        {
            return Self::Int(sum);
        }
        Self::float(self.as_f64() + other.as_f64())
    }

    #[inline]
    pub(super) fn square(self) -> Self {
        if let Self::Int(number) = self
            && let Some(square) = number.checked_mul(number)
        {
            return Self::Int(square);
        }
        Self::float(self.as_f64() * self.as_f64())
    }

    pub(super) fn min(self, other: Self) -> Self {
        if other.compare(self) == Ordering::Less { other } else { self }
    }

    pub(super) fn max(self, other: Self) -> Self {
        if other.compare(self) == Ordering::Greater { other } else { self }
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (a, b) => a.as_f64().total_cmp(&b.as_f64()),
        }
    }

    /// Appends the number in CouchDB's format: the shortest digits of the double, with a point even if it is integral,
    /// with an exponent from 1e21 on and below 1e-6.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Int(number) => write!(out, "{number}").expect("a Vec takes everything"),
            Self::Float(0.0) => out.extend_from_slice(b"0.0"),
            // `Display` never writes an exponent.
            Self::Float(number) if (1e-6..1e21).contains(&number.abs()) => {
                let point = if number.fract() == 0.0 { ".0" } else { "" };
                write!(out, "{number}{point}").expect("a Vec takes everything");
            }
            Self::Float(number) => {
                let text = format!("{number:e}");
                let (digits, exponent) = text.split_once('e').expect("this format has an exponent");
                let sign = if exponent.starts_with('-') { "" } else { "+" };
                write!(out, "{digits}e{sign}{exponent}").expect("a Vec takes everything");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: Number) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn numbers_are_printed_as_couchdb_does() {
        let check = |input: &str, expected: &str| {
            let number = Number::parse(input.as_bytes());
            assert_eq!(number.map(text).as_deref(), Some(expected), "{input}");
        };
        check("0", "0");
        check("-0", "0");
        check("-17", "-17");
        check("123456789012345678901234567890", "123456789012345678901234567890");
        check("1.0", "1.0");
        check("-0.0", "0.0");
        check("1e2", "100.0");
        check("0.1", "0.1");
        check("1e20", "100000000000000000000.0");
        check("123456789012345680000.0", "123456789012345680000.0");
        check("1e21", "1e+21");
        check("2.5e300", "2.5e+300");
        check("0.000001", "0.000001");
        check("0.00000125", "0.00000125");
        check("1e-7", "1e-7");
        check("-1.5e-9", "-1.5e-9");
        for input in ["null", "\"1\"", "[1]", "true", "-", ""] {
            assert!(Number::parse(input.as_bytes()).is_none(), "{input}");
        }
    }

    #[test]
    fn integers_stay_integers_as_long_as_they_fit() {
        let parse = |input: &str| Number::parse(input.as_bytes()).unwrap_or(Number::ZERO);
        let check = |number: Number, expected: &str| assert_eq!(text(number), expected);
        check(parse("9007199254740993").add(parse("1")), "9007199254740994");
        check(parse("9223372036854775807").add(parse("9223372036854775807")), "18446744073709551614");
        check(parse("9223372036854775807").square(), "85070591730234615847396907784232501249");
        check(parse("1").add(parse("0.5")), "1.5");
        check(parse("0.5").add(parse("0.5")), "1.0");
        check(Number::Int(i128::MAX).add(parse("1")), "1.7014118346046923e+38");
        check(parse("1e200").square(), "1.7976931348623157e+308");
        check(parse("-3").square(), "9");
        check(parse("2").min(parse("1.5")), "1.5");
        check(parse("2").max(parse("1.5")), "2");
    }
}
