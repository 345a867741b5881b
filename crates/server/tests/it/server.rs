//! [`Server`]: the program as a process, and [`Directory`]: its data.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::wait_for;

pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("settee-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("local.ini"), "[chttpd_auth]\niterations = 10\n").unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn configure(&self, lines: &str) {
        let file = self.0.join("local.ini");
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{before}{lines}")).unwrap();
    }

    pub(crate) fn configuration(&self) -> String {
        fs::read_to_string(self.0.join("local.ini")).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command.args(arguments).env_remove("COUCHDB_USER").env_remove("COUCHDB_PASSWORD").stdin(Stdio::null());
    command
}

pub(crate) fn serve(directory: &Directory) -> Command {
    let mut command = program(&["serve", "--port", "0", "--data"]);
    command.arg(directory.path());
    command
}

pub(crate) fn run(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the program to end", || child.try_wait().unwrap());
    child.wait_with_output().unwrap()
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) greeting: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    #[track_caller]
    pub(crate) fn start(directory: &Directory) -> Self {
        Self::start_as(directory, &mut serve(directory))
    }

    #[track_caller]
    pub(crate) fn start_as(directory: &Directory, command: &mut Command) -> Self {
        let log = directory.path().join("log");
        let stderr = fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut greeting = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !greeting.ends_with("Stop with Ctrl-C.\n") {
            if stdout.read_line(&mut greeting).unwrap() == 0 {
                let _ = child.wait();
                panic!("the server ended: {greeting}{}", fs::read_to_string(&log).unwrap_or_default());
            }
        }
        let address = greeting.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).unwrap().0;
        let address: SocketAddr = address.parse().unwrap();
        Self { address, greeting, child, log }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn terminate(mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        self.signal_termination();
        let status = wait_for("the server to stop", || self.child.try_wait().unwrap());
        (status, begun.elapsed())
    }

    pub(crate) fn signal_termination(&self) {
        let reply = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()]).status().unwrap();
        assert!(reply.success());
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        wait_for("the server to stop", || self.child.try_wait().unwrap())
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn children(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten();
        let files = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        files.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        if !std::thread::panicking() {
            assert!(!log.contains("panicked"), "the server panicked:\n{log}");
        } else {
            eprintln!("the server's log:\n{log}");
        }
    }
}
