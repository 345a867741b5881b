//! A walk of any B-tree ends, its keys ascend, and it can start after each of them.

use crate::builder::{Builder, int, root};
use settee_couch_files::{Database, DocumentError};

pub(crate) fn check(data: &[u8]) {
    let Some((position, file)) = data.split_first_chunk::<2>() else { return };
    let position = u64::from(u16::from_be_bytes(*position));
    let mut builder = Builder { file: file.to_vec() };
    let tree = || root(position);
    builder.header(&[int(8), int(9), int(0), tree(), tree(), tree(), tree(), tree(), int(position), int(1000)]);
    let Ok(database) = Database::new(Box::new(builder.file)) else { return };
    let mut ids = Vec::new();
    for document in database.documents(None).flatten() {
        assert!(ids.last() < Some(&document.id), "{ids:?} {}", document.id);
        assert!(document.winner().is_some());
        for leaf in document.leaves() {
            assert_eq!(document.path(leaf).next(), Some(&leaf.rev.hash));
            let Ok(contents) = database.contents(leaf) else { continue };
            for attachment in &contents.attachments {
                let _: Result<(), DocumentError> = database.attachment(attachment, |_| Ok(()));
            }
        }
        ids.push(document.id);
    }
    for (index, id) in ids.iter().enumerate().take(4) {
        let rest: Vec<String> = database.documents(Some(id)).flatten().map(|document| document.id).collect();
        assert_eq!(rest, ids[index + 1..]);
    }
    let _ = (database.recover().count(), database.local_documents().count(), database.purges());
    let _ = (database.security(), database.props(), database.is_partitioned());
}
