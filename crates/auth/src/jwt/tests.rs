//! Tokens of all algorithms, keys in all forms, and invalid tokens.

use super::*;

const VECTORS: &str = include_str!("vectors.txt");

fn vector(name: &str) -> &'static str {
    let mut lines = VECTORS.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name).map(|(_, value)| value).unwrap()
}

fn policy() -> TokenPolicy {
    TokenPolicy {
        required: vec![RequiredClaim::Present("exp".to_owned())],
        algorithms: JwtAlgorithm::list(""),
        roles: RolesClaim::Name("_couchdb.roles".to_owned()),
    }
}

fn key(key_type: KeyType, name: &str) -> VerifyingKey {
    VerifyingKey::parse(key_type, vector(name)).unwrap()
}

fn judge(text: &str, key: &VerifyingKey, policy: &TokenPolicy) -> Result<UserContext, String> {
    let authenticator = Authenticator::new([3; 32]);
    let judge = || {
        let token = Token::parse(text, policy)?;
        token.check(policy, 1000)?;
        token.verify(key, &authenticator)?;
        token.verify(key, &authenticator)?;
        token.context(policy)
    };
    judge().map_err(|error| match error {
        JwtError::BadRequest(reason) => format!("400 {reason}"),
        JwtError::Unauthorized(reason) => format!("401 {reason}"),
        JwtError::NotFound(reason) => format!("404 {reason}"),
    })
}

#[test]
fn all_algorithms() {
    let hmac = VerifyingKey::parse(KeyType::Hmac, "c2VjcmV0").unwrap();
    let (rsa, ec, ec384) = (key(KeyType::Rsa, "rsa"), key(KeyType::Ec, "ec"), key(KeyType::Ec, "ec384"));
    let ec521 = key(KeyType::Ec, "ec521");
    let ann = UserContext { name: Some("ann".to_owned()), roles: vec!["x".to_owned()] };
    for (name, key) in [
        ("HS256", &hmac),
        ("HS512", &hmac),
        ("RS256", &rsa),
        ("RS512", &rsa),
        ("PS256", &rsa),
        ("ES256", &ec),
        ("ES384", &ec384),
        ("ES512", &ec521),
    ] {
        let text = vector(name);
        assert_eq!(judge(text, key, &policy()), Ok(ann.clone()), "{name}");
        for at in [text.find('.').unwrap() + 12, text.len() - 8] {
            let mut forged = text.as_bytes().to_vec();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(judge(&forged, key, &policy()).is_err(), "{name} {at}");
        }
        let only = TokenPolicy { algorithms: JwtAlgorithm::list("RS384, nonsense"), ..policy() };
        assert_eq!(judge(text, key, &only), Err("400 Invalid alg header parameter".to_owned()), "{name}");
        for other in [&hmac, &rsa, &ec, &ec384, &ec521].into_iter().filter(|other| *other != key) {
            assert_eq!(judge(text, other, &policy()), Err("400 Bad signature".to_owned()), "{name} {other:?}");
        }
    }
}

