//! A volume of CouchDB's image: [`notice`] reports its files, and [`drop_root`] makes it writable.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use rustix::process::{Gid, Uid};
use settee_couch_files::directory::is_couchdb;
use settee_storage::durable;

use crate::environment;
use settee_admin::migrate::{DEFAULT_PORT, import_command};

/// `None` unless the parent of the data directory contains files of a CouchDB.
pub(crate) fn notice(data: &Path, config: Option<&Path>, port: u16) -> Option<String> {
    let files = data.parent().filter(|files| is_couchdb(files))?;
    let shown = files.display();
    // The port is assigned later if the configuration has none.
    let command = import_command(files, config, if port == 0 { DEFAULT_PORT } else { port });
    Some(format!(
        "{shown} contains databases of CouchDB, which are not served and not modified. To import them:\n  {command}"
    ))
}

fn user(text: &str) -> Option<(u32, u32)> {
    let (user, group) = text.split_once(':')?;
    Some((user.parse().ok().filter(|id| *id != 0)?, group.parse().ok().filter(|id| *id != 0)?))
}

/// If this process is root and SETTEE_USER is set, creates the data directory for that user and executes this program
/// again as that user. The owner of a directory is changed only while it is empty.
pub(crate) fn drop_root(data: &Path) -> anyhow::Result<()> {
    let Some(wanted) = environment::text("SETTEE_USER") else { return Ok(()) };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Some((uid, gid)) = user(&wanted) else {
        bail!(
            "SETTEE_USER={wanted} is not a user: give the numbers of a user and a group other than root, as in 5984:5984"
        )
    };
    durable::create_directories(data)
        .with_context(|| format!("the data directory {} cannot be created", data.display()))?;
    let is_empty = || Ok(fs::read_dir(data)?.next().is_none());
    is_empty()
        .and_then(|is_empty| if is_empty { chown(data, Some(uid), Some(gid)) } else { Ok(()) })
        .with_context(|| format!("the data directory {} cannot be given to {wanted}", data.display()))?;
    let program = std::env::current_exe().context("the path of this program cannot be determined")?;
    become_user(Uid::from_raw(uid), Gid::from_raw(gid))
        .with_context(|| format!("the server cannot run as {wanted}: start it as another user than root"))?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("{} cannot be executed as {wanted}", program.display()))
}

fn become_user(uid: Uid, gid: Gid) -> rustix::io::Result<()> {
    rustix::thread::set_thread_groups(&[gid])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_other_than_root() {
        assert_eq!(user("5984:5984"), Some((5984, 5984)));
        for wrong in ["", "5984", "0:5984", "5984:0", "settee:settee", "1:2:3"] {
            assert_eq!(user(wrong), None, "{wrong}");
        }
    }
}
