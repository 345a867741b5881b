//! [`Store`]: named remote objects, encrypted if a key is configured. Calls block.

use std::fs::File;
use std::io::Read as _;
use std::path::Path as FilePath;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use data_encoding::HEXLOWER;
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, WriteMultipart};
use settee_model::json::{Json, Value};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;

use super::seal::{Key, Sealing};

/// Shorter objects are sent in one request. S3 accepts at most 10,000 parts.
const PART_BYTES: usize = 16 << 20;

const PARTS: usize = 3;

const WHOLE_BYTES: u64 = 256 << 20;

const ABOUT: &str = "about.json";

pub struct Store {
    objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
    key: Option<Key>,
    shown: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified_s: u64,
}

impl Store {
    pub(super) fn new(
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
        key: Option<Key>,
        shown: String,
    ) -> anyhow::Result<Self> {
        let prefix = Path::parse(prefix).with_context(|| format!("{shown} contains no location"))?;
        // The runtime is driven by the thread of the caller.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        Ok(Self { objects: Arc::new(PrefixStore::new(objects, prefix)), runtime, key, shown })
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    fn named(&self, name: &str) -> anyhow::Result<Path> {
        Path::parse(name).with_context(|| format!("{name} is not a valid name in {}", self.shown))
    }

    /// Returns true if the store has backups with this key, or unencrypted ones without a key. Fails if it has others.
    pub fn check(&self) -> anyhow::Result<bool> {
        let Some(about) = self.get_plain(ABOUT)? else { return Ok(false) };
        let about = Json::parse(&about).ok().with_context(|| format!("{ABOUT} in {} is not JSON", self.shown))?;
        ensure!(
            about.value().get("settee_store").and_then(Value::as_i64) == Some(1),
            "the format of the backups in {} is not supported by this version",
            self.shown
        );
        let theirs = about.value().get("key").and_then(|key| key.as_str().map(std::borrow::Cow::into_owned));
        match (theirs, &self.key) {
            (None, None) => Ok(true),
            (Some(theirs), Some(key)) if theirs == key.id => Ok(true),
            (None, Some(_)) => bail!("{} contains backups that are not encrypted; choose another prefix", self.shown),
            (Some(_), None) => bail!("the backups in {} are encrypted: specify their key", self.shown),
            (Some(_), Some(_)) => bail!("the backups in {} are encrypted with another key", self.shown),
        }
    }

    /// As [`check`](Self::check), but initializes an empty store.
    pub fn prepare(&self) -> anyhow::Result<()> {
        if self.check()? {
            return Ok(());
        }
        let key = self.key.as_ref().map_or("null".to_owned(), |key| format!("\"{}\"", key.id));
        self.put_plain(ABOUT, format!("{{\"settee_store\":1,\"key\":{key}}}\n").into_bytes())
    }

    pub(super) fn name_of(&self, sha256: &str) -> String {
        let name = self.key.as_ref().map_or_else(|| sha256.to_owned(), |key| key.name(sha256));
        format!("files/{}/{name}", &name[..2])
    }

    /// Sends one request. An existing object is replaced.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
        let bytes = match self.key.as_ref().map(|key| key.seal(name)) {
            Some(mut sealing) => {
                let mut sealed = sealing.push(&bytes);
                sealed.extend(sealing.finish());
                sealed
            }
            None => bytes,
        };
        self.put_plain(name, bytes)
    }

    fn put_plain(&self, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
        let path = self.named(name)?;
        self.runtime.block_on(self.objects.put(&path, bytes.into())).map_err(|error| self.failed(name, &error))?;
        Ok(())
    }

