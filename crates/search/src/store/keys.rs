//! Key bytes of a search index. [`Keyspace::IndexNodes`](settee_storage::Keyspace::IndexNodes) contains the pieces of
//! files, by the number of the file and that of the piece; the catalog contains the record, if it is too long for a
//! head.

/// Key of the record that describes an index, in [`Keyspace::Catalog`](settee_storage::Keyspace::Catalog).
pub(crate) const RECORD: &[u8] = b"search";

/// Returns the key of a piece: the number of its file (8 bytes, big-endian), and its own (4).
pub(crate) fn piece(file: u64, piece: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&file.to_be_bytes());
    key[8..].copy_from_slice(&piece.to_be_bytes());
    key
}

/// Returns the number of the file of a piece.
#[cfg(test)]
pub(crate) fn file_of(key: &[u8]) -> Option<u64> {
    key.first_chunk().copied().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_in_the_order_of_their_files() {
        assert!(piece(1, u32::MAX) < piece(2, 0) && piece(255, 0) < piece(256, 0) && piece(7, 255) < piece(7, 256));
        assert_eq!(file_of(&piece(77, 3)), Some(77));
        assert_eq!(file_of(b"search"), None);
    }
}
