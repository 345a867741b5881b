//! [`Gateway`]: the S3 server versitygw on a port of the loopback address, with a bucket of its own.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
use crate::server::free_port;
use crate::workspace::Workspace;

pub(crate) const BUCKET: &str = "backups";
pub(crate) const ID: &str = "settee-id";
pub(crate) const SECRET: &str = "settee-secret-of-tests";

const MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

const START_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Gateway {
    child: Child,
    port: u16,
    root: PathBuf,
    program: PathBuf,
    log: PathBuf,
}

impl Gateway {
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let program = program(workspace)?;
        let root = workspace.scratch("s3-bucket");
        fs::create_dir_all(root.join(BUCKET)).context("the bucket cannot be created")?;
        let (log, port) = (workspace.log("s3-gateway")?, free_port()?);
        let child = spawn(&program, &root, port, &log)?;
        let mut gateway = Self { child, port, root, program, log };
        gateway.wait_until_it_listens()?;
        Ok(gateway)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("the S3 server cannot be killed")?;
        self.child.wait().context("the S3 server does not end")?;
        Ok(())
    }

    /// Uses the same port.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&self.program, &self.root, self.port, &self.log)?;
        self.wait_until_it_listens()
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let (begun, address) = (Instant::now(), SocketAddr::from(([127, 0, 0, 1], self.port)));
        while TcpStream::connect(address).is_err() {
            let has_ended = self.child.try_wait().context("cannot read the status of the S3 server")?.is_some();
            if has_ended || begun.elapsed() > START_LIMIT {
                process::show_tail(&self.log);
                bail!("the S3 server does not listen");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Settings of a server whose data are below a prefix in the bucket.
    pub(crate) fn settings(&self, prefix: &str) -> Vec<String> {
        let access = access(self.port).into_iter();
        access.chain([format!("storage/url={}", url(prefix))]).collect()
    }

    /// Stores an object without a request.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.root.join(BUCKET).join(name);
        fs::create_dir_all(path.parent().context("an object has a name")?)?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the number of objects and their bytes.
    pub(crate) fn figures(&self) -> (u64, u64) {
        count(&self.root.join(BUCKET))
    }
}

fn spawn(program: &Path, root: &Path, port: u16, log: &Path) -> Result<Child> {
    let output = File::options().create(true).append(true).open(log);
    let output = output.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(["--access", ID, "--secret", SECRET, "--port", &format!("127.0.0.1:{port}"), "posix"]).arg(root);
    command.stdout(output.try_clone().context("cannot share the log")?).stderr(output);
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

/// Location of the data of servers below a prefix in the bucket.
pub(crate) fn url(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

/// Settings of a server that reaches the bucket at a port of this machine.
pub(crate) fn access(port: u16) -> Vec<String> {
    vec![
        format!("storage/endpoint=http://127.0.0.1:{port}"),
        format!("storage/access_key_id={ID}"),
        format!("storage/secret_access_key={SECRET}"),
    ]
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn count(folder: &Path) -> (u64, u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold((0, 0), |(files, bytes), entry| {
        let (more, size) = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => count(&entry.path()),
            Ok(metadata) => (1, metadata.len()),
            Err(_) => (0, 0),
        };
        (files + more, bytes + size)
    })
}

/// The program is on the path, was installed by an earlier run, or is installed now.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    if process::exists("versitygw") {
        return Ok("versitygw".into());
    }
    let folder = workspace.packages("go");
    let program = folder.join("versitygw");
    if !program.is_file() {
        println!("installing {MODULE}");
        let mut command = Command::new("go");
        let installed = process::run_logged(
            command.args(["install", MODULE]).env("GOBIN", &folder),
            &workspace.log("s3-install")?,
        )?;
        ensure!(installed, "versitygw cannot be installed; put it on the path");
    }
    Ok(program)
}
