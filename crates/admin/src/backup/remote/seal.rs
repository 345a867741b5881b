//! [`Key`]: optional encryption of stored objects. A stored object is then
//!
//! ```text
//! "SETTEES1", salt (32 bytes), pieces of 256 KiB, each followed by its tag (16 bytes)
//! ```
//!
//! The cipher is AES-256-GCM with a key for each object, which HKDF derives from the key and the salt. The nonce of a
//! piece contains its number and a flag for the last piece. The name of the object is authenticated with each piece.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};

use crate::environment;

const MAGIC: &[u8; 8] = b"SETTEES1";
const SALT_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + SALT_BYTES;
const PIECE_BYTES: usize = 256 << 10;
const TAG_BYTES: usize = 16;

const KEY_DIGITS: usize = 64;

#[derive(Clone)]
pub(super) struct Key {
    objects: hkdf::Prk,
    names: hmac::Key,
    /// Identifies the key without revealing it.
    pub(super) id: String,
}

impl Key {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("the key {} cannot be read", path.display()))?;
        let text = text.trim();
        let digits = (text.len() == KEY_DIGITS).then(|| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()).flatten();
        let Some(secret) = digits else {
            bail!(
                "{} contains no key: create one with `openssl rand -hex 32`, and keep a copy apart from the backups",
                path.display()
            );
        };
        Ok(Self::new(&secret))
    }

    pub(super) fn new(secret: &[u8]) -> Self {
        let derived = |purpose: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose.as_bytes());
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"settee backup");
        let id = derived("settee backup id");
        Self {
            objects: salt.extract(secret),
            names: hmac::Key::new(hmac::HMAC_SHA256, derived("settee backup names").as_ref()),
            id: HEXLOWER.encode(&id.as_ref()[..8]),
        }
    }

    /// Returns the name of an object with this checksum, which the name does not reveal.
    pub(super) fn name(&self, sha256: &str) -> String {
        HEXLOWER.encode(hmac::sign(&self.names, sha256.as_bytes()).as_ref())
    }

    fn object(&self, salt: &[u8]) -> LessSafeKey {
        let info = [b"object".as_slice(), salt];
        let okm = self.objects.expand(&info, &AES_256_GCM).expect("HKDF makes keys of this length");
        LessSafeKey::new(UnboundKey::from(okm))
    }

    pub(super) fn seal(&self, name: &str) -> Sealing {
        let mut salt = [0; SALT_BYTES];
        environment::random(&mut salt);
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&salt);
        Sealing { key: self.object(&salt), name: name.to_owned(), number: 0, plain: Vec::new(), sealed: head }
    }

    pub(super) fn open(&self, name: &str) -> Opening<'_> {
        Opening { key: self, object: None, name: name.to_owned(), number: 0, sealed: Vec::new() }
    }
}

fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

pub(super) struct Sealing {
    key: LessSafeKey,
    name: String,
    number: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Sealing {
    /// Returns the bytes that were encrypted since the last call.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.plain.extend_from_slice(bytes);
        // The last piece is held back until `finish`, because its nonce is flagged.
        while self.plain.len() > PIECE_BYTES {
            let rest = self.plain.split_off(PIECE_BYTES);
            let piece = std::mem::replace(&mut self.plain, rest);
            self.piece(piece, false);
        }
        std::mem::take(&mut self.sealed)
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let piece = std::mem::take(&mut self.plain);
        self.piece(piece, true);
        self.sealed
    }

    fn piece(&mut self, mut piece: Vec<u8>, is_last: bool) {
        let aad = Aad::from(self.name.as_bytes());
        let sealed = self.key.seal_in_place_append_tag(nonce(self.number, is_last), aad, &mut piece);
        sealed.expect("a piece is not too long");
        self.number += 1;
        self.sealed.extend_from_slice(&piece);
    }
}

pub(super) struct Opening<'k> {
    key: &'k Key,
    object: Option<LessSafeKey>,
    name: String,
    number: u64,
    sealed: Vec<u8>,
}

