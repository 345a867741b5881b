//! [`Manifest`]: the contents of a backup as JSON. Its last line is a checksum of the rest.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, ensure};
use settee_model::json::{Json, Value, write_string};
use settee_storage::durable::{self, Readers};

use super::files;
use crate::regular;

pub(super) const MANIFEST: &str = "manifest.json";

/// Directory of the files of the storage engine.
pub(super) const ENGINE: &str = "engine";

const FORMAT: i64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub version: String,
    /// Every commit acknowledged before this time is in the backup.
    pub begun: String,
    pub finished: String,
    pub(super) entries: Vec<Entry>,
    pub(super) log: Option<Logged>,
}

/// Size of a written backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub directory: PathBuf,
    pub files: usize,
    pub bytes: u64,
    pub copied_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// A server starts a new stream whenever it cannot prove that its log continues the previous one.
    pub stream: String,
    /// The backup has all commits up to this position, and possibly later ones.
    pub position: u64,
    /// Time after all commits of the backup.
    pub taken_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// Nanoseconds of the Unix epoch; 0 if the time is irrelevant.
    pub(super) modified_ns: i64,
}

impl Manifest {
    pub(super) fn find(&self, path: &Path) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    pub(super) fn to_text(&self) -> String {
        let text = self.encode();
        let sum = files::digest_of(text.as_bytes());
        format!("{text}{sum}\n")
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        durable::write(path, Readers::Owner, self.to_text().as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    fn encode(&self) -> String {
        let mut out = format!("{{\"settee_backup\":{FORMAT}").into_bytes();
        for (name, text) in [("version", &self.version), ("begun", &self.begun), ("finished", &self.finished)] {
            out.extend_from_slice(format!(",\n\"{name}\":").as_bytes());
            write_string(&mut out, text);
        }
        if let Some(Logged { stream, position, taken_us }) = &self.log {
            out.extend_from_slice(b",\n\"log\":{\"stream\":");
            write_string(&mut out, stream);
            out.extend_from_slice(format!(",\"position\":{position},\"taken_us\":{taken_us}}}").as_bytes());
        }
        out.extend_from_slice(b",\n\"files\":[");
        for (index, Entry { path, bytes, sha256, modified_ns }) in self.entries.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\n{\"path\":" } else { b"\n{\"path\":" });
            write_string(&mut out, &path.to_string_lossy());
            out.extend_from_slice(format!(",\"bytes\":{bytes},\"sha256\":\"{sha256}\"").as_bytes());
            if *modified_ns != 0 {
                out.extend_from_slice(format!(",\"modified_ns\":{modified_ns}").as_bytes());
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"\n]}\n");
        String::from_utf8_lossy(&out).into_owned()
    }

    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&regular::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?)
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (content, sum) = text.trim_end().rsplit_once('\n').context("the manifest is truncated")?;
        ensure!(files::digest_of(format!("{content}\n").as_bytes()) == sum, "the manifest is damaged");
        let json = Json::parse(content.as_bytes()).context("the manifest is not JSON")?;
        let value = json.value();
        let format = value.get("settee_backup").and_then(Value::as_i64);
        ensure!(format == Some(FORMAT), "the format of the backup is not supported by this version");
        let text = |value: Value<'_>, name: &str| {
            let member = value.get(name).and_then(|member| member.as_str().map(std::borrow::Cow::into_owned));
            member.with_context(|| format!("the manifest does not contain {name}"))
        };
        let entries = value.get("files").into_iter().flat_map(|files| files.elements().collect::<Vec<_>>());
        let entries = entries.map(|entry| {
            let path = PathBuf::from(text(entry, "path")?);
            // A path that leads out of the backup would allow writes to any place.
            let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
            ensure!(is_inside, "the manifest names a file outside of the backup: {}", path.display());
            let bytes = number(entry, "bytes").context("the manifest does not contain the size of a file")?;
            let modified_ns = entry.get("modified_ns").and_then(Value::as_i64).unwrap_or_default();
            Ok(Entry { path, bytes, sha256: text(entry, "sha256")?, modified_ns })
        });
        let log = value.get("log").map(|log| {
            let missing = "the manifest does not contain the position of the log";
            let position = number(log, "position").context(missing)?;
            let taken_us = number(log, "taken_us").context(missing)?;
            anyhow::Ok(Logged { stream: text(log, "stream")?, position, taken_us })
        });
        Ok(Self {
            version: text(value, "version")?,
            begun: text(value, "begun")?,
            finished: text(value, "finished")?,
            entries: entries.collect::<anyhow::Result<_>>()?,
            log: log.transpose()?,
        })
    }
}

fn number(value: Value<'_>, name: &str) -> Option<u64> {
    u64::try_from(value.get(name)?.as_i64()?).ok()
}
