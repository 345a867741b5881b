//! The choice where the data of a server lie: in its data directory, or in a PostgreSQL. `settee storage` is in `transfer`.
//!
//! A data directory whose data lie elsewhere says so in the file `storage`, so that no command takes it for an empty one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use settee_settings::storage;
use settee_storage::durable::{self, Readers};
use settee_storage_postgres::Options;

use crate::config::Configuration;
use crate::{environment, version};

/// The file in the data directory that says where the data lie, if that is not there.
pub(crate) const FILE: &str = "storage";

/// The PostgreSQL that the configuration names, if it does.
pub(crate) fn chosen(configuration: &Configuration) -> anyhow::Result<Option<Options>> {
    let url = storage::URL.of(configuration);
    if url.is_empty() {
        return Ok(None);
    }
    let connections = usize::try_from(storage::CONNECTIONS.of(configuration)).unwrap_or(usize::MAX);
    Ok(Some(options(&url)?.with_connections(connections)))
}

/// What a URL says, and the password of the environment.
pub(crate) fn options(url: &str) -> anyhow::Result<Options> {
    let layout = u32::try_from(version::LAYOUT).context("a layout has a small number")?;
    let options = Options::parse(url).map_err(anyhow::Error::msg).context("the URL of the storage cannot be used")?;
    let options = options.with_layout(layout);
    Ok(match environment::text("PGPASSWORD") {
        Some(password) => options.with_password(&password),
        None => options,
    })
}

/// Notes in the data directory where its data lie.
pub(crate) fn note(data: &Path, place: &str) -> anyhow::Result<()> {
    let path = data.join(FILE);
    let text = format!("{place}\n");
    if fs::read_to_string(&path).is_ok_and(|noted| noted == text) {
        return Ok(());
    }
    durable::write(&path, Readers::Default, text.as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// Where the data of a directory lie, if that is not there.
pub(crate) fn elsewhere(data: &Path) -> Option<String> {
    let noted = fs::read_to_string(data.join(FILE)).ok()?;
    Some(noted.trim().to_owned())
}

/// Refuses a directory whose data lie elsewhere.
pub(crate) fn refuse_elsewhere(data: &Path) -> anyhow::Result<()> {
    let Some(place) = elsewhere(data) else { return Ok(()) };
    let data = data.display();
    bail!(
        "the data of {data} do not lie there but in PostgreSQL: {place}.\n\
         A server is started on them with --storage URL; backups and checks of them are PostgreSQL's.\n\
         To begin with an empty store in {data} instead, remove {data}/{FILE}"
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_directory_says_where_its_data_lie() {
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
    fn urls_that_make_no_sense_are_refused() {
        let text = format!("{:#}", options("mysql://secret@host").unwrap_err());
        assert_eq!(text, "the URL of the storage cannot be used: it does not begin with postgres://");
    }
}
