//! Values of a native run ([`Val`]): lazily parsed parts of the document, and values that the function creates. All are
//! allocated in the arena of one call and never freed individually. Objects and arrays of the document are frozen.

use std::cell::{Cell, OnceCell, RefCell};

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;
use settee_model::json;

use super::pattern::Pattern;
use super::tree::Name;
use crate::reason::{Steps, Stop};
use crate::text;

#[derive(Clone, Copy)]
pub(super) enum Val<'a> {
    /// A variable before its declaration has run.
    Unset,
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    /// UTF-8; strings with lone surrogates never occur.
    Text(&'a [u8]),
    Lazy(&'a Lazy<'a>),
    Array(&'a Array<'a>),
    Object(&'a Object<'a>),
    /// Time in milliseconds since 1970.
    Date(&'a Cell<f64>),
    Pattern(&'a Pattern),
    /// Index of the function.
    Function(u16),
}

/// A value in two words, for return values and variables. Larger values would be passed through memory with stores and
/// loads of different sizes, which dominates the cost of evaluation.
#[derive(Clone, Copy)]
pub(super) enum Packed<'a> {
    Unset,
    Undefined,
    Null,
    False,
    True,
    Number(u64),
    Text(&'a &'a [u8]),
    Lazy(&'a Lazy<'a>),
    Array(&'a Array<'a>),
    Object(&'a Object<'a>),
    Date(&'a Cell<f64>),
    Pattern(&'a Pattern),
    Function(u16),
}

impl<'a> Packed<'a> {
    #[inline(always)]
    pub(super) fn open(self) -> Val<'a> {
        match self {
            Packed::Unset => Val::Unset,
            Packed::Undefined => Val::Undefined,
            Packed::Null => Val::Null,
            Packed::False => Val::Bool(false),
            Packed::True => Val::Bool(true),
            Packed::Number(bits) => Val::Number(f64::from_bits(bits)),
            Packed::Text(text) => Val::Text(text),
            Packed::Lazy(lazy) => Val::Lazy(lazy),
            Packed::Array(array) => Val::Array(array),
            Packed::Object(object) => Val::Object(object),
            Packed::Date(time) => Val::Date(time),
            Packed::Pattern(pattern) => Val::Pattern(pattern),
            Packed::Function(function) => Val::Function(function),
        }
    }
}

impl<'a> Val<'a> {
    #[inline(always)]
    pub(super) fn pack(self, arena: &'a Bump) -> Packed<'a> {
        match self {
            Val::Unset => Packed::Unset,
            Val::Undefined => Packed::Undefined,
            Val::Null => Packed::Null,
            Val::Bool(false) => Packed::False,
            Val::Bool(true) => Packed::True,
            Val::Number(number) => Packed::Number(number.to_bits()),
            Val::Text(text) => Packed::Text(arena.alloc(text)),
            Val::Lazy(lazy) => Packed::Lazy(lazy),
            Val::Array(array) => Packed::Array(array),
            Val::Object(object) => Packed::Object(object),
            Val::Date(time) => Packed::Date(time),
            Val::Pattern(pattern) => Packed::Pattern(pattern),
            Val::Function(function) => Packed::Function(function),
        }
    }
}

pub(super) struct Lazy<'a> {
    text: &'a [u8],
    members: RefCell<ArenaVec<'a, Member<'a>>>,
    is_whole: Cell<bool>,
    /// Members sorted by name, once all are parsed and there are many.
    sorted: OnceCell<&'a [u32]>,
}

struct Member<'a> {
    name: &'a [u8],
    fingerprint: u64,
    at: usize,
    /// End of its value; 0 if unknown.
    end: Cell<usize>,
    value: Cell<Option<Packed<'a>>>,
}

impl<'a> Member<'a> {
    #[inline]
    fn value(&self, arena: &'a Bump, text: &'a [u8]) -> Packed<'a> {
        self.value.get().unwrap_or_else(|| {
            let (value, end) = parse(arena, text, self.at);
            let value = value.pack(arena);
            self.value.set(Some(value));
            self.end.set(end.unwrap_or_default());
            value
        })
    }

    fn is_named(&self, name: &[u8], fingerprint: u64) -> bool {
        self.fingerprint == fingerprint && equal_after_fingerprint(self.name, name)
    }

    fn end(&self, text: &[u8]) -> usize {
        let end = match (self.end.get(), self.value.get()) {
            (0, Some(Packed::Lazy(object))) => self.at + object.end(),
            (0, _) => text::skip_value(text, self.at),
            (known, _) => known,
        };
        // Guarantees progress also in invalid text.
        end.max(self.at + 1)
    }
}

