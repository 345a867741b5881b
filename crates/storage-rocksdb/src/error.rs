//! Translation of RocksDB's errors.

use rocksdb::ErrorKind;
use settee_storage::StorageError;

/// RocksDB has no error code for a failed sync. Its POSIX environment puts these texts before the path.
pub(crate) fn is_failed_sync(text: &str) -> bool {
    ["While fsync", "While fdatasync", "While sync_file_range"].iter().any(|call| text.contains(call))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn translate(error: rocksdb::Error) -> StorageError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Corruption => StorageError::Corrupt(text),
        // RocksDB's binding has no error code for a full disk. The text comes from the operating system.
        _ if text.contains("No space left") || text.contains("Disk quota exceeded") => StorageError::Full(text),
        _ => StorageError::Io(text),
    }
}
