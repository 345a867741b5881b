//! [`VerifyingKey`]: keys of `[jwt_keys]`, as base64 or PEM. `ring` does not support P-521; `p521` verifies its
//! signatures.

use p521::ecdsa::signature::Verifier as _;
use ring::hmac;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

use super::{Bits, JwtAlgorithm, JwtError, bad_request};
use settee_model::base64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    Hmac,
    Rsa,
    Ec,
}

impl KeyType {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Hmac => "hmac",
            KeyType::Rsa => "rsa",
            KeyType::Ec => "ec",
        }
    }
}

/// The text is not a key. CouchDB reports `bad_request`, because the token of the client cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("Not a valid key")]
    Invalid,
    #[error("not an RSA public key")]
    NotRsa,
    #[error("not an EC public key")]
    NotEc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

#[derive(Clone, PartialEq, Eq)]
pub enum VerifyingKey {
    Hmac(Vec<u8>),
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    Ec {
        curve: Curve,
        point: Vec<u8>,
    },
}

impl VerifyingKey {
    /// Parses a value of `[jwt_keys]`; fails if it is not a key of this type. Line feeds of PEM may be written as `\n`.
    pub fn parse(key_type: KeyType, text: &str) -> Result<VerifyingKey, KeyError> {
        let key = match key_type {
            KeyType::Hmac => base64::decode_unpadded(text.trim()).filter(|key| !key.is_empty()).map(VerifyingKey::Hmac),
            KeyType::Rsa | KeyType::Ec => pem(text).and_then(|der| public_key(&der)),
        };
        match (key_type, key.ok_or(KeyError::Invalid)?) {
            (KeyType::Rsa, VerifyingKey::Ec { .. }) => Err(KeyError::NotRsa),
            (KeyType::Ec, VerifyingKey::Rsa { .. }) => Err(KeyError::NotEc),
            (_, key) => Ok(key),
        }
    }

    #[must_use]
    pub fn key_type(&self) -> KeyType {
        match self {
            VerifyingKey::Hmac(_) => KeyType::Hmac,
            VerifyingKey::Rsa { .. } => KeyType::Rsa,
            VerifyingKey::Ec { .. } => KeyType::Ec,
        }
    }

    pub(super) fn identity(&self) -> Vec<u8> {
        match self {
            VerifyingKey::Hmac(secret) => secret.clone(),
            VerifyingKey::Rsa { n, e } => [&(n.len() as u64).to_be_bytes()[..], n, e].concat(),
            VerifyingKey::Ec { point, .. } => point.clone(),
        }
    }

    pub(super) fn verify(&self, algorithm: JwtAlgorithm, signed: &[u8], signature: &[u8]) -> Result<(), JwtError> {
        let verified = match (self, algorithm) {
            (VerifyingKey::Hmac(secret), JwtAlgorithm::Hs(bits)) => {
                let algorithm = match bits {
                    Bits::B256 => hmac::HMAC_SHA256,
                    Bits::B384 => hmac::HMAC_SHA384,
                    Bits::B512 => hmac::HMAC_SHA512,
                };
                let key = hmac::Key::new(algorithm, secret);
                return hmac::verify(&key, signed, signature).map_err(|_| bad_request("Bad HMAC"));
            }
            (VerifyingKey::Rsa { n, e }, JwtAlgorithm::Rs(bits)) => {
                let parameters = match bits {
                    Bits::B256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Bits::B384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Bits::B512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
            }
            (VerifyingKey::Rsa { n, e }, JwtAlgorithm::Ps(bits)) => {
                let parameters = match bits {
                    Bits::B256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Bits::B384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Bits::B512 => &signature::RSA_PSS_2048_8192_SHA512,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
            }
            (VerifyingKey::Ec { curve: Curve::P256, point }, JwtAlgorithm::Es(Bits::B256)) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            (VerifyingKey::Ec { curve: Curve::P384, point }, JwtAlgorithm::Es(Bits::B384)) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(signed, signature).is_ok()
            }
            (VerifyingKey::Ec { curve: Curve::P521, point }, JwtAlgorithm::Es(Bits::B512)) => {
                verify_p521(point, signed, signature)
            }
            _ => false,
        };
        if verified { Ok(()) } else { Err(bad_request("Bad signature")) }
    }
}

fn verify_p521(point: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(point);
    let signature = p521::ecdsa::Signature::from_slice(signature);
    matches!((key, signature), (Ok(key), Ok(signature)) if key.verify(signed, &signature).is_ok())
}

impl std::fmt::Debug for VerifyingKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.key_type().name())
    }
}

fn pem(text: &str) -> Option<Vec<u8>> {
    let text = text.replace("\\n", "\n");
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    if !label.ends_with("PUBLIC KEY") {
        return None;
    }
    base64::decode_unpadded(&body.split_whitespace().collect::<String>())
}

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const CURVE_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const CURVE_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const CURVE_P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// Parses a `SubjectPublicKeyInfo`, or an RSA key as `RSAPublicKey`.
fn public_key(der: &[u8]) -> Option<VerifyingKey> {
    let (mut outer, rest) = Der(der).element(Tag::Sequence)?;
    if !rest.0.is_empty() {
        return None;
    }
    if let Some(key) = rsa_key(Der(der)) {
        return Some(key);
    }
    let (mut algorithm, after) = outer.element(Tag::Sequence)?;
    outer = after;
    let (bits, _) = outer.element(Tag::BitString)?;
    // The first byte is the number of unused bits, which is 0 for keys.
    let key = bits.0.strip_prefix(&[0])?;
    let (name, after) = algorithm.element(Tag::ObjectIdentifier)?;
    algorithm = after;
    match name.0 {
        RSA_ENCRYPTION => rsa_key(Der(key)),
        EC_PUBLIC_KEY => {
            let (curve, _) = algorithm.element(Tag::ObjectIdentifier)?;
            let curve = match curve.0 {
                CURVE_P256 => Curve::P256,
                CURVE_P384 => Curve::P384,
                CURVE_P521 => Curve::P521,
                _ => return None,
            };
            ec_key(curve, key.to_vec())
        }
        _ => None,
    }
}

fn rsa_key(der: Der<'_>) -> Option<VerifyingKey> {
    let (numbers, _) = der.element(Tag::Sequence)?;
    let (n, numbers) = numbers.element(Tag::Integer)?;
    let (e, _) = numbers.element(Tag::Integer)?;
    Some(rsa_of(n.0, e.0))
}

pub(super) fn rsa_of(n: &[u8], e: &[u8]) -> VerifyingKey {
    let trimmed = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
    VerifyingKey::Rsa { n: trimmed(n), e: trimmed(e) }
}

pub(super) fn ec_key(curve: Curve, point: Vec<u8>) -> Option<VerifyingKey> {
    let coordinate = match curve {
        Curve::P256 => 32,
        Curve::P384 => 48,
        Curve::P521 => 66,
    };
    (point.len() == 2 * coordinate + 1 && point.first() == Some(&4)).then_some(VerifyingKey::Ec { curve, point })
}

#[derive(Clone, Copy)]
enum Tag {
    Integer = 0x02,
    BitString = 0x03,
    ObjectIdentifier = 0x06,
    Sequence = 0x30,
}

/// Unparsed bytes in the distinguished encoding rules (DER).
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn element(self, tag: Tag) -> Option<(Der<'a>, Der<'a>)> {
        let (first, rest) = self.0.split_first()?;
        if *first != tag as u8 {
            return None;
        }
        let (length, rest) = rest.split_first()?;
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
            0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
            _ => return None,
        };
        Some((Der(rest.get(..length)?), Der(rest.get(length..)?)))
    }
}
