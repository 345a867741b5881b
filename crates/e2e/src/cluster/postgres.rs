//! [`Instance`]: a durable PostgreSQL that can be killed and restarted, become a standby, and be promoted.

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

/// For both a primary and a standby. Every commit is on disk before it is acknowledged.
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

/// The directory is removed when this is dropped.
pub(crate) struct Instance {
    name: &'static str,
    directory: PathBuf,
    port: u16,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    child: Option<Child>,
    further: &'static [&'static str],
}

impl Instance {
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        let programs = programs().context("there is no PostgreSQL on this machine (the Debian package postgresql)")?;
        // The path of a socket has a low length limit.
        let directory = PathBuf::from(format!("/tmp/settee-{name}-{}", std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("{} cannot be created", directory.display()))?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        let user = other_user(&directory);
        if let Some((user, group)) = user {
            chown(&directory, Some(user), Some(group)).context("a directory cannot be given away")?;
        }
        let (port, programs) = (free_port()?, programs.into());
        Ok(Self { name, directory, port, programs, user, child: None, further: &[] })
    }

    pub(crate) fn set(&mut self, settings: &'static [&'static str]) {
        self.further = settings;
    }

    pub(crate) fn begin(&mut self) -> Result<()> {
        let mut command = self.program("initdb");
        command.args(["-U", "settee", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"]).arg(self.data());
        process::output(&mut command)?;
        self.start()
    }

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

    /// Kills all processes of the server, like a power loss of its machine.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let children = children(child.id());
        child.kill().context("it cannot be killed")?;
        for pid in children {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        child.wait().context("it does not end")?;
        Ok(())
    }

    pub(crate) fn follow(&mut self, primary: &Self) -> Result<()> {
        ensure!(self.child.is_none(), "{} still runs", self.name);
        let _ = fs::remove_dir_all(self.data());
        let mut command = self.program("pg_basebackup");
        command.arg("-h").arg(&primary.directory).args(["-p", &primary.port.to_string(), "-U", "settee"]);
        command.args(["-R", "-X", "stream", "-c", "fast", "-D"]).arg(self.data());
        process::output(&mut command)?;
        self.start()
    }

    /// Makes the primary wait for its standby at every commit, once the standby has caught up.
    pub(crate) fn be_synchronous(&self) -> Result<()> {
        self.wait_until("streaming", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")?;
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        self.sql("SELECT pg_reload_conf()")?;
        self.wait_until("synchronous", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
    }

    /// The new primary has no synchronous standbys.
    pub(crate) fn promote(&self) -> Result<()> {
        process::output(self.program("pg_ctl").arg("-D").arg(self.data()).args(["-w", "promote"]))?;
        self.sql("ALTER SYSTEM SET synchronous_standby_names = ''")?;
        self.sql("SELECT pg_reload_conf()")?;
        self.wait_until("the primary", "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END")
    }

    fn wait_until(&self, label: &str, count: &str) -> Result<()> {
        let begun = Instant::now();
        while self.sql(count)? == "0" {
            ensure!(begun.elapsed() < START_LIMIT, "{} does not become {label}", self.name);
            thread::sleep(POLL);
        }
        Ok(())
    }

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

    pub(crate) fn processes(&self) -> Vec<u32> {
        let child = self.child.as_ref().map(Child::id);
        child.into_iter().chain(child.into_iter().flat_map(children)).collect()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

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
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(Path::join(&thread.path(), "children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