#[test]
fn keys_in_all_forms() {
    assert_eq!(key(KeyType::Rsa, "rsa"), key(KeyType::Rsa, "rsa-pkcs1"));
    let lines = vector("rsa").replace("\\n", "\n");
    assert_eq!(VerifyingKey::parse(KeyType::Rsa, &lines).unwrap(), key(KeyType::Rsa, "rsa"));
    let check = |key_type, text: &str, expected: &str| {
        assert_eq!(VerifyingKey::parse(key_type, text).unwrap_err().to_string(), expected, "{text}");
    };
    check(KeyType::Rsa, vector("ec"), "not an RSA public key");
    check(KeyType::Ec, vector("rsa"), "not an EC public key");
    check(KeyType::Hmac, "not base64!", "Not a valid key");
    check(KeyType::Hmac, "", "Not a valid key");
    for damaged in
        ["", "x", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\\nMA==\\n-----END PUBLIC KEY-----"]
    {
        check(KeyType::Rsa, damaged, "Not a valid key");
        check(KeyType::Ec, damaged, "Not a valid key");
    }
    let whole = vector("ec");
    let body = whole.split("\\n").nth(1).unwrap();
    for end in 0..body.len() {
        let cut = whole.replace(body, &body[..end]);
        assert!(VerifyingKey::parse(KeyType::Ec, &cut).is_err(), "{end}");
    }
    assert_eq!(format!("{:?}", key(KeyType::Rsa, "rsa")), "rsa");
}

#[test]
fn sets_of_keys() {
    let set = KeySet::parse(vector("jwks").as_bytes()).unwrap();
    assert_eq!(set.find(KeyType::Rsa, Some("k")), Some(&key(KeyType::Rsa, "rsa")));
    assert_eq!(set.find(KeyType::Rsa, None), Some(&key(KeyType::Rsa, "rsa")));
    assert_eq!(set.find(KeyType::Ec, Some("c")), Some(&key(KeyType::Ec, "ec")));
    for (key_type, id) in [(KeyType::Rsa, "c"), (KeyType::Ec, "k"), (KeyType::Hmac, "o"), (KeyType::Rsa, "enc")] {
        assert_eq!(set.find(key_type, Some(id)), None, "{id}");
    }
    let of_521 = KeySet::parse(vector("jwks521").as_bytes()).unwrap();
    assert_eq!(of_521.find(KeyType::Ec, None), Some(&key(KeyType::Ec, "ec521")));
    let two = vector("jwks").replace(r#""kty":"oct","kid":"o""#, r#""kty":"RSA","n":"AQAB","e":"AQAB""#);
    assert_eq!(KeySet::parse(two.as_bytes()).unwrap().find(KeyType::Rsa, None), None, "there is a choice");
    for nonsense in ["", "[]", "{}", r#"{"keys":{}}"#] {
        assert_eq!(KeySet::parse(nonsense.as_bytes()), None, "{nonsense}");
    }
}

fn token(header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", base64::encode_url(header.as_bytes()), base64::encode_url(claims.as_bytes()));
    let mac = crate::Algorithm::Sha256.mac(b"secret", &[signed.as_bytes()]);
    format!("{signed}.{}", base64::encode_url(&mac))
}

#[test]
fn claims() {
    const HEADER: &str = r#"{"alg":"HS256","kid":"k"}"#;
    let hmac = VerifyingKey::parse(KeyType::Hmac, "c2VjcmV0").unwrap();
    let check = |required: &str, header: &str, claims: &str, expected: Result<(), &str>| {
        let policy = TokenPolicy { required: RequiredClaim::list(required).unwrap(), ..policy() };
        let result = judge(&token(header, claims), &hmac, &policy).map(|_| ());
        assert_eq!(result, expected.map_err(str::to_owned), "{required} {header} {claims}");
    };
    for (required, claims, expected) in [
        ("exp", r#"{"sub":"u"}"#, Err("400 Missing exp claim")),
        ("exp", r#"{"sub":"u","exp":1000}"#, Err("401 exp not in future")),
        ("exp", r#"{"sub":"u","exp":1000.5}"#, Ok(())),
        ("exp", r#"{"sub":"u","exp":"x"}"#, Err("400 Invalid exp claim")),
        ("", r#"{"sub":"u"}"#, Ok(())),
        ("", r#"{"sub":"u","exp":999}"#, Err("401 exp not in future")),
        ("", r#"{"sub":"u","nbf":1000}"#, Err("401 nbf not in past")),
        ("nbf", r#"{"sub":"u","nbf":999}"#, Ok(())),
        ("nbf, iat", r#"{"sub":"u","nbf":999}"#, Err("400 Missing iat claim")),
        ("iat", r#"{"sub":"u","iat":"x"}"#, Err("400 Invalid iat claim")),
        (r#"{iss, "me"}"#, r#"{"sub":"u"}"#, Err("400 Missing iss claim")),
        (r#"{iss, "me"}"#, r#"{"sub":"u","iss":"you"}"#, Err("400 Invalid iss claim")),
        (r#"{iss,"me"},{aud , "us"}"#, r#"{"sub":"u","iss":"me","aud":["them","us"]}"#, Ok(())),
        ("kid", r#"{"sub":"u"}"#, Ok(())),
        ("typ", r#"{"sub":"u"}"#, Err("400 Missing typ header parameter")),
        ("", "{}", Err("401 Token missing sub claim.")),
        ("exp", r#"{"sub":"u","exp":null}"#, Err("400 Invalid exp claim")),
        ("exp", r#"{"sub":"u","exp":[2000]}"#, Err("400 Invalid exp claim")),
        ("exp", r#"{"sub":"u","exp":true}"#, Err("400 Invalid exp claim")),
        ("exp", r#"{"sub":"u","exp":-1}"#, Err("401 exp not in future")),
        ("exp", r#"{"sub":"u","exp":1e300}"#, Ok(())),
        ("nbf", r#"{"sub":"u"}"#, Err("400 Missing nbf claim")),
        ("nbf", r#"{"sub":"u","nbf":"1"}"#, Err("400 Invalid nbf claim")),
        ("nbf", r#"{"sub":"u","nbf":null}"#, Err("400 Invalid nbf claim")),
        ("", r#"{"sub":1}"#, Err("400 Malformed token")),
        ("", r#"{"sub":null}"#, Err("400 Malformed token")),
        ("", r#"{"sub":""}"#, Ok(())),
        ("", r#"{"sub":"u","_couchdb.roles":[1]}"#, Err("400 Malformed token")),
        ("", r#"{"sub":"u","_couchdb.roles":7}"#, Err("400 Malformed token")),
        ("", "[]", Err("400 Not an object")),
        ("", "x", Err("400 Malformed token")),
    ] {
        check(required, HEADER, claims, expected);
    }
    for (header, expected) in [
        ("{}", "400 Missing alg header parameter"),
        (r#"{"alg":"none"}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":"EdDSA"}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":1}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "400 Invalid crit header parameter"),
        (r#"{"alg":"HS256","crit":["exp"],"exp":1}"#, "400 Invalid crit header parameter"),
        (r#"{"alg":"HS256","crit":[]}"#, "400 Invalid crit header parameter"),
        (r#"{"alg":null}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":["HS256"]}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":"hs256"}"#, "400 Invalid alg header parameter"),
        (r#"{"alg":"HS256","kid":7}"#, "400 Unknown kid"),
        (r#"{"alg":"HS256","kid":null}"#, "400 Unknown kid"),
        (r#"{"alg":"HS256","kid":["k"]}"#, "400 Unknown kid"),
        // A token of another family is never verified with this key.
        (r#"{"alg":"RS256"}"#, "400 Bad signature"),
        (r#"{"alg":"ES256"}"#, "400 Bad signature"),
    ] {
        check("", header, r#"{"sub":"u"}"#, Err(expected));
    }
    for malformed in ["", "a", "a.b", "a.b.c.d", "eyJhbGciOiJIUzI1NiJ9.e30.+", "....", &"x".repeat(TOKEN_MAX_BYTES + 1)]
    {
        assert_eq!(judge(malformed, &hmac, &policy()), Err("400 Malformed token".to_owned()));
    }
    for nonsense in ["{iss", "{iss,}", "{iss, \"x\"", "a b", ",", "a,,b", "{,\"x\"}"] {
        assert_eq!(RequiredClaim::list(nonsense), None, "{nonsense}");
    }
}

#[test]
fn roles() {
    let hmac = VerifyingKey::parse(KeyType::Hmac, "c2VjcmV0").unwrap();
    let name = |name: &str| RolesClaim::Name(name.to_owned());
    let missing = |key: &str| Err(format!("404 missing json key: {key}"));
    let malformed = || Err("400 Malformed token".to_owned());
    let roles = |roles: &[&str]| Ok(roles.iter().map(|role| (*role).to_owned()).collect::<Vec<_>>());
    let mismatch = || Err("404 json_mismatch".to_owned());
    let deep = r#""sub":"u","deep":{"er.er":{"roles":["e"]},"list":["x"],"text":"a,b","null":null}"#;
    for (claim, claims, expected) in [
        (name("_couchdb.roles"), r#""sub":"u","_couchdb.roles":["a","b"]"#, roles(&["a", "b"])),
        (name("none"), r#""sub":"u""#, roles(&[])),
        (name("r"), r#""sub":"u","r":[]"#, roles(&[])),
        (name("r"), r#""sub":"u","r":[1]"#, malformed()),
        (name("r"), r#""sub":"u","r":["a",null]"#, malformed()),
        (name("r"), r#""sub":"u","r":{"a":1}"#, malformed()),
        (name("r"), r#""sub":"u","r":true"#, malformed()),
        (name("r"), r#""sub":"u","r":null"#, malformed()),
        (name("r"), r#""sub":"u","r":"c, d,""#, roles(&["c", "d"])),
        (name("r"), r#""sub":"u","r":"""#, roles(&[])),
        (name("r"), r#""sub":"u","r":",,""#, roles(&[])),
        (name("r"), r#""sub":"u","r":"a,,b""#, roles(&["a", "", "b"])),
        (name("r"), r#""sub":"u","r":" _admin , b ""#, roles(&[" _admin", "b "])),
        (name("a.b"), r#""sub":"u","a":{"b":["x"]}"#, roles(&[])),
        (RolesClaim::path(r"_couchdb\.roles"), r#""sub":"u","_couchdb.roles":["a"]"#, roles(&["a"])),
        (RolesClaim::path("deep.list"), deep, roles(&["x"])),
        (RolesClaim::path("deep.text"), deep, roles(&["a", "b"])),
        (RolesClaim::path(r"deep.er\.er.roles"), deep, roles(&["e"])),
        (RolesClaim::path("deep.null"), deep, malformed()),
        (RolesClaim::path("deep"), deep, malformed()),
        (RolesClaim::path("roles"), deep, missing("roles")),
        (RolesClaim::path("deep.er.er.roles"), deep, missing("er")),
        (RolesClaim::path("deep.list.roles"), deep, mismatch()),
        (RolesClaim::path("deep.null.roles"), deep, mismatch()),
        (RolesClaim::path("sub.roles"), deep, mismatch()),
        (RolesClaim::path("deep."), deep, missing("")),
        (RolesClaim::path(""), deep, missing("")),
        (RolesClaim::path("roles"), "", missing("roles")),
        (RolesClaim::path("roles"), r#""roles":[]"#, Err("401 Token missing sub claim.".to_owned())),
        (name("r"), r#""sub":"""#, roles(&[])),
    ] {
        let policy = TokenPolicy { required: Vec::new(), roles: claim.clone(), ..policy() };
        let token = token(r#"{"alg":"HS256"}"#, &format!("{{{claims}}}"));
        assert_eq!(judge(&token, &hmac, &policy).map(|user| user.roles), expected, "{claim:?} {claims}");
    }
}
