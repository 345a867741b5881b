//! Search for headers in any file, and headers with any term.

use md5::{Digest as _, Md5};
use settee_couch_files::Header;

pub(crate) fn check(data: &[u8]) {
    let file = data.to_vec();
    if let Ok(header) = Header::find(&file) {
        assert!(header.position + header.tail < data.len() as u64);
        assert_eq!(header.position % 4096, 0);
    }
    let len = data.len().min(3000);
    let mut file = [&[1][..], &(len as u32 + 16).to_be_bytes(), &Md5::digest(&data[..len]), &data[..len]].concat();
    file.extend_from_slice(&[0; 7]);
    if let Ok(header) = Header::find(&file) {
        assert_eq!((header.position, header.tail), (0, 7));
        assert!((6..=8).contains(&header.disk_version));
    }
}
