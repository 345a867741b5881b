//! [`TrustedProxies`]: the address of a client behind proxies.
//!
//! A connection from a trusted proxy carries requests of other clients, whose addresses the proxy appends to
//! `Forwarded` (RFC 7239) or `X-Forwarded-For`. Each proxy appends the address of its own peer, so only the
//! right end of a header is reliable: the client is the rightmost address that is not itself a trusted proxy.
//! A hop without a readable address ends the search.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName};
use settee_settings::{Settings, chttpd};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Value of `[chttpd] trusted_proxies` under which no peer is trusted. An empty value restores the default.
const NONE: &str = "none";

/// The peers whose forwarded addresses are trusted (`[chttpd] trusted_proxies`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrustedProxies(Vec<Network>);

/// A range of addresses: those that equal `first` in the leading `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Parses an address or a range such as `10.0.0.0/8`. An IPv4-mapped range is a range of IPv4.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().ok()?;
        let first = written.to_canonical();
        let (length, bits) = match (written, first) {
            (IpAddr::V6(_), IpAddr::V4(_)) => (32, bits.map(|bits| bits.checked_sub(96)).unwrap_or(Some(32))?),
            (_, IpAddr::V4(_)) => (32, bits.unwrap_or(32)),
            (_, IpAddr::V6(_)) => (128, bits.unwrap_or(128)),
        };
        (bits <= length).then_some(Self { first, bits })
    }

    fn contains(self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differing = first.to_bits() ^ address.to_bits();
                differing.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl TrustedProxies {
    /// Reads the setting. A value that cannot be read trusts no peer.
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self::parse(&chttpd::TRUSTED_PROXIES.of(settings)).unwrap_or_default()
    }

    /// Parses addresses and ranges, separated by commas, or `none`. `None` if one of them is neither.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.trim() == NONE {
            return Some(Self::default());
        }
        text.split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(Network::parse)
            .collect::<Option<_>>()
            .map(Self)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the address of the client of a request that arrived from `peer`.
    ///
    /// Proxies append to one of the two headers and pass the other on as the client sent it. If both headers
    /// exist and disagree, both are ignored, because a client could choose its address otherwise.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.contains(peer) {
            return peer;
        }
        let values = |name: HeaderName| headers.get_all(name).iter().rev().map(|value| value.to_str().unwrap_or("?"));
        let in_standard = values(header::FORWARDED).flat_map(|value| forwarded_hops(value).into_iter().rev());
        let in_common = values(X_FORWARDED_FOR).flat_map(|value| value.rsplit(',')).map(str::trim);
        let in_common = in_common.filter(|hop| !hop.is_empty()).map(hop_address);
        match (self.rightmost_untrusted(peer, in_standard), self.rightmost_untrusted(peer, in_common)) {
            (Some(one), Some(other)) if one == other => one,
            (Some(_), Some(_)) | (None, None) => peer,
            (Some(only), None) | (None, Some(only)) => only,
        }
    }

    /// Returns the address of the first untrusted hop, or else that of the last readable one. `None` without any hop.
    fn rightmost_untrusted(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let mut client = None;
        for hop in hops {
            let known = client.unwrap_or(peer);
            let Some(address) = hop else { return Some(known) };
            client = Some(address);
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

/// Returns the addresses of the hops of a `Forwarded` header that name one: `None` for a hop that hides its
/// address. A malformed value is one such hop, because it is unknown which part of it a proxy has written. A
/// value without any `for` names no hops.
fn forwarded_hops(value: &str) -> Vec<Option<IpAddr>> {
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
                let Some((name, value, after)) = forwarded_pair(rest) else { return vec![None] };
                let is_for = name.eq_ignore_ascii_case("for");
                has_for |= is_for;
                hop = match (hop, is_for) {
                    (Hop::Empty | Hop::Nameless, true) => Hop::For(hop_address(&value)),
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
fn forwarded_pair(text: &str) -> Option<(&str, String, &str)> {
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

/// Parses the address of a hop: IPv4 or IPv6, with brackets, a port or a zone. `None` for `unknown`, `_hidden`
/// and anything else.
fn hop_address(text: &str) -> Option<IpAddr> {
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
