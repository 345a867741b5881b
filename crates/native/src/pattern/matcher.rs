//! Execution of a pattern: backtracking with an explicit stack and a step limit.

use super::{Code, Pattern, is_word};
use crate::code_units::as_str;
use crate::reason::{Reason, Steps, Stop};

/// Starts and ends of groups in bytes; group 0 is the whole match.
pub(crate) type Groups = Vec<Option<usize>>;

pub(crate) struct Subject<'t> {
    text: &'t str,
    ascii: bool,
}

enum Undo {
    Branch(usize, usize),
    Group(usize, Option<usize>),
}

impl<'t> Subject<'t> {
    /// Texts with characters of two code units, and case-insensitive matching beyond ASCII, are left to the engine.
    pub(crate) fn new(pattern: &Pattern, text: &'t [u8]) -> Result<Self, Stop> {
        let ascii = text.is_ascii();
        let text = as_str(text)?;
        if !ascii && (pattern.ignore_case || text.bytes().any(|byte| byte >= 0xf0)) {
            return Err(Stop::BailOut(Reason::Pattern));
        }
        Ok(Self { text, ascii })
    }

    fn at(&self, at: usize) -> Option<char> {
        if self.ascii {
            return self.text.as_bytes().get(at).map(|byte| char::from(*byte));
        }
        self.text[at..].chars().next()
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text[..at].chars().next_back()
    }

    pub(crate) fn after(&self, at: usize) -> usize {
        at + self.at(at).map_or(1, char::len_utf8)
    }

    pub(crate) fn find(&self, pattern: &Pattern, from: usize, steps: &mut Steps) -> Result<Option<Groups>, Stop> {
        let mut at = from;
        while at <= self.text.len() {
            if let Some(groups) = self.match_at(pattern, at, steps)? {
                return Ok(Some(groups));
            }
            at = self.after(at);
        }
        Ok(None)
    }

    fn match_at(&self, pattern: &Pattern, at: usize, steps: &mut Steps) -> Result<Option<Groups>, Stop> {
        let mut groups = vec![None; pattern.groups * 2];
        Ok(self.run(pattern, 0, at, &mut groups, steps)?.then_some(groups))
    }

    fn run(
        &self,
        pattern: &Pattern,
        mut code: usize,
        mut at: usize,
        groups: &mut Groups,
        steps: &mut Steps,
    ) -> Result<bool, Stop> {
        let mut undo = Vec::new();
        loop {
            steps.charge(1)?;
            let mut next = Some((code + 1, at));
            match pattern.code[code] {
                Code::Match => return Ok(true),
                Code::Character(_) | Code::Any | Code::Class(_) => {
                    next = match self.at(at) {
                        Some(found) if matches_one(pattern, pattern.code[code], found) => {
                            Some((code + 1, at + found.len_utf8()))
                        }
                        _ => None,
                    };
                }
                Code::Split(first, second) => {
                    steps.charge_bytes(size_of::<Undo>())?;
                    undo.push(Undo::Branch(second.into(), at));
                    next = Some((first.into(), at));
                }
                Code::Jump(to) => next = Some((to.into(), at)),
                Code::Save(slot) => set(groups, slot.into(), Some(at), &mut undo, steps)?,
                Code::ClearGroups(first, last) => {
                    for slot in usize::from(first) * 2..usize::from(last) * 2 {
                        set(groups, slot, None, &mut undo, steps)?;
                    }
                }
                Code::Start | Code::End | Code::Boundary | Code::NotBoundary => {
                    if !self.holds(pattern, pattern.code[code], at) {
                        next = None;
                    }
                }
                Code::Lookahead(positive, to) => {
                    let found = self.run(pattern, code + 1, at, &mut groups.clone(), steps)?;
                    next = (found == positive).then_some((to.into(), at));
                }
            }
            let Some((next_code, position)) = next.or_else(|| back(groups, &mut undo)) else {
                return Ok(false);
            };
            (code, at) = (next_code, position);
        }
    }

    fn holds(&self, pattern: &Pattern, code: Code, at: usize) -> bool {
        let line_end = |character: Option<char>| character.is_some_and(is_line_end);
        let boundary = || self.before(at).is_some_and(is_word) != self.at(at).is_some_and(is_word);
        match code {
            Code::Start => at == 0 || (pattern.multiline && line_end(self.before(at))),
            Code::End => at == self.text.len() || (pattern.multiline && line_end(self.at(at))),
            Code::Boundary => boundary(),
            _ => !boundary(),
        }
    }
}

fn matches_one(pattern: &Pattern, code: Code, found: char) -> bool {
    match code {
        Code::Character(wanted) => found == wanted || (pattern.ignore_case && found.eq_ignore_ascii_case(&wanted)),
        Code::Any => pattern.dot_all || !is_line_end(found),
        Code::Class(class) => pattern.classes[usize::from(class)].matches(found, pattern.ignore_case),
        _ => false,
    }
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}

fn set(
    groups: &mut Groups,
    slot: usize,
    value: Option<usize>,
    undo: &mut Vec<Undo>,
    steps: &mut Steps,
) -> Result<(), Stop> {
    steps.charge_bytes(size_of::<Undo>())?;
    undo.push(Undo::Group(slot, groups[slot]));
    groups[slot] = value;
    Ok(())
}

fn back(groups: &mut Groups, undo: &mut Vec<Undo>) -> Option<(usize, usize)> {
    loop {
        match undo.pop()? {
            Undo::Branch(code, at) => return Some((code, at)),
            Undo::Group(slot, value) => groups[slot] = value,
        }
    }
}