/// Larger objects are searched by a sorted index.
const FEW_MEMBERS: usize = 24;

pub(super) struct Array<'a> {
    text: Option<&'a [u8]>,
    frozen: OnceCell<&'a [Val<'a>]>,
    items: RefCell<ArenaVec<'a, Val<'a>>>,
    /// The match of a pattern has additional members.
    pub(super) is_match: bool,
}

pub(super) struct Object<'a> {
    pub(super) members: RefCell<ArenaVec<'a, (&'a [u8], Val<'a>)>>,
}

impl<'a> Lazy<'a> {
    /// The opening brace must be the first byte of `text`.
    pub(super) fn new(arena: &'a Bump, text: &'a [u8]) -> &'a Self {
        arena.alloc(Self {
            text,
            members: RefCell::new(ArenaVec::new_in(arena)),
            is_whole: Cell::new(false),
            sorted: OnceCell::new(),
        })
    }

    /// The text continues after the object.
    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The search is charged to `steps`.
    pub(super) fn get(&self, arena: &'a Bump, name: &[u8], steps: &mut Steps) -> Result<Option<Packed<'a>>, Stop> {
        self.find(arena, name, text::fingerprint(name), &Cell::default(), steps)
    }

    /// As [`Lazy::get`], starting at the position of the last lookup.
    #[inline]
    pub(super) fn get_with_hint(
        &self,
        arena: &'a Bump,
        name: &Name,
        steps: &mut Steps,
    ) -> Result<Option<Packed<'a>>, Stop> {
        if let Some(member) = self.members.borrow().get(name.hint.get())
            && member.is_named(&name.text, name.fingerprint)
        {
            return Ok(Some(member.value(arena, self.text)));
        }
        self.find(arena, &name.text, name.fingerprint, &name.hint, steps)
    }

    /// Stores the position of the member in `hint`.
    fn find(
        &self,
        arena: &'a Bump,
        name: &[u8],
        fingerprint: u64,
        hint: &Cell<usize>,
        steps: &mut Steps,
    ) -> Result<Option<Packed<'a>>, Stop> {
        let mut members = self.members.borrow_mut();
        let mut found;
        if self.is_whole.get() && members.len() > FEW_MEMBERS {
            steps.charge(1)?;
            let sorted = self.sorted.get_or_init(|| {
                let mut order = ArenaVec::with_capacity_in(members.len(), arena);
                order.extend((0u32..).take(members.len()));
                order.sort_by_key(|index| members[*index as usize].name);
                order.into_bump_slice()
            });
            let at = sorted.binary_search_by_key(&name, |index| members[*index as usize].name);
            found = at.ok().map(|at| sorted[at] as usize);
        } else {
            found = members.iter().position(|member| member.is_named(name, fingerprint));
            if found.is_none() {
                steps.charge(members.len() / 8)?;
            }
            while found.is_none() && self.scan(arena, &mut members) {
                let last = members.len() - 1;
                found = members[last].is_named(name, fingerprint).then_some(last);
            }
        }
        hint.set(found.unwrap_or_default());
        Ok(found.map(|index| members[index].value(arena, self.text)))
    }

    /// In the order of ordinary objects: array indexes first.
    pub(super) fn names(&self, arena: &'a Bump) -> ArenaVec<'a, &'a [u8]> {
        let mut members = self.members.borrow_mut();
        while self.scan(arena, &mut members) {}
        let mut names = ArenaVec::with_capacity_in(members.len(), arena);
        names.extend(members.iter().map(|member| member.name));
        order_names(&mut names);
        names
    }

    /// Parses the member after `members`; returns false at the end.
    #[inline]
    fn scan(&self, arena: &'a Bump, members: &mut ArenaVec<'a, Member<'a>>) -> bool {
        if self.is_whole.get() {
            return false;
        }
        let text = self.text;
        let mut at = members.last().map_or(1, |last| last.end(text));
        // Stored documents contain no white space.
        if text.get(at) == Some(&b',') {
            at += 1;
        }
        if text.get(at) != Some(&b'"') {
            at = text::skip_space(text, at);
            if text.get(at) == Some(&b',') {
                at = text::skip_space(text, at + 1);
            }
        }
        if text.get(at) != Some(&b'"') {
            self.is_whole.set(true);
            return false;
        }
        let (end, name, fingerprint) = match text::short_name(text, at) {
            Some((end, fingerprint)) => (end, &text[at + 1..end - 1], fingerprint),
            None => {
                let (end, escaped) = text::string_end(text, at);
                let name = inside(arena, text, at, end, escaped);
                (end, name, text::fingerprint(name))
            }
        };
        let colon = text::skip_space(text, end);
        let at = text::skip_space(text, colon + 1);
        if members.is_empty() {
            members.reserve(8);
        }
        members.push(Member { name, fingerprint, at, end: Cell::new(0), value: Cell::new(None) });
        true
    }

    fn end(&self) -> usize {
        let members = self.members.borrow();
        match members.last() {
            Some(last) => text::container_end(self.text, last.end(self.text)),
            None => text::skip_value(self.text, 0),
        }
    }
}

