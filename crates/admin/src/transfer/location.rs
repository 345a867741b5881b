//! [`StoreLocation`]: a data directory, a PostgreSQL or a bucket, opened exclusively while no server uses it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use settee_storage::{Engine, durable};
use settee_storage_postgres::Options;

use crate::backup::RestoreTime;
use crate::descriptors::Descriptors;
use crate::lock::DataLock;
use crate::output::print_text;
use crate::verify::ENGINE;
use crate::{backends, environment, names, storage, time, version};

pub(super) enum StoreLocation {
    Directory(PathBuf),
    Postgres(Box<Options>),
    /// The URL of a bucket.
    Bucket(String),
}

pub(super) struct Opened {
    pub(super) engine: Arc<dyn Engine>,
    _lock: Option<DataLock>,
}

impl StoreLocation {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        match text.split_once("://") {
            Some(_) if storage::is_bucket(text) => Ok(Self::Bucket(text.trim_end_matches('/').to_owned())),
            Some(_) => Ok(Self::Postgres(Box::new(storage::options(text)?))),
            None => Ok(Self::Directory(PathBuf::from(text))),
        }
    }

    /// The same place may be written in different ways.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Directory(one), Self::Directory(other)) => {
                matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
            }
            (Self::Postgres(_), Self::Postgres(_)) | (Self::Bucket(_), Self::Bucket(_)) => {
                self.in_words() == other.in_words()
            }
            _ => false,
        }
    }

    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Directory(path) => path.display().to_string(),
            Self::Postgres(options) => options.location(),
            Self::Bucket(url) => url.clone(),
        }
    }

    pub(super) fn open(&self) -> anyhow::Result<Opened> {
        let Self::Directory(data) = self else { return self.open_to_write() };
        let data = data.canonicalize().with_context(|| format!("{} cannot be found", data.display()))?;
        storage::refuse_elsewhere(&data)?;
        ensure!(data.join(ENGINE).is_dir(), "{} contains no data of a server", data.display());
        check_layout(&data)?;
        let lock = DataLock::take(&data)?;
        Ok(Opened { engine: backends::open_read_only(&data.join(ENGINE))?, _lock: Some(lock) })
    }

    pub(super) fn open_at(&self, time: RestoreTime) -> anyhow::Result<Opened> {
        let Self::Bucket(url) = self else {
            bail!("only a bucket contains earlier states; for {} use `settee restore --at`", self.in_words());
        };
        let time_s = match time {
            RestoreTime::Newest => None,
            RestoreTime::Time(time_us) => Some(time_us / 1_000_000),
        };
        let (engine, time_s) = backends::open_bucket_at(url, time_s)?;
        print_text(&format!("the state of {}\n", time::rfc3339(time_s * 1_000_000)));
        Ok(Opened { engine, _lock: None })
    }

    pub(super) fn open_to_write(&self) -> anyhow::Result<Opened> {
        match self {
            Self::Directory(data) => {
                durable::create_directories(data).with_context(|| format!("{} cannot be created", data.display()))?;
                let lock = DataLock::take(data)?;
                version::check(data)?;
                Ok(Opened { engine: backends::open(data, Descriptors::claim()?.engine)?, _lock: Some(lock) })
            }
            Self::Postgres(options) => {
                let mut id = [0; 16];
                environment::random(&mut id);
                let engine = backends::open_postgres(options, id)?;
                let nodes: Vec<String> = engine.members().live().iter().map(|node| node.name.clone()).collect();
                if !nodes.is_empty() {
                    bail!("{} is in use by {}: stop it first", self.in_words(), nodes.join(", "));
                }
                Ok(Opened { engine, _lock: None })
            }
            Self::Bucket(url) => {
                let (mut id, mut secret) = ([0; 16], [0; 32]);
                environment::random(&mut id);
                environment::random(&mut secret);
                Ok(Opened { engine: backends::open_bucket_for_command(url, id, secret)?, _lock: None })
            }
        }
    }

    pub(super) fn complete(&self, engine: &dyn Engine) {
        if let Self::Directory(data) = self {
            names::write(data, engine);
        }
    }

    pub(super) fn advice(&self, from: &Self) -> String {
        match (self, from) {
            (Self::Directory(data), Self::Postgres(_) | Self::Bucket(_)) => format!(
                "Administrators and settings that its servers shared are copied; those of one machine remain in its local.ini.\n\
                 Start a server on it with: settee serve --data {0}\n",
                data.display()
            ),
            (Self::Directory(data), Self::Directory(old)) => format!(
                "The settings remain in local.ini and local.d of {}: copy them to {1}.\n\
                 Start a server on it with: settee serve --data {1}\n",
                old.display(),
                data.display()
            ),
            (Self::Postgres(_) | Self::Bucket(_), Self::Directory(old)) => format!(
                "The settings remain in {0}. Start a server on it with: settee serve --data {0} --storage URL\n\
                 The data in {0} is then unused. After checking the copy, remove {0}/{ENGINE}.\n",
                old.display()
            ),
            (Self::Postgres(_) | Self::Bucket(_), Self::Postgres(_) | Self::Bucket(_)) => {
                "Start servers on it with the new URL: settee serve --data DIR --storage URL\n".to_owned()
            }
        }
    }
}

fn check_layout(data: &Path) -> anyhow::Result<()> {
    let data_shown = data.display();
    ensure!(!data.join(version::RESTORING).exists(), "{data_shown} contains an incomplete backup");
    match version::read(data)? {
        Some(layout) if layout > version::LAYOUT => {
            bail!(
                "the data in {data_shown} have layout {layout}, and this program supports {} at most",
                version::LAYOUT
            )
        }
        Some(_) | None => Ok(()),
    }
}
