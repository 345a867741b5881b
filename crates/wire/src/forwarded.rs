//! Addresses of clients in the headers of proxies: [`hops`] parses `Forwarded` (RFC 7239), [`address`] also an element
//! of `X-Forwarded-For`.

use std::net::IpAddr;

/// Returns one element for each hop that has a `for` parameter: its address, or `None` if the hop hides it. A malformed
/// value is one hop without an address, because the part that a trusted proxy appended cannot be determined.
#[must_use]
pub fn hops(value: &str) -> Vec<Option<IpAddr>> {
    let mut rest = value;
    let (mut hops, mut hop, mut has_for) = (Vec::new(), Hop::Empty, false);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.chars().next() {
            None => {
                hops.extend(hop.address());
                return if has_for { hops } else { Vec::new() };
            }
            Some(',') => {
                hops.extend(std::mem::replace(&mut hop, Hop::Empty).address());
                rest = &rest[1..];
            }
            Some(';') => rest = &rest[1..],
            Some(_) => {
                let Some((name, value, after)) = pair(rest) else { return vec![None] };
                let is_for = name.eq_ignore_ascii_case("for");
                has_for |= is_for;
                hop = match (hop, is_for) {
                    (Hop::Empty | Hop::Nameless, true) => Hop::For(address(&value)),
                    (Hop::For(_), true) => Hop::For(None),
                    (Hop::Empty | Hop::Nameless, false) => Hop::Nameless,
                    (named, false) => named,
                };
                rest = after;
            }
        }
    }
}

/// Parses IPv4 or IPv6, with brackets, a port or a zone. Returns `None` for `unknown`, `_hidden` and invalid text.
#[must_use]
pub fn address(text: &str) -> Option<IpAddr> {
    let is_port = |port: &str| {
        let digits = port.strip_prefix('_').unwrap_or(port);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let text = text.trim_matches('"');
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return None;
        }
        address
    } else {
        match text.split_once(':') {
            // An IPv6 address without brackets contains several colons.
            Some((address, port)) if !port.contains(':') => is_port(port).then_some(address)?,
            _ => text,
        }
    };
    let (address, _zone) = address.split_once('%').unwrap_or((address, ""));
    address.parse().ok().map(|address: IpAddr| address.to_canonical())
}

enum Hop {
    Empty,
    Nameless,
    For(Option<IpAddr>),
}

impl Hop {
    fn address(self) -> Option<Option<IpAddr>> {
        match self {
            Self::Empty => None,
            Self::Nameless => Some(None),
            Self::For(address) => Some(address),
        }
    }
}

/// Returns the name, the value (a token or a quoted string) and the remainder of the text.
fn pair(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.split_once('=')?;
    let is_token = |text: &str| !text.is_empty() && !text.contains([' ', '\t', ',', ';', '"']);
    if !is_token(name) {
        return None;
    }
    let (value, rest) = match rest.strip_prefix('"') {
        None => {
            let end = rest.find([',', ';', ' ', '\t']).unwrap_or(rest.len());
            let (value, rest) = rest.split_at(end);
            (is_token(value).then(|| value.to_owned())?, rest)
        }
        Some(quoted) => {
            let mut value = String::new();
            let mut symbols = quoted.char_indices();
            loop {
                match symbols.next()? {
                    (at, '"') => break (value, &quoted[at + 1..]),
                    (_, '\\') => value.push(symbols.next()?.1),
                    (_, symbol) => value.push(symbol),
                }
            }
        }
    };
    let rest = rest.trim_start_matches([' ', '\t']);
    (rest.is_empty() || rest.starts_with([',', ';'])).then_some((name, value, rest))
}
