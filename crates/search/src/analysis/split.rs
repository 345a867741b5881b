//! Word boundaries. Each function returns the byte range of the next word from a byte on.

/// In characters; longer words are split, as in Lucene, so the time of a text is linear in its length.
pub(super) const MAX_WORD_CHARS: usize = 255;

pub(super) type Next = fn(&str, usize) -> Option<(usize, usize)>;

pub(super) fn whole(text: &str, from: usize) -> Option<(usize, usize)> {
    (from == 0 && !text.is_empty()).then_some((0, text.len()))
}

pub(super) fn not_blank(text: &str, from: usize) -> Option<(usize, usize)> {
    run(text, from, |c| !c.is_whitespace())
}

pub(super) fn letters(text: &str, from: usize) -> Option<(usize, usize)> {
    run(text, from, char::is_alphabetic)
}

fn run(text: &str, from: usize, is_part: impl Fn(char) -> bool) -> Option<(usize, usize)> {
    let rest = &text[from..];
    let start = from + rest.find(&is_part)?;
    let mut end = start;
    for c in text[start..].chars().take_while(|&c| is_part(c)).take(MAX_WORD_CHARS) {
        end += c.len_utf8();
    }
    Some((start, end))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Letter,
    Number,
    /// Joins letters and numbers to words, for example `_`.
    Joiner,
    Katakana,
    Ideograph,
    Hiragana,
    /// Script without spaces between words; runs are not split.
    Complex,
    Emoji,
    Flag,
    /// Belongs to the preceding character.
    Mark,
    BetweenLetters,
    BetweenNumbers,
    BetweenBoth,
    Other,
}

pub(super) fn word(text: &str, from: usize) -> Option<(usize, usize)> {
    word_with_class(text, from).map(|(start, end, _)| (start, end))
}

pub(super) fn word_with_class(text: &str, from: usize) -> Option<(usize, usize, Class)> {
    let mut at = from;
    while let Some(c) = text[at..].chars().next() {
        let class = class_of(c);
        let next = at + c.len_utf8();
        let end = match class {
            Class::Letter | Class::Number | Class::Joiner | Class::Katakana => match joined(text, at) {
                (end, true) => Some(end),
                // Without this jump, a text of joiners would take quadratic time.
                (end, false) => {
                    at = end;
                    continue;
                }
            },
            Class::Ideograph | Class::Hiragana => Some(marks(text, next)),
            Class::Complex => Some(same(text, next, Class::Complex)),
            Class::Emoji => Some(emoji(text, next)),
            Class::Flag => Some(flag(text, next)),
            _ => None,
        };
        if let Some(end) = end {
            return Some((at, end, class));
        }
        at = next;
    }
    None
}

/// Returns the end of a word of letters, numbers and joiners, and false if it has only joiners.
fn joined(text: &str, start: usize) -> (usize, bool) {
    let (mut end, mut last, mut chars) = (start, Class::Other, 0);
    let mut is_word = false;
    while chars < MAX_WORD_CHARS {
        let Some((class, next)) = step(text, end) else { break };
        let goes_on = match (last, class) {
            (Class::Other, _) | (_, Class::Mark) => true,
            (Class::Katakana, Class::Katakana) => true,
            (Class::Letter | Class::Number, Class::Letter | Class::Number) => true,
            (_, Class::Joiner) | (Class::Joiner, Class::Letter | Class::Number | Class::Katakana) => true,
            (Class::Letter, Class::BetweenLetters | Class::BetweenBoth) => follows(text, next, Class::Letter),
            (Class::Number, Class::BetweenNumbers | Class::BetweenBoth) => follows(text, next, Class::Number),
            _ => false,
        };
        if !goes_on {
            break;
        }
        is_word |= matches!(class, Class::Letter | Class::Number | Class::Katakana);
        if !matches!(class, Class::Mark | Class::BetweenLetters | Class::BetweenNumbers | Class::BetweenBoth) {
            last = class;
        }
        end = next;
        chars += 1;
    }
    (end, is_word)
}

fn step(text: &str, at: usize) -> Option<(Class, usize)> {
    text[at..].chars().next().map(|c| (class_of(c), at + c.len_utf8()))
}

