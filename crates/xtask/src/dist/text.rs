//! The small texts that packages are made of: checksums, and strings of JSON, which Python and Ruby read as well.

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use sha2::{Digest as _, Sha256};

/// SHA-256 as `sha256sum` prints it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// SHA-256 as wheels note it.
pub(crate) fn sha256_base64(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(bytes))
}

/// A string of JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            letter if letter < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// The string that follows `"name":` for the first time, in JSON that this command has made.
pub(crate) fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("{}:", quoted(name)))?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_as_elsewhere() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(sha256_base64(b"abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
    }

    #[test]
    fn strings_are_json() {
        assert_eq!(quoted("a \"b\" \\ \n\u{1}é"), r#""a \"b\" \\ \n\u0001é""#);
        let json = r#"{"a": "1", "digest":"sha256:0", "b":2}"#;
        let cases = [("a", Some("1")), ("digest", Some("sha256:0")), ("b", None), ("c", None)];
        for (name, expected) in cases {
            assert_eq!(member(json, name), expected, "{name}");
        }
    }
}
