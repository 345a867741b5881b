//! Sets of terms as automata over characters: [`Fuzzy`] and [`Pattern`]. [`Utf8`] converts one to an automaton over
//! bytes. States are computed when a term reaches them, because their number is quadratic or exponential in a pattern.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::patterns;
use crate::error::{Error, Result};
use crate::limits::SearchLimits;

/// Compilation is recursive, so the nesting of groups is limited.
const MAX_DEPTH: u32 = 100;

/// Maximum number of nodes of a pattern, as of automata in Lucene.
const MAX_NODES: usize = 10_000;

const MAX_STATE_BYTES: usize = 8 << 20;

pub(super) trait Words: Send + Sync {
    type State: Clone;

    fn start(&self) -> Self::State;

    fn step(&self, state: &Self::State, c: char) -> Self::State;

    fn is_match(&self, state: &Self::State) -> bool;

    fn can_match(&self, state: &Self::State) -> bool;

    fn holds(&self, word: &str) -> bool {
        let mut state = self.start();
        for c in word.chars() {
            state = self.step(&state, c);
            if !self.can_match(&state) {
                return false;
            }
        }
        self.is_match(&state)
    }
}

pub(super) struct Utf8<W>(pub(super) W);

/// A state, and the bits of an incomplete character.
#[derive(Clone)]
pub(super) struct Decoding<S> {
    state: S,
    bits: u32,
    missing: u8,
    is_broken: bool,
}

impl<W: Words> tantivy_fst::Automaton for Utf8<W> {
    type State = Decoding<W::State>;

    fn start(&self) -> Self::State {
        Decoding { state: self.0.start(), bits: 0, missing: 0, is_broken: false }
    }

    fn is_match(&self, at: &Self::State) -> bool {
        !at.is_broken && at.missing == 0 && self.0.is_match(&at.state)
    }

    fn can_match(&self, at: &Self::State) -> bool {
        !at.is_broken && (at.missing > 0 || self.0.can_match(&at.state))
    }

    fn accept(&self, at: &Self::State, byte: u8) -> Self::State {
        let mut next = at.clone();
        match (at.missing, byte) {
            (0, 0x00..=0x7f) => next.state = self.0.step(&at.state, char::from(byte)),
            (0, 0xc2..=0xdf) => (next.missing, next.bits) = (1, u32::from(byte & 0x1f)),
            (0, 0xe0..=0xef) => (next.missing, next.bits) = (2, u32::from(byte & 0x0f)),
            (0, 0xf0..=0xf4) => (next.missing, next.bits) = (3, u32::from(byte & 0x07)),
            (1..=3, 0x80..=0xbf) => {
                next.missing -= 1;
                next.bits = next.bits << 6 | u32::from(byte & 0x3f);
                if next.missing == 0 {
                    match char::from_u32(next.bits) {
                        Some(c) => next.state = self.0.step(&at.state, c),
                        None => next.is_broken = true,
                    }
                }
            }
            _ => next.is_broken = true,
        }
        next
    }
}

/// Words within at most two edits; exchanging adjacent characters is one edit.
pub(super) struct Fuzzy {
    word: Vec<char>,
    edits: u8,
}

const FAR: u8 = 3;

const MAX_EDITS: u8 = 2;

/// Distances of a prefix to the prefixes of the word whose length differs by at most two.
type Band = [u8; 5];

#[derive(Clone)]
pub(super) struct Distances {
    length: usize,
    band: Band,
    former: Band,
    last: char,
}

impl Fuzzy {
    pub(super) fn new(word: &str, edits: u8) -> Self {
        Self { word: word.chars().collect(), edits: edits.min(MAX_EDITS) }
    }

    pub(super) fn bytes_of(word: &str) -> usize {
        word.len() * size_of::<char>()
    }
}

impl Words for Fuzzy {
    type State = Distances;

    fn start(&self) -> Distances {
        let mut band = [FAR; 5];
        for (distance, cell) in (0..).zip(&mut band[2..]) {
            if usize::from(distance) <= self.word.len() {
                *cell = distance;
            }
        }
        Distances { length: 0, band, former: [FAR; 5], last: '\0' }
    }

    fn step(&self, state: &Distances, c: char) -> Distances {
        let Distances { length, band, former, last } = state;
        let length = length + 1;
        let mut next = [FAR; 5];
        for cell in 0..5 {
            let Some(count) = (length + cell).checked_sub(2).filter(|count| *count <= self.word.len()) else {
                continue;
            };
            let without = band.get(cell + 1).map_or(FAR, |distance| distance + 1);
            let inserted = if cell > 0 { next[cell - 1] + 1 } else { FAR };
            let mut least = without.min(inserted);
            if count > 0 {
                least = least.min(band[cell] + u8::from(self.word[count - 1] != c));
            }
            if count > 1 && self.word[count - 2] == c && self.word[count - 1] == *last {
                least = least.min(former[cell] + 1);
            }
            next[cell] = least.min(FAR);
        }
        Distances { length, band: next, former: *band, last: c }
    }

