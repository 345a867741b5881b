//! [`KeySet`]: the public keys that an identity provider publishes (RFC 7517).

use settee_model::json::{Json, Value};

use super::key::{Curve, KeyType, VerifyingKey, ec_key, rsa_of};
use settee_model::base64;

/// Maximum number of keys of a set; further ones are ignored.
const KEYS_MAX: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<(Option<String>, VerifyingKey)>,
}

impl KeySet {
    /// Returns `None` if the text is not a set. Ignores unsupported keys and shared secrets, because a published secret
    /// is not secret.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<KeySet> {
        let json = Json::parse(text).ok()?;
        let keys = json.value().get("keys").filter(|keys| keys.is_array())?;
        let keys = keys.elements().filter(|key| key.get("use").is_none_or(|purpose| purpose.is_string("sig")));
        let keys = keys.filter_map(|key| {
            let id = key.get("kid").and_then(Value::as_str).map(std::borrow::Cow::into_owned);
            Some((id, public_key(key)?))
        });
        Some(KeySet { keys: keys.take(KEYS_MAX).collect() })
    }

    /// Returns the key with this id. A token may omit the id if the set has only one key of the type.
    #[must_use]
    pub fn find(&self, key_type: KeyType, id: Option<&str>) -> Option<&VerifyingKey> {
        let mut fitting = self.keys.iter().filter(|(_, key)| key.key_type() == key_type);
        match id {
            Some(id) => fitting.find(|(known, _)| known.as_deref() == Some(id)).map(|(_, key)| key),
            None => fitting.next().filter(|_| fitting.next().is_none()).map(|(_, key)| key),
        }
    }
}

fn public_key(key: Value<'_>) -> Option<VerifyingKey> {
    let bytes = |name: &str| key.get(name).and_then(Value::as_str).and_then(|text| base64::decode_url(&text));
    match key.get("kty")?.as_str()?.as_ref() {
        "RSA" => Some(rsa_of(&bytes("n")?, &bytes("e")?)),
        "EC" => {
            let curve = match key.get("crv")?.as_str()?.as_ref() {
                "P-256" => Curve::P256,
                "P-384" => Curve::P384,
                "P-521" => Curve::P521,
                _ => return None,
            };
            ec_key(curve, [&[4][..], &bytes("x")?, &bytes("y")?].concat())
        }
        _ => None,
    }
}
