//! [`AttachmentMember`]: an entry of the member `_attachments` of a document, as a client sent it.
//! The rules and error texts are those of CouchDB 3.5 (`couch_att:from_json`).

use crate::base64;
use crate::json::Value;

/// Content type of an attachment that was sent without one.
pub const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// Generation in which no attachment was added. A stub with an invalid `revpos` names no attachment.
const NO_REVPOS: u64 = u64::MAX;

/// One attachment of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachmentMember {
    /// Name; passes [`validate_attachment_name`].
    pub name: String,
    /// Media type; [`DEFAULT_CONTENT_TYPE`] if the client sent none.
    pub content_type: String,
    /// Generation in which the attachment was added, if the client sent it.
    pub revpos: Option<u64>,
    /// Location of the data.
    pub data: AttachmentData,
}

/// Location of the data of an attachment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttachmentData {
    /// In the parent revision.
    Stub,
    /// In a separate part of the request, after the document.
    Follows(Follows),
    /// In the document.
    Inline(Vec<u8>),
}

/// Properties of an attachment whose data follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Follows {
    /// Length of the uncompressed data.
    pub length: Option<u64>,
    /// Length of the data that follows, if compressed.
    pub encoded_length: Option<u64>,
    /// Compression of the data that follows.
    pub encoding: ContentEncoding,
    /// MD5 of the data that follows.
    pub md5: Option<[u8; 16]>,
}

/// Encoding of the data of an attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentEncoding {
    /// Uncompressed.
    Identity,
    /// Compressed with gzip.
    Gzip,
}

/// Cause of the rejection of `_attachments`. Displays CouchDB's reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachmentError {
    /// The name starts with an underscore.
    #[error("Attachment name '{0}' starts with prohibited character '_'")]
    ProhibitedName(String),
    /// The data is not base64, or neither data nor a reference is present.
    #[error("Invalid attachment data for {0}")]
    InvalidData(String),
    /// The encoding of the data that follows is unknown.
    #[error("Invalid attachment encoding for {0}")]
    InvalidEncoding(String),
    /// The length of the data that follows is not a natural number.
    #[error("Invalid attachment length for {0}")]
    InvalidLength(String),
    /// The content type is not a string.
    #[error("Invalid attachment content type for {0}")]
    InvalidContentType(String),
}

/// Rejects names that no attachment can have.
pub fn validate_attachment_name(name: &str) -> Result<(), AttachmentError> {
    if name.starts_with('_') { Err(AttachmentError::ProhibitedName(name.to_owned())) } else { Ok(()) }
}

impl AttachmentMember {
    /// Parses the object `_attachments`, in its order. Members that are not objects are ignored.
    pub fn parse_all(attachments: Value<'_>) -> Result<Vec<AttachmentMember>, AttachmentError> {
        let objects = attachments.members().filter(|(_, member)| member.is_object());
        objects.map(|(name, member)| Self::parse(name, member)).collect()
    }

    fn parse(name: Value<'_>, member: Value<'_>) -> Result<AttachmentMember, AttachmentError> {
        let name = name.as_str().unwrap_or_default().into_owned();
        validate_attachment_name(&name)?;
        let is_true = |flag: &str| member.get(flag).and_then(Value::as_bool) == Some(true);
        let is_text = |key: &str| member.get(key).is_none_or(|text| text.as_str().is_some());
        let data = if is_true("stub") {
            if !is_text("encoding") {
                return Err(AttachmentError::InvalidEncoding(name));
            }
            AttachmentData::Stub
        } else if is_true("follows") {
            AttachmentData::Follows(Follows::parse(&name, member)?)
        } else {
            let text = member.get("data").and_then(Value::as_str);
            let bytes = text.and_then(|text| base64::decode(text.as_bytes()));
            AttachmentData::Inline(bytes.ok_or_else(|| AttachmentError::InvalidData(name.clone()))?)
        };
        if data != AttachmentData::Stub && !is_text("content_type") {
            return Err(AttachmentError::InvalidContentType(name));
        }
        let content_type = member.get("content_type").and_then(Value::as_str);
        let revpos = match (member.get("revpos"), &data) {
            (Some(revpos), AttachmentData::Stub) => Some(revpos.as_u64().unwrap_or(NO_REVPOS)),
            (revpos, _) => revpos.and_then(Value::as_u64),
        };
        Ok(AttachmentMember {
            name,
            content_type: content_type.map_or_else(|| DEFAULT_CONTENT_TYPE.to_owned(), Into::into),
            revpos,
            data,
        })
    }
}

