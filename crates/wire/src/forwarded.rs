//! The headers in which proxies state the addresses of their clients: [`hops`] of `Forwarded` (RFC 7239), and the
//! [`address`] of a hop, also of `X-Forwarded-For`.

use std::net::IpAddr;

/// Returns the addresses of the hops of a `Forwarded` header that name one: `None` for a hop that hides its
/// address. A malformed value is one such hop, because it is unknown which part of it a proxy has written. A
/// value without any `for` names no hops.
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
                    // Two addresses of one hop are invalid.
                    (Hop::For(_), true) => Hop::For(None),
                    (Hop::Empty | Hop::Nameless, false) => Hop::Nameless,
                    (named, false) => named,
                };
                rest = after;
            }
        }
    }
}

/// Parses the address of a hop: IPv4 or IPv6, with brackets, a port or a zone. `None` for `unknown`, `_hidden`
/// and anything else.
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
            // Several colons are those of an IPv6 address without brackets.
            Some((address, port)) if !port.contains(':') => is_port(port).then_some(address)?,
            _ => text,
        }
    };
    let (address, _zone) = address.split_once('%').unwrap_or((address, ""));
    address.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// An element of `Forwarded` while it is read.
enum Hop {
    /// The element is empty so far.
    Empty,
    /// The element has parameters, but no `for`.
    Nameless,
    /// The address of the `for` parameter, if it is valid.
    For(Option<IpAddr>),
}

impl Hop {
    /// Returns the hop's address; an empty element is no hop.
    fn address(self) -> Option<Option<IpAddr>> {
        match self {
            Self::Empty => None,
            Self::Nameless => Some(None),
            Self::For(address) => Some(address),
        }
    }
}

/// Takes `name=value` off the start of a `Forwarded` element. The value is a token or a quoted string.
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