impl Opening<'_> {
    pub(super) fn push(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.sealed.extend_from_slice(bytes);
        if self.object.is_none() {
            if self.sealed.len() < HEADER_BYTES {
                return Ok(Vec::new());
            }
            ensure!(self.sealed.starts_with(MAGIC), "{} is not an encrypted object", self.name);
            self.object = Some(self.key.object(&self.sealed[MAGIC.len()..HEADER_BYTES]));
            self.sealed.drain(..HEADER_BYTES);
        }
        let mut plain = Vec::new();
        while self.sealed.len() > PIECE_BYTES + TAG_BYTES {
            let rest = self.sealed.split_off(PIECE_BYTES + TAG_BYTES);
            let piece = std::mem::replace(&mut self.sealed, rest);
            plain.extend(self.piece(piece, false)?);
        }
        Ok(plain)
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        let piece = std::mem::take(&mut self.sealed);
        self.piece(piece, true)
    }

    fn piece(&mut self, mut piece: Vec<u8>, is_last: bool) -> anyhow::Result<Vec<u8>> {
        let damaged = || format!("{} is damaged, truncated, or encrypted with another key", self.name);
        let key = self.object.as_ref().with_context(damaged)?;
        let aad = Aad::from(self.name.as_bytes());
        let length = key.open_in_place(nonce(self.number, is_last), aad, &mut piece).ok().with_context(damaged)?.len();
        piece.truncate(length);
        self.number += 1;
        Ok(piece)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn sealed(key: &Key, name: &str, plain: &[u8], step: usize) -> Vec<u8> {
        let mut sealing = key.seal(name);
        let mut out = Vec::new();
        plain.chunks(step).for_each(|piece| out.extend(sealing.push(piece)));
        out.extend(sealing.finish());
        out
    }

    fn opened(key: &Key, name: &str, sealed: &[u8], step: usize) -> anyhow::Result<Vec<u8>> {
        let mut opening = key.open(name);
        let mut out = Vec::new();
        for piece in sealed.chunks(step) {
            out.extend(opening.push(piece)?);
        }
        out.extend(opening.finish()?);
        Ok(out)
    }

    #[test]
    fn sealed_data_is_opened_for_all_piece_sizes() {
        let key = Key::new(&[1; 32]);
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 7] {
            let plain: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            for step in [1000, PIECE_BYTES, PIECE_BYTES + TAG_BYTES, 10 * PIECE_BYTES] {
                let found = sealed(&key, "a", &plain, step);
                assert_eq!(opened(&key, "a", &found, step + 1).unwrap(), plain, "{length} {step}");
            }
        }
        let (one, other) = (sealed(&key, "a", b"x", 1), sealed(&key, "a", b"x", 1));
        assert_ne!(one, other, "equal contents must not have equal ciphertexts");
    }

    #[test]
    fn every_change_is_noticed() {
        let key = Key::new(&[1; 32]);
        let plain = vec![7; 2 * PIECE_BYTES + 5];
        let good = sealed(&key, "a", &plain, PIECE_BYTES);
        let refused = |label: &str, key: &Key, name: &str, bytes: &[u8]| {
            let error = opened(key, name, bytes, PIECE_BYTES).err().map(|error| error.to_string());
            assert!(error.is_some(), "{label}");
        };
        for place in [0, 10, HEADER_BYTES, HEADER_BYTES + PIECE_BYTES, good.len() - 1] {
            let mut bad = good.clone();
            bad[place] ^= 1;
            refused("another byte", &key, "a", &bad);
        }
        refused("cut between pieces", &key, "a", &good[..HEADER_BYTES + PIECE_BYTES + TAG_BYTES]);
        refused("cut off", &key, "a", &good[..good.len() - 1]);
        refused("nothing", &key, "a", &[]);
        refused("another name", &key, "b", &good);
        refused("another key", &Key::new(&[2; 32]), "a", &good);
        let mut exchanged = good[..HEADER_BYTES].to_vec();
        exchanged.extend_from_slice(
            &good[HEADER_BYTES + PIECE_BYTES + TAG_BYTES..HEADER_BYTES + 2 * (PIECE_BYTES + TAG_BYTES)],
        );
        exchanged.extend_from_slice(&good[HEADER_BYTES..HEADER_BYTES + PIECE_BYTES + TAG_BYTES]);
        exchanged.extend_from_slice(&good[HEADER_BYTES + 2 * (PIECE_BYTES + TAG_BYTES)..]);
        refused("pieces exchanged", &key, "a", &exchanged);
    }

    #[test]
    fn a_key_is_64_digits() {
        let file = std::env::temp_dir().join(format!("settee-key-{}", std::process::id()));
        for (text, is_key) in [
            (format!("{}\n", "aB".repeat(32)), true),
            ("ab".repeat(31), false),
            (format!("{}zz", "ab".repeat(31)), false),
            (String::new(), false),
        ] {
            fs::write(&file, &text).unwrap();
            assert_eq!(Key::read(&file).is_ok(), is_key, "{text:?}");
        }
        fs::remove_file(&file).unwrap();
        let (one, other) = (Key::new(&[1; 32]), Key::new(&[2; 32]));
        assert_ne!(one.id, other.id);
        assert_ne!(one.name("x"), other.name("x"));
    }
}
