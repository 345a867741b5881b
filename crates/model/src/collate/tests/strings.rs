//! Strings: recorded orders, the fast path for ASCII compared with the library, Han characters.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{check_ascending, check_pair};
use crate::collate::string::{COLLATOR, append_library_key};
use crate::collate::{Collation, ascii, han};
use crate::json::write_string;
use crate::testing::Random;

const PIECES: [&[&str]; 13] = [
    &["a", "b", "A", "B", "z", "Z", "ab", "co-op", "x y"],
    &["0", "9", "10", "-", "_", ".", " ", "/", "~", "{", "\"", "\\", "\t", "\n"],
    // Ignorable: controls, soft hyphen, joiners, variation selectors.
    &["\0", "\u{1}", "\u{1f}", "\u{7f}", "\u{ad}", "\u{200b}", "\u{200d}", "\u{fe0f}", "\u{feff}"],
    &["é", "É", "e\u{301}", "ä", "a\u{308}", "å", "ß", "ss", "ſ", "æ", "ø", "ł", "Ĳ", "ǆ", "ﬁ", "½", "²", "l·"],
    &["\u{300}", "\u{301}", "\u{308}", "\u{316}", "\u{323}", "\u{327}", "\u{345}", "\u{34f}", "\u{5b0}"],
    &["α", "Α", "ά", "ω", "б", "Б", "й", "и\u{306}", "ж", "я", "ա", "ა"],
    &["א", "ש", "\u{5c1}", "ا", "أ", "ب", "\u{64e}", "٣", "ܐ"],
    &["क", "क्ष", "\u{93e}", "ก", "เก", "แ", "ไทย", "ลำ", "ক", "ு", "ோ", "ཨ", "ᠠ", "ក"],
    &["あ", "ア", "ｱ", "が", "か\u{3099}", "ー", "カー", "ゝ", "가", "각", "ᄀ", "ᅡ", "ᆨ", "ㄱ"],
    &["日", "本", "一", "丁", "丨", "龥", "㐀", "𠀀", "豈", "﨎", "⼀", "㈱", "㊀", "〇"],
    &["😀", "👍🏽", "👩\u{200d}👩", "🇩🇪", "❤\u{fe0f}", "€", "∑", "→", "♥"],
    &["\u{fffd}", "\u{ffff}", "\u{fff0}", "\u{fffe}", "\u{e000}", "\u{10ffff}", "\u{fdd0}", "\u{378}", "\u{e0100}"],
    &["𐐀", "𒀀", "𝒜", "𐤀", "𑀅"],
];

pub(super) fn random_string(random: &mut Random) -> String {
    let alphabets = [random.pick(&PIECES), random.pick(&PIECES)];
    let mut text = String::new();
    for _ in 0..random.below(6) {
        let alphabet = random.pick(&alphabets);
        text.push_str(random.pick(alphabet));
    }
    text
}

pub(super) fn random_literal(random: &mut Random) -> String {
    let text = random_string(random);
    if random.below(8) > 0 {
        return literal(&text);
    }
    let escaped = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
    format!("\"{}\"", escaped.collect::<String>())
}

fn literal(text: &str) -> String {
    let mut out = Vec::new();
    write_string(&mut out, text);
    String::from_utf8(out).expect("a literal of a string is UTF-8")
}

fn check_strings_ascending(strings: &[&str]) {
    let literals: Vec<_> = strings.iter().map(|text| literal(text)).collect();
    check_ascending(&literals.iter().map(String::as_str).collect::<Vec<_>>(), Collation::Unicode);
}

#[test]
fn latin_letters_are_in_the_recorded_order() {
    check_strings_ascending(&[
        "a", "A", "á", "à", "â", "å", "ä", "Ä", "ã", "aa", "aA", "Aa", "AA", "ab", "aB", "æ", "Æ", "b", "B", "c", "č",
        "ç", "d", "đ", "ð", "e", "E", "é", "É", "è", "ê", "ë", "f", "g", "ğ", "h", "i", "I", "í", "İ", "ı", "j", "k",
        "l", "ł", "Ł", "m", "n", "ń", "ñ", "Ñ", "o", "ö", "Ö", "ő", "ø", "œ", "p", "q", "r", "ř", "s", "S", "š", "ş",
        "ss", "SS", "ß", "t", "u", "ü", "ű", "v", "w", "x", "y", "ÿ", "z", "Z", "ž", "þ",
    ]);
}

#[test]
fn punctuation_and_digits_are_in_the_recorded_order() {
    check_strings_ascending(&[
        "\t", "\n", " ", "_", "-", "–", "—", ",", ";", ":", "!", "?", ".", "…", "'", "\"", "“", "”", "«", "»", "(",
        ")", "[", "]", "{", "}", "§", "¶", "@", "*", "/", "\\", "&", "#", "%", "•", "`", "^", "°", "©", "®", "+", "±",
        "÷", "×", "<", "=", ">", "|", "~", "¢", "$", "£", "¥", "€", "0", "½", "²", "9", "a", "A",
    ]);
    check_strings_ascending(&[
        "-1", "+1", "0", "02", "1", "①", "1.5", "10", "100", "1a", "1A", "2", "٣", "9", "99", "a1", "a10", "a2", "Ⅳ",
    ]);
}

