//! Proxy authentication: a proxy in front of the server names the user, and a token may prove that it has the secret.

use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;
use data_encoding::HEXLOWER;

/// Returns true if `token` is the hexadecimal message authentication code of `name` under `secret`.
#[must_use]
pub fn proxy_token_matches(secret: &[u8], name: &str, token: &str, algorithms: &[Algorithm]) -> bool {
    let matches = |algorithm: &Algorithm| {
        let expected = HEXLOWER.encode(&algorithm.mac(secret, &[name.as_bytes()]));
        bool::from(expected.as_bytes().ct_eq(token.as_bytes()))
    };
    algorithms.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_couchdbs_documentation() {
        let (secret, token) = (b"the_secret", "22047ebd7c4ec67dfbcbad7213a693249dbfbf86");
        assert!(proxy_token_matches(secret, "foo", token, &[Algorithm::Sha256, Algorithm::Sha1]));
        assert!(!proxy_token_matches(secret, "foo", token, &[Algorithm::Sha256]));
        assert!(!proxy_token_matches(secret, "bar", token, &[Algorithm::Sha1]));
        assert!(!proxy_token_matches(secret, "foo", "", &[Algorithm::Sha1]));
    }
}
