//! Selection of the store of a server: its data directory, a PostgreSQL, or a bucket. The file `storage` in the data
//! directory names another store, so that no command takes the directory for an empty one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use settee_settings::{Settings, storage};
use settee_storage::durable::{self, Readers};
use settee_storage_postgres::Options;

use crate::{environment, version};

pub const FILE: &str = "storage";

const BUCKET_SCHEMES: [&str; 6] = ["s3://", "gs://", "az://", "azure://", "abfs://", "file://"];

/// A store other than the data directory.
pub enum Chosen {
    Postgres(Box<Options>),
    /// The URL of a bucket or of a directory.
    Bucket(String),
}

pub fn chosen(configuration: &dyn Settings) -> anyhow::Result<Option<Chosen>> {
    let url = storage::URL.of(configuration);
    if url.is_empty() {
        return Ok(None);
    }
    if is_bucket(&url) {
        return Ok(Some(Chosen::Bucket(url)));
    }
    let connections = usize::try_from(storage::CONNECTIONS.of(configuration)).unwrap_or(usize::MAX);
    Ok(Some(Chosen::Postgres(Box::new(options(&url)?.with_connections(connections)))))
}

pub fn is_bucket(url: &str) -> bool {
    BUCKET_SCHEMES.iter().any(|scheme| url.starts_with(scheme))
}

/// Describes a noted place for operators.
pub fn in_words(place: &str) -> String {
    if is_bucket(place) { format!("object storage: {place}") } else { format!("PostgreSQL: {place}") }
}

pub fn options(url: &str) -> anyhow::Result<Options> {
    let layout = u32::try_from(version::LAYOUT).context("a layout has a small number")?;
    let options = Options::parse(url).map_err(anyhow::Error::msg).context("the URL of the storage cannot be used")?;
    let options = options.with_layout(layout);
    Ok(match environment::text("PGPASSWORD") {
        Some(password) => options.with_password(&password),
        None => options,
    })
}

pub fn note(data: &Path, place: &str) -> anyhow::Result<()> {
    let path = data.join(FILE);
    let text = format!("{place}\n");
    if fs::read_to_string(&path).is_ok_and(|noted| noted == text) {
        return Ok(());
    }
    durable::write(&path, Readers::Default, text.as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

pub fn elsewhere(data: &Path) -> Option<String> {
    let noted = fs::read_to_string(data.join(FILE)).ok()?;
    Some(noted.trim().to_owned())
}

/// Fails if the data of a directory is in another store.
pub fn refuse_elsewhere(data: &Path) -> anyhow::Result<()> {
    let Some(place) = elsewhere(data) else { return Ok(()) };
    let data = data.display();
    bail!(
        "the data of {data} is not there but in {place}.\n\
         Start a server on it with --storage URL; back it up and check it with the programs of that store.\n\
         To start with an empty store in {data} instead, remove {data}/{FILE}",
        place = in_words(&place),
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_the_location_of_its_data() {
        let data = std::env::temp_dir().join(format!("settee-storage-{}", std::process::id()));
        fs::create_dir_all(&data).unwrap();
        assert_eq!(elsewhere(&data), None);
        refuse_elsewhere(&data).unwrap();
        for place in ["database a on b, schema c", "database d on e, schema f"] {
            note(&data, place).unwrap();
            note(&data, place).unwrap();
            assert_eq!(elsewhere(&data).as_deref(), Some(place));
        }
        let text = refuse_elsewhere(&data).unwrap_err().to_string();
        assert!(text.contains("but in PostgreSQL: database d on e, schema f"), "{text}");
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn invalid_urls_are_rejected() {
        let text = format!("{:#}", options("mysql://secret@host").unwrap_err());
        assert_eq!(text, "the URL of the storage cannot be used: it does not start with postgres://");
    }
}
