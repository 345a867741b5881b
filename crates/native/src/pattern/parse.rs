//! Parser of regular expressions, which generates code.

use super::{Class, Code, Set};

const MAX_CODE: usize = 2_000;

const MAX_COUNT: usize = 50;

const MAX_NESTING: usize = 20;

pub(super) struct Parsed {
    pub(super) code: Vec<Code>,
    pub(super) classes: Vec<Class>,
    pub(super) groups: usize,
}

pub(super) fn parse(text: &str) -> Option<Parsed> {
    let mut parser = Parser { rest: text, classes: Vec::new(), groups: 1, nesting: 0 };
    let body = parser.alternatives()?;
    if !parser.rest.is_empty() {
        return None;
    }
    let mut code = vec![Code::Save(0)];
    append(&mut code, &body.code)?;
    code.extend([Code::Save(1), Code::Match]);
    Some(Parsed { code, classes: parser.classes, groups: parser.groups })
}

struct Parser<'t> {
    rest: &'t str,
    classes: Vec<Class>,
    groups: usize,
    nesting: usize,
}

struct Piece {
    code: Vec<Code>,
    empty: bool,
    repeatable: bool,
}

impl Piece {
    fn one(code: Code) -> Self {
        Self { code: vec![code], empty: false, repeatable: true }
    }

    fn assertion(code: Vec<Code>) -> Self {
        Self { code, empty: true, repeatable: false }
    }
}

fn append(code: &mut Vec<Code>, more: &[Code]) -> Option<()> {
    let base = code_index(code.len())?;
    if code.len() + more.len() > MAX_CODE {
        return None;
    }
    code.extend(more.iter().map(|one| match *one {
        Code::Split(first, second) => Code::Split(first + base, second + base),
        Code::Jump(to) => Code::Jump(to + base),
        Code::Lookahead(positive, to) => Code::Lookahead(positive, to + base),
        other => other,
    }));
    Some(())
}

