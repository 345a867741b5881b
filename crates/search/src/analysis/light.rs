//! Light stemmers by J. Savoy, which remove endings of number, gender and case but not of verbs, and normalization for
//! Arabic, Persian and Greek.

struct Letters(Vec<char>);

impl Letters {
    fn of(term: &str) -> Self {
        Self(term.chars().collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn ends(&self, ending: &str) -> bool {
        let count = ending.chars().count();
        count <= self.len() && self.0[self.len() - count..].iter().copied().eq(ending.chars())
    }

    fn long(&self, length: usize, ending: &str) -> bool {
        self.len() > length && self.ends(ending)
    }

    /// `place` counts from the end; 1 is the last letter.
    fn back(&self, place: usize) -> char {
        self.len().checked_sub(place).map_or('\0', |at| self.0[at])
    }

    fn cut(&mut self, count: usize) {
        self.0.truncate(self.len().saturating_sub(count));
    }

    fn replace(&mut self, count: usize, by: &str) {
        self.cut(count);
        self.0.extend(by.chars());
    }

    fn map(&mut self, change: impl Fn(char) -> char) {
        self.0.iter_mut().for_each(|c| *c = change(*c));
    }

    fn put(self, term: &mut String) {
        term.clear();
        term.extend(self.0);
    }
}

fn bare(c: char) -> char {
    match c {
        'à' | 'á' | 'â' | 'ä' | 'ã' => 'a',
        'ò' | 'ó' | 'ô' | 'ö' | 'õ' => 'o',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        _ => c,
    }
}

pub(super) fn german(term: &mut String) {
    let mut letters = normalized_german(term);
    letters.map(bare);
    let after = |c: char| "bdfghklmnt".contains(c);
    if letters.long(5, "ern") {
        letters.cut(3);
    } else if letters.len() > 4 && ["em", "en", "er", "es"].iter().any(|ending| letters.ends(ending)) {
        letters.cut(2);
    } else if letters.long(3, "e") || (letters.long(3, "s") && after(letters.back(2))) {
        letters.cut(1);
    }
    if letters.long(5, "est") {
        letters.cut(3);
    } else if letters.long(4, "er") || letters.long(4, "en") || (letters.long(4, "st") && after(letters.back(3))) {
        letters.cut(2);
    }
    letters.put(term);
}

fn normalized_german(term: &str) -> Letters {
    let is_vowel = |c: char| "aeiouyäöüq".contains(c);
    let mut out: Vec<char> = Vec::with_capacity(term.len());
    let (mut before, mut dropped) = ('\0', false);
    for c in term.chars() {
        // The `e` of `ae` and `oe`, and of `ue` that does not follow a vowel, is part of an umlaut.
        let is_umlaut = c == 'e'
            && !dropped
            && match out.last() {
                Some('a' | 'o') => before == 'a' || before == 'o',
                Some('u') => before == 'u' && !out.len().checked_sub(2).is_some_and(|at| is_vowel(out[at])),
                _ => false,
            };
        dropped = is_umlaut;
        before = c;
        match c {
            'e' if is_umlaut => {}
            'ä' => out.push('a'),
            'ö' => out.push('o'),
            'ü' => out.push('u'),
            'ß' => out.extend(['s', 's']),
            c => out.push(c),
        }
    }
    Letters(out)
}

pub(super) fn spanish(term: &mut String) {
    let mut letters = Letters::of(term);
    if letters.len() < 5 {
        return;
    }
    letters.map(bare);
    match letters.back(1) {
        'o' | 'a' | 'e' => letters.cut(1),
        's' if letters.ends("eses") => letters.cut(2),
        's' if letters.ends("ces") => letters.replace(3, "z"),
        's' if "oae".contains(letters.back(2)) => letters.cut(2),
        _ => {}
    }
    letters.put(term);
}

pub(super) fn italian(term: &mut String) {
    let mut letters = Letters::of(term);
    if letters.len() < 6 {
        return;
    }
    letters.map(bare);
    let before = letters.back(2);
    let count = match letters.back(1) {
        'e' | 'i' if before == 'i' || before == 'h' => 2,
        'a' | 'o' if before == 'i' => 2,
        'e' | 'i' | 'a' | 'o' => 1,
        _ => 0,
    };
    letters.cut(count);
    letters.put(term);
}

pub(super) fn portuguese(term: &mut String) {
    let mut letters = Letters::of(term);
    if letters.len() < 4 {
        return;
    }
    plural_of_portuguese(&mut letters);
    if letters.long(3, "a") {
        feminine_of_portuguese(&mut letters);
    }
    if letters.len() > 4 && "eao".contains(letters.back(1)) {
        letters.cut(1);
    }
    letters.map(|c| if c == 'ç' { 'c' } else { bare(c) });
    letters.put(term);
}

fn plural_of_portuguese(letters: &mut Letters) {
    if letters.long(4, "es") && "rslz".contains(letters.back(3)) {
        return letters.cut(2);
    }
    let rules: [(usize, &str, &str); 10] = [
        (3, "ns", "m"),
        (4, "eis", "el"),
        (4, "éis", "el"),
        (4, "ais", "al"),
        (4, "óis", "ol"),
        (4, "is", "il"),
        (3, "ões", "ão"),
        (3, "ães", "ão"),
        (6, "mente", ""),
        (3, "s", ""),
    ];
    if let Some((_, ending, by)) = rules.iter().find(|(length, ending, _)| letters.long(*length, ending)) {
        letters.replace(ending.chars().count(), by);
    }
}

fn feminine_of_portuguese(letters: &mut Letters) {
    let rules: [(usize, &str, &str); 15] = [
        (7, "inha", "inho"),
        (7, "iaca", "iaco"),
        (7, "eira", "eiro"),
        (6, "osa", "oso"),
        (6, "ica", "ico"),
        (6, "ida", "ido"),
        (6, "ada", "ado"),
        (6, "iva", "ivo"),
        (6, "ama", "amo"),
        (6, "ona", "ão"),
        (6, "ora", "or"),
        (6, "esa", "ês"),
        (6, "na", "no"),
        (6, "ia", "io"),
        (usize::MAX, "", ""),
    ];
    if let Some((_, ending, by)) = rules.iter().find(|(length, ending, _)| letters.long(*length, ending)) {
        letters.replace(ending.chars().count(), by);
    }
}

pub(super) fn french(term: &mut String) {
    let mut letters = Letters::of(term);
    if letters.long(5, "aux") && letters.back(4) != 'e' {
        letters.replace(2, "lx");
    }
    if letters.long(3, "x") {
        letters.cut(1);
    }
    if letters.long(3, "s") {
        letters.cut(1);
    }
    suffix_of_french(&mut letters);
    finish_french(&mut letters);
    letters.put(term);
}

/// Only the first matching ending is replaced.
const FRENCH: [(usize, &str, &str); 24] = [
    (9, "issement", "ir"),
    (8, "issant", "ir"),
    (6, "ement", "e"),
    (11, "ficatrice", "fier"),
    (10, "ficateur", "fier"),
    (9, "catrice", "quer"),
    (8, "cateur", "quer"),
    (8, "atrice", "er"),
    (7, "ateur", "er"),
    (6, "trice", "teur"),
    (5, "ième", ""),
    (7, "teuse", "ter"),
    (6, "teur", "ter"),
    (5, "euse", "eu"),
    (8, "ère", "er"),
    (7, "ive", "if"),
    (4, "folle", "fou"),
    (4, "molle", "mou"),
    (9, "nnelle", "n"),
    (9, "nnel", "n"),
    (9, "isation", ""),
    (9, "isateur", ""),
    (8, "ation", ""),
    (8, "ition", ""),
];

fn suffix_of_french(letters: &mut Letters) {
    if letters.long(4, "ète") {
        letters.replace(3, "et");
    }
    if letters.long(8, "ique") {
        letters.cut(4);
    }
    for (length, ending) in [(8, "esse"), (7, "inage")] {
        if letters.long(length, ending) {
            return letters.cut(3);
        }
    }
    let Some((_, ending, by)) = FRENCH.iter().find(|(length, ending, _)| letters.long(*length, ending)) else {
        return;
    };
    letters.replace(ending.chars().count(), by);
    match *ending {
        "ement" if letters.long(3, "ive") => letters.replace(2, "f"),
        "isation" if letters.long(5, "ual") => letters.replace(2, "el"),
        "trice" if letters.long(6, "teur") => letters.replace(4, "ter"),
        _ => {}
    }
}

fn finish_french(letters: &mut Letters) {
    if letters.len() > 4 {
        letters.map(|c| match c {
            'ç' => 'c',
            'ë' | 'ï' | 'ü' | 'ö' | 'ä' => c,
            c => bare(c),
        });
        letters.0.dedup_by(|a, b| a == b && a.is_alphabetic());
    }
    if letters.long(4, "ie") {
        letters.cut(2);
    }
    if letters.len() > 4 {
        for ending in ['r', 'e', 'e'] {
            if letters.back(1) == ending {
                letters.cut(1);
            }
        }
        if letters.len() > 1 && letters.back(1) == letters.back(2) && letters.back(1).is_alphabetic() {
            letters.cut(1);
        }
    }
}

pub(super) fn normalize_arabic(term: &mut String) {
    *term = term
        .chars()
        .filter(|c| !matches!(u32::from(*c), 0x640 | 0x64b..=0x652))
        .map(|c| match c {
            'آ' | 'أ' | 'إ' => 'ا',
            'ى' => 'ي',
            'ة' => 'ه',
            c => c,
        })
        .collect();
}

pub(super) fn normalize_persian(term: &mut String) {
    *term = term
        .chars()
        .filter(|c| !matches!(u32::from(*c), 0x640 | 0x64b..=0x652 | 0x654))
        .map(|c| match c {
            'ی' | 'ے' | 'ى' => 'ي',
            'ک' => 'ك',
            'ۀ' | 'ە' | 'ہ' | 'ھ' => 'ه',
            c => c,
        })
        .collect();
}

pub(super) fn normalize_greek(term: &mut String) {
    *term = term
        .chars()
        .map(|c| match c {
            'ά' => 'α',
            'έ' => 'ε',
            'ή' => 'η',
            'ί' | 'ϊ' | 'ΐ' => 'ι',
            'ό' => 'ο',
            'ύ' | 'ϋ' | 'ΰ' => 'υ',
            'ώ' => 'ω',
            'ς' => 'σ',
            c => c,
        })
        .collect();
}
