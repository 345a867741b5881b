//! Credentials from clients: an unsigned credential is refused, and a signed one is accepted only unchanged.

use settee_auth::jwt::{JwtAlgorithm, KeySet, KeyType, RequiredClaim, RolesClaim, Token, TokenPolicy, VerifyingKey};
use settee_auth::{Algorithm, Authenticator, BasicCredentials, NodeRequest, NodeToken, SessionCookie};
use settee_model::base64;

const SECRET: &[u8] = b"a secret that no input has";

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_token(&text);
    check_claims(&text);
    let _ = (BasicCredentials::parse(&text), RequiredClaim::list(&text), RolesClaim::path(&text), KeySet::parse(data));
    for key_type in [KeyType::Hmac, KeyType::Rsa, KeyType::Ec] {
        if let Ok(key) = VerifyingKey::parse(key_type, &text) {
            assert_eq!(key.key_type(), key_type);
        }
    }
    if let Ok(cookie) = SessionCookie::parse(&text) {
        assert_eq!(cookie.verify(SECRET, "salt", &[Algorithm::Sha256], 0, u64::MAX), None);
    }
    let request = NodeRequest { receiver: "a", method: "GET", target: "/", headers: b"" };
    if let Some(token) = NodeToken::parse(&text) {
        assert!(!token.matches(SECRET, &request, 1_000));
    }
    let token = NodeToken::sign(SECRET, &request, data, (1, 1), 1_000);
    let token = NodeToken::parse(&token).expect("it was made here");
    assert!(token.matches(SECRET, &request, 1_000) && token.covers(data) && !token.covers(&[data, b"x"].concat()));
}

fn policy(text: &str) -> TokenPolicy {
    TokenPolicy {
        required: Vec::new(),
        algorithms: JwtAlgorithm::list(""),
        roles: if text.len().is_multiple_of(2) {
            RolesClaim::Name("roles".to_owned())
        } else {
            RolesClaim::path("roles.a")
        },
    }
}

fn check_token(text: &str) {
    let (policy, authenticator) = (policy(text), Authenticator::new([0; 32]));
    let key = VerifyingKey::parse(KeyType::Hmac, &String::from_utf8_lossy(&base64_of(SECRET))).expect("a key");
    if let Ok(token) = Token::parse(text, &policy) {
        let _ = (token.check(&policy, 1_000), token.context(&policy), format!("{token:?}"));
        assert!(token.verify(&key, &authenticator).is_err());
    }
}

/// A signed token of this header and these claims names a user only if its `sub` is a string.
fn check_claims(text: &str) {
    let Some((header, claims)) = text.split_once('\n') else { return };
    let policy = policy(text);
    let token = format!("{}.{}.", base64::encode_url(header.as_bytes()), base64::encode_url(claims.as_bytes()));
    let Ok(token) = Token::parse(&token, &policy) else { return };
    let _ = token.check(&policy, 1_000);
    if let Ok(user) = token.context(&policy) {
        assert!(user.name.is_some());
        assert!(
            policy.roles == RolesClaim::Name("roles".to_owned()) || claims.contains("roles") || claims.contains('\\')
        );
    }
}

fn base64_of(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut encoder) = (Vec::new(), base64::Encoder::default());
    encoder.push(bytes, &mut out);
    encoder.finish(&mut out);
    out
}