fn code_index(index: usize) -> Option<u16> {
    if index > MAX_CODE { None } else { u16::try_from(index).ok() }
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn alternatives(&mut self) -> Option<Piece> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return None;
        }
        let mut piece = self.sequence()?;
        while self.take("|") {
            let other = self.sequence()?;
            let mut code = vec![Code::Split(1, code_index(piece.code.len() + 2)?)];
            append(&mut code, &piece.code)?;
            code.push(Code::Jump(code_index(piece.code.len() + other.code.len() + 2)?));
            append(&mut code, &other.code)?;
            piece = Piece { code, empty: piece.empty || other.empty, repeatable: true };
        }
        self.nesting -= 1;
        Some(piece)
    }

    fn sequence(&mut self) -> Option<Piece> {
        let mut all = Piece { code: Vec::new(), empty: true, repeatable: true };
        while !matches!(self.peek(), None | Some('|' | ')')) {
            let first_group = self.groups;
            let atom = self.atom()?;
            let atom = self.repeated(atom, first_group)?;
            append(&mut all.code, &atom.code)?;
            all.empty &= atom.empty;
        }
        Some(all)
    }

    fn atom(&mut self) -> Option<Piece> {
        Some(match self.next()? {
            '.' => Piece::one(Code::Any),
            '^' => Piece::assertion(vec![Code::Start]),
            '$' => Piece::assertion(vec![Code::End]),
            '[' => self.class()?,
            '(' => self.group()?,
            '\\' => self.escape()?,
            '*' | '+' | '?' | '{' | '}' | ']' => return None,
            // Characters of two code units.
            character if character.len_utf16() > 1 => return None,
            character => Piece::one(Code::Character(character)),
        })
    }

    fn group(&mut self) -> Option<Piece> {
        let positive = self.rest.starts_with("?=");
        if self.take("?=") || self.take("?!") {
            // Captures inside of a lookahead have special rules.
            let groups = self.groups;
            let inner = self.alternatives()?;
            if !self.take(")") || self.groups != groups {
                return None;
            }
            let mut code = vec![Code::Lookahead(positive, code_index(inner.code.len() + 2)?)];
            append(&mut code, &inner.code)?;
            code.push(Code::Match);
            return Some(Piece::assertion(code));
        }
        if self.take("?:") {
            let inner = self.alternatives()?;
            return self.take(")").then_some(inner);
        }
        if self.peek() == Some('?') {
            return None;
        }
        let group = self.groups;
        self.groups += 1;
        let inner = self.alternatives()?;
        if !self.take(")") {
            return None;
        }
        let save = code_index(group * 2)?;
        let mut code = vec![Code::Save(save)];
        append(&mut code, &inner.code)?;
        code.push(Code::Save(save + 1));
        Some(Piece { code, empty: inner.empty, repeatable: true })
    }

    fn escape(&mut self) -> Option<Piece> {
        Some(match self.next()? {
            'b' => Piece::assertion(vec![Code::Boundary]),
            'B' => Piece::assertion(vec![Code::NotBoundary]),
            letter => match set(letter) {
                Some(set) => {
                    let class = Class { sets: vec![set], ..Class::default() };
                    self.add_class(class)?
                }
                None => Piece::one(Code::Character(self.escaped(letter)?)),
            },
        })
    }

    fn escaped(&mut self, letter: char) -> Option<char> {
        Some(match letter {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'u' => {
                let code = self.rest.get(..4).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
                let character = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
                self.rest = &self.rest[4..];
                character
            }
            fingerprint if fingerprint.is_ascii_punctuation() => fingerprint,
            _ => return None,
        })
    }

    fn add_class(&mut self, class: Class) -> Option<Piece> {
        self.classes.push(class);
        Some(Piece::one(Code::Class(code_index(self.classes.len() - 1)?)))
    }

    fn class(&mut self) -> Option<Piece> {
        let mut class = Class { negated: self.take("^"), ..Class::default() };
        if self.peek() == Some(']') {
            return None;
        }
        loop {
            let first = match self.next()? {
                ']' => return self.add_class(class),
                '\\' => match self.next()? {
                    'b' => '\u{8}',
                    letter => match set(letter) {
                        Some(set) => {
                            class.sets.push(set);
                            // A set as the end of a range is legacy syntax.
                            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                                return None;
                            }
                            continue;
                        }
                        None => self.escaped(letter)?,
                    },
                },
                character => character,
            };
            let last = if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.rest = &self.rest[1..];
                match self.next()? {
                    '\\' => {
                        let letter = self.next()?;
                        if letter == 'b' || set(letter).is_some() {
                            return None;
                        }
                        self.escaped(letter)?
                    }
                    character => character,
                }
            } else {
                first
            };
            if first > last || first.len_utf16() > 1 || last.len_utf16() > 1 {
                return None;
            }
            class.ranges.push((first, last));
        }
    }

    /// The groups of the atom start at `first_group`.
    fn repeated(&mut self, atom: Piece, first_group: usize) -> Option<Piece> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => self.counts()?,
            _ => return Some(atom),
        };
        self.next()?;
        if atom.empty
            || !atom.repeatable
            || least > MAX_COUNT
            || most.is_some_and(|most| most > MAX_COUNT || most < least)
        {
            return None;
        }
        let lazy = self.take("?");
        if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
            return None;
        }
        let split = |go: u16, leave: u16| if lazy { Code::Split(leave, go) } else { Code::Split(go, leave) };
        let mut once = Vec::new();
        if self.groups > first_group {
            once.push(Code::ClearGroups(code_index(first_group)?, code_index(self.groups)?));
        }
        append(&mut once, &atom.code)?;
        let mut code = Vec::new();
        for _ in 0..least {
            append(&mut code, &once)?;
        }
        match most {
            None => {
                let length = once.len();
                let mut round = vec![split(1, code_index(length + 2)?)];
                append(&mut round, &once)?;
                round.push(Code::Jump(0));
                append(&mut code, &round)?;
            }
            Some(most) => {
                let end = code.len() + (most - least) * (once.len() + 1);
                for _ in least..most {
                    let at = code.len();
                    code.push(split(code_index(at + 1)?, code_index(end)?));
                    append(&mut code, &once)?;
                }
            }
        }
        Some(Piece { code, empty: least == 0, repeatable: true })
    }

    fn counts(&mut self) -> Option<(usize, Option<usize>)> {
        let (inside, _) = self.rest.strip_prefix('{')?.split_once('}')?;
        let number = |text: &str| {
            let good = !text.is_empty() && text.len() < 4 && text.bytes().all(|byte| byte.is_ascii_digit());
            if good { text.parse::<usize>().ok() } else { None }
        };
        let counts = match inside.split_once(',') {
            None => (number(inside)?, Some(number(inside)?)),
            Some((least, "")) => (number(least)?, None),
            Some((least, most)) => (number(least)?, Some(number(most)?)),
        };
        self.rest = &self.rest[1 + inside.len()..];
        Some(counts)
    }
}

fn set(letter: char) -> Option<Set> {
    Some(match letter {
        'd' => Set::Digit(true),
        'D' => Set::Digit(false),
        'w' => Set::Word(true),
        'W' => Set::Word(false),
        's' => Set::Space(true),
        'S' => Set::Space(false),
        _ => return None,
    })
}