    fn is_match(&self, state: &Distances) -> bool {
        let cell = (self.word.len() + 2).checked_sub(state.length);
        cell.and_then(|cell| state.band.get(cell)).is_some_and(|distance| *distance <= self.edits)
    }

    fn can_match(&self, state: &Distances) -> bool {
        state.band.iter().any(|distance| *distance <= self.edits)
    }
}

pub(super) struct Pattern {
    nodes: Vec<Node>,
    start: u32,
    limits: SearchLimits,
    states: Mutex<States>,
}

enum Node {
    Between(char, char, u32),
    Among(Box<[(char, char)]>, u32),
    Split(u32, u32),
    End,
}

#[derive(Default)]
struct States {
    sets: Vec<Arc<[u32]>>,
    is_match: Vec<bool>,
    numbers: HashMap<Arc<[u32]>, u32>,
    steps: HashMap<(u32, char), u32>,
    bytes: usize,
    seen: Vec<u32>,
    closures: u32,
    open: Vec<u32>,
}

const DEAD: u32 = 0;

const STEP_BYTES: usize = 32;

impl Pattern {
    /// `*` matches any text, `?` any character; `\` escapes.
    pub(super) fn wildcard(pattern: &str, limits: &SearchLimits) -> Result<Self> {
        patterns::check(pattern)?;
        let mut compiler = Compiler::new();
        let mut next = compiler.push(Node::End)?;
        for part in patterns::parts(pattern).into_iter().rev() {
            next = match part {
                patterns::Part::Anything => {
                    let any = compiler.push(Node::Between('\0', char::MAX, 0))?;
                    let split = compiler.push(Node::Split(any, next))?;
                    compiler.nodes[any as usize] = Node::Between('\0', char::MAX, split);
                    split
                }
                patterns::Part::Any => compiler.push(Node::Between('\0', char::MAX, next))?,
                patterns::Part::Is(c) => compiler.push(Node::Between(c, c, next))?,
            };
        }
        compiler.finish(next, limits)
    }

    pub(super) fn regex(pattern: &str, limits: &SearchLimits) -> Result<Self> {
        let rewritten = patterns::of_regex(pattern)?;
        let parsed = ParserBuilder::new().nest_limit(MAX_DEPTH).build().parse(&rewritten);
        let expression = parsed.map_err(|error| Error::bad_request(format!("RegexQueryError: {error}")))?;
        let mut compiler = Compiler::new();
        let end = compiler.push(Node::End)?;
        let start = compiler.compile(&expression, end)?;
        compiler.finish(start, limits)
    }

    fn follow(&self, states: &mut States, from: u32, c: char) -> Result<u32> {
        self.limits.check()?;
        let set = Arc::clone(&states.sets[from as usize]);
        states.open.clear();
        for node in set.iter().filter_map(|node| self.nodes.get(*node as usize)) {
            match node {
                Node::Between(least, greatest, next) if (*least..=*greatest).contains(&c) => states.open.push(*next),
                Node::Among(ranges, next) => {
                    let at = ranges.partition_point(|(_, greatest)| *greatest < c);
                    if ranges.get(at).is_some_and(|(least, _)| *least <= c) {
                        states.open.push(*next);
                    }
                }
                Node::Between(..) | Node::Split(..) | Node::End => {}
            }
        }
        let next = self.close(states)?;
        if states.steps.len() * STEP_BYTES > MAX_STATE_BYTES / 2 {
            states.steps.clear();
        } else if states.steps.len() == states.steps.capacity() {
            self.limits.charge(states.steps.len().max(64) * STEP_BYTES)?;
        }
        states.steps.insert((from, c), next);
        Ok(next)
    }

    /// Returns the state of the open nodes and those that follow without a character.
    fn close(&self, states: &mut States) -> Result<u32> {
        states.closures += 1;
        let mut set = Vec::new();
        let mut is_match = false;
        while let Some(node) = states.open.pop() {
            let seen = &mut states.seen[node as usize];
            if std::mem::replace(seen, states.closures) == states.closures {
                continue;
            }
            match &self.nodes[node as usize] {
                Node::Split(one, other) => states.open.extend([*other, *one]),
                Node::End => is_match = true,
                Node::Between(..) | Node::Among(..) => set.push(node),
            }
        }
        set.sort_unstable();
        if is_match {
            // The mark distinguishes a matching set from the same set without the end.
            set.push(u32::MAX);
        }
        if let Some(known) = states.numbers.get(set.as_slice()) {
            return Ok(*known);
        }
        let bytes = size_of_val(set.as_slice()) + 128;
        self.limits.charge(bytes)?;
        states.bytes += bytes;
        if states.bytes > MAX_STATE_BYTES {
            return Err(too_complex());
        }
        let number = u32::try_from(states.sets.len()).map_err(|_| too_complex())?;
        let set: Arc<[u32]> = set.into();
        states.sets.push(Arc::clone(&set));
        states.is_match.push(is_match);
        states.numbers.insert(set, number);
        Ok(number)
    }
}

