//! Regular expressions: [`compile`] compiles one to a [`Pattern`], which a backtracking matcher evaluates. Not in the
//! subset: backreferences, lookbehind, named groups, Unicode sets, legacy syntax (a lone brace, octal escapes), and
//! repetitions of expressions that may match the empty string.

mod matcher;
mod parse;

pub(super) use self::matcher::{Groups, Subject};

#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) code: Vec<Code>,
    pub(super) classes: Vec<Class>,
    pub(super) groups: usize,
    pub(super) global: bool,
    pub(super) ignore_case: bool,
    pub(super) multiline: bool,
    pub(super) dot_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Character(char),
    /// Any character except line terminators.
    Any,
    Class(u16),
    /// Tries the first position, and the second after backtracking.
    Split(u16, u16),
    Jump(u16),
    Save(u16),
    /// Clears the captures of a range of groups, whose end is exclusive.
    ClearGroups(u16, u16),
    Start,
    End,
    Boundary,
    NotBoundary,
    /// Lookahead: the code up to the position must (true) or must not match here; execution continues at the position.
    Lookahead(bool, u16),
    Match,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    pub(super) negated: bool,
    pub(super) ranges: Vec<(char, char)>,
    pub(super) sets: Vec<Set>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Digit(bool),
    Word(bool),
    Space(bool),
}

/// Flags in the numbering of the parser.
const GLOBAL: u8 = 1;
const IGNORE_CASE: u8 = 1 << 1;
const MULTILINE: u8 = 1 << 2;
const DOT_ALL: u8 = 1 << 3;

pub(super) fn compile(text: &str, flags: u8) -> Option<Pattern> {
    if flags & !(GLOBAL | IGNORE_CASE | MULTILINE | DOT_ALL) != 0 {
        return None;
    }
    let ignore_case = flags & IGNORE_CASE != 0;
    if ignore_case && !text.is_ascii() {
        return None;
    }
    let parsed = parse::parse(text)?;
    Some(Pattern {
        code: parsed.code,
        classes: parsed.classes,
        groups: parsed.groups,
        global: flags & GLOBAL != 0,
        ignore_case,
        multiline: flags & MULTILINE != 0,
        dot_all: flags & DOT_ALL != 0,
    })
}

impl Class {
    fn has(&self, character: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&character))
            || self.sets.iter().any(|set| set.has(character))
    }

    pub(super) fn matches(&self, character: char, ignore_case: bool) -> bool {
        let found = self.has(character)
            || (ignore_case
                && character.is_ascii_alphabetic()
                && (self.has(character.to_ascii_lowercase()) || self.has(character.to_ascii_uppercase())));
        found != self.negated
    }
}

impl Set {
    fn has(self, character: char) -> bool {
        match self {
            Set::Digit(positive) => character.is_ascii_digit() == positive,
            Set::Word(positive) => is_word(character) == positive,
            Set::Space(positive) => super::code_units::is_space(character) == positive,
        }
    }
}

pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}
