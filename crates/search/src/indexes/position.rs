//! [`Position`]: progress of an index, committed with its segments.

use crate::{Error, Index};

/// Must be incremented when the same documents yield other fields or terms. An index of another format is rebuilt.
const FORMAT: u8 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) update_seq: u64,
    pub(super) purge_seq: u64,
}

impl Position {
    /// The position of an index without a commit is 0.
    pub(super) fn of(index: &Index) -> Result<Self, Error> {
        Ok(index.position()?.map_or(Ok(None), |bytes| Self::decode(&bytes))?.unwrap_or_default())
    }

    pub(super) fn encode(self) -> Vec<u8> {
        [&[FORMAT][..], &self.update_seq.to_be_bytes(), &self.purge_seq.to_be_bytes()].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok();
        match bytes.split_first() {
            Some((&FORMAT, numbers)) if numbers.len() == 16 => {
                let (update_seq, purge_seq) = numbers.split_at(8);
                Ok(number(update_seq)
                    .zip(number(purge_seq))
                    .map(|(update_seq, purge_seq)| Self { update_seq, purge_seq }))
            }
            Some((&FORMAT, _)) | None => Err(Error::Corrupt("position".to_owned())),
            Some(_) => Ok(None),
        }
    }
}
