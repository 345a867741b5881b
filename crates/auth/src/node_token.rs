//! Tokens by which nodes of one cluster prove to each other that they are of it: a token is good for one method and target, for a
//! minute, and shows nothing of the secret that all nodes have.

use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;
use data_encoding::HEXLOWER;

/// The time for which a token is good, in both directions: clocks of nodes differ a little.
const LIFETIME_S: u64 = 60;

/// What else is signed, so that nothing that was signed for other purposes is a token.
const PURPOSE: &[u8] = b"settee node\n";

/// The token of a request that is made at `now_s`, in seconds of the Unix epoch.
#[must_use]
pub fn node_token(secret: &[u8], method: &str, target: &str, now_s: u64) -> String {
    let time = now_s.to_string();
    let mac =
        Algorithm::Sha256.mac(secret, &[PURPOSE, time.as_bytes(), b"\n", method.as_bytes(), b" ", target.as_bytes()]);
    format!("{time}:{}", HEXLOWER.encode(&mac))
}

/// Whether `token` was made for this request, and lately.
#[must_use]
pub fn node_token_matches(secret: &[u8], token: &str, method: &str, target: &str, now_s: u64) -> bool {
    let Some(made_s) = token.split_once(':').and_then(|(time, _)| time.parse::<u64>().ok()) else { return false };
    let expected = node_token(secret, method, target, made_s);
    made_s.abs_diff(now_s) <= LIFETIME_S && bool::from(expected.as_bytes().ct_eq(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_request_and_a_while() {
        let token = node_token(b"secret", "GET", "/_active_tasks", 1_000);
        for (secret, method, target, now_s, expected) in [
            ("secret", "GET", "/_active_tasks", 1_000, true),
            ("secret", "GET", "/_active_tasks", 1_060, true),
            ("secret", "GET", "/_active_tasks", 940, true),
            ("secret", "GET", "/_active_tasks", 1_061, false),
            ("secret", "GET", "/_active_tasks", 939, false),
            ("secret", "PUT", "/_active_tasks", 1_000, false),
            ("secret", "GET", "/_active_tasks?x", 1_000, false),
            ("Secret", "GET", "/_active_tasks", 1_000, false),
            ("", "GET", "/_active_tasks", 1_000, false),
        ] {
            let found = node_token_matches(secret.as_bytes(), &token, method, target, now_s);
            assert_eq!(found, expected, "{secret} {method} {target} {now_s}");
        }
        for broken in ["", ":", "1000", "1000:", &token[..token.len() - 1], &format!("0{token}"), "x:y"] {
            assert!(!node_token_matches(b"secret", broken, "GET", "/_active_tasks", 1_000), "{broken}");
        }
    }
}
