//! [`AllowedAddresses`]: the addresses to which this server connects for a user. Behind a firewall it can reach more.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AllowedAddresses {
    All,
    Public,
}

impl AllowedAddresses {
    pub(super) fn includes(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::All, _) => true,
            (Self::Public, IpAddr::V4(address)) => is_public_v4(address),
            (Self::Public, IpAddr::V6(address)) => is_public_v6(address),
        }
    }
}

/// Follows the registry of special-purpose addresses (RFC 6890 and its successors).
fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = match address.octets() {
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] | [224..=255, ..] => true,
        [172, second, ..] => (16..32).contains(&second),
        [100, second, ..] => (64..128).contains(&second),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        _ => false,
    };
    !is_special
}

/// Public IPv6 addresses start with the bits 001. Some of them embed IPv4 addresses.
fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(address) = address.to_ipv4_mapped() {
        return is_public_v4(address);
    }
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        // 6to4.
        [0x2002, high, low, ..] => v4(high, low),
        // Protocol assignments (including Teredo) and documentation.
        [0x2001, 0..0x200 | 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn public_addresses() {
        let check = |public: bool, addresses: &str| {
            for address in addresses.split_whitespace() {
                let ip: IpAddr = address.parse().unwrap();
                assert_eq!(AllowedAddresses::Public.includes(ip), public, "{address}");
                assert!(AllowedAddresses::All.includes(ip));
            }
        };
        check(
            true,
            "1.1.1.1 8.8.8.8 100.63.0.1 100.128.0.1 172.15.0.1 172.32.0.1 192.167.0.1 198.17.0.1 223.255.255.255",
        );
        check(false, "0.0.0.0 10.0.0.1 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1 172.31.255.255 192.168.1.1");
        check(false, "100.64.0.1 192.0.0.8 198.18.0.1 198.19.0.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255");
        check(true, "2606:4700::1111 2a00:1450:4001::1 64:ff9b::808:808 2002:808:808::1 ::ffff:8.8.8.8");
        check(false, ":: ::1 ::7f00:1 fe80::1 fc00::1 fd12::1 fec0::1 ff02::1 2001::1 2001:db8::1 100::1");
        check(false, "::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1::1 2002:a00:1::");
    }
}
