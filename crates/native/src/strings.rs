//! Methods of strings. Positions count UTF-16 code units.

use bumpalo::collections::Vec as ArenaVec;

use super::code_units::{as_str, byte_at, length, slice, trim, unit, unit_at};
use super::numbers;
use super::run::{Run, count};
use super::tree::{Callee, Expression, Method};
use super::value::{Array, Val};
use crate::reason::{Reason, Stop};

/// A negative position counts from the end.
fn relative(position: f64, length: usize) -> usize {
    let length = len(length);
    let position = if position < 0.0 { (length + position).max(0.0) } else { position.min(length) };
    index(position)
}

fn clamped(position: f64, length: usize) -> usize {
    index(position.clamp(0.0, len(length)))
}

fn len(length: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shorter than 2^53")]
    let length = length as f64;
    length
}

fn index(position: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a length")]
    let position = position as usize;
    position
}

impl<'a> Run<'a, '_> {
    pub(super) fn text_method(
        &mut self,
        text: &'a [u8],
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        if method == Method::Concat {
            let mut all = text;
            for argument in arguments {
                let argument = self.eval(argument)?;
                let argument = self.convert().text(argument)?;
                all = self.convert().concat(all, argument)?;
            }
            return Ok(Val::Text(all));
        }
        let [first, second] = self.first_arguments(arguments)?;
        self.steps.charge(1 + text.len() / 64)?;
        Ok(match method {
            Method::CharAt => {
                let position = self.convert().integer(first)?;
                let found =
                    if position < 0.0 || position >= len(text.len()) { None } else { unit(text, index(position))? };
                Val::Text(found.unwrap_or_default())
            }
            Method::CharCodeAt => self.char_code(text, first)?,
            Method::CodePointAt => self.code_point(text, first)?,
            Method::Slice | Method::Substring | Method::Substr => self.part(text, method, first, second)?,
            Method::IndexOf | Method::LastIndexOf | Method::Includes | Method::StartsWith | Method::EndsWith => {
                self.find_text(text, method, first, second)?
            }
            Method::ToLowerCase => Val::Text(self.change_case(text, lower)?),
            Method::ToUpperCase => Val::Text(self.change_case(text, upper)?),
            Method::Trim => Val::Text(trim(text)?),
            Method::Split => self.split(text, first, second)?,
            Method::Replace => self.replace(text, first, second)?,
            Method::Match | Method::Search => self.search(text, method, first)?,
            Method::Repeat => self.repeat(text, first)?,
            Method::PadStart | Method::PadEnd => self.pad(text, method, first, second)?,
            Method::ToString | Method::ValueOf => Val::Text(text),
            _ => return Err(Stop::BailOut(Reason::Text)),
        })
    }

    fn char_code(&mut self, text: &'a [u8], position: Val<'a>) -> Result<Val<'a>, Stop> {
        let position = self.convert().integer(position)?;
        if position < 0.0 || position >= len(text.len()) {
            return Ok(Val::Number(f64::NAN));
        }
        let position = index(position);
        let code = if text.is_ascii() {
            text.get(position).map(|byte| u16::from(*byte))
        } else {
            as_str(text)?.encode_utf16().nth(position)
        };
        Ok(Val::Number(code.map_or(f64::NAN, f64::from)))
    }

    fn code_point(&mut self, text: &'a [u8], position: Val<'a>) -> Result<Val<'a>, Stop> {
        let position = self.convert().integer(position)?;
        if position < 0.0 || position >= len(text.len()) {
            return Ok(Val::Undefined);
        }
        let position = index(position);
        if text.is_ascii() {
            return Ok(text.get(position).map_or(Val::Undefined, |byte| Val::Number(f64::from(*byte))));
        }
        if position >= length(text)? {
            return Ok(Val::Undefined);
        }
        let character = as_str(&text[byte_at(text, position)?..])?.chars().next();
        Ok(character.map_or(Val::Undefined, |character| Val::Number(f64::from(u32::from(character)))))
    }

    fn part(&mut self, text: &'a [u8], method: Method, first: Val<'a>, second: Val<'a>) -> Result<Val<'a>, Stop> {
        let ascii = text.is_ascii();
        let length = if ascii { text.len() } else { length(text)? };
        let first = self.convert().integer(first)?;
        let second = match second {
            Val::Undefined => f64::INFINITY,
            second => self.convert().integer(second)?,
        };
        let (start, end) = match method {
            Method::Slice => (relative(first, length), relative(second, length)),
            Method::Substr => {
                let start = relative(first, length);
                (start, clamped(len(start) + second, length))
            }
            _ => {
                let (first, second) = (clamped(first, length), clamped(second, length));
                (first.min(second), first.max(second))
            }
        };
        if ascii {
            return Ok(Val::Text(text.get(start..end).unwrap_or_default()));
        }
        Ok(Val::Text(slice(text, start, end)?))
    }

    fn find_text(&mut self, text: &'a [u8], method: Method, searched: Val<'a>, from: Val<'a>) -> Result<Val<'a>, Stop> {
        let searched = self.convert().text(searched)?;
        if method == Method::IndexOf {
            let from = self.convert().integer(from)?;
            let from = clamped(from, length(text)?);
            let start = byte_at(text, from)?;
            return Ok(match memchr::memmem::find(&text[start..], searched) {
                Some(found) => count(unit_at(text, start + found)?),
                None => Val::Number(-1.0),
            });
        }
        if !matches!(from, Val::Undefined) {
            return Err(Stop::BailOut(Reason::Text));
        }
        Ok(match method {
            Method::Includes => Val::Bool(memchr::memmem::find(text, searched).is_some()),
            Method::StartsWith => Val::Bool(text.starts_with(searched)),
            Method::EndsWith => Val::Bool(text.ends_with(searched)),
            _ => match memchr::memmem::rfind(text, searched) {
                Some(found) => count(unit_at(text, found)?),
                None => Val::Number(-1.0),
            },
        })
    }

    fn change_case(&mut self, text: &'a [u8], change: fn(char, &mut String) -> bool) -> Result<&'a [u8], Stop> {
        let mut out = String::with_capacity(text.len());
        for character in as_str(text)?.chars() {
            if !change(character, &mut out) {
                return Err(Stop::BailOut(Reason::Text));
            }
        }
        if out.as_bytes() == text { Ok(text) } else { self.convert().keep(out.as_bytes()) }
    }

    fn split(&mut self, text: &'a [u8], separator: Val<'a>, limit: Val<'a>) -> Result<Val<'a>, Stop> {
        if !matches!(limit, Val::Undefined) {
            return Err(Stop::BailOut(Reason::Text));
        }
        let mut parts = ArenaVec::new_in(self.arena);
        match separator {
            Val::Undefined => parts.push(Val::Text(text)),
            Val::Pattern(pattern) => return self.split_by_pattern(text, pattern),
            Val::Text(b"") => {
                for (at, character) in as_str(text)?.char_indices() {
                    if character.len_utf16() > 1 {
                        return Err(Stop::BailOut(Reason::Text));
                    }
                    parts.push(Val::Text(&text[at..at + character.len_utf8()]));
                }
            }
            Val::Text([separator]) => {
                parts.reserve(4);
                let mut start = 0;
                for found in memchr::memchr_iter(*separator, text) {
                    parts.push(Val::Text(&text[start..found]));
                    start = found + 1;
                }
                parts.push(Val::Text(&text[start..]));
            }
            Val::Text(separator) => {
                let mut start = 0;
                for found in memchr::memmem::find_iter(text, separator) {
                    parts.push(Val::Text(&text[start..found]));
                    start = found + separator.len();
                }
                parts.push(Val::Text(&text[start..]));
            }
            _ => return Err(Stop::BailOut(Reason::Text)),
        }
        self.keep_parts(parts)
    }

    pub(super) fn keep_parts(&mut self, parts: ArenaVec<'a, Val<'a>>) -> Result<Val<'a>, Stop> {
        self.steps.charge(parts.len())?;
        self.steps.charge_bytes(2 * parts.len() * size_of::<Val<'_>>())?;
        Ok(Val::Array(Array::new(self.arena, parts)))
    }

    fn replace(&mut self, text: &'a [u8], searched: Val<'a>, by: Val<'a>) -> Result<Val<'a>, Stop> {
        let by = self.convert().text(by)?;
        if let Val::Pattern(pattern) = searched {
            return self.replace_pattern(text, pattern, by);
        }
        if by.contains(&b'$') {
            return Err(Stop::BailOut(Reason::Text));
        }
        let searched = self.convert().text(searched)?;
        let Some(found) = memchr::memmem::find(text, searched) else {
            return Ok(Val::Text(text));
        };
        let out = [&text[..found], by, &text[found + searched.len()..]].concat();
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    pub(crate) fn replace_by_call(
        &mut self,
        text: &'a [u8],
        searched: Val<'a>,
        callee: Callee,
    ) -> Result<Val<'a>, Stop> {
        self.steps.charge(1 + text.len() / 64)?;
        if let Val::Pattern(pattern) = searched {
            return self.replace_pattern_by_call(text, pattern, callee);
        }
        let searched = self.convert().text(searched)?;
        let Some(found) = memchr::memmem::find(text, searched) else {
            return Ok(Val::Text(text));
        };
        let position = count(unit_at(text, found)?);
        let by = self.call(callee, &[Val::Text(searched), position, Val::Text(text)])?;
        let by = self.convert().text(by)?;
        let out = [&text[..found], by, &text[found + searched.len()..]].concat();
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    fn repeat(&mut self, text: &'a [u8], times: Val<'a>) -> Result<Val<'a>, Stop> {
        let times = self.convert().integer(times)?;
        if !(0.0..1e6).contains(&times) {
            return Err(Stop::BailOut(Reason::Text));
        }
        let times = index(times);
        self.steps.charge_bytes(times * text.len())?;
        Ok(Val::Text(self.arena.alloc_slice_copy(&text.repeat(times))))
    }

    fn pad(&mut self, text: &'a [u8], method: Method, length: Val<'a>, by: Val<'a>) -> Result<Val<'a>, Stop> {
        let length = self.convert().integer(length)?;
        let by: &[u8] = match by {
            Val::Undefined => b" ",
            by => self.convert().text(by)?,
        };
        if length > 1e6 || !text.is_ascii() || !by.is_ascii() {
            return Err(Stop::BailOut(Reason::Text));
        }
        let missing = index(length.max(0.0)).saturating_sub(text.len());
        if missing == 0 || by.is_empty() {
            return Ok(Val::Text(text));
        }
        let filler: Vec<u8> = by.iter().copied().cycle().take(missing).collect();
        let out = if method == Method::PadStart { [&filler, text].concat() } else { [text, &filler].concat() };
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    pub(super) fn number_method(
        &mut self,
        number: f64,
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        let [first] = self.first_arguments(arguments)?;
        match method {
            Method::ToFixed => {
                let digits = self.convert().integer(first)?;
                if !(0.0..=20.0).contains(&digits) {
                    return Err(Stop::BailOut(Reason::Text));
                }
                let text = numbers::to_fixed(number, index(digits))?;
                Ok(Val::Text(self.convert().keep(text.as_bytes())?))
            }
            Method::ToString if matches!(first, Val::Undefined) || matches!(first, Val::Number(10.0)) => {
                Ok(Val::Text(self.convert().number_text(number)?))
            }
            Method::ValueOf => Ok(Val::Number(number)),
            _ => Err(Stop::BailOut(Reason::Text)),
        }
    }
}

/// Returns false if the result depends on context or on the version of Unicode.
fn lower(character: char, out: &mut String) -> bool {
    if character.is_ascii() {
        out.push(character.to_ascii_lowercase());
        return true;
    }
    let known = known_case(character) && character != 'Σ';
    out.extend(character.to_lowercase());
    known
}

fn upper(character: char, out: &mut String) -> bool {
    if character.is_ascii() {
        out.push(character.to_ascii_uppercase());
        return true;
    }
    out.extend(character.to_uppercase());
    known_case(character)
}

/// Scripts whose case mappings are unchanged since the first Unicode versions, and scripts without case.
fn known_case(character: char) -> bool {
    matches!(character, '\u{80}'..='\u{17f}' | '\u{391}'..='\u{3c9}' | '\u{400}'..='\u{45f}' | '\u{2010}'..='\u{2027}'
        | '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{1f300}'..='\u{1f64f}')
}
