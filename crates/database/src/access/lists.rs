//! Numbers of access lists. A revision stores the number of its list, so that equal lists are stored once. A number is
//! never reused. Number 0 is that of the empty list, which names administrators only.

use std::collections::HashMap;
use std::sync::Arc;

use settee_storage::codec::{Reader as Decoder, put_varint};
use settee_storage::{Batch, Keyspace, Snapshot};
use sha2::{Digest as _, Sha256};

use super::AccessList;
use crate::meta::Meta;
use crate::{DatabaseError, Result, keys};

/// Lists by number. The numbers are valid for one snapshot, because a store that fails can lose later ones.
pub(crate) type Lists = HashMap<u32, Arc<AccessList>>;

const CORRUPT: DatabaseError = DatabaseError::Corrupt("access list");

/// Reads the lists of `numbers` that `lists` does not contain.
pub(crate) fn read(snapshot: &dyn Snapshot, numbers: impl Iterator<Item = u32>, lists: &mut Lists) -> Result<()> {
    let mut numbers: Vec<u32> = numbers.filter(|number| !lists.contains_key(number)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.first() == Some(&0) {
        lists.insert(0, Arc::default());
        numbers.remove(0);
    }
    if numbers.is_empty() {
        return Ok(());
    }
    let stored: Vec<Vec<u8>> = numbers.iter().map(|number| number_key(*number)).collect();
    let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
    for (number, bytes) in numbers.into_iter().zip(snapshot.multi_get(Keyspace::Catalog, &stored)?) {
        lists.insert(number, Arc::new(AccessList::decode(&bytes.ok_or(CORRUPT)?)?));
    }
    Ok(())
}

/// The lists of one commit: those that it has read, and new ones, which its batch stores.
#[derive(Default)]
pub(crate) struct CommitLists {
    numbers: HashMap<Arc<AccessList>, u32>,
    pub(crate) lists: Lists,
}

impl CommitLists {
    /// Returns the number of `list`, which may be a new one.
    pub(crate) fn number(
        &mut self,
        list: AccessList,
        (snapshot, batch, meta): (&dyn Snapshot, &mut Batch, &mut Meta),
    ) -> Result<u32> {
        if list.entries().is_empty() {
            return Ok(0);
        }
        if let Some(number) = self.numbers.get(&list) {
            return Ok(*number);
        }
        let encoded = list.encode();
        let key = list_key(&encoded);
        let number = match snapshot.get(Keyspace::Catalog, &key)? {
            Some(bytes) => Decoder::new(&bytes, "access list").varint()?,
            None => {
                meta.access_lists += 1;
                let mut value = Vec::new();
                put_varint(&mut value, meta.access_lists);
                batch.put(Keyspace::Catalog, &key, &value);
                batch.put(Keyspace::Catalog, &number_key(to_number(meta.access_lists)?), &encoded);
                meta.access_lists
            }
        };
        let (number, list) = (to_number(number)?, Arc::new(list));
        self.numbers.insert(Arc::clone(&list), number);
        self.lists.insert(number, list);
        Ok(number)
    }

    pub(crate) fn list(&mut self, snapshot: &dyn Snapshot, number: u32) -> Result<Arc<AccessList>> {
        read(snapshot, [number].into_iter(), &mut self.lists)?;
        self.lists.get(&number).cloned().ok_or(CORRUPT)
    }
}

fn to_number(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| CORRUPT)
}

fn number_key(number: u32) -> Vec<u8> {
    keys::prefixed(keys::ACCESS_NUMBER, &number.to_be_bytes())
}

/// The key contains a hash, because a list can be longer than a key.
fn list_key(encoded: &[u8]) -> Vec<u8> {
    keys::prefixed(keys::ACCESS_LIST, &Sha256::digest(encoded))
}
