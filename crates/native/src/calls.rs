//! Calls of the functions of the environment: global functions, and methods by the type of their object.

use bumpalo::collections::Vec as ArenaVec;

use super::code_units;
use super::convert::{self, truthy};
use super::date;
use super::inherited;
use super::numbers;
use super::run::{Run, count};
use super::tree::{Builtin, Expression, Math, Method};
use super::uri::{self, Scope};
use super::value::{Array, Packed, Val};
use super::write;
use crate::reason::{Reason, Stop};

impl<'a> Run<'a, '_> {
    pub(super) fn builtin(&mut self, builtin: Builtin, arguments: &'a [Expression]) -> Result<Val<'a>, Stop> {
        match builtin {
            Builtin::Emit => {
                self.emit_call(arguments)?;
                return Ok(Val::Undefined);
            }
            Builtin::IndexTyped => {
                self.index_typed(arguments)?;
                return Ok(Val::Undefined);
            }
            Builtin::IndexNamed => {
                self.index_named(arguments)?;
                return Ok(Val::Undefined);
            }
            Builtin::Math(function) => {
                let values = self.arguments(arguments)?;
                return self.math(function, &values);
            }
            Builtin::MathApply(function) => {
                let [Val::Array(array)] = self.first_arguments(arguments)? else {
                    return Err(Stop::BailOut(Reason::Call));
                };
                let values = array.items(self.arena);
                self.steps.charge(values.len())?;
                return self.math(function, &values);
            }
            Builtin::DateNow | Builtin::DateText => {
                self.arguments(arguments)?;
                return self.now(builtin);
            }
            Builtin::NewDate | Builtin::DateUtc => return self.new_date(builtin, arguments),
            Builtin::FromCharCode => return self.char_from_codes(arguments),
            Builtin::FromCodePoint => return self.text_of_code_points(arguments),
            _ => {}
        }
        let given = arguments.len();
        let [first, second] = self.first_arguments(arguments)?;
        Ok(match builtin {
            Builtin::Log => {
                self.log(first)?;
                Val::Undefined
            }
            Builtin::Sum => self.sum(first)?,
            Builtin::Stringify => self.stringify(first, given)?,
            Builtin::IsArray => Val::Bool(matches!(first, Val::Array(_))),
            Builtin::Keys | Builtin::Values | Builtin::Entries => self.names_or_values(builtin, first)?,
            Builtin::ParseInt => self.parse_int(first, second)?,
            Builtin::ParseFloat => self.parse_float(first)?,
            Builtin::IsNaN => Val::Bool(self.convert().number(first)?.is_nan()),
            Builtin::IsFinite => Val::Bool(self.convert().number(first)?.is_finite()),
            Builtin::NumberIsNaN => Val::Bool(matches!(first, Val::Number(number) if number.is_nan())),
            Builtin::NumberIsFinite => Val::Bool(matches!(first, Val::Number(number) if number.is_finite())),
            Builtin::NumberIsInteger => {
                Val::Bool(matches!(first, Val::Number(number) if number.is_finite() && number.trunc() == number))
            }
            Builtin::ToString if given == 0 => Val::Text(b""),
            Builtin::ToString => Val::Text(self.convert().text(first)?),
            Builtin::ToNumber if given == 0 => Val::Number(0.0),
            Builtin::ToNumber => Val::Number(self.convert().number(first)?),
            Builtin::ToBoolean => Val::Bool(truthy(first)),
            Builtin::DateParse => {
                let text = self.convert().text(first)?;
                Val::Number(date::parse(text)?)
            }
            Builtin::EncodeUri(scope) => self.encode_uri(first, scope)?,
            Builtin::DecodeUri(scope) => self.decode_uri(first, scope)?,
            _ => return Err(Stop::BailOut(Reason::Call)),
        })
    }

    fn encode_uri(&mut self, value: Val<'a>, scope: Scope) -> Result<Val<'a>, Stop> {
        let text = self.convert().text(value)?;
        Ok(Val::Text(self.convert().keep(&uri::encode(code_units::as_str(text)?, scope))?))
    }

    /// The engine throws the error of an invalid text.
    fn decode_uri(&mut self, value: Val<'a>, scope: Scope) -> Result<Val<'a>, Stop> {
        let text = self.convert().text(value)?;
        let decoded = uri::decode(code_units::as_str(text)?, scope).ok_or(Stop::BailOut(Reason::Call))?;
        Ok(Val::Text(self.convert().keep(&decoded)?))
    }

    fn math(&mut self, function: Math, values: &[Val<'a>]) -> Result<Val<'a>, Stop> {
        let mut given = ArenaVec::with_capacity_in(values.len(), self.arena);
        for value in values {
            let number = self.convert().number(*value)?;
            given.push(number);
        }
        numbers::math(function, &given).map(Val::Number)
    }

    fn char_from_codes(&mut self, arguments: &'a [Expression]) -> Result<Val<'a>, Stop> {
        let mut text = String::new();
        for value in self.arguments(arguments)? {
            let code = self.convert().number(value)?;
            let code = convert::to_uint32(code) & 0xffff;
            text.push(char::from_u32(code).ok_or(Stop::BailOut(Reason::Call))?);
        }
        Ok(Val::Text(self.convert().keep(text.as_bytes())?))
    }

    fn text_of_code_points(&mut self, arguments: &'a [Expression]) -> Result<Val<'a>, Stop> {
        let mut text = String::new();
        for value in self.arguments(arguments)? {
            let code = self.convert().number(value)?;
            // Other numbers are exceptions, or half of a character.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared afterwards")]
            let point = code as u32;
            let exact = code >= 0.0 && f64::from(point) == code;
            text.push(char::from_u32(point).filter(|_| exact).ok_or(Stop::BailOut(Reason::Call))?);
        }
        Ok(Val::Text(self.convert().keep(text.as_bytes())?))
    }

    /// As in the prelude, the sum starts with 0. Values other than numbers are left to the engine.
    fn sum(&mut self, values: Val<'a>) -> Result<Val<'a>, Stop> {
        let Val::Array(array) = values else {
            return Err(Stop::BailOut(Reason::Call));
        };
        let mut sum = 0.0;
        for index in 0..array.len(self.arena) {
            self.steps.charge(1)?;
            let Some(Val::Number(number)) = array.get(self.arena, index) else {
                return Err(Stop::BailOut(Reason::Call));
            };
            sum += number;
        }
        Ok(Val::Number(sum))
    }

    fn stringify(&mut self, value: Val<'a>, given: usize) -> Result<Val<'a>, Stop> {
        if given > 1 {
            return Err(Stop::BailOut(Reason::Call));
        }
        let mut out = Vec::new();
        if !write::stringify(self.arena, value, &mut out, &mut self.steps)? {
            return Ok(Val::Undefined);
        }
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    fn names_or_values(&mut self, builtin: Builtin, value: Val<'a>) -> Result<Val<'a>, Stop> {
        let mut items = ArenaVec::new_in(self.arena);
        if let Val::Array(array) = value {
            if array.is_match {
                return Err(Stop::BailOut(Reason::Call));
            }
            for index in 0..array.len(self.arena) {
                self.steps.charge(1)?;
                let Val::Number(number) = count(index) else { return Err(Stop::BailOut(Reason::Call)) };
                let name = Val::Text(self.convert().number_text(number)?);
                let item = array.get(self.arena, index).unwrap_or(Val::Undefined);
                items.push(self.entry(builtin, name, item)?);
            }
        } else {
            for (name, member) in self.members(value)? {
                items.push(self.entry(builtin, Val::Text(name), member)?);
            }
        }
        self.keep_parts(items)
    }

    fn entry(&mut self, builtin: Builtin, name: Val<'a>, value: Val<'a>) -> Result<Val<'a>, Stop> {
        Ok(match builtin {
            Builtin::Keys => name,
            Builtin::Values => value,
            _ => {
                self.steps.charge_bytes(192)?;
                let mut pair = ArenaVec::with_capacity_in(2, self.arena);
                pair.push(name);
                pair.push(value);
                Val::Array(Array::new(self.arena, pair))
            }
        })
    }

    fn parse_int(&mut self, value: Val<'a>, radix: Val<'a>) -> Result<Val<'a>, Stop> {
        let text = self.convert().text(value)?;
        let radix = convert::to_int32(self.convert().number(radix)?);
        numbers::parse_int(trim_start(text)?, radix).map(Val::Number)
    }

    fn parse_float(&mut self, value: Val<'a>) -> Result<Val<'a>, Stop> {
        let text = self.convert().text(value)?;
        let text = trim_start(text)?;
        let (negative, digits) = match text.first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if digits.starts_with(b"Infinity") {
            return Ok(Val::Number(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        let length = convert::decimal_length(digits);
        if length == 0 {
            return Ok(Val::Number(f64::NAN));
        }
        let number = convert::parse_decimal(&digits[..length])?;
        Ok(Val::Number(if negative { -number } else { number }))
    }

    pub(super) fn method(
        &mut self,
        object: Val<'a>,
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        match object {
            Val::Text(text) => self.text_method(text, method, arguments),
            Val::Array(array) => self.array_method(array, method, arguments),
            Val::Number(number) => self.number_method(number, method, arguments),
            Val::Date(time) => self.date_method(time, method, arguments),
            Val::Pattern(pattern) => self.pattern_method(pattern, method, arguments),
            Val::Lazy(_) | Val::Object(_) => self.object_method(object, method, arguments),
            Val::Bool(value) if method == Method::ToString && arguments.is_empty() => {
                self.convert().text(Val::Bool(value)).map(Val::Text)
            }
            _ => Err(Stop::BailOut(Reason::Call)),
        }
    }

    fn object_method(&mut self, object: Val<'a>, method: Method, arguments: &'a [Expression]) -> Result<Val<'a>, Stop> {
        // The member hides the method and is not a function: calling it is an exception.
        if self.own_member(object, method.name().as_bytes())?.is_some() {
            return Err(Stop::BailOut(Reason::Call));
        }
        let [first] = self.first_arguments(arguments)?;
        match method {
            Method::HasOwnProperty => {
                let name = self.convert().text(first)?;
                Ok(Val::Bool(self.own_member(object, name)?.is_some()))
            }
            _ => Err(Stop::BailOut(Reason::Call)),
        }
    }

    fn own_member(&mut self, object: Val<'a>, name: &[u8]) -> Result<Option<Val<'a>>, Stop> {
        match object {
            Val::Lazy(lazy) => Ok(lazy.get(self.arena, name, &mut self.steps)?.map(Packed::open)),
            Val::Object(object) => object.get(name, &mut self.steps),
            _ => inherited::absent(name).map(|_| None),
        }
    }
}

fn trim_start(text: &[u8]) -> Result<&[u8], Stop> {
    match text.first() {
        Some(first) if first.is_ascii_graphic() => Ok(text),
        _ => Ok(code_units::as_str(text)?.trim_start_matches(code_units::is_space).as_bytes()),
    }
}
