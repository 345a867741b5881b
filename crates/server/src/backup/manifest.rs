//! [`Manifest`]: what a backup holds, as JSON. Its last line is a checksum of the rest, so that half a manifest is none.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, ensure};
use settee_model::json::{Json, Value, write_string};
use settee_storage::durable::{self, Readers};

use super::files;

/// The name of the file.
pub(super) const MANIFEST: &str = "manifest.json";

/// The version of the format.
const FORMAT: i64 = 1;

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The version of Settee that wrote it.
    pub(crate) version: String,
    /// Everything that was acknowledged before this moment is in the backup.
    pub(crate) begun: String,
    pub(crate) finished: String,
    pub(super) entries: Vec<Entry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Within the backup.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// In hexadecimal digits.
    pub(super) sha256: String,
}

impl Manifest {
    pub(super) fn find(&self, path: &Path) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = self.encode();
        let text = format!("{text}{}\n", files::digest_of(text.as_bytes()));
        durable::write(path, Readers::Owner, text.as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    fn encode(&self) -> String {
        let mut out = format!("{{\"settee_backup\":{FORMAT}").into_bytes();
        for (name, text) in [("version", &self.version), ("begun", &self.begun), ("finished", &self.finished)] {
            out.extend_from_slice(format!(",\n\"{name}\":").as_bytes());
            write_string(&mut out, text);
        }
        out.extend_from_slice(b",\n\"files\":[");
        for (index, Entry { path, bytes, sha256 }) in self.entries.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\n{\"path\":" } else { b"\n{\"path\":" });
            write_string(&mut out, &path.to_string_lossy());
            out.extend_from_slice(format!(",\"bytes\":{bytes},\"sha256\":\"{sha256}\"}}").as_bytes());
        }
        out.extend_from_slice(b"\n]}\n");
        String::from_utf8_lossy(&out).into_owned()
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let (content, sum) = text.trim_end().rsplit_once('\n').context("the manifest is cut off")?;
        ensure!(files::digest_of(format!("{content}\n").as_bytes()) == sum, "the manifest is damaged");
        let json = Json::parse(content.as_bytes()).context("the manifest is no JSON")?;
        let value = json.value();
        let format = value.get("settee_backup").and_then(Value::as_i64);
        ensure!(format == Some(FORMAT), "the backup has a format that this version does not know");
        let text = |value: Value<'_>, name: &str| {
            let member = value.get(name).and_then(|member| member.as_str().map(std::borrow::Cow::into_owned));
            member.with_context(|| format!("the manifest does not tell {name}"))
        };
        let entries = value.get("files").into_iter().flat_map(|files| files.elements().collect::<Vec<_>>());
        let entries = entries.map(|entry| {
            let path = PathBuf::from(text(entry, "path")?);
            // A path that leads out of the backup would be written anywhere.
            let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
            ensure!(is_inside, "the manifest names a file outside of the backup: {}", path.display());
            let bytes = entry.get("bytes").and_then(Value::as_i64).and_then(|bytes| u64::try_from(bytes).ok());
            Ok(Entry { path, bytes: bytes.context("the manifest tells no size")?, sha256: text(entry, "sha256")? })
        });
        Ok(Self {
            version: text(value, "version")?,
            begun: text(value, "begun")?,
            finished: text(value, "finished")?,
            entries: entries.collect::<anyhow::Result<_>>()?,
        })
    }
}
