//! Translation of the store's errors. Decides nothing about what to do with them.

use rocksdb::ErrorKind;
use settee_storage::StorageError;

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
