//! [`NodeToken`]: proof that a request comes from a node of the same cluster. A token covers the method, the target,
//! the headers that the receiver reads, and the body of one request to one node. It is valid for a minute and once
//! ([`SeenTokens`]), and reveals nothing of the secret that all nodes share. It contains the digest of the body, so the
//! receiver verifies the head before it reads the body.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;

/// Validity of a token in both directions, to tolerate clock differences between nodes.
const LIFETIME_S: u64 = 60;

/// Distinguishes these signatures from all others that use the secret.
const PURPOSE: &[u8] = b"settee node 2\n";

/// A token is rejected if its sender has made this many later ones, so this limits the requests in flight per sender.
const WINDOW: u64 = 16_384;
const WINDOW_WORDS: usize = (WINDOW / 64) as usize;

/// Maximum number of tracked senders, of 2 KiB each. Each start of a node is a new sender.
const SENDERS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub struct NodeRequest<'a> {
    pub receiver: &'a str,
    pub method: &'a str,
    pub target: &'a str,
    /// The headers that the receiver reads, in a form that both sides compute.
    pub headers: &'a [u8],
}

/// An unverified token. Its contents must not be trusted before [`NodeToken::matches`] and [`NodeToken::covers`].
#[derive(Clone, Debug)]
pub struct NodeToken {
    claim: String,
    made_s: u64,
    sender: u64,
    number: u64,
    digest: String,
    code: String,
}

impl NodeToken {
    /// `now_s` is in seconds of the Unix epoch. The sender must use each `number` once, in ascending order.
    #[must_use]
    pub fn sign(
        secret: &[u8],
        request: &NodeRequest<'_>,
        body: &[u8],
        (sender, number): (u64, u64),
        now_s: u64,
    ) -> String {
        let claim = format!("{now_s}:{sender:x}:{number}:{}", digest(body));
        let code = code(secret, &claim, request);
        format!("{claim}:{code}")
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<NodeToken> {
        let (claim, code) = text.rsplit_once(':')?;
        let mut parts = claim.split(':');
        let (made_s, sender, number, digest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(NodeToken {
            claim: claim.to_owned(),
            made_s: made_s.parse().ok()?,
            sender: u64::from_str_radix(sender, 16).ok()?,
            number: number.parse().ok()?,
            digest: digest.to_owned(),
            code: code.to_owned(),
        })
    }

    /// Verifies the head of the request and the time. The caller must verify the body too ([`NodeToken::covers`]).
    #[must_use]
    pub fn matches(&self, secret: &[u8], request: &NodeRequest<'_>, now_s: u64) -> bool {
        let expected = code(secret, &self.claim, request);
        self.made_s.abs_diff(now_s) <= LIFETIME_S && bool::from(expected.as_bytes().ct_eq(self.code.as_bytes()))
    }

    #[must_use]
    pub fn covers(&self, body: &[u8]) -> bool {
        bool::from(digest(body).as_bytes().ct_eq(self.digest.as_bytes()))
    }
}

fn digest(body: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(body))
}

fn code(secret: &[u8], claim: &str, request: &NodeRequest<'_>) -> String {
    let NodeRequest { receiver, method, target, headers } = *request;
    let length = (receiver.len() as u64).to_be_bytes();
    let head = [method.as_bytes(), b" ", target.as_bytes(), b"\n"];
    let [method, space, target, end] = head;
    let parts = [PURPOSE, claim.as_bytes(), b"\n", &length, receiver.as_bytes(), method, space, target, end, headers];
    HEXLOWER.encode(&Algorithm::Sha256.mac(secret, &parts))
}

/// Used tokens, so that a recorded request cannot be replayed.
#[derive(Debug, Default)]
pub struct SeenTokens(Mutex<HashMap<u64, Window>>);

/// Used numbers of one sender among the last [`WINDOW`].
#[derive(Debug)]
struct Window {
    highest: u64,
    bits: Box<[u64; WINDOW_WORDS]>,
    last_s: u64,
}

impl SeenTokens {
    /// Returns true the first time for each token. The caller must have verified it.
    pub fn take(&self, token: &NodeToken, now_s: u64) -> bool {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= SENDERS_MAX && !senders.contains_key(&token.sender) {
            // All tokens of a sender that was inactive for this time have expired.
            senders.retain(|_, window| now_s.saturating_sub(window.last_s) <= 2 * LIFETIME_S);
            if senders.len() >= SENDERS_MAX {
                return false;
            }
        }
        let unseen = || Window { highest: 0, bits: Box::new([0; WINDOW_WORDS]), last_s: now_s };
        let window = senders.entry(token.sender).or_insert_with(unseen);
        window.last_s = now_s;
        window.take(token.number)
    }
}

impl Window {
    fn take(&mut self, number: u64) -> bool {
        if number > self.highest {
            // Numbers that enter the window reuse the bits of those that leave it.
            for entering in self.highest + 1..=number.min(self.highest.saturating_add(WINDOW)) {
                self.set(entering, false);
            }
            self.highest = number;
        } else if self.highest - number >= WINDOW {
            return false;
        }
        !self.set(number, true)
    }

