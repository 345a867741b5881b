//! Preserves the order of combining marks: [`keep_order`]. CouchDB disables normalization in ICU, whereas the library
//! reorders marks canonically. A character without weight that combines with no other, inserted between two marks,
//! prevents this.

use std::borrow::Cow;

use icu_normalizer::properties::{CanonicalCombiningClassMapBorrowed, CanonicalDecompositionBorrowed, Decomposed};

static CLASSES: CanonicalCombiningClassMapBorrowed<'static> = CanonicalCombiningClassMapBorrowed::new();
static DECOMPOSITIONS: CanonicalDecompositionBorrowed<'static> = CanonicalDecompositionBorrowed::new();

/// Combining grapheme joiner: completely ignorable, of combining class 0.
const JOINER: char = '\u{34f}';

const FIRST_MARK: char = '\u{300}';

const FIRST_COMPOSED: char = '\u{c0}';

pub(super) fn keep_order(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut copied = 0;
    let mut before = None;
    for (at, character) in text.char_indices() {
        if let Some(before) = before
            && character >= FIRST_MARK
            && is_before(character, before)
        {
            kept.push_str(&text[copied..at]);
            kept.push(JOINER);
            copied = at;
        }
        before = Some(character);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(&text[copied..]);
    Cow::Owned(kept)
}

/// Returns true if normalization moves the first mark of `character` before the end of `before`.
fn is_before(character: char, before: char) -> bool {
    let first = CLASSES.get_u8(first_of(character));
    first != 0 && before >= FIRST_COMPOSED && first < CLASSES.get_u8(last_of(before))
}

fn first_of(mut character: char) -> char {
    loop {
        character = match DECOMPOSITIONS.decompose(character) {
            Decomposed::Default => return character,
            Decomposed::Singleton(other) | Decomposed::Expansion(other, _) => other,
        }
    }
}

fn last_of(mut character: char) -> char {
    loop {
        character = match DECOMPOSITIONS.decompose(character) {
            Decomposed::Default => return character,
            Decomposed::Singleton(other) | Decomposed::Expansion(_, other) => other,
        }
    }
}
