//! A client cannot change the address that a proxy appends to `Forwarded`, with any header it sends.

use std::net::IpAddr;

use settee_wire::forwarded::{address, hops};

pub(crate) fn check(data: &[u8]) {
    let sent = String::from_utf8_lossy(data);
    let honest = IpAddr::from([198, 51, 100, 7]);
    let found = hops(&sent);
    assert!(found.len() <= 1 + sent.matches(',').count(), "{sent}");
    let appended = hops(&format!("{sent}, for={honest}"));
    assert!(appended == [None] || appended.last() == Some(&Some(honest)), "{sent}: {appended:?}");
    for found in found.into_iter().flatten().chain(address(&sent)) {
        assert_eq!(address(&found.to_string()), Some(found), "{sent}");
    }
}