    fn set(&mut self, number: u64, is_seen: bool) -> bool {
        let at = number % WINDOW;
        let (word, bit) = (&mut self.bits[(at / 64) as usize], 1 << (at % 64));
        let was = *word & bit != 0;
        *word = if is_seen { *word | bit } else { *word & !bit };
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: NodeRequest<'_> =
        NodeRequest { receiver: "settee@b", method: "POST", target: "/_active_tasks?x=1", headers: b"accept: a\n" };

    #[test]
    fn a_token_is_good_for_one_request_and_a_while() {
        let text = NodeToken::sign(b"secret", &REQUEST, b"body", (7, 1), 1_000);
        let token = NodeToken::parse(&text).expect("a token");
        for (now_s, expected) in [(1_000, true), (1_060, true), (940, true), (1_061, false), (939, false)] {
            assert_eq!(token.matches(b"secret", &REQUEST, now_s), expected, "{now_s}");
        }
        for request in [
            NodeRequest { receiver: "settee@c", ..REQUEST },
            NodeRequest { receiver: "settee@bP", method: "OST", ..REQUEST },
            NodeRequest { method: "PUT", ..REQUEST },
            NodeRequest { method: "GET", ..REQUEST },
            NodeRequest { target: "/_active_tasks", ..REQUEST },
            NodeRequest { target: "/_active_tasks?x=2", ..REQUEST },
            NodeRequest { target: "/_active_task?x=1", ..REQUEST },
            NodeRequest { headers: b"", ..REQUEST },
            NodeRequest { headers: b"accept: b\n", ..REQUEST },
            NodeRequest { headers: b"accept: a\nx-couch-persist: false\n", ..REQUEST },
        ] {
            assert!(!token.matches(b"secret", &request, 1_000), "{request:?}");
        }
        for secret in ["Secret", ""] {
            assert!(!token.matches(secret.as_bytes(), &REQUEST, 1_000), "{secret}");
        }
        assert!(token.covers(b"body"));
        for body in [&b""[..], b"bodY", b"body ", b"bod"] {
            assert!(!token.covers(body), "{body:?}");
        }
    }

    #[test]
    fn nothing_of_a_token_can_be_changed() {
        let text = NodeToken::sign(b"secret", &REQUEST, b"body", (7, 12), 1_000);
        let is_accepted = |text: &str| {
            NodeToken::parse(text)
                .is_some_and(|token| token.matches(b"secret", &REQUEST, 1_000) && token.covers(b"body"))
        };
        assert!(is_accepted(&text));
        for at in 0..text.len() {
            for with in ['0', '1', 'a', ':', 'x', ' '] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, &with.to_string());
                assert!(changed == text || !is_accepted(&changed), "{changed}");
            }
            assert!(!is_accepted(&text[..at]), "{at}");
        }
        let other = format!("1000:7:13:{}", text.splitn(4, ':').nth(3).unwrap_or_default());
        for broken in ["", ":", "::::", "1000", &format!("0{text}"), &format!("{text}0"), &format!(" {text}"), &other] {
            assert!(!is_accepted(broken), "{broken}");
        }
    }

    #[test]
    fn a_token_is_accepted_once() {
        let seen = SeenTokens::default();
        let take = |sender: u64, number: u64, now_s: u64| {
            let text = NodeToken::sign(b"secret", &REQUEST, b"", (sender, number), now_s);
            seen.take(&NodeToken::parse(&text).expect("a token"), now_s)
        };
        for (sender, number, expected) in [
            (1, 1, true),
            (1, 1, false),
            (2, 1, true),
            (1, 5, true),
            (1, 3, true),
            (1, 3, false),
            (1, 5, false),
            (1, WINDOW, true),
            (1, 2, true),
            (1, WINDOW + 2, true),
            (1, 2, false),
            (1, 4, true),
            (1, 4, false),
            (1, 9 * WINDOW + 4, true),
            (1, WINDOW + 2, false),
            (1, 9 * WINDOW + 3, true),
            (1, 9 * WINDOW + 4, false),
            (1, u64::MAX, true),
            (1, u64::MAX, false),
        ] {
            assert_eq!(take(sender, number, 10), expected, "{sender} {number}");
        }
        for sender in 0..SENDERS_MAX as u64 + 10 {
            take(sender, 1, 10);
        }
        assert!(!take(u64::MAX, 1, 10), "there are too many");
        assert!(take(u64::MAX, 1, 10 + 2 * LIFETIME_S + 1), "the others are silent");
    }
}
