//! Translation of errors of the library and of the store.

use object_store::Error as StoreError;
use settee_storage::StorageError;
use slatedb::{CloseReason, ErrorKind};

pub(crate) const FENCED: &str = "another node has taken over";

/// Text of the library for an object that another process has created since the last listing, or that a stale listing
/// does not contain. Nothing was overwritten.
const CREATED_BEFORE: &str = "version already exists";

pub(crate) fn translate(error: &slatedb::Error) -> StorageError {
    match error.kind() {
        // The data is served by another node, so a retry may succeed.
        ErrorKind::Closed(CloseReason::Fenced | CloseReason::Clean) => StorageError::Unreached(FENCED.to_owned()),
        ErrorKind::Closed(reason) => StorageError::Poisoned(format!("the store is closed ({reason:?}): {error}")),
        ErrorKind::Unavailable => StorageError::Unreached(error.to_string()),
        ErrorKind::Data if error.to_string().contains(CREATED_BEFORE) => StorageError::Unreached(error.to_string()),
        ErrorKind::Data => StorageError::Corrupt(error.to_string()),
        _ => StorageError::Io(error.to_string()),
    }
}

/// Address at which clouds provide the credentials of a machine. It is asked if no others are configured.
const METADATA_SERVICE: &str = "169.254.169.254";

/// Returns true if the store responded that the bucket does not exist, and not only the object.
pub(crate) fn is_missing_bucket(error: &StoreError) -> bool {
    let text = error.to_string();
    ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"].iter().any(|mark| text.contains(mark))
}

/// Replaces a response in XML by its code.
fn brief(text: &str) -> String {
    let Some((before, response)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>")) else {
        return text.to_owned();
    };
    let code = response.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let before = before.trim_end_matches([' ', ':']);
    code.map_or_else(|| before.to_owned(), |code| format!("{before} ({code})"))
}

/// Describes a failed request for the operator: the cause, the object, and the remedy.
pub(crate) fn explain(shown: &str, object: &str, error: &StoreError) -> StorageError {
    let text = brief(&error.to_string());
    if is_missing_bucket(error) {
        return StorageError::Io(format!("the bucket of {shown} does not exist: create it first"));
    }
    if text.contains(METADATA_SERVICE) {
        return StorageError::Io(format!(
            "there are no credentials for {shown}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the variables of \
             another provider, or [storage] access_key_id and secret_access_key. A role of the machine was not found: \
             {text}"
        ));
    }
    match error {
        StoreError::Unauthenticated { .. } | StoreError::PermissionDenied { .. } => StorageError::Io(format!(
            "the credentials for {shown} are not accepted, or do not permit access to {object}: {text}"
        )),
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => StorageError::Io(format!(
            "the store of {shown} does not support conditional puts, which protect the data from a second writer: {text}"
        )),
        StoreError::NotFound { .. } => StorageError::Io(format!("{object} in {shown} is missing: {text}")),
        _ => StorageError::Unreached(format!("{object} in {shown}: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Box<dyn std::error::Error + Send + Sync> {
        text.to_owned().into()
    }

    #[test]
    fn errors_of_a_store_name_cause_and_remedy() {
        let path = || "settee-cluster".to_owned();
        let cases = [
            (
                StoreError::NotFound { path: path(), source: source("404: <Code>NoSuchBucket</Code>") },
                "create it first",
            ),
            (
                StoreError::NotFound {
                    path: path(),
                    source: source("404: <?xml?><Code>NoSuchKey</Code> does not exist"),
                },
                "is missing: Object at location settee-cluster not found: 404 (NoSuchKey)",
            ),
            (StoreError::Generic { store: "S3", source: source("http://169.254.169.254/ 403") }, "AWS_ACCESS_KEY_ID"),
            (StoreError::Unauthenticated { path: path(), source: source("401") }, "are not accepted"),
            (StoreError::PermissionDenied { path: path(), source: source("403") }, "do not permit access"),
            (StoreError::Generic { store: "S3", source: source("connection refused") }, "connection refused"),
            (
                StoreError::NotImplemented { operation: "put".to_owned(), implementer: "it".to_owned() },
                "does not support conditional puts",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(is_missing_bucket(&error), expected == "create it first", "{error}");
            let text = explain("s3://bucket/prefix", "settee-cluster", &error).to_string();
            assert!(text.contains(expected) && text.contains("s3://bucket/prefix"), "{text}");
        }
    }
}
