//! [`Stage`]: replaces the directories, addresses and the PostgreSQL of a page.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;

use crate::cluster::postgres::Instance;
use crate::server::{Server, free_port};
use crate::workspace::Workspace;

/// Only pages with this address get an administrator.
pub(super) const ADMIN_ADDRESS: &str = "http://admin:secret@127.0.0.1:5984";
pub(super) const ADDRESS: &str = "http://127.0.0.1:5984";

const DEFAULT_PORT: &str = "5984";
const COUCHDB: &str = "/opt/couchdb";
const COUCHDB_FILES: &str = "crates/couch-files/tests/fixtures/data";
const POSTGRES_SETUP: [&str; 4] = [
    "CREATE ROLE postgres SUPERUSER LOGIN",
    "CREATE ROLE couch LOGIN",
    "CREATE DATABASE couch OWNER couch",
    "CREATE DATABASE settee",
];

pub(super) struct Stage {
    folder: PathBuf,
    programs: PathBuf,
    postgres: Option<Instance>,
    replacements: Vec<(String, String)>,
    variables: Vec<(String, String)>,
}

impl Stage {
    pub(super) fn prepare(workspace: &Workspace, texts: &str, needs_postgres: bool) -> Result<Self> {
        let folder = workspace.scratch("session");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let programs = workspace.binary().parent().map(Path::to_owned).unwrap_or_default();
        let mut stage = Self { folder, programs, postgres: None, replacements: Vec::new(), variables: Vec::new() };
        stage.replace("/var/lib/settee", stage.path("lib"));
        stage.replace("10.0.0.11", "127.0.0.1".to_owned());
        if texts.contains(COUCHDB) {
            stage.replace(COUCHDB, stage.path("couchdb"));
            unpack(&workspace.root.join(COUCHDB_FILES), &stage.folder.join("couchdb/data"))?;
            fs::create_dir_all(stage.folder.join("couchdb/etc"))?;
            fs::write(stage.folder.join("couchdb/etc/local.ini"), "[couchdb]\nmax_document_size = 16000000\n")?;
        }
        for port in ports(texts) {
            let free = free_port()?;
            stage.replace(&format!("127.0.0.1:{port}"), format!("127.0.0.1:{free}"));
            stage.replace(&format!("--port {port}"), format!("--port {free}"));
        }
        if needs_postgres {
            let mut instance = Instance::new("readme-postgres")?;
            instance.begin()?;
            for statement in POSTGRES_SETUP {
                instance.sql(statement)?;
            }
            let address = format!("@127.0.0.1:{}/", instance.port());
            stage.replace("@db1,db2/", address.clone());
            stage.replace("@db1/", address);
            stage.replace("sslmode=verify-full", "sslmode=disable".to_owned());
            stage.postgres = Some(instance);
        }
        Ok(stage)
    }

    pub(super) fn add(&mut self, variables: &[(&str, &str)], replacements: &[(&str, &str)]) {
        self.variables.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for (from, to) in replacements {
            self.replace(from, (*to).to_owned());
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(super) fn for_server(&self, script: &str, server: &Server) -> String {
        let script = script.replace(ADMIN_ADDRESS, &server.url()).replace(ADDRESS, &server.url());
        self.adapted(&script.replace("./data", &server.data().display().to_string()))
    }

    pub(super) fn adapted(&self, script: &str) -> String {
        self.replacements.iter().fold(script.to_owned(), |script, (from, to)| script.replace(from, to))
    }

    pub(super) fn shell(&self, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(&self.folder).env("HOME", &self.folder);
        command.env("PATH", format!("{}:{path}", self.programs.display())).env_remove("SETTEE_DATA");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(super) fn postgres_defect(&self, settings: &str) -> Result<Option<String>> {
        let instance = self.postgres.as_ref().context("the page has no PostgreSQL")?;
        let mut refused = settings.lines().filter_map(|line| {
            let set = instance.sql(&format!("ALTER SYSTEM SET {line}"));
            set.err().map(|error| format!("{error:#}"))
        });
        Ok(refused.next())
    }

    fn replace(&mut self, from: &str, to: String) {
        self.replacements.push((from.to_owned(), to));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ports(texts: &str) -> BTreeSet<&str> {
    let after = texts.split("--port ").skip(1);
    let ports = after.filter_map(|rest| rest.split(|char: char| !char.is_ascii_digit()).next());
    ports.filter(|port| !port.is_empty() && *port != DEFAULT_PORT).collect()
}

fn unpack(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() {
            unpack(&path, &to.join(name))?;
        } else {
            let mut packed = GzDecoder::new(File::open(&path)?);
            std::io::copy(&mut packed, &mut File::create(to.join(Path::new(&name).with_extension("")))?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_servers_get_free_ports() {
        let texts = "settee serve --port 6079 > a &\nsettee serve --port 5984\nserve --port N --port 6079\n";
        assert_eq!(ports(texts).into_iter().collect::<Vec<_>>(), ["6079"]);
    }
}
