//! [`Server`]: a server for tests on a free port, with temporary data.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::tally::Tally;
use crate::workspace::Workspace;

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An administrator `admin` with the password `pw` exists.
    Admin,
    AdminParty,
}

impl Access {
    fn give(self, command: &mut Command) {
        match self {
            Self::Admin => command.env("COUCHDB_USER", "admin").env("COUCHDB_PASSWORD", "pw"),
            Self::AdminParty => command.env_remove("COUCHDB_USER").env_remove("COUCHDB_PASSWORD"),
        };
    }
}

/// Killed, and its data removed, when this is dropped.
pub struct Server {
    child: Child,
    address: String,
    access: Access,
    data: PathBuf,
    log: PathBuf,
    again: Vec<OsString>,
}

impl Server {
    pub fn start(workspace: &Workspace, purpose: &str, access: Access) -> Result<Self> {
        Self::start_with(workspace, purpose, access, &[])
    }

    pub(crate) fn start_with(workspace: &Workspace, purpose: &str, access: Access, settings: &[&str]) -> Result<Self> {
        Self::start_within(workspace, purpose, access, settings, &|_| {})
    }

    /// Calls `confine` with the process id before the process becomes the server.
    pub(crate) fn start_within(
        workspace: &Workspace,
        purpose: &str,
        access: Access,
        settings: &[&str],
        confine: &dyn Fn(u32),
    ) -> Result<Self> {
        Self::start_confined(workspace, purpose, access, free_port()?, settings, confine)
    }

    pub(crate) fn start_at(
        workspace: &Workspace,
        purpose: &str,
        access: Access,
        port: u16,
        settings: &[&str],
    ) -> Result<Self> {
        Self::start_confined(workspace, purpose, access, port, settings, &|_| {})
    }

    fn start_confined(
        workspace: &Workspace,
        purpose: &str,
        access: Access,
        port: u16,
        settings: &[&str],
        confine: &dyn Fn(u32),
    ) -> Result<Self> {
        let binary = workspace.binary();
        let data = workspace.scratch(purpose);
        let port = port.to_string();
        let arguments = ["serve", "--bind", "127.0.0.1", "--port", &port, "--data"].map(OsString::from);
        let settings = settings.iter().flat_map(|setting| ["--set", *setting]).map(OsString::from);
        let again: Vec<OsString> =
            [binary.into()].into_iter().chain(arguments).chain([data.clone().into()]).chain(settings).collect();
        let mut command = Command::new("sh");
        command.args(["-c", "read -r line && exec \"$0\" \"$@\" </dev/null"]).args(&again);
        let mut server = Self::spawn(workspace, purpose, access, command.stdin(Stdio::piped()), data)?;
        server.again = again;
        confine(server.pid());
        if let Some(mut begin) = server.child.stdin.take() {
            begin.write_all(b"\n").context("the shell does not listen")?;
        }
        server.address = server.wait_until_it_listens()?;
        Ok(server)
    }

    /// The server replaces the prepared command. Waits until it listens.
    pub fn start_prepared(
        workspace: &Workspace,
        purpose: &str,
        access: Access,
        command: &mut Command,
        data: PathBuf,
    ) -> Result<Self> {
        let mut server = Self::spawn(workspace, purpose, access, command.stdin(Stdio::null()), data)?;
        server.address = server.wait_until_it_listens()?;
        Ok(server)
    }

    fn spawn(
        workspace: &Workspace,
        purpose: &str,
        access: Access,
        command: &mut Command,
        data: PathBuf,
    ) -> Result<Self> {
        let log = workspace.log(&format!("{purpose}-server"))?;
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        access.give(command);
        command.stdout(output.try_clone().context("cannot share the log")?).stderr(output);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, address: String::new(), access, data, log, again: Vec::new() })
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("the server cannot be killed")?;
        self.child.wait().context("the server does not end")?;
        Ok(())
    }

    /// Restarts an ended server at the same address, and waits until it accepts connections.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let (program, arguments) = self.again.split_first().context("it was started by others")?;
        let output = File::options().append(true).open(&self.log).context("cannot write the log")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.access.give(&mut command);
        self.child = command.spawn().context("the server cannot be started again")?;
        let address = self.address.trim_start_matches("http://").to_owned();
        let started = Instant::now();
        while TcpStream::connect(&address).is_err() {
            if self.has_ended()? || started.elapsed() > START_LIMIT {
                process::show_tail(&self.log);
                bail!("the server did not start again");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Contains the administrator's name and password, if any, and no slash at the end.
    pub fn url(&self) -> String {
        match self.access {
            Access::Admin => self.address.replacen("http://", "http://admin:pw@", 1),
            Access::AdminParty => self.address.clone(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("cannot read the status of the server")?.is_some())
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    fn wait_until_it_listens(&mut self) -> Result<String> {
        let started = Instant::now();
        loop {
            if let Some(address) = listening_address(&process::read_lossy(&self.log)) {
                return Ok(address);
            }
            if let Some(status) = self.child.try_wait().context("cannot read the status of the server")? {
                process::show_tail(&self.log);
                bail!("the server ended before it listened ({status})");
            }
            if started.elapsed() > START_LIMIT {
                process::show_tail(&self.log);
                bail!("the server did not print its address within {} s", START_LIMIT.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    pub fn stop(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot read the status of the server")? {
            bail!("the server ended before SIGTERM was sent ({status})");
        }
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().context("cannot call kill")?;
        if !asked.success() {
            bail!("SIGTERM could not be sent to the server");
        }
        let started = Instant::now();
        loop {
            match self.child.try_wait().context("cannot read the status of the server")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the server ended with {status} after SIGTERM"),
                None if started.elapsed() > STOP_LIMIT => {
                    bail!("the server did not end within {} s of SIGTERM", STOP_LIMIT.as_secs())
                }
                None => thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.data);
    }
}

pub fn stopped_tally(stopped: &Result<()>) -> Tally {
    Tally::of(0, u64::from(stopped.is_err()))
}

/// Another process may take the port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
    Ok(listener.local_addr().context("no port is free")?.port())
}

fn listening_address(log: &str) -> Option<String> {
    let at = log.find("http://127.0.0.1:").or_else(|| log.find("http://0.0.0.0:"))?;
    let end = at + log[at..].find(|c: char| !c.is_ascii_alphanumeric() && !":/.".contains(c))?;
    Some(log[at..end].trim_end_matches('/').replace("//0.0.0.0:", "//127.0.0.1:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_once_its_line_is_whole() {
        let cases = [
            ("", None),
            ("settee 0.1.0\n", None),
            ("listens on http://127.0.0.1:59", None),
            ("data in /d\nlistens on http://127.0.0.1:5984/\n", Some("http://127.0.0.1:5984")),
            ("listens at http://0.0.0.0:80/\n", Some("http://127.0.0.1:80")),
            ("\u{1b}[1mhttp://127.0.0.1:80/\u{1b}[0m more", Some("http://127.0.0.1:80")),
        ];
        for (log, expected) in cases {
            assert_eq!(listening_address(log).as_deref(), expected, "{log}");
        }
    }
}
