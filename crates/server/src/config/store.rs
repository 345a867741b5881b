//! [`Files`]: the chain of configuration files on disk: discovery, reading and atomic replacement.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use settee_couch_files::configuration::{drop_ins, files};
use settee_storage::durable::{self, Readers};

use settee_settings::ini::Ini;

/// Files of a CouchDB configuration directory, if any, the configuration file, then the sorted `local.d/*.ini`.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    main: PathBuf,
    presence: Presence,
    couchdb: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Named by the user: a missing file is an error.
    Required,
    /// The default path: the file is created with the first change.
    Optional,
}

#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) path: PathBuf,
    pub(crate) ini: Ini,
}

impl Files {
    pub(crate) fn new(main: PathBuf, presence: Presence) -> Files {
        Files { main, presence, couchdb: None }
    }

    /// Reads the directory `couchdb` first, without `default.ini`, which contains CouchDB's defaults.
    pub(crate) fn after(self, couchdb: PathBuf) -> Files {
        Files { couchdb: Some(couchdb), ..self }
    }

    /// Reads the chain in order of increasing precedence. It is never empty: the last file receives changes, as in
    /// CouchDB.
    pub(crate) fn read(&self) -> io::Result<Vec<Layer>> {
        let mut layers = Vec::new();
        let couchdb = self.couchdb.as_deref().map_or_else(|| Ok(Vec::new()), files)?;
        let couchdb = couchdb.into_iter().filter(|path| !path.ends_with("default.ini"));
        for path in couchdb.chain([self.main.clone()]).chain(drop_ins(&self.main.with_file_name("local.d"))?) {
            let ini = match fs::read(&path) {
                Ok(bytes) => Ini::parse(&decode(bytes, &path)?),
                Err(error) if error.kind() == ErrorKind::NotFound && self.may_be_missing(&path) => Ini::default(),
                Err(error) => return Err(at(&path, &error)),
            };
            layers.push(Layer { path, ini });
        }
        Ok(layers)
    }

    pub(crate) fn read_main(&self) -> io::Result<Vec<Layer>> {
        let bytes = fs::read(&self.main).map_err(|error| at(&self.main, &error))?;
        Ok(vec![Layer { path: self.main.clone(), ini: Ini::parse(&decode(bytes, &self.main)?) }])
    }

    fn may_be_missing(&self, path: &Path) -> bool {
        self.presence == Presence::Optional && path == self.main
    }
}

impl Layer {
    /// Replaces the file atomically and durably.
    pub(crate) fn save(&self) -> io::Result<()> {
        // The file contains password hashes and secrets, so only its owner may read it.
        durable::write(&self.path, Readers::Owner, self.ini.to_string().as_bytes())
            .map_err(|error| at(&self.path, &error))
    }
}

fn decode(bytes: Vec<u8>, path: &Path) -> io::Result<String> {
    let error = |_| io::Error::new(ErrorKind::InvalidData, format!("{}: not UTF-8 text", path.display()));
    String::from_utf8(bytes).map_err(error)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