impl<'a> Array<'a> {
    pub(super) fn new(arena: &'a Bump, items: ArenaVec<'a, Val<'a>>) -> &'a Self {
        arena.alloc(Self { text: None, frozen: OnceCell::new(), items: RefCell::new(items), is_match: false })
    }

    pub(super) fn of_match(arena: &'a Bump, items: ArenaVec<'a, Val<'a>>) -> &'a Self {
        arena.alloc(Self { text: None, frozen: OnceCell::new(), items: RefCell::new(items), is_match: true })
    }

    /// The opening bracket must be the first byte of `text`.
    fn of_document(arena: &'a Bump, text: &'a [u8]) -> &'a Self {
        let items = RefCell::new(ArenaVec::new_in(arena));
        arena.alloc(Self { text: Some(text), frozen: OnceCell::new(), items, is_match: false })
    }

    /// The text in the document, which continues after the array.
    pub(super) fn text(&self) -> Option<&'a [u8]> {
        self.text
    }

    pub(super) fn len(&self, arena: &'a Bump) -> usize {
        match self.text {
            Some(text) => self.frozen(arena, text).len(),
            None => self.items.borrow().len(),
        }
    }

    pub(super) fn get(&self, arena: &'a Bump, index: usize) -> Option<Val<'a>> {
        match self.text {
            Some(text) => self.frozen(arena, text).get(index).copied(),
            None => self.items.borrow().get(index).copied(),
        }
    }

    pub(super) fn own(&self) -> Option<&RefCell<ArenaVec<'a, Val<'a>>>> {
        if self.text.is_some() { None } else { Some(&self.items) }
    }

    pub(super) fn items(&self, arena: &'a Bump) -> ArenaVec<'a, Val<'a>> {
        let mut copy = ArenaVec::new_in(arena);
        match self.text {
            Some(text) => copy.extend_from_slice_copy(self.frozen(arena, text)),
            None => copy.extend_from_slice_copy(&self.items.borrow()),
        }
        copy
    }

    fn frozen(&self, arena: &'a Bump, text: &'a [u8]) -> &'a [Val<'a>] {
        self.frozen.get_or_init(|| {
            let mut items = ArenaVec::new_in(arena);
            let mut at = text::skip_space(text, 1);
            while !matches!(text.get(at), Some(b']') | None) {
                if text[at] == b',' {
                    at = text::skip_space(text, at + 1);
                }
                let (value, end) = parse(arena, text, at);
                items.push(value);
                let end = end.unwrap_or_else(|| text::skip_value(text, at));
                at = text::skip_space(text, end.max(at + 1));
            }
            items.into_bump_slice()
        })
    }
}

