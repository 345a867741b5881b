//! Partitions: in a partitioned database the id of a document is `partition:name`.
//!
//! The rules and error texts are those of CouchDB (`couch_partition`). Design documents and local documents belong to
//! no partition. Which databases are partitioned is not known here.

use crate::document::{DocumentError, validate_doc_id};

/// Why an id is refused in a partitioned database. Displays CouchDB's reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidPartitionedId {
    /// There is no colon (`illegal_docid`).
    #[error("Doc id must be of form partition:id")]
    NoPartition,
    /// The text before the colon is no partition (`illegal_partition`).
    #[error(transparent)]
    Partition(#[from] IllegalPartition),
    /// The text behind the colon is no id (`illegal_docid`).
    #[error(transparent)]
    Id(#[from] DocumentError),
}

/// Why a partition is refused. CouchDB: 400 `illegal_partition`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IllegalPartition {
    /// The empty text.
    #[error("Partition must not be empty")]
    Empty,
    /// As with ids, the underscore is reserved.
    #[error("Partition must not start with an underscore")]
    Reserved,
    /// A value that is no text.
    #[error("Partition must be a string")]
    NoText,
    /// The colon ends a partition.
    #[error("Partition must not contain a colon")]
    Colon,
}

/// The partition of a document and its name within; `None` for ids without a colon and for design and local documents.
pub fn split(id: &str) -> Option<(&str, &str)> {
    if id.starts_with("_design/") || id.starts_with("_local/") { None } else { id.split_once(':') }
}

/// Refuses texts that are no partition.
pub fn validate_partition(partition: &str) -> Result<(), IllegalPartition> {
    match partition.as_bytes().first() {
        None => Err(IllegalPartition::Empty),
        Some(b'_') => Err(IllegalPartition::Reserved),
        Some(_) if partition.contains(':') => Err(IllegalPartition::Colon),
        Some(_) => Ok(()),
    }
}

/// Refuses ids that no document of a partitioned database can have, among those that others can have.
pub fn validate_partitioned_id(id: &str) -> Result<(), InvalidPartitionedId> {
    if id.starts_with("_design/") || id.starts_with("_local/") {
        return Ok(());
    }
    let (partition, name) = split(id).ok_or(InvalidPartitionedId::NoPartition)?;
    validate_partition(partition)?;
    // CouchDB checks the name as if it were an id of its own.
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