fn too_complex() -> Error {
    Error::TooLarge("the pattern is too complex: it has too many states".to_owned())
}

impl Words for Pattern {
    type State = u32;

    fn start(&self) -> u32 {
        let mut states = self.states.lock();
        states.open.push(self.start);
        self.close(&mut states).unwrap_or_else(|error| {
            self.limits.fail(error);
            DEAD
        })
    }

    fn step(&self, state: &u32, c: char) -> u32 {
        if *state == DEAD {
            return DEAD;
        }
        let mut states = self.states.lock();
        if let Some(next) = states.steps.get(&(*state, c)) {
            return *next;
        }
        self.follow(&mut states, *state, c).unwrap_or_else(|error| {
            self.limits.fail(error);
            DEAD
        })
    }

    fn is_match(&self, state: &u32) -> bool {
        self.states.lock().is_match[*state as usize]
    }

    fn can_match(&self, state: &u32) -> bool {
        *state != DEAD
    }
}

struct Compiler {
    nodes: Vec<Node>,
    ranges: usize,
}

impl Compiler {
    fn new() -> Self {
        Self { nodes: Vec::new(), ranges: 0 }
    }

    fn push(&mut self, node: Node) -> Result<u32> {
        if self.nodes.len() >= MAX_NODES {
            return Err(too_complex());
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).map_err(|_| too_complex())
    }

    /// Returns the first node of an expression that `next` follows.
    fn compile(&mut self, expression: &Hir, next: u32) -> Result<u32> {
        match expression.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).map_err(|_| Error::bad_request("RegexQueryError: bytes"))?;
                text.chars().rev().try_fold(next, |next, c| self.push(Node::Between(c, c, next)))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges: Box<[_]> = class.ranges().iter().map(|range| (range.start(), range.end())).collect();
                self.ranges += ranges.len();
                if self.ranges * size_of::<(char, char)>() > MAX_STATE_BYTES / 2 {
                    return Err(too_complex());
                }
                match &*ranges {
                    [(least, greatest)] => self.push(Node::Between(*least, *greatest, next)),
                    _ => self.push(Node::Among(ranges, next)),
                }
            }
            HirKind::Class(Class::Bytes(class)) if class.ranges().is_empty() => {
                self.push(Node::Among(Box::default(), next))
            }
            HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => {
                Err(Error::bad_request("RegexQueryError: not supported"))
            }
            HirKind::Capture(capture) => self.compile(&capture.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.compile(part, next)),
            HirKind::Alternation(parts) => {
                let mut parts = parts.iter().rev();
                let Some(last) = parts.next() else { return Ok(next) };
                let last = self.compile(last, next)?;
                parts.try_fold(last, |others, part| {
                    let one = self.compile(part, next)?;
                    self.push(Node::Split(one, others))
                })
            }
            HirKind::Repetition(repetition) => {
                let (least, sub) = (repetition.min, &repetition.sub);
                let mut first = next;
                match repetition.max {
                    Some(most) => {
                        for _ in least..most {
                            let one = self.compile(sub, first)?;
                            first = self.push(Node::Split(one, next))?;
                        }
                    }
                    None => {
                        first = self.push(Node::Split(next, next))?;
                        let again = self.compile(sub, first)?;
                        self.nodes[first as usize] = Node::Split(again, next);
                    }
                }
                for _ in 0..least {
                    let before = self.nodes.len();
                    first = self.compile(sub, first)?;
                    if self.nodes.len() == before {
                        break;
                    }
                }
                Ok(first)
            }
        }
    }

    fn finish(self, start: u32, limits: &SearchLimits) -> Result<Pattern> {
        let Self { nodes, ranges } = self;
        limits.charge(nodes.len() * (size_of::<Node>() + 4) + ranges * size_of::<(char, char)>())?;
        let mut states = States { seen: vec![0; nodes.len()], ..States::default() };
        let dead: Arc<[u32]> = Arc::default();
        states.sets.push(Arc::clone(&dead));
        states.is_match.push(false);
        states.numbers.insert(dead, DEAD);
        Ok(Pattern { nodes, start, limits: limits.clone(), states: Mutex::new(states) })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
