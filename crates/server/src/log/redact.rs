//! [`redact`]: removal of secrets from lines, immediately before they are written.
//! Hidden are: the part before the `@` of a URL, also of one in percent escapes; the text after `Basic` and `Bearer`;
//! session cookies; values of parameters, members and settings whose name suggests a password, a secret or a token; and
//! stored hashes of passwords.

use std::borrow::Cow;

const HIDDEN: &str = "***";

const SECRET_PARTS: [&str; 6] = ["password", "passwd", "secret", "token", "authsession", "authorization"];

pub(crate) fn redact(line: &str) -> Cow<'_, str> {
    if !may_hold_secrets(line.as_bytes()) {
        return Cow::Borrowed(line);
    }
    let mut found: Vec<(usize, usize)> = Vec::new();
    in_urls(line, "://", "@", &mut found);
    let lower = line.to_ascii_lowercase();
    if lower.contains('%') {
        in_urls(&lower, "%3a%2f%2f", "%40", &mut found);
    }
    after_schemes(&lower, line, &mut found);
    after_names(&lower, &mut found);
    for (at, _) in line.match_indices("-pbkdf2").chain(line.match_indices("-hashed-")) {
        found.push((at, end_of_value(line, at)));
    }
    if found.is_empty() {
        return Cow::Borrowed(line);
    }
    found.sort_unstable();
    let (mut text, mut done) = (String::with_capacity(line.len()), 0);
    for (start, end) in found {
        if start >= done {
            text.push_str(&line[done..start]);
            text.push_str(HIDDEN);
        }
        done = done.max(end);
    }
    text.push_str(&line[done..]);
    Cow::Owned(text)
}

/// Checks each byte once, because nearly all lines contain no secret: every hidden pattern contains one of these marks.
fn may_hold_secrets(line: &[u8]) -> bool {
    let ends_with = |end: usize, word: &[u8]| {
        end.checked_sub(word.len()).is_some_and(|start| line[start..end].eq_ignore_ascii_case(word))
    };
    line.iter().enumerate().any(|(place, byte)| match byte {
        b'=' | b'%' | b'"' | b'\'' => true,
        b':' => line[place..].starts_with(b"://"),
        b' ' => [&b":"[..], b"basic", b"bearer"].into_iter().any(|word| ends_with(place, word)),
        b'-' => [&b"-pbkdf2"[..], b"-hashed-"].into_iter().any(|word| line[place..].starts_with(word)),
        _ => false,
    })
}

/// `scheme://NAME:PASSWORD@host`
fn in_urls(line: &str, begin: &str, at: &str, found: &mut Vec<(usize, usize)>) {
    for (place, _) in line.match_indices(begin) {
        let start = place + begin.len();
        let rest = &line[start..];
        let authority = rest.find(['/', '?', '#', ' ', '"', '\'', '<', '>', '\\', '&']).unwrap_or(rest.len());
        // An `@` within a password may be unescaped, so the last one is used.
        if let Some(length) = rest[..authority].rfind(at) {
            found.push((start, start + length));
        }
    }
}

/// `Basic Zm9vOmJhcg==`, `Bearer eyJ…`. Ordinary words that follow have neither digits nor capitals.
fn after_schemes(lower: &str, line: &str, found: &mut Vec<(usize, usize)>) {
    for scheme in ["basic ", "bearer "] {
        for (place, _) in lower.match_indices(scheme) {
            let start = place + scheme.len();
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=._~-%".contains(byte);
            let length = line.as_bytes()[start..].iter().take_while(|byte| is_part(byte)).count();
            let credentials = &line.as_bytes()[start..start + length];
            let unlike_a_word = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_uppercase() || *byte == b'=';
            if length >= 4 && credentials.iter().any(unlike_a_word) {
                found.push((start, start + length));
            }
        }
    }
}

/// `password=…`, `"password":"…"`, `password: …`
fn after_names(lower: &str, found: &mut Vec<(usize, usize)>) {
    for name in SECRET_PARTS {
        for (place, _) in lower.match_indices(name) {
            let after = &lower.as_bytes()[place + name.len()..];
            let rest = after.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"_-%".contains(byte)).count();
            let quotes = after[rest..].iter().take_while(|byte| b"\"'\\".contains(byte)).count();
            if !after.get(rest + quotes).is_some_and(|byte| b"=:".contains(byte)) {
                continue;
            }
            let separator = rest + quotes + 1;
            let blank = after[separator..].iter().take_while(|byte| b" \"'\\".contains(byte)).count();
            let start = place + name.len() + separator + blank;
            let end = end_of_value(lower, start);
            if end > start {
                found.push((start, end));
            }
        }
    }
}

fn end_of_value(line: &str, start: usize) -> usize {
    let rest = &line[start..];
    // A scheme belongs to the value of `Authorization`.
    let skip = ["basic ", "bearer "].iter().find(|scheme| rest.starts_with(**scheme)).map_or(0, |scheme| scheme.len());
    rest[skip..]
        .find([' ', '&', '"', '\'', ';', ',', '}', '\\', '\n'])
        .map_or(line.len(), |length| start + skip + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for (line, expected) in [
            ("GET /db/doc?rev=1-a 200 ok 5", "GET /db/doc?rev=1-a 200 ok 5"),
            (
                "from http://ann:s3cret@host:5984/db to https://b.org/c@d",
                "from http://***@host:5984/db to https://b.org/c@d",
            ),
            ("http://ann:p@ss@host/", "http://***@host/"),
            ("?source=http%3A%2F%2Fann%3As3cret%40host%2Fdb&x=1", "?source=http%3A%2F%2F***%40host%2Fdb&x=1"),
            ("Authorization: Basic YW5uOnNlY3JldA==", "Authorization: ***"),
            ("sent bearer eyJhbGciOi.eyJz.x_y-z twice", "sent bearer *** twice"),
            ("basic authentication is used", "basic authentication is used"),
            ("Cookie: AuthSession=YW5uOjEyMw; Path=/", "Cookie: AuthSession=***; Path=/"),
            ("/_session?name=ann&password=s3cret&next=/", "/_session?name=ann&password=***&next=/"),
            (r#"{"name":"ann","password":"s3cret","n":1}"#, r#"{"name":"ann","password":"***","n":1}"#),
            (r#"escaped {\"password\":\"s3cret\"}"#, r#"escaped {\"password\":\"***\"}"#),
            ("client_secret=abc access_token=def", "client_secret=*** access_token=***"),
            ("ann = -pbkdf2:sha256-0a1b rest", "ann = *** rest"),
            ("the password of ann was wrong", "the password of ann was wrong"),
            ("a token: é", "a token: ***"),
            ("", ""),
        ] {
            assert_eq!(redact(line), expected);
        }
    }
}
