//! [`Instance`]: a PostgreSQL that keeps what it acknowledges, that can be killed and started again, and that can follow another one and be
//! promoted.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
use crate::scratch::{other_user, programs};
use crate::server::free_port;

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What both a primary and a standby begin with. Every commit is on disk before it is acknowledged.
const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "shared_buffers=64MB",
    "wal_level=replica",
    "hot_standby=on",
    "wal_keep_size=1GB",
    "wal_retrieve_retry_interval=200ms",
    "fsync=on",
    "synchronous_commit=on",
];

/// A server with its directory, which goes with it.
pub(crate) struct Instance {
    name: &'static str,
    directory: PathBuf,
    port: u16,
    programs: PathBuf,
    /// Who runs it, if not the user of this process.
    user: Option<(u32, u32)>,
    child: Option<Child>,
    /// Beside [`SETTINGS`], which they replace.
    further: &'static [&'static str],
}

impl Instance {
    /// A place for one, without data.
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        let programs = programs().context("there is no PostgreSQL on this machine (the Debian package postgresql)")?;
        // A socket's path is short.
        let directory = PathBuf::from(format!("/tmp/settee-{name}-{}", std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        let user = other_user(&directory);
        if let Some((user, group)) = user {
            chown(&directory, Some(user), Some(group)).context("a directory cannot be given away")?;
        }
        let (port, programs) = (free_port()?, programs.into());
        Ok(Self { name, directory, port, programs, user, child: None, further: &[] })
    }

    /// Has it run with further settings.
    pub(crate) fn set(&mut self, settings: &'static [&'static str]) {
        self.further = settings;
    }

    /// Makes it a new, empty database, and starts it.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let mut command = self.program("initdb");
        command.args(["-U", "settee", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"]).arg(self.data());
        process::output(&mut command)?;
        self.start()
    }

    /// Starts it on the data that it has, and waits until it answers.
    pub(crate) fn start(&mut self) -> Result<()> {
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.directory).args(["-p", &self.port.to_string()]);
        command.args(SETTINGS.iter().chain(self.further).flat_map(|setting| ["-c", *setting]));
        let log = fs::File::options().create(true).append(true).open(self.directory.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).process_group(0);
        self.child = Some(command.spawn().context("PostgreSQL cannot be started")?);
        let begun = Instant::now();
        while self.sql("SELECT 1").is_err() {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || begun.elapsed() > START_LIMIT {
                process::show_tail(&self.directory.join("log"));
                bail!("{} does not start", self.name);
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends it and all its processes as a switched off machine does.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let children = children(child.id());
        child.kill().context("it cannot be killed")?;
        for pid in children {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        child.wait().context("it does not end")?;
        Ok(())
    }

    /// Makes it a copy of `primary` that follows it, and starts it.
    pub(crate) fn follow(&mut self, primary: &Self) -> Result<()> {
        ensure!(self.child.is_none(), "{} still runs", self.name);
        let _ = fs::remove_dir_all(self.data());
        let mut command = self.program("pg_basebackup");
        command.arg("-h").arg(&primary.directory).args(["-p", &primary.port.to_string(), "-U", "settee"]);
        command.args(["-R", "-X", "stream", "-c", "fast", "-D"]).arg(self.data());
        process::output(&mut command)?;
        self.start()
    }

    /// Has the primary wait for its standby with every commit, once that has caught up.
    pub(crate) fn be_synchronous(&self) -> Result<()> {
        self.wait_until("streaming", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")?;
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.sql("SELECT pg_reload_conf()")?;
        self.wait_until("synchronous", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
    }

    /// Makes a standby the primary, which waits for nobody.
    pub(crate) fn promote(&self) -> Result<()> {
        process::output(self.program("pg_ctl").arg("-D").arg(self.data()).args(["-w", "promote"]))?;
        self.sql("ALTER SYSTEM SET synchronous_standby_names = ''")?;
        self.sql("SELECT pg_reload_conf()")?;
        self.wait_until("the primary", "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END")
    }

    fn wait_until(&self, what: &str, count: &str) -> Result<()> {
        let begun = Instant::now();
        while self.sql(count)? == "0" {
            ensure!(begun.elapsed() < START_LIMIT, "{} does not become {what}", self.name);
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// What a statement answers.
    pub(crate) fn sql(&self, statement: &str) -> Result<String> {
        let mut command = self.program("psql");
        command.arg("-h").arg(&self.directory).args(["-p", &self.port.to_string(), "-U", "settee", "-d", "postgres"]);
        command.args(["-v", "ON_ERROR_STOP=1", "-qAtc", statement]);
        Ok(process::output(&mut command)?.trim().to_owned())
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Its processes, as they are now.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let child = self.child.as_ref().map(Child::id);
        child.into_iter().chain(child.into_iter().flat_map(children)).collect()
    }

    /// Where files for its programs can be put.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// One of its programs, run as who runs it.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(&self.directory);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What cannot be removed is removed with the machine's other temporary files.
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(Path::join(&thread.path(), "children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