    /// Stores nothing if the file does not have this size and checksum any more.
    pub(super) fn put_file(&self, name: &str, file: &FilePath, bytes: u64, sha256: &str) -> anyhow::Result<()> {
        let mut source = File::open(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let mut sealing = self.key.as_ref().map(|key| key.seal(name));
        let mut hasher = Sha256::new();
        let piece_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, PART_BYTES);
        let mut piece = vec![0; piece_bytes];
        let mut next = |sealing: &mut Option<Sealing>| -> anyhow::Result<Option<Vec<u8>>> {
            let length = source.read(&mut piece).with_context(|| format!("reading {}", file.display()))?;
            hasher.update(&piece[..length]);
            let is_over = length == 0;
            if is_over && HEXLOWER.encode(&hasher.clone().finalize()) != sha256 {
                bail!("{} changed during the backup", file.display());
            }
            Ok(match (is_over, sealing.as_mut()) {
                (false, Some(sealing)) => Some(sealing.push(&piece[..length])),
                (false, None) => Some(piece[..length].to_vec()),
                (true, _) => None,
            })
        };
        if bytes <= PART_BYTES as u64 {
            let mut whole = Vec::new();
            while let Some(more) = next(&mut sealing)? {
                whole.extend(more);
            }
            whole.extend(sealing.map(Sealing::finish).unwrap_or_default());
            return self.put_plain(name, whole);
        }
        let path = self.named(name)?;
        let failed = |error: Error| self.failed(name, &error);
        self.runtime.block_on(async {
            let upload = self.objects.put_multipart(&path).await.map_err(failed)?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
            loop {
                let more = match next(&mut sealing) {
                    Ok(Some(more)) => more,
                    Ok(None) => break,
                    Err(error) => {
                        // Parts of an incomplete upload take up space until they are removed.
                        let _ = upload.abort().await;
                        return Err(error);
                    }
                };
                upload.wait_for_capacity(PARTS).await.map_err(failed)?;
                upload.write(&more);
            }
            upload.write(&sealing.map(Sealing::finish).unwrap_or_default());
            upload.finish().await.map_err(failed)?;
            Ok(())
        })
    }

    pub(super) fn fetch(&self, name: &str, each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        let mut opening = self.key.as_ref().map(|key| key.open(name));
        let is_there = self.fetch_plain(name, &mut |piece| match &mut opening {
            Some(opening) => each(&opening.push(piece)?),
            None => each(piece),
        })?;
        if let Some(opening) = opening.filter(|_| is_there) {
            each(&opening.finish()?)?;
        }
        Ok(is_there)
    }

    fn fetch_plain(&self, name: &str, each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<bool> {
        let path = self.named(name)?;
        self.runtime.block_on(async {
            let found = match self.objects.get(&path).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(false),
                Err(error) => return Err(self.failed(name, &error)),
            };
            let mut pieces = found.into_stream();
            while let Some(piece) = pieces.next().await {
                each(&piece.map_err(|error| self.failed(name, &error))?)?;
            }
            Ok(true)
        })
    }

    pub(crate) fn get(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let is_there = self.fetch(name, &mut |piece| collect(&mut bytes, name, piece))?;
        Ok(is_there.then_some(bytes))
    }

    fn get_plain(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let is_there = self.fetch_plain(name, &mut |piece| collect(&mut bytes, name, piece))?;
        Ok(is_there.then_some(bytes))
    }

    pub(crate) fn list(&self, folder: &str) -> anyhow::Result<Vec<Listed>> {
        let path = self.named(folder)?;
        self.runtime.block_on(async {
            let (mut found, mut objects) = (Vec::new(), self.objects.list(Some(&path)));
            while let Some(object) = objects.next().await {
                let object = object.map_err(|error| self.failed(folder, &error))?;
                let modified_s = u64::try_from(object.last_modified.timestamp()).unwrap_or_default();
                found.push(Listed { name: object.location.to_string(), bytes: object.size, modified_s });
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found)
        })
    }

    pub(crate) fn delete(&self, name: &str) -> anyhow::Result<()> {
        let path = self.named(name)?;
        match self.runtime.block_on(self.objects.delete(&path)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(name, &error)),
        }
    }

    fn failed(&self, name: &str, error: &Error) -> anyhow::Error {
        anyhow::anyhow!("{name} in {}: {error}", self.shown)
    }
}

fn collect(bytes: &mut Vec<u8>, name: &str, piece: &[u8]) -> anyhow::Result<()> {
    ensure!((bytes.len() + piece.len()) as u64 <= WHOLE_BYTES, "{name} is longer than permitted");
    bytes.extend_from_slice(piece);
    Ok(())
}
