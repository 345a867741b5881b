//! Partitions: in a partitioned database the id of a document is `partition:name`. The rules and error texts are those
//! of CouchDB (`couch_partition`). Design documents and local documents belong to no partition.

use crate::document::{DocumentError, validate_doc_id};

/// Cause of the rejection of an id in a partitioned database. Displays CouchDB's reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidPartitionedId {
    /// The id has no colon (`illegal_docid`).
    #[error("Doc id must be of form partition:id")]
    NoPartition,
    /// The text before the colon is not a partition (`illegal_partition`).
    #[error(transparent)]
    Partition(#[from] IllegalPartition),
    /// The text after the colon is not an id (`illegal_docid`).
    #[error(transparent)]
    Id(#[from] DocumentError),
}

/// Cause of the rejection of a partition. CouchDB: 400 `illegal_partition`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IllegalPartition {
    /// The partition is empty.
    #[error("Partition must not be empty")]
    Empty,
    /// The partition starts with an underscore, which is reserved as in ids.
    #[error("Partition must not start with an underscore")]
    Reserved,
    /// The value is not a string.
    #[error("Partition must be a string")]
    NoText,
    /// The partition contains a colon, which separates it from the name.
    #[error("Partition must not contain a colon")]
    Colon,
}

/// Returns the partition of a document and its name within; `None` for ids without a colon, design and local documents.
pub fn split(id: &str) -> Option<(&str, &str)> {
    if id.starts_with("_design/") || id.starts_with("_local/") { None } else { id.split_once(':') }
}

/// Rejects texts that are not a partition.
pub fn validate_partition(partition: &str) -> Result<(), IllegalPartition> {
    match partition.as_bytes().first() {
        None => Err(IllegalPartition::Empty),
        Some(b'_') => Err(IllegalPartition::Reserved),
        Some(_) if partition.contains(':') => Err(IllegalPartition::Colon),
        Some(_) => Ok(()),
    }
}

/// Rejects ids that are valid in general but not in a partitioned database.
pub fn validate_partitioned_id(id: &str) -> Result<(), InvalidPartitionedId> {
    if id.starts_with("_design/") || id.starts_with("_local/") {
        return Ok(());
    }
    let (partition, name) = split(id).ok_or(InvalidPartitionedId::NoPartition)?;
    validate_partition(partition)?;
    // CouchDB validates the name as if it were an id of its own.
    Ok(validate_doc_id(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_as_couchdb_does() {
        let refused = |id: &str| validate_partitioned_id(id).err().map(|error| error.to_string());
        for id in ["a:1", "a:b:c", "a b:1", "ä:ö", "_design/d", "_local/l", "_design/no:part"] {
            assert_eq!(refused(id), None, "{id}");
        }
        let cases = [
            ("noparts", "Doc id must be of form partition:id"),
            (":nopart", "Partition must not be empty"),
            ("a:", "Document id must not be empty"),
            ("_x:a", "Partition must not start with an underscore"),
            ("a:_b", "Only reserved document ids may start with underscore."),
        ];
        for (id, reason) in cases {
            assert_eq!(refused(id).as_deref(), Some(reason), "{id}");
        }
    }

    #[test]
    fn the_first_colon_divides() {
        assert_eq!(split("a:b:c"), Some(("a", "b:c")));
        assert_eq!(split("abc"), None);
        assert_eq!(split("_design/a:b"), None);
    }
}
