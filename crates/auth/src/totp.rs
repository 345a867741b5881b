//! [`Totp`]: time-based one-time passwords (RFC 6238), configured by the member `totp` of a user document.

use settee_model::json::Value;
use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;

const PERIOD_S: u64 = 30;

#[derive(Clone)]
pub struct Totp {
    /// `None` if the key is damaged; then no password matches.
    key: Option<Vec<u8>>,
    algorithm: Algorithm,
    digits: u32,
}

impl Totp {
    pub(crate) fn of_document(document: Value<'_>) -> Option<Totp> {
        let totp = document.get("totp")?;
        let text = |member: &str| totp.get(member).and_then(Value::as_str);
        let algorithm = text("algorithm").map_or(Some(Algorithm::Sha1), |name| Algorithm::named(&name));
        let key = text("key").and_then(|key| decode_base32(&key)).filter(|_| algorithm.is_some());
        let digits = totp.get("length").and_then(Value::as_u64).unwrap_or(6);
        let digits = u32::try_from(digits).unwrap_or(u32::MAX).clamp(1, 9);
        Some(Totp { key, algorithm: algorithm.unwrap_or(Algorithm::Sha1), digits })
    }

    /// Accepts the password of the current period, the one before and the one after.
    #[must_use]
    pub fn verify(&self, token: &str, now_s: u64) -> bool {
        let Some(key) = &self.key else { return false };
        let periods =
            [now_s.saturating_sub(PERIOD_S), now_s, now_s.saturating_add(PERIOD_S)].map(|time| time / PERIOD_S);
        // All are computed, so that the time does not depend on the match.
        let matches = periods.map(|period| bool::from(self.password(key, period).as_bytes().ct_eq(token.as_bytes())));
        matches.contains(&true)
    }

    fn password(&self, key: &[u8], period: u64) -> String {
        let mac = self.algorithm.mac(key, &[&period.to_be_bytes()]);
        let offset = usize::from(mac.last().copied().unwrap_or_default() & 15);
        let mut word = [0; 4];
        word.copy_from_slice(&mac[offset..offset + 4]);
        let number = (u32::from_be_bytes(word) & 0x7fff_ffff) % 10u32.pow(self.digits);
        format!("{number:0width$}", width = self.digits as usize)
    }
}

impl std::fmt::Debug for Totp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Totp").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// RFC 4648, with or without padding.
fn decode_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut bytes) = (0u32, 0u32, Vec::new());
    for symbol in text.trim_end_matches('=').bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a',
            b'2'..=b'7' => symbol - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5) | u32::from(value);
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use settee_model::json::Json;

    fn totp(text: &str) -> Totp {
        Totp::of_document(Json::parse(text.as_bytes()).unwrap().value()).unwrap()
    }

    #[test]
    fn the_vectors_of_the_rfc() {
        // RFC 6238, appendix B: the keys are 12345678901234567890… with the length of the hash.
        for (algorithm, key, time, expected) in [
            ("sha", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", 59, "94287082"),
            ("sha", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", 1_111_111_109, "07081804"),
            ("sha256", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA====", 59, "46119246"),
        ] {
            let totp = totp(&format!(r#"{{"totp":{{"key":"{key}","algorithm":"{algorithm}","length":8}}}}"#));
            assert!(totp.verify(expected, time), "{algorithm} {time}");
            assert!(totp.verify(expected, time + 30) && !totp.verify(expected, time + 90), "{algorithm} {time}");
            assert!(!totp.verify("", time) && !totp.verify(&expected[1..], time));
        }
    }

    #[test]
    fn six_digits_by_default_and_damaged_secrets_match_nothing() {
        let plain = totp(r#"{"totp":{"key":"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}}"#);
        assert!(plain.verify("287082", 59));
        for damaged in
            [r#"{"totp":{}}"#, r#"{"totp":1}"#, r#"{"totp":{"key":"1"}}"#, r#"{"totp":{"key":"GE","algorithm":"x"}}"#]
        {
            assert!(!totp(damaged).verify("287082", 59), "{damaged}");
        }
        assert!(Totp::of_document(Json::parse(b"{}").unwrap().value()).is_none());
    }
}
