//! Builder of small database files.
#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses a part")]

use md5::{Digest as _, Md5};

pub(crate) type Bytes = Vec<u8>;

pub(crate) fn int(value: u64) -> Bytes {
    [&[110, 8, 0][..], &value.to_le_bytes()].concat()
}

pub(crate) fn bin(bytes: impl AsRef<[u8]>) -> Bytes {
    let bytes = bytes.as_ref();
    [&[109][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

pub(crate) fn atom(name: &str) -> Bytes {
    [&[100, 0, name.len() as u8][..], name.as_bytes()].concat()
}

pub(crate) fn tuple(elements: &[Bytes]) -> Bytes {
    [&[104, elements.len() as u8][..], &elements.concat()].concat()
}

pub(crate) fn list(elements: &[Bytes]) -> Bytes {
    if elements.is_empty() {
        return vec![106];
    }
    [&[108][..], &(elements.len() as u32).to_be_bytes(), &elements.concat(), &[106]].concat()
}

pub(crate) fn whole(term: &[u8]) -> Bytes {
    [&[131], term].concat()
}

#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) file: Vec<u8>,
}

impl Builder {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.file.len().is_multiple_of(4096) {
                self.file.push(0);
            }
            self.file.push(*byte);
        }
    }

    pub(crate) fn chunk(&mut self, data: &[u8], has_checksum: bool) -> u64 {
        let position = self.file.len() as u64;
        let flag = if has_checksum { 1 << 31 } else { 0 };
        self.write(&(data.len() as u32 | flag).to_be_bytes());
        if has_checksum {
            self.write(&Md5::digest(data));
        }
        self.write(data);
        position
    }

    pub(crate) fn term(&mut self, term: &[u8]) -> u64 {
        self.chunk(&whole(term), true)
    }

    pub(crate) fn leaf(&mut self, entries: &[(Bytes, Bytes)]) -> u64 {
        let entries: Vec<Bytes> = entries.iter().map(|(key, value)| tuple(&[key.clone(), value.clone()])).collect();
        self.chunk(&whole(&tuple(&[atom("kv_node"), list(&entries)])), false)
    }

    pub(crate) fn inner(&mut self, children: &[(Bytes, u64)]) -> u64 {
        let child = |(key, position): &(Bytes, u64)| tuple(&[key.clone(), tuple(&[int(*position), list(&[]), int(0)])]);
        let children: Vec<Bytes> = children.iter().map(child).collect();
        self.chunk(&whole(&tuple(&[atom("kp_node"), list(&children)])), false)
    }

    pub(crate) fn header(&mut self, elements: &[Bytes]) {
        let term = whole(&tuple(&[&[atom("db_header")], elements].concat()));
        let data = [Md5::digest(&term).as_slice(), &term].concat();
        self.file.resize(self.file.len().next_multiple_of(4096), 0);
        self.file.push(1);
        let len = (data.len() as u32).to_be_bytes();
        self.write(&len);
        self.write(&data);
    }
}

pub(crate) fn root(position: u64) -> Bytes {
    tuple(&[int(position), tuple(&[int(1), int(0), int(0)]), int(0)])
}

pub(crate) fn chain(hashes: &[u8], body: u64) -> Bytes {
    let mut node: Option<Bytes> = None;
    for hash in hashes.iter().rev() {
        let (value, children) = match node.take() {
            None => (tuple(&[int(0), int(body), int(1), int(9)]), list(&[])),
            Some(child) => (list(&[]), list(&[child])),
        };
        node = Some(tuple(&[bin([*hash; 16]), value, children]));
    }
    list(&[tuple(&[int(1), node.unwrap_or_default()])])
}