impl<'a> Object<'a> {
    pub(super) fn new(arena: &'a Bump) -> &'a Self {
        arena.alloc(Self { members: RefCell::new(ArenaVec::new_in(arena)) })
    }

    pub(super) fn get(&self, name: &[u8], steps: &mut Steps) -> Result<Option<Val<'a>>, Stop> {
        let members = self.members.borrow();
        steps.charge(members.len() / 8)?;
        Ok(members.iter().find(|(own, _)| same(own, name)).map(|(_, value)| *value))
    }

    pub(super) fn set(&self, name: &'a [u8], value: Val<'a>, steps: &mut Steps) -> Result<(), Stop> {
        let mut members = self.members.borrow_mut();
        steps.charge(members.len() / 8)?;
        match members.iter_mut().find(|(own, _)| same(own, name)) {
            Some((_, old)) => *old = value,
            None => {
                steps.charge_bytes(64)?;
                members.push((name, value));
            }
        }
        Ok(())
    }

    /// In the order of ordinary objects: array indexes first.
    pub(super) fn names(&self, arena: &'a Bump) -> ArenaVec<'a, &'a [u8]> {
        let members = self.members.borrow();
        let mut names = ArenaVec::with_capacity_in(members.len(), arena);
        names.extend(members.iter().map(|(name, _)| *name));
        order_names(&mut names);
        names
    }
}

/// The names must have the same fingerprint. Most are so short that only their last eight bytes remain to compare.
#[inline]
fn equal_after_fingerprint(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && (left.len() <= 8
            || if left.len() <= 16 { left.last_chunk::<8>() == right.last_chunk() } else { left == right })
}

#[inline]
fn same(left: &[u8], right: &[u8]) -> bool {
    left.first() == right.first() && left == right
}

fn order_names(names: &mut [&[u8]]) {
    if names.iter().any(|name| text::array_index(name).is_some()) {
        names.sort_by_key(|name| text::array_index(name).map_or((true, 0), |index| (false, index)));
    }
}

/// Also returns the end of the value if it was computed.
fn parse<'a>(arena: &'a Bump, text: &'a [u8], at: usize) -> (Val<'a>, Option<usize>) {
    match text.get(at) {
        Some(b'{') => (Val::Lazy(Lazy::new(arena, &text[at..])), None),
        Some(b'[') => (Val::Array(Array::of_document(arena, &text[at..])), None),
        Some(b'"') => {
            let (end, escaped) = text::string_end(text, at);
            (Val::Text(inside(arena, text, at, end, escaped)), Some(end))
        }
        Some(b't') => (Val::Bool(true), Some(at + 4)),
        Some(b'f') => (Val::Bool(false), Some(at + 5)),
        Some(b'n') => (Val::Null, Some(at + 4)),
        _ => {
            let end = text::scalar_end(text, at);
            (Val::Number(number(text.get(at..end).unwrap_or_default())), Some(end))
        }
    }
}

fn inside<'a>(arena: &'a Bump, text: &'a [u8], open: usize, end: usize, escaped: bool) -> &'a [u8] {
    let inside = text.get(open + 1..end - 1).unwrap_or_default();
    if !escaped {
        return inside;
    }
    let mut plain = Vec::with_capacity(inside.len());
    json::unescape(inside, &mut plain);
    arena.alloc_slice_copy(&plain)
}

fn number(literal: &[u8]) -> f64 {
    if literal.len() <= 9 && !literal.is_empty() && literal.iter().all(u8::is_ascii_digit) {
        let small = literal.iter().fold(0, |sum: u32, digit| sum * 10 + u32::from(digit - b'0'));
        return f64::from(small);
    }
    text::number(literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_returned_in_registers() {
        assert_eq!(size_of::<Result<Packed<'_>, Stop>>(), 16);
        assert_eq!(size_of::<Option<Packed<'_>>>(), 16);
    }
}