#[test]
fn words_are_in_the_recorded_order() {
    check_strings_ascending(&[
        "Angstrom",
        "ångström",
        "Ångström",
        "Apfel",
        "Äpfel",
        "black bird",
        "black_bird",
        "black-bird",
        "blackbird",
        "Blackbird",
        "co op",
        "co-op",
        "Co-op",
        "CO-OP",
        "coop",
        "cote",
        "Cote",
        "COTE",
        "coté",
        "côte",
        "côté",
        "de la Cruz",
        "delacruz",
        "facade",
        "façade",
        "MacDonald",
        "Mcdonald",
        "McDonald",
        "naive",
        "naïve",
        "resume",
        "Resume",
        "résume",
        "résumé",
        "Résumé",
        "Strasse",
        "STRASSE",
        "Straße",
        "van der Berg",
        "Van Der Berg",
        "vanderberg",
        "zebra",
        "Zebra",
    ]);
    check_strings_ascending(&[
        "ap",
        "ap{}",
        "ap😀",
        "app",
        "APP",
        "äpp",
        "apple",
        "Apple",
        "apply",
        "apricot",
        "ap日",
        "ap\u{fff0}",
        "ap\u{ffff}",
    ]);
}

#[test]
fn strings_without_difference_are_equal() {
    for (a, b) in [
        ("", "\u{1}"),
        ("ab", "a\u{0}b"),
        ("ab", "a\u{ad}b"),
        ("é", "e\u{301}"),
        ("豈\u{fe00}", "\u{8c48}"),
        ("가", "\u{1100}\u{1161}"),
    ] {
        let (a, b) = (literal(a), literal(b));
        assert_eq!(check_pair(&a, &b, Collation::Unicode), Ordering::Equal, "{a} and {b}");
        assert!(check_pair(&a, &b, Collation::Raw).is_ne(), "{a} and {b}");
    }
}

fn check_ascii(text: &str, library: &mut Vec<u8>, short: &mut Vec<u8>) {
    library.clear();
    short.clear();
    append_library_key(text, library);
    assert!(ascii::append_key(text.as_bytes(), short), "{text:?} does not take the short way");
    assert_eq!(short, library, "{text:?}");
    assert!(!library.contains(&0), "{text:?}");
}

#[test]
fn all_ascii_strings_of_up_to_two_characters_have_the_keys_of_the_library() {
    let (library, short) = (&mut Vec::new(), &mut Vec::new());
    check_ascii("", library, short);
    for first in '\0'..='\x7f' {
        check_ascii(&String::from(first), library, short);
        for second in '\0'..='\x7f' {
            let text = String::from_iter([first, second]);
            check_ascii(&text, library, short);
        }
    }
}

#[test]
fn random_ascii_strings_have_the_keys_of_the_library() {
    let alphabets: [&[u8]; 6] = [b"aB", b"abcdefXYZ", b"a1B2-. ", b"A-\0\x01b", b"0123456789", b"!#~@az AZ\n\t\"\\"];
    let random = &mut Random::new();
    for _ in 0..4 {
        let (library, short) = (&mut Vec::new(), &mut Vec::new());
        let mut texts = Vec::new();
        for round in 0..3_000 {
            let alphabet = random.pick(&alphabets);
            let mut text = String::new();
            for _ in 0..random.below(12) {
                // Lengths at which counts take another byte: 33 and 97, and twice that.
                let run = if random.below(6) == 0 { random.below(300) } else { 1 };
                let any = random.below(10) == 0;
                let byte = if any { random.below(128) as u8 } else { alphabet[random.below(alphabet.len())] };
                text.extend(std::iter::repeat_n(char::from(byte), run));
            }
            check_ascii(&text, library, short);
            if round < 300 {
                texts.push(text);
            }
        }
        for a in &texts {
            for b in &texts {
                assert_eq!(ascii::compare(a.as_bytes(), b.as_bytes()), Some(COLLATOR.compare(a, b)), "{a:?} and {b:?}");
            }
        }
    }
}

#[test]
fn ascii_strings_of_up_to_two_characters_compare_as_with_the_library() {
    let mut texts = vec![String::new()];
    for first in (0..=0x7f_u8).map(char::from) {
        texts.push(String::from(first));
        texts.extend("a Zb-\u{1}".chars().map(|second| String::from_iter([first, second])));
    }
    for a in &texts {
        for b in &texts {
            assert_eq!(ascii::compare(a.as_bytes(), b.as_bytes()), Some(COLLATOR.compare(a, b)), "{a:?} and {b:?}");
        }
    }
}

