//! Tokenizer of the analyzer `email`: URLs and mail addresses are single words.

use super::split;

/// In bytes. Longer addresses are split, as in Lucene, which bounds the search for the end.
const MAX_ADDRESS_BYTES: usize = 255;

/// Endings of addresses without a scheme, in addition to all two-letter ones.
const TOP_LEVEL: [&str; 14] =
    ["com", "org", "net", "edu", "gov", "mil", "int", "info", "biz", "name", "museum", "app", "dev", "arpa"];

const SCHEMES: [&str; 4] = ["http://", "https://", "ftp://", "file://"];

pub(super) fn word_or_address(text: &str, from: usize) -> Option<(usize, usize)> {
    let (start, end) = split::word(text, from)?;
    let rest = beginning(&text[start..]);
    let longer = mail(rest).or_else(|| page(rest)).map(|length| start + length).filter(|&longer| longer > end);
    Some((start, longer.unwrap_or(end)))
}

fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MAX_ADDRESS_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn mail(text: &str) -> Option<usize> {
    let local = text.find(|c: char| !(c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c)))?;
    if local == 0 || text.as_bytes()[local] != b'@' || text[..local].ends_with('.') || text[..local].contains("..") {
        return None;
    }
    let host = host(&text[local + 1..])?;
    Some(local + 1 + host)
}

fn host(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.')).unwrap_or(text.len());
    let host = text[..end].trim_end_matches(['.', '-']);
    (host.contains('.') && host.split('.').all(|name| !name.is_empty())).then_some(host.len())
}

fn page(text: &str) -> Option<usize> {
    let scheme = SCHEMES
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)));
    let after = match scheme {
        Some(scheme) => scheme.len() + host(&text[scheme.len()..])?,
        None => {
            let length = host(text)?;
            let last = text[..length].rsplit('.').next()?.to_ascii_lowercase();
            let is_known = TOP_LEVEL.contains(&last.as_str())
                || (last.len() == 2 && last.bytes().all(|b| b.is_ascii_alphabetic()));
            is_known.then_some(length)?
        }
    };
    Some(after + tail(&text[after..]))
}

fn tail(text: &str) -> usize {
    if !text.starts_with([':', '/', '?', '#']) {
        return 0;
    }
    let end = text.find(|c: char| c.is_whitespace() || "<>\"'()[]{}|\\^`".contains(c)).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?']).len()
}
