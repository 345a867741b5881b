//! [`SmallDisk`]: a file system in memory for one test, invisible to other processes.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::server::{Directory, Server, program};

pub(crate) struct SmallDisk {
    directory: Directory,
    holder: Child,
    is_of_users: bool,
}

impl SmallDisk {
    /// `None`, with a message, if the system does not permit the mount.
    pub(crate) fn new(mebibytes: u32) -> Option<Self> {
        let made = [false, true].into_iter().find_map(|is_of_users| Self::mount(mebibytes, is_of_users));
        if made.is_none() {
            println!("full disks are not tested: no file system can be mounted in a namespace here");
        }
        made
    }

    fn mount(mebibytes: u32, is_of_users: bool) -> Option<Self> {
        let directory = Directory::new();
        fs::create_dir(directory.path().join("disk")).unwrap();
        let mut command = Command::new("unshare");
        command.args(if is_of_users { &["-U", "-r", "-m"][..] } else { &["-m"] });
        let script = format!("mount -t tmpfs -o size={mebibytes}m none \"$0\" && echo mounted && exec cat");
        command.args(["sh", "-c", &script]).arg(directory.path().join("disk"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let disk = Self { directory, holder, is_of_users };
        (line == "mounted\n").then_some(disk)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("disk/data")
    }

    pub(crate) fn here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.data().strip_prefix("/").unwrap())
    }

    pub(crate) fn enter(&self, inner: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-m"]);
        if self.is_of_users {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.arg(inner.get_program()).args(inner.get_args());
        command.env_remove("COUCHDB_USER").env_remove("COUCHDB_PASSWORD").stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self) -> Server {
        let mut server = program(&["serve", "--port", "0", "--data"]);
        server.arg(self.data());
        Server::start_as(&self.directory, &mut self.enter(&server))
    }

    pub(crate) fn used_mebibytes(&self) -> u64 {
        let figures = rustix::fs::statvfs(self.here()).unwrap();
        ((figures.f_blocks - figures.f_bfree) * figures.f_frsize) >> 20
    }

    pub(crate) fn fill(&self) {
        let mut file = File::create(self.other()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    pub(crate) fn empty(&self) {
        fs::remove_file(self.other()).unwrap();
    }

    fn other(&self) -> PathBuf {
        self.here().parent().map(Path::to_owned).unwrap().join("other")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