#[test]
fn runs_of_every_length_have_the_keys_of_the_library() {
    let (library, short) = (&mut Vec::new(), &mut Vec::new());
    for len in 0..400 {
        let (lower, upper) = ("x".repeat(len), "X".repeat(len));
        for text in
            [&lower, &upper, &format!("{lower}A{lower}"), &format!("{upper}a{upper}"), &format!("{lower}{upper}")]
        {
            check_ascii(text, library, short);
        }
    }
}

#[test]
fn other_strings_do_not_take_the_short_way() {
    for text in ["é", "aé", "l\u{b7}", "a\u{301}", "日"] {
        let mut out = vec![7];
        assert!(!ascii::append_key(text.as_bytes(), &mut out), "{text}");
        assert_eq!(out, [7], "{text}");
        assert_eq!(ascii::compare(text.as_bytes(), b"a"), None, "{text}");
        assert_eq!(ascii::compare(b"a", text.as_bytes()), None, "{text}");
    }
}

#[test]
fn escapes_do_not_matter() {
    for (a, b) in
        [("\"a\"", "\"\\u0061\""), ("\"/\"", "\"\\/\""), ("\"日\"", "\"\\u65e5\""), ("\"😀\"", "\"\\ud83d\\ude00\"")]
    {
        for collation in [Collation::Unicode, Collation::Raw] {
            assert_eq!(check_pair(a, b, collation), Ordering::Equal, "{a} and {b}");
        }
    }
}

#[test]
fn han_characters_are_in_the_order_of_radicals_and_strokes() {
    // Recorded from ICU 76. By code point 㐀 and 𠀀 would be last.
    check_strings_ascending(&[
        "z", "я", "あ", "一", "丁", "𠀀", "㐀", "丨", "丶", "乙", "了", "二", "人", "儿", "日", "本", "水", "火", "龥",
    ]);
    check_strings_ascending(&["日", "日本", "日本語", "本", "本日"]);
}

#[test]
fn han_characters_are_exchanged_one_for_one() {
    let decomposes = |character: char| {
        let code = u32::from(character);
        let unified_among_them = [0x0e, 0x0f, 0x11, 0x13, 0x14, 0x1f, 0x21, 0x23, 0x24, 0x27, 0x28, 0x29];
        (0xf900..=0xfaff).contains(&code) && !unified_among_them.contains(&code.wrapping_sub(0xfa00))
            || (0x2f800..=0x2fa1f).contains(&code)
    };
    let unified: Vec<char> = ('\u{3400}'..='\u{323af}')
        .filter(|&character| !decomposes(character) && han::substitute(character).is_some())
        .collect();
    assert_eq!(unified.len(), 97_680);
    let used: BTreeSet<char> = unified.iter().filter_map(|&character| han::substitute(character)).collect();
    assert_eq!(used, unified.iter().copied().collect(), "not a permutation");
    // The replacements are in the order of the library for which the table was generated.
    let block = |character: &char| match character {
        '\u{4e00}'..='\u{9fff}' => 0,
        '\u{f900}'..='\u{faff}' => 1,
        _ => 2,
    };
    let mut in_library_order = unified;
    in_library_order.sort_by_key(|character| (block(character), *character));
    let mut last_key = Vec::new();
    for character in in_library_order {
        let mut key = Vec::new();
        append_library_key(&String::from(character), &mut key);
        assert!(key > last_key, "{character}");
        last_key = key;
    }
}

#[test]
fn marks_that_are_not_in_canonical_order_count_in_the_order_they_have() {
    // Recorded; marks without a base character, after a letter, and after a letter that is composed with a mark.
    check_strings_ascending(&[
        "\u{301}\u{329}",
        "\u{300}\u{323}",
        "\u{308}",
        "\u{308}\u{323}",
        "\u{33d}",
        "\u{329}\u{301}",
        "\u{323}\u{300}",
        "\u{323}\u{308}",
        "a",
        "e\u{301}\u{323}",
        "e\u{323}\u{301}",
    ]);
    check_strings_ascending(&[
        "\u{300}\u{651}",
        "\u{5b7}",
        "\u{5b7}\u{5bc}",
        "\u{5bc}",
        "\u{5bc}\u{5b7}",
        "\u{64b}",
        "\u{64b}\u{651}",
        "\u{651}",
        "\u{651}\u{300}",
        "\u{651}\u{64b}",
        "\u{5d0}\u{5b7}\u{5bc}",
        "\u{5d0}\u{5bc}\u{5b7}",
        "\u{628}\u{64b}\u{651}",
        "\u{628}\u{651}\u{64b}",
    ]);
    for (composed, apart) in
        [("é\u{323}", "e\u{301}\u{323}"), ("\u{1eb9}\u{301}", "e\u{323}\u{301}"), ("\u{1ed9}", "o\u{323}\u{302}")]
    {
        assert_eq!(check_pair(&literal(composed), &literal(apart), Collation::Unicode), Ordering::Equal, "{composed}");
    }
}
