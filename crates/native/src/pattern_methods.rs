//! Methods with patterns as arguments, and methods of patterns.

use bumpalo::collections::Vec as ArenaVec;

use super::code_units::length;
use super::pattern::{Groups, Pattern, Subject};
use super::run::{Run, count};
use super::tree::{Callee, Expression, Method};
use super::value::{Array, Val};
use crate::reason::{Reason, Stop};

fn group<'a>(text: &'a [u8], groups: &Groups, number: usize) -> Option<&'a [u8]> {
    text.get((*groups.get(number * 2)?)?..(*groups.get(number * 2 + 1)?)?)
}

fn bounds(groups: &Groups) -> Result<(usize, usize), Stop> {
    match groups[..] {
        [Some(start), Some(end), ..] => Ok((start, end)),
        _ => Err(Stop::BailOut(Reason::Pattern)),
    }
}

impl<'a> Run<'a, '_> {
    pub(crate) fn split_by_pattern(&mut self, text: &'a [u8], pattern: &'a Pattern) -> Result<Val<'a>, Stop> {
        let subject = Subject::new(pattern, text)?;
        let mut parts = ArenaVec::new_in(self.arena);
        if text.is_empty() {
            if subject.find(pattern, 0, &mut self.steps)?.is_none() {
                parts.push(Val::Text(text));
            }
            return self.keep_parts(parts);
        }
        let (mut start, mut from) = (0, 0);
        while from < text.len() {
            let Some(groups) = subject.find(pattern, from, &mut self.steps)? else { break };
            let (found, end) = bounds(&groups)?;
            if found >= text.len() {
                break;
            }
            if end == found {
                if found > start {
                    parts.push(Val::Text(&text[start..found]));
                    self.push_groups(text, &groups, &mut parts);
                    start = found;
                }
                from = subject.after(found);
                continue;
            }
            parts.push(Val::Text(&text[start..found]));
            self.push_groups(text, &groups, &mut parts);
            (start, from) = (end, end);
        }
        parts.push(Val::Text(&text[start..]));
        self.keep_parts(parts)
    }

    fn push_groups(&mut self, text: &'a [u8], groups: &Groups, parts: &mut ArenaVec<'a, Val<'a>>) {
        for number in 1..groups.len() / 2 {
            parts.push(group(text, groups, number).map_or(Val::Undefined, Val::Text));
        }
    }

    pub(crate) fn replace_pattern(
        &mut self,
        text: &'a [u8],
        pattern: &'a Pattern,
        by: &'a [u8],
    ) -> Result<Val<'a>, Stop> {
        let subject = Subject::new(pattern, text)?;
        let mut out = Vec::new();
        let (mut copied, mut from) = (0, 0);
        while let Some(groups) = subject.find(pattern, from, &mut self.steps)? {
            let (start, end) = bounds(&groups)?;
            out.extend_from_slice(&text[copied..start]);
            expand(text, &groups, by, &mut out)?;
            self.steps.charge_bytes(by.len() + (end - start))?;
            copied = end;
            if !pattern.global {
                break;
            }
            from = if end == start { subject.after(end) } else { end };
        }
        out.extend_from_slice(&text[copied..]);
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    pub(crate) fn replace_pattern_by_call(
        &mut self,
        text: &'a [u8],
        pattern: &'a Pattern,
        callee: Callee,
    ) -> Result<Val<'a>, Stop> {
        let subject = Subject::new(pattern, text)?;
        let mut out = Vec::new();
        let (mut copied, mut from) = (0, 0);
        while let Some(groups) = subject.find(pattern, from, &mut self.steps)? {
            let (start, end) = bounds(&groups)?;
            let mut arguments = ArenaVec::new_in(self.arena);
            for number in 0..pattern.groups {
                arguments.push(group(text, &groups, number).map_or(Val::Undefined, Val::Text));
            }
            arguments.push(count(length(&text[..start])?));
            arguments.push(Val::Text(text));
            let by = self.call(callee, &arguments)?;
            let by = self.convert().text(by)?;
            out.extend_from_slice(&text[copied..start]);
            out.extend_from_slice(by);
            self.steps.charge_bytes(by.len() + (end - start) + arguments.len() * size_of::<Val<'_>>())?;
            self.steps.charge(1 + start / 64)?;
            copied = end;
            if !pattern.global {
                break;
            }
            from = if end == start { subject.after(end) } else { end };
        }
        out.extend_from_slice(&text[copied..]);
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    pub(crate) fn search(&mut self, text: &'a [u8], method: Method, searched: Val<'a>) -> Result<Val<'a>, Stop> {
        let Val::Pattern(pattern) = searched else {
            return Err(Stop::BailOut(Reason::Pattern));
        };
        let subject = Subject::new(pattern, text)?;
        if method == Method::Search {
            return Ok(match subject.find(pattern, 0, &mut self.steps)? {
                Some(groups) => count(length(&text[..bounds(&groups)?.0])?),
                None => Val::Number(-1.0),
            });
        }
        if !pattern.global {
            return self.exec(text, pattern);
        }
        let mut found = ArenaVec::new_in(self.arena);
        let mut from = 0;
        while let Some(groups) = subject.find(pattern, from, &mut self.steps)? {
            let (start, end) = bounds(&groups)?;
            found.push(Val::Text(&text[start..end]));
            from = if end == start { subject.after(end) } else { end };
        }
        if found.is_empty() { Ok(Val::Null) } else { self.keep_parts(found) }
    }

    fn exec(&mut self, text: &'a [u8], pattern: &'a Pattern) -> Result<Val<'a>, Stop> {
        let subject = Subject::new(pattern, text)?;
        let Some(groups) = subject.find(pattern, 0, &mut self.steps)? else {
            return Ok(Val::Null);
        };
        let mut parts = ArenaVec::new_in(self.arena);
        for number in 0..pattern.groups {
            parts.push(group(text, &groups, number).map_or(Val::Undefined, Val::Text));
        }
        self.steps.charge_bytes(128 + parts.len() * size_of::<Val<'_>>())?;
        Ok(Val::Array(Array::of_match(self.arena, parts)))
    }

    pub(crate) fn pattern_method(
        &mut self,
        pattern: &'a Pattern,
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        let [first] = self.first_arguments(arguments)?;
        if pattern.global {
            return Err(Stop::BailOut(Reason::Pattern));
        }
        let text = self.convert().text(first)?;
        match method {
            Method::Test => {
                let subject = Subject::new(pattern, text)?;
                Ok(Val::Bool(subject.find(pattern, 0, &mut self.steps)?.is_some()))
            }
            Method::Exec => self.exec(text, pattern),
            _ => Err(Stop::BailOut(Reason::Pattern)),
        }
    }
}

fn expand(text: &[u8], groups: &Groups, by: &[u8], out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = by;
    while let Some(at) = memchr::memchr(b'$', rest) {
        out.extend_from_slice(&rest[..at]);
        let kind = rest.get(at + 1).copied().ok_or(Stop::BailOut(Reason::Pattern))?;
        match kind {
            b'$' => out.push(b'$'),
            b'&' => out.extend_from_slice(group(text, groups, 0).unwrap_or_default()),
            b'1'..=b'9' => {
                let number = usize::from(kind - b'0');
                if number >= groups.len() / 2 || rest.get(at + 2).is_some_and(u8::is_ascii_digit) {
                    return Err(Stop::BailOut(Reason::Pattern));
                }
                out.extend_from_slice(group(text, groups, number).unwrap_or_default());
            }
            _ => return Err(Stop::BailOut(Reason::Pattern)),
        }
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    Ok(())
}
