//! [`Slot`]: a row in the buffer of a sorter.

use crate::leaf::Row;
use crate::tree::apply::Change;

/// Position of the concatenated row key (which starts with the sort key), emitted key and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) start: u32,
    pub(super) key_len: u32,
    pub(super) sort_len: u32,
    pub(super) emitted_len: u32,
    pub(super) value_len: u32,
}

pub(super) const REMOVED: u32 = u32::MAX;

impl Slot {
    pub(super) fn is_removal(&self) -> bool {
        self.value_len == REMOVED
    }

    pub(super) fn len(&self) -> usize {
        let value_len = if self.is_removal() { 0 } else { self.value_len };
        self.key_len as usize + self.emitted_len as usize + value_len as usize
    }

    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..][..self.key_len as usize]
    }

    pub(super) fn sort_key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..][..self.sort_len as usize]
    }

    pub(super) fn change<'a>(&self, bytes: &'a [u8]) -> Change<'a> {
        let (row_key, rest) = bytes[self.start as usize..].split_at(self.key_len as usize);
        let row = (!self.is_removal()).then(|| {
            let (key, rest) = rest.split_at(self.emitted_len as usize);
            Row { row_key, sort_len: self.sort_len as usize, key, value: &rest[..self.value_len as usize] }
        });
        Change { row_key, row }
    }
}
