//! Translation of the store's errors. Decides nothing about what to do with them.

use rocksdb::ErrorKind;
use settee_storage::StorageError;

/// Whether a sync failed, be it of the log, of a sorted file or of a directory. The store has no kind for this either; the
/// text is the one that its environment for POSIX puts before the path.
pub(crate) fn is_failed_sync(text: &str) -> bool {
    ["While fsync", "While fdatasync", "While sync_file_range"].iter().any(|call| text.contains(call))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn translate(error: rocksdb::Error) -> StorageError {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Corruption => StorageError::Corrupt(text),
        // The store has no kind for this; the text is the operating system's.
        _ if text.contains("No space left") || text.contains("Disk quota exceeded") => StorageError::Full(text),
        _ => StorageError::Io(text),
    }
}
