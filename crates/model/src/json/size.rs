//! [`measured_size`]: the size of a value as CouchDB compares it with limits.

use super::Value;

/// Returns the number of bytes that CouchDB compares with `max_document_size` (`couch_ejson_size:encoded_size`): the
/// length of the compact text, except that strings count unescaped, and fractions by their magnitude. At most the
/// length of the text.
pub fn measured_size(value: Value<'_>) -> usize {
    let text = value.raw();
    let (mut at, mut size) = (0, 0);
    while let Some(&byte) = text.get(at) {
        let (length, counted) = match byte {
            b'"' => string(&text[at..]),
            b'-' | b'0'..=b'9' => number(&text[at..]),
            _ => (1, 1),
        };
        at += length;
        size += counted;
    }
    size
}

/// The results are the length of the literal and its counted size.
fn string(text: &[u8]) -> (usize, usize) {
    let (mut at, mut size) = (1, 2);
    loop {
        let stop = super::scan::string_special(text, at);
        size += stop - at;
        at = stop;
        match text.get(at..at + 2) {
            Some([b'\\', b'u']) => {
                let (length, counted) = escaped_character(&text[at..]);
                at += length;
                size += counted;
            }
            Some([b'\\', _]) => {
                at += 2;
                size += 1;
            }
            _ => return ((at + 1).min(text.len()), size),
        }
    }
}

fn escaped_character(text: &[u8]) -> (usize, usize) {
    let unit = text.get(2..6).and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
    match unit.unwrap_or_default() {
        0..0x80 => (6, 1),
        0x80..0x800 => (6, 2),
        // Validated text has surrogates in pairs only.
        0xd800..0xdc00 => (12, 4),
        _ => (6, 3),
    }
}

fn number(text: &[u8]) -> (usize, usize) {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let length = text.iter().take_while(is_part).count();
    let number = &text[..length];
    if number.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-')) {
        return (length, length);
    }
    let value = std::str::from_utf8(number).ok().and_then(|number| number.parse::<f64>().ok()).unwrap_or_default();
    (length, float_size(value.abs()) + usize::from(value < 0.0))
}

fn float_size(magnitude: f64) -> usize {
    // Upper bounds of magnitudes below one, and lower bounds of others, with their sizes.
    let small = [(1e-300, 3), (1e-100, 6), (1e-10, 5), (0.01, 4)];
    let large = [(1e100, 5), (1e10, 4)];
    let found = if magnitude < 1.0 {
        small.iter().find(|(bound, _)| magnitude <= *bound)
    } else {
        large.iter().find(|(bound, _)| magnitude >= *bound)
    };
    found.map_or(3, |(_, size)| *size)
}

/// Returns true if [`measured_size`] exceeds `limit`. Reads only text that is longer than the limit.
pub fn exceeds(value: Value<'_>, limit: u64) -> bool {
    value.raw().len() as u64 > limit && measured_size(value) as u64 > limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn values_are_as_large_as_couchdb_counts_them() {
        let table = [
            ("{}", 2),
            ("[]", 2),
            ("null", 4),
            ("true", 4),
            ("false", 5),
            ("0", 1),
            ("-12", 3),
            (r#"{"a":1}"#, 7),
            (r#"{"a":[1,2,{"b":"c"}],"d":""}"#, 28),
            (r#""abc""#, 5),
            (r#""é€😀""#, 11),
            (r#""\u0041\u00e9\u20ac\ud83d\ude00""#, 12),
            (r#""\n\"\\\/""#, 6),
            (r#""\\u0041""#, 8),
            ("1.0", 3),
            ("0.0", 3),
            ("1.23456789", 3),
            ("-1.23456789", 4),
            ("1e5", 3),
            ("12345678901.5", 4),
            ("1.5e100", 5),
            ("0.123456789", 3),
            ("0.001", 4),
            ("1.5e-11", 5),
            ("-1.5e-101", 7),
            ("1e-301", 3),
        ];
        for (text, size) in table {
            let json = Json::parse(text.as_bytes()).expect(text);
            assert_eq!(measured_size(json.value()), size, "{text}");
        }
    }

    #[test]
    fn no_value_is_larger_than_its_text() {
        let mut random = crate::testing::Random::new();
        for _ in 0..500 {
            let text = random.json();
            let json = Json::parse(text.as_bytes()).expect("generated texts are JSON");
            let size = measured_size(json.value());
            assert!(size <= json.as_bytes().len(), "{text}");
            assert!(!exceeds(json.value(), size as u64), "{text}");
        }
    }
}
