//! [`TrustedProxies`]: the address of a client behind proxies. A trusted proxy appends the addresses of its peers to
//! `Forwarded` (RFC 7239) or `X-Forwarded-For`. Only the right end of a header is reliable: the client is the rightmost
//! address that is not itself a trusted proxy. A hop without a readable address ends the search.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName};
use settee_settings::{Settings, chttpd};
use settee_wire::forwarded;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// No peer is trusted. An empty value restores the default.
const NONE: &str = "none";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

/// Addresses that equal `first` in the leading `bits`.
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
    /// A value that cannot be read trusts no peer.
    pub fn of(settings: &dyn Settings) -> Self {
        Self::parse(&chttpd::TRUSTED_PROXIES.of(settings)).unwrap_or_default()
    }

    /// Parses addresses and ranges, separated by commas, or `none`. `None` if one of them is neither.
    pub fn parse(text: &str) -> Option<Self> {
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

    /// Returns the address of the client of a request that arrived from `peer`. If both headers exist and disagree,
    /// both are ignored, because a client could choose its address otherwise.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.contains(peer) {
            return peer;
        }
        let values = |name: HeaderName| headers.get_all(name).iter().rev().map(|value| value.to_str().unwrap_or("?"));
        let in_standard = values(header::FORWARDED).flat_map(|value| forwarded::hops(value).into_iter().rev());
        let in_common = values(X_FORWARDED_FOR).flat_map(|value| value.rsplit(',')).map(str::trim);
        let in_common = in_common.filter(|hop| !hop.is_empty()).map(forwarded::address);
        match (self.rightmost_untrusted(peer, in_standard), self.rightmost_untrusted(peer, in_common)) {
            (Some(one), Some(other)) if one == other => one,
            (Some(_), Some(_)) | (None, None) => peer,
            (Some(only), None) | (None, Some(only)) => only,
        }
    }

    /// Returns the address of the first untrusted hop, or else that of the last readable one; `None` without any hop.
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
