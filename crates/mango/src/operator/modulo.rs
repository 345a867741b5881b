//! `$mod`: an integer has a remainder, with the sign of the value. A divisor of 0 matches nothing; in CouchDB the query
//! fails at the first integer.

use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};

struct Modulo {
    divisor: i64,
    remainder: i64,
}

impl Test for Modulo {
    fn matches(&self, value: Value<'_>) -> bool {
        self.divisor != 0 && value.is_integer() && remainder(value.raw(), self.divisor) == i128::from(self.remainder)
    }
}

fn remainder(digits: &[u8], divisor: i64) -> i128 {
    let divisor = i128::from(divisor.unsigned_abs());
    let (is_negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let rest = digits.iter().fold(0, |rest, digit| (rest * 10 + i128::from(digit - b'0')) % divisor);
    if is_negative { -rest } else { rest }
}

pub(super) static MOD: Operator = Operator {
    name: "$mod",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| {
        let mut numbers = argument.elements().map(Value::as_i64);
        match (numbers.next().flatten(), numbers.next().flatten(), numbers.next()) {
            (Some(divisor), Some(remainder), None) => Ok(Box::new(Modulo { divisor, remainder })),
            _ => Err(ArgumentError::Type),
        }
    },
    bounds: |_, collation| values_of_kind(Kind::Number, collation),
};
