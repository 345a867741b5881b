//! Valid and forged headers of proxies.

use super::*;
use crate::tests::Values;

fn default() -> TrustedProxies {
    TrustedProxies::of(&Values::default())
}

fn headers(sent: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

#[test]
fn networks() {
    let parse = |text: &str| TrustedProxies::parse(text);
    for refused in
        ["x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "/8", "10.0.0", "::ffff:10.0.0.0/8", "1.2.3.4, x"]
    {
        assert_eq!(parse(refused), None, "{refused}");
    }
    assert_eq!(parse("none"), parse(" , "));
    let check = |list: &str, address: &str, expected: bool| {
        let canonical = address.parse::<IpAddr>().unwrap().to_canonical();
        assert_eq!(parse(list).unwrap().contains(canonical), expected, "{list} {address}");
    };
    check("10.0.0.0/8", "10.255.0.1", true);
    check("10.0.0.0/8", "11.0.0.1", false);
    check("10.1.2.3/8", "10.9.9.9", true);
    check("0.0.0.0/0", "203.0.113.1", true);
    check("0.0.0.0/0", "2001:db8::1", false);
    check("::/0", "2001:db8::1", true);
    check("::/0", "203.0.113.1", false);
    check("192.0.2.7", "192.0.2.7", true);
    check("192.0.2.7", "192.0.2.8", false);
    check("192.0.2.7", "::ffff:192.0.2.7", true);
    check("::ffff:192.0.2.0/120", "192.0.2.9", true);
    check("::ffff:192.0.2.7", "192.0.2.7", true);
    check("2001:db8::/32", "2001:db8:1::1", true);
    check("2001:db8::/32", "2001:db9::1", false);
    check("192.0.2.7,2001:db8::1", "2001:db8::1", true);
    let of = |setting: &str| TrustedProxies::of(&Values::of(&[setting]));
    for address in ["127.0.0.1", "127.9.9.9", "::1", "10.1.1.1", "172.16.0.1", "172.31.9.9", "192.168.1.1", "fd00::1"] {
        assert!(of("chttpd/trusted_proxies=").contains(address.parse().unwrap()), "{address}");
        assert!(!of("chttpd/trusted_proxies=none").contains(address.parse().unwrap()), "{address}");
        assert!(!of("chttpd/trusted_proxies=nonsense").contains(address.parse().unwrap()), "{address}");
    }
    for address in ["172.32.0.1", "172.15.0.1", "192.169.0.1", "8.8.8.8", "2001:db8::1", "100.64.0.1"] {
        assert!(!default().contains(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn the_client_is_the_rightmost_hop_that_is_no_proxy() {
    let check = |peer: &str, sent: &[(&str, &str)], expected: &str| {
        let found = default().client(peer.parse().unwrap(), &headers(sent));
        assert_eq!(found.to_string(), expected, "{peer} {sent:?}");
    };
    let common = |value: &'static str, expected: &str| check("127.0.0.1", &[("x-forwarded-for", value)], expected);
    common("203.0.113.9", "203.0.113.9");
    common("198.51.100.1, 203.0.113.9", "203.0.113.9");
    common("198.51.100.1,203.0.113.9, 10.0.0.2 ,192.168.0.1", "203.0.113.9");
    common("10.0.0.5", "10.0.0.5");
    common("10.0.0.5, 10.0.0.6", "10.0.0.5");
    common("203.0.113.9:4711", "203.0.113.9");
    common("2001:db8::7", "2001:db8::7");
    common("[2001:db8::7]", "2001:db8::7");
    common("[2001:db8::7]:4711", "2001:db8::7");
    common("::ffff:203.0.113.9", "203.0.113.9");
    common("2001:db8::7%eth0", "2001:db8::7");
    common("\"203.0.113.9\"", "203.0.113.9");
    for nothing in ["", " ", ",", " , "] {
        common(nothing, "127.0.0.1");
    }
    for unreadable in
        ["unknown", "_hidden", "x", "203.0.113.9:", "203.0.113.9:x y", "203.0.113.256", "[::1", "203.0.113.9.", "é"]
    {
        check("127.0.0.1", &[("x-forwarded-for", unreadable)], "127.0.0.1");
    }
    common("203.0.113.9, unknown", "127.0.0.1");
    common("203.0.113.9, unknown, 10.0.0.2", "10.0.0.2");
    let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9, 10.0.0.1")];
    check("127.0.0.1", &lines, "203.0.113.9");
    check("203.0.113.1", &[("x-forwarded-for", "198.51.100.1")], "203.0.113.1");
    check("2001:db8::1", &[("forwarded", "for=198.51.100.1")], "2001:db8::1");
    check("::ffff:127.0.0.1", &[("x-forwarded-for", "198.51.100.1")], "198.51.100.1");
    check("::ffff:203.0.113.1", &[], "203.0.113.1");
    check("127.0.0.1", &[], "127.0.0.1");
    check("127.0.0.1", &[("x-real-ip", "203.0.113.9")], "127.0.0.1");
}

#[test]
fn the_standard_header() {
    let check = |value: &str, expected: &str| {
        let found = default().client("10.0.0.1".parse().unwrap(), &headers(&[("forwarded", value)]));
        assert_eq!(found.to_string(), expected, "{value}");
    };
    check("for=203.0.113.9", "203.0.113.9");
    check("For=\"203.0.113.9:4711\";proto=https", "203.0.113.9");
    check("proto=http;for=203.0.113.9;by=10.0.0.1", "203.0.113.9");
    check("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
    check("FOR=\"[2001:db8:cafe::17]\"", "2001:db8:cafe::17");
    check("for=198.51.100.1, for=203.0.113.9", "203.0.113.9");
    check("for=198.51.100.1,for=203.0.113.9;proto=https , for=10.0.0.3", "203.0.113.9");
    check("for=\"203\\.0.113.9\"", "203.0.113.9");
    check("for=203.0.113.9; proto=\"a,b;c=\\\"d\\\"\"", "203.0.113.9");
    check("for=203.0.113.9:_port", "203.0.113.9");
    for hidden in [
        "for=unknown",
        "for=_gazonk",
        "for=\"_SEVKISEK\"",
        "for=198.51.100.1, for=_hidden",
        "for=198.51.100.1, proto=https",
    ] {
        check(hidden, "10.0.0.1");
    }
    check("for=198.51.100.1, for=_hidden, for=10.0.0.3", "10.0.0.3");
    for nothing in ["", "proto=https", "host=x;proto=http", ","] {
        check(nothing, "10.0.0.1");
    }
    // An unclosed quote of a client must not hide the part that the proxy appends.
    for forged in [
        "for=198.51.100.1, for=\", for=203.0.113.9",
        "for=\"198.51.100.1, for=\"[2001:db8::1]\"",
        "for=198.51.100.1;x=\", for=\"[2001:db8::1]:1\"",
        "for=\"198.51.100.1\\, for=203.0.113.9",
        "for=\"198.51.100.1\"x, for=203.0.113.9",
        "for, for=203.0.113.9",
        "=x, for=203.0.113.9",
        "for=198.51.100.1 for=203.0.113.9",
        "for=198.51.100.1;for=198.51.100.2",
        "for=\"\"",
        "for=",
    ] {
        check(forged, "10.0.0.1");
    }
    let lines = headers(&[("forwarded", "for=\""), ("forwarded", "for=203.0.113.9")]);
    assert_eq!(default().client("10.0.0.1".parse().unwrap(), &lines).to_string(), "203.0.113.9");
}

#[test]
fn headers_that_disagree_are_not_believed() {
    let client = |sent: &[(&str, &str)]| default().client("127.0.0.1".parse().unwrap(), &headers(sent)).to_string();
    let both = |standard, common| client(&[("forwarded", standard), ("x-forwarded-for", common)]);
    assert_eq!(both("for=203.0.113.9", "203.0.113.9"), "203.0.113.9");
    assert_eq!(both("for=\"[2001:db8::1]:1\"", "198.51.100.1, 2001:db8::1"), "2001:db8::1");
    assert_eq!(both("for=198.51.100.1", "203.0.113.9"), "127.0.0.1");
    assert_eq!(both("for=203.0.113.9", "198.51.100.1"), "127.0.0.1");
    assert_eq!(both("for=_x", "203.0.113.9"), "127.0.0.1");
    assert_eq!(both("proto=https", "203.0.113.9"), "203.0.113.9");
    assert_eq!(both("for=203.0.113.9", ""), "203.0.113.9");
}

#[test]
fn forged_headers_do_not_move_an_honest_address() {
    let pieces = [
        "for=",
        "\"",
        "\\",
        ",",
        ";",
        "[",
        "]",
        ":",
        "203.0.113.9",
        "2001:db8::1",
        "10.0.0.9",
        "unknown",
        " ",
        "=",
        "%",
        "x",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let honest: IpAddr = "198.51.100.7".parse().unwrap();
    for _ in 0..20_000 {
        let forged: String = (0..next(12)).map(|_| pieces[next(pieces.len())]).collect();
        let peer = "127.0.0.1".parse().unwrap();
        let common = default().client(peer, &headers(&[("x-forwarded-for", &format!("{forged}, {honest}"))]));
        assert_eq!(common, honest, "{forged}");
        let line = default().client(peer, &headers(&[("forwarded", &forged), ("forwarded", &format!("for={honest}"))]));
        assert_eq!(line, honest, "{forged}");
        let standard = default().client(peer, &headers(&[("forwarded", &format!("{forged}, for={honest}"))]));
        assert!(standard == honest || standard == peer, "{forged}: {standard}");
    }
}
