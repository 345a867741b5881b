//! Keys of a search index. [`Keyspace::IndexNodes`](settee_storage::Keyspace::IndexNodes) contains the pieces of files
//! by file and piece number; the catalog contains a record that exceeds a head.

pub(crate) const RECORD: &[u8] = b"search";

/// File number (8 bytes, big-endian) and piece number (4).
pub(crate) fn piece(file: u64, piece: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&file.to_be_bytes());
    key[8..].copy_from_slice(&piece.to_be_bytes());
    key
}

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