impl Follows {
    fn parse(name: &str, member: Value<'_>) -> Result<Follows, AttachmentError> {
        let encoding = match member.get("encoding").map(|encoding| encoding.as_str().unwrap_or_default()).as_deref() {
            None | Some("identity") => ContentEncoding::Identity,
            Some("gzip") => ContentEncoding::Gzip,
            Some(_) => return Err(AttachmentError::InvalidEncoding(name.to_owned())),
        };
        let length = |key: &str| {
            let length = member.get(key).map(Value::as_u64);
            length.map(|length| length.ok_or_else(|| AttachmentError::InvalidLength(name.to_owned()))).transpose()
        };
        let digest = member.get("digest").and_then(Value::as_str);
        let md5 = digest.as_deref().and_then(|digest| base64::decode(digest.strip_prefix("md5-")?.as_bytes()));
        Ok(Follows {
            length: length("length")?,
            encoded_length: if encoding == ContentEncoding::Gzip { length("encoded_length")? } else { None },
            encoding,
            md5: md5.and_then(|md5| md5.try_into().ok()),
        })
    }

    /// Number of bytes that follow, if the client sent it.
    pub fn bytes_that_follow(&self) -> Option<u64> {
        match self.encoding {
            ContentEncoding::Identity => self.length,
            ContentEncoding::Gzip => self.encoded_length.or(self.length),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::json::Json;

    fn parse(text: &str) -> Result<Vec<AttachmentMember>, AttachmentError> {
        AttachmentMember::parse_all(Json::parse(text.as_bytes()).unwrap().value())
    }

    fn one(text: &str) -> AttachmentMember {
        let mut members = parse(&format!("{{\"x\":{text}}}")).unwrap();
        assert_eq!(members.len(), 1);
        members.remove(0)
    }

    #[test]
    fn data_is_inline_elsewhere_or_to_come() {
        assert_eq!(one(r#"{"data":"AAEC"}"#).data, AttachmentData::Inline(vec![0, 1, 2]));
        assert_eq!(one(r#"{"data":"AAEC"}"#).content_type, "application/octet-stream");
        let stub = one(r#"{"stub":true,"revpos":3,"content_type":"text/plain","data":"AAEC"}"#);
        assert_eq!(stub.data, AttachmentData::Stub);
        assert_eq!((stub.revpos, stub.content_type.as_str()), (Some(3), "text/plain"));
        assert_eq!(one(r#"{"stub":true,"revpos":"3"}"#).revpos, Some(NO_REVPOS));
        assert_eq!(one(r#"{"data":"AAEC","revpos":"3"}"#).revpos, None);
        let follows = |text: &str| match one(text).data {
            AttachmentData::Follows(follows) => follows,
            other => panic!("{other:?}"),
        };
        let plain = follows(r#"{"follows":true,"length":3,"digest":"md5-kAFQmDzST7DWlj99KOF/cg=="}"#);
        assert_eq!(plain.bytes_that_follow(), Some(3));
        assert_eq!(plain.md5.map(|md5| md5[0]), Some(0x90));
        let packed = follows(r#"{"follows":true,"length":30,"encoding":"gzip","encoded_length":25,"digest":"md5-x"}"#);
        assert_eq!((packed.bytes_that_follow(), packed.md5), (Some(25), None));
        let names: Vec<String> = parse(r#"{"b":{"data":""},"a/_c":{"data":""},"é":{"data":""}}"#)
            .unwrap()
            .into_iter()
            .map(|member| member.name)
            .collect();
        assert_eq!(names, ["b", "a/_c", "é"]);
        for nothing in [r#"{"x":5}"#, r#"{"x":null}"#, r#"{"_x":[]}"#] {
            assert_eq!(parse(nothing), Ok(Vec::new()), "{nothing}");
        }
    }

    #[test]
    fn rejected_input() {
        for (text, reason) in [
            (r#"{"x":{"data":"!!!"}}"#, "Invalid attachment data for x"),
            (r#"{"x":{"data":5}}"#, "Invalid attachment data for x"),
            (r#"{"x":{"stub":false}}"#, "Invalid attachment data for x"),
            (r#"{"x":{}}"#, "Invalid attachment data for x"),
            (r#"{"_x":{"data":""}}"#, "Attachment name '_x' starts with prohibited character '_'"),
            (r#"{"x":{"follows":true,"encoding":"br"}}"#, "Invalid attachment encoding for x"),
            (r#"{"x":{"follows":true,"encoding":null}}"#, "Invalid attachment encoding for x"),
            (r#"{"x":{"stub":true,"encoding":1}}"#, "Invalid attachment encoding for x"),
            (r#"{"x":{"data":"","content_type":1}}"#, "Invalid attachment content type for x"),
            (r#"{"x":{"follows":true,"content_type":null}}"#, "Invalid attachment content type for x"),
            (r#"{"x":{"follows":true,"length":"5"}}"#, "Invalid attachment length for x"),
            (r#"{"x":{"follows":true,"length":-1}}"#, "Invalid attachment length for x"),
            (r#"{"x":{"follows":true,"length":5.0}}"#, "Invalid attachment length for x"),
            (r#"{"x":{"follows":true,"encoding":"gzip","encoded_length":null}}"#, "Invalid attachment length for x"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), reason, "{text}");
        }
    }
}
