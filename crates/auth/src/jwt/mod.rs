//! JSON web tokens: a [`Token`] checks its claims against a [`TokenPolicy`] and its signature against a
//! [`VerifyingKey`]. Callers supply the keys. The texts of errors are those of CouchDB's `jwtf`.

mod key;
mod key_set;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

pub use key::{KeyError, KeyType, VerifyingKey};
pub use key_set::KeySet;

use settee_model::json::{Json, Value};

use crate::authenticator::Authenticator;
use crate::user::UserContext;
use settee_model::base64;

/// Maximum length of a token, equal to that of the head of a request.
const TOKEN_MAX_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Malformed or not signed (`bad_request`).
    #[error("{0}")]
    BadRequest(String),
    /// Not valid at this time, or without a user (`unauthorized`).
    #[error("{0}")]
    Unauthorized(String),
    /// No claim at the configured path of the roles (`not_found`, as in CouchDB).
    #[error("{0}")]
    NotFound(String),
}

fn bad_request(reason: impl Into<String>) -> JwtError {
    JwtError::BadRequest(reason.into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    Hs(Bits),
    Rs(Bits),
    Ps(Bits),
    /// ECDSA over the curve with this number of bits; [`Bits::B512`] means P-521.
    Es(Bits),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    B256,
    B384,
    B512,
}

const ALGORITHMS: [(&str, JwtAlgorithm); 12] = [
    ("HS256", JwtAlgorithm::Hs(Bits::B256)),
    ("HS384", JwtAlgorithm::Hs(Bits::B384)),
    ("HS512", JwtAlgorithm::Hs(Bits::B512)),
    ("RS256", JwtAlgorithm::Rs(Bits::B256)),
    ("RS384", JwtAlgorithm::Rs(Bits::B384)),
    ("RS512", JwtAlgorithm::Rs(Bits::B512)),
    ("PS256", JwtAlgorithm::Ps(Bits::B256)),
    ("PS384", JwtAlgorithm::Ps(Bits::B384)),
    ("PS512", JwtAlgorithm::Ps(Bits::B512)),
    ("ES256", JwtAlgorithm::Es(Bits::B256)),
    ("ES384", JwtAlgorithm::Es(Bits::B384)),
    ("ES512", JwtAlgorithm::Es(Bits::B512)),
];

impl JwtAlgorithm {
    fn named(name: &str) -> Option<JwtAlgorithm> {
        ALGORITHMS.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    /// Parses `[jwt_auth] allowed_algorithms`. An empty list permits all algorithms; unknown names are ignored.
    #[must_use]
    pub fn list(text: &str) -> Vec<JwtAlgorithm> {
        if text.trim().is_empty() {
            return ALGORITHMS.into_iter().map(|(_, algorithm)| algorithm).collect();
        }
        text.split(',').filter_map(|name| JwtAlgorithm::named(name.trim().trim_matches('"'))).collect()
    }

    #[must_use]
    pub fn key_type(self) -> KeyType {
        match self {
            JwtAlgorithm::Hs(_) => KeyType::Hmac,
            JwtAlgorithm::Rs(_) | JwtAlgorithm::Ps(_) => KeyType::Rsa,
            JwtAlgorithm::Es(_) => KeyType::Ec,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequiredClaim {
    Present(String),
    Equals(String, String),
}

impl RequiredClaim {
    /// Parses `[jwt_auth] required_claims`: names, and pairs such as `{iss, "https://example.com"}`. Returns `None` if
    /// the list is malformed.
    #[must_use]
    pub fn list(setting: &str) -> Option<Vec<RequiredClaim>> {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let mut claims = Vec::new();
        let mut rest = setting.trim();
        while !rest.is_empty() {
            let (claim, after) = match rest.strip_prefix('{') {
                Some(pair) => {
                    let (name, value) = pair.split_once(',')?;
                    let (value, after) = value.trim_start().strip_prefix('"')?.split_once('"')?;
                    let name = name.trim().to_owned();
                    (RequiredClaim::Equals(name, value.to_owned()), after.trim_start().strip_prefix('}')?)
                }
                None => {
                    let end = rest.find(',').unwrap_or(rest.len());
                    (RequiredClaim::Present(rest[..end].trim().to_owned()), &rest[end..])
                }
            };
            let (RequiredClaim::Present(name) | RequiredClaim::Equals(name, _)) = &claim;
            if !is_name(name) {
                return None;
            }
            claims.push(claim);
            rest = after.trim_start();
            if !rest.is_empty() {
                rest = rest.strip_prefix(',')?.trim_start();
            }
        }
        Some(claims)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolesClaim {
    Name(String),
    Path(Vec<String>),
}

impl RolesClaim {
    /// Parses `[jwt_auth] roles_claim_path`: names separated by dots; `\.` is a dot within a name.
    #[must_use]
    pub fn path(setting: &str) -> RolesClaim {
        let mut names = vec![String::new()];
        let mut symbols = setting.chars().peekable();
        while let Some(symbol) = symbols.next() {
            let last = names.last_mut().expect("there is always one");
            match symbol {
                '\\' if symbols.peek() == Some(&'.') => last.extend(symbols.next()),
                '.' => names.push(String::new()),
                other => last.push(other),
            }
        }
        RolesClaim::Path(names)
    }

    /// A claim with a name is optional; one with a path is required, as in CouchDB.
    fn find<'a>(&self, claims: Value<'a>) -> Result<Option<Value<'a>>, JwtError> {
        let step = |value: Value<'a>, name: &String| {
            if !value.is_object() {
                return Err(JwtError::NotFound("json_mismatch".to_owned()));
            }
            value.get(name).ok_or_else(|| JwtError::NotFound(format!("missing json key: {name}")))
        };
        match self {
            RolesClaim::Name(name) => Ok(claims.get(name)),
            RolesClaim::Path(names) => names.iter().try_fold(claims, step).map(Some),
        }
    }
}

/// As CouchDB's `\s*,\s*`, removes space around commas only, and empty roles at the end only.
fn split_roles(text: &str) -> Vec<String> {
    let is_space = |symbol: char| matches!(symbol, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r');
    let last = text.matches(',').count();
    let role = |(at, role): (usize, &str)| {
        let role = if at > 0 { role.trim_start_matches(is_space) } else { role };
        if at < last { role.trim_end_matches(is_space) } else { role }.to_owned()
    };
    let mut roles: Vec<String> = text.split(',').enumerate().map(role).collect();
    while roles.last().is_some_and(String::is_empty) {
        roles.pop();
    }
    roles
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPolicy {
    /// `exp` and `nbf` are checked even if they are not required.
    pub required: Vec<RequiredClaim>,
    pub algorithms: Vec<JwtAlgorithm>,
    pub roles: RolesClaim,
}

/// An unverified token. Its claims must not be trusted before [`Token::verify`].
pub struct Token<'a> {
    algorithm: JwtAlgorithm,
    key_id: Option<String>,
    header: Json,
    claims: Json,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Fails if the token is malformed or its algorithm is not accepted.
    pub fn parse(text: &'a str, policy: &TokenPolicy) -> Result<Token<'a>, JwtError> {
        let malformed = || bad_request("Malformed token");
        if text.len() > TOKEN_MAX_BYTES {
            return Err(malformed());
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        if claims.contains('.') {
            return Err(malformed());
        }
        let (header, claims) = (object(header)?, object(claims)?);
        let name = header.value().get("alg").ok_or_else(|| bad_request("Missing alg header parameter"))?;
        let algorithm = name.as_str().and_then(|name| JwtAlgorithm::named(&name));
        let algorithm = algorithm.filter(|algorithm| policy.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or_else(|| bad_request("Invalid alg header parameter"))?;
        // `crit` lists extensions that a recipient must support (RFC 7515, 4.1.11); none is supported.
        if header.value().get("crit").is_some() {
            return Err(bad_request("Invalid crit header parameter"));
        }
        // A key id that is not a string identifies no key. It must not select the default key.
        let key_id = match header.value().get("kid").map(Value::as_str) {
            None => None,
            Some(Some(id)) => Some(id.into_owned()),
            Some(None) => return Err(bad_request("Unknown kid")),
        };
        let signature = base64::decode_url(signature).ok_or_else(malformed)?;
        Ok(Token { algorithm, key_id, header, claims, signed, signature })
    }

    #[must_use]
    pub fn algorithm(&self) -> JwtAlgorithm {
        self.algorithm
    }

    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    pub fn check(&self, policy: &TokenPolicy, now_s: u64) -> Result<(), JwtError> {
        for required in &policy.required {
            match required {
                RequiredClaim::Present(name) => self.check_present(name)?,
                RequiredClaim::Equals(name, expected) => self.check_equals(name, expected)?,
            }
        }
        let time = |name: &str| match self.claims.value().get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| bad_request(format!("Invalid {name} claim"))),
        };
        let now = now_s as f64;
        if time("nbf")?.is_some_and(|nbf| nbf >= now) {
            return Err(JwtError::Unauthorized("nbf not in past".to_owned()));
        }
        if time("exp")?.is_some_and(|exp| exp <= now) {
            return Err(JwtError::Unauthorized("exp not in future".to_owned()));
        }
        Ok(())
    }

    fn check_present(&self, name: &str) -> Result<(), JwtError> {
        match name {
            "alg" | "sig" => Ok(()),
            "typ" => match self.header.value().get("typ") {
                None => Err(bad_request("Missing typ header parameter")),
                Some(typ) if typ.is_string("JWT") => Ok(()),
                Some(_) => Err(bad_request("Invalid typ header parameter")),
            },
            "kid" if self.key_id.is_none() => Err(bad_request("Missing kid claim")),
            "kid" => Ok(()),
            _ => match self.claims.value().get(name) {
                None => Err(bad_request(format!("Missing {name} claim"))),
                Some(value) if name == "iat" && !value.is_integer() => Err(bad_request("Invalid iat claim")),
                Some(_) => Ok(()),
            },
        }
    }

    fn check_equals(&self, name: &str, expected: &str) -> Result<(), JwtError> {
        let value = self.claims.value().get(name).ok_or_else(|| bad_request(format!("Missing {name} claim")))?;
        // An audience may be a list.
        let is_it = value.is_string(expected) || value.elements().any(|element| element.is_string(expected));
        if is_it { Ok(()) } else { Err(bad_request(format!("Invalid {name} claim"))) }
    }

    /// Fails if the signature was not made with `key`. `authenticator` caches valid signatures.
    pub fn verify(&self, key: &VerifyingKey, authenticator: &Authenticator) -> Result<(), JwtError> {
        let signed = self.signed.as_bytes();
        if let VerifyingKey::Hmac(_) = key {
            return key.verify(self.algorithm, signed, &self.signature);
        }
        let algorithm = format!("{:?}", self.algorithm);
        let parts = [b"token", algorithm.as_bytes(), &key.identity(), signed, &self.signature];
        let fingerprint = authenticator.fingerprint(&parts);
        if authenticator.is_cached(&fingerprint) {
            return Ok(());
        }
        key.verify(self.algorithm, signed, &self.signature)?;
        authenticator.cache_fingerprint(fingerprint);
        Ok(())
    }

    /// Fails if the token names no user, or has no roles although the configuration requires them.
    pub fn context(&self, policy: &TokenPolicy) -> Result<UserContext, JwtError> {
        let missing = || JwtError::Unauthorized("Token missing sub claim.".to_owned());
        let malformed = || bad_request("Malformed token");
        // CouchDB checks the roles first.
        let roles = match policy.roles.find(self.claims.value())? {
            None => Vec::new(),
            Some(roles) if roles.is_array() => {
                let roles = roles.elements().map(|role| role.as_str().map(std::borrow::Cow::into_owned));
                roles.collect::<Option<Vec<_>>>().ok_or_else(malformed)?
            }
            Some(roles) => split_roles(&roles.as_str().ok_or_else(malformed)?),
        };
        let name = self.claims.value().get("sub").ok_or_else(missing)?.as_str().ok_or_else(malformed)?;
        Ok(UserContext { name: Some(name.into_owned()), roles })
    }
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Token").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn object(part: &str) -> Result<Json, JwtError> {
    let malformed = || bad_request("Malformed token");
    let json = Json::parse(&base64::decode_url(part).ok_or_else(malformed)?).map_err(|_| malformed())?;
    if json.value().is_object() { Ok(json) } else { Err(bad_request("Not an object")) }
}
