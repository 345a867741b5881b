//! [`BasicCredentials`] from the header `Authorization`.

use settee_model::base64;

/// The header cannot be decoded (`bad_request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Authorization header has invalid base64 value")]
pub struct InvalidHeader;

#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    /// Name as sent. A name that is not UTF-8 belongs to no user.
    pub name: Vec<u8>,
    pub password: Vec<u8>,
}

impl BasicCredentials {
    /// Fails if the credentials are not base64. As in CouchDB, another scheme than `Basic`, credentials without a colon
    /// and the pair `_:_` (which browsers send to log out) count as no credentials.
    pub fn parse(authorization: &str) -> Result<Option<BasicCredentials>, InvalidHeader> {
        let Some((scheme, value)) = authorization.trim().split_once(' ') else {
            return Ok(None);
        };
        if !scheme.eq_ignore_ascii_case("basic") {
            return Ok(None);
        }
        let decoded = base64::decode_unpadded(value.trim()).ok_or(InvalidHeader)?;
        let Some(colon) = decoded.iter().position(|&byte| byte == b':') else {
            return Ok(None);
        };
        if decoded == b"_:_" {
            return Ok(None);
        }
        Ok(Some(BasicCredentials { name: decoded[..colon].to_vec(), password: decoded[colon + 1..].to_vec() }))
    }
}

impl std::fmt::Debug for BasicCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = String::from_utf8_lossy(&self.name);
        formatter.debug_struct("BasicCredentials").field("name", &name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let some = |name: &[u8], password: &[u8]| {
            Ok(Some(BasicCredentials { name: name.to_vec(), password: password.to_vec() }))
        };
        for (header, expected) in [
            ("Basic YWRtaW46c2VjcmV0", some(b"admin", b"secret")),
            ("basic  YWRtaW46c2VjcmV0 ", some(b"admin", b"secret")),
            ("Basic em/DqzpwOnc=", some("zoë".as_bytes(), b"p:w")),
            ("Basic YWRtaW46", some(b"admin", b"")),
            ("Basic /zpzZWNyZXQ=", some(&[0xff], b"secret")),
            ("Basic nonsense!", Err(InvalidHeader)),
            ("Basic nonsense", Ok(None)),
            ("Basic Xzpf", Ok(None)),
            ("Basic", Ok(None)),
            ("Bearer YWRtaW46c2VjcmV0", Ok(None)),
            ("", Ok(None)),
        ] {
            assert_eq!(BasicCredentials::parse(header), expected, "{header}");
        }
    }
}