fn follows(text: &str, at: usize, wanted: Class) -> bool {
    step(text, marks(text, at)).is_some_and(|(class, _)| class == wanted)
}

fn marks(text: &str, at: usize) -> usize {
    same(text, at, Class::Mark)
}

fn same(text: &str, mut at: usize, wanted: Class) -> usize {
    for _ in 1..MAX_WORD_CHARS {
        match step(text, at) {
            Some((class, next)) if class == wanted || class == Class::Mark => at = next,
            _ => break,
        }
    }
    at
}

fn emoji(text: &str, at: usize) -> usize {
    let mut end = marks(text, at);
    for _ in 1..MAX_WORD_CHARS {
        match step(text, end) {
            Some((Class::Emoji, next)) if text[..end].ends_with('\u{200d}') => end = marks(text, next),
            _ => break,
        }
    }
    end
}

fn flag(text: &str, at: usize) -> usize {
    match step(text, at) {
        Some((Class::Flag, next)) => marks(text, next),
        _ => marks(text, at),
    }
}

fn class_of(c: char) -> Class {
    if c.is_ascii() {
        return match c {
            'a'..='z' | 'A'..='Z' => Class::Letter,
            '0'..='9' => Class::Number,
            '_' => Class::Joiner,
            '\'' | '.' => Class::BetweenBoth,
            ':' => Class::BetweenLetters,
            ',' | ';' => Class::BetweenNumbers,
            _ => Class::Other,
        };
    }
    match u32::from(c) {
        0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x5bf | 0x5c1..=0x5c5 | 0x5c7 => Class::Mark,
        0x610..=0x61a | 0x64b..=0x65f | 0x670 | 0x6d6..=0x6dc | 0x6df..=0x6e4 | 0x6e7..=0x6e8 | 0x6ea..=0x6ed => {
            Class::Mark
        }
        0x964 | 0x965 | 0x970 => Class::Other,
        0x900..=0xdff if !c.is_alphanumeric() => Class::Mark,
        0xad | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x200c..=0x200f | 0x2060..=0x2064 | 0x20d0..=0x20ff => Class::Mark,
        0xfe00..=0xfe0f | 0xfe20..=0xfe2f | 0xfeff | 0x1f3fb..=0x1f3ff | 0xe0020..=0xe01ef => Class::Mark,
        0x2018 | 0x2019 | 0x2024 | 0xfe52 | 0xff07 | 0xff0e => Class::BetweenBoth,
        0xb7 | 0x387 | 0x55f | 0x5f4 | 0x2027 | 0xfe13 | 0xfe55 | 0xff1a => Class::BetweenLetters,
        0x37e | 0x589 | 0x60c | 0x60d | 0x66c | 0x7f8 | 0x2044 | 0xfe10 | 0xfe14 | 0xfe50 | 0xfe54 | 0xff0c
        | 0xff1b => Class::BetweenNumbers,
        0x203f | 0x2040 | 0x2054 | 0xfe33 | 0xfe34 | 0xfe4d..=0xfe4f | 0xff3f => Class::Joiner,
        0x3041..=0x309f => Class::Hiragana,
        0x30a0..=0x30fa | 0x30fc..=0x30ff | 0x31f0..=0x31ff | 0xff66..=0xff9f => Class::Katakana,
        0x3005 | 0x3007 | 0x2e80..=0x2fd5 | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff => {
            Class::Ideograph
        }
        0xe00..=0xeff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x19e0..=0x19ff | 0xa9e0..=0xa9ff | 0xaa60..=0xaadf => {
            Class::Complex
        }
        0x1f1e6..=0x1f1ff => Class::Flag,
        0x1f000..=0x1faff | 0x2600..=0x27bf | 0x2b50 | 0x2b55 | 0x231a | 0x231b | 0x23e9..=0x23fa => Class::Emoji,
        0xb2 | 0xb3 | 0xb9 | 0xbc..=0xbe | 0x2070..=0x2089 | 0x2150..=0x215f | 0x2460..=0x249b => Class::Other,
        _ if c.is_alphabetic() => Class::Letter,
        _ if c.is_numeric() => Class::Number,
        _ => Class::Other,
    }
}
