//! [`Writer`]: a buffer to which threads append lines, and a thread that writes them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::redact::redact;
use super::syslog::{self, Syslog};

const BUFFERED_BYTES_MAX: usize = 8 << 20;

/// Maximum time that a line without urgency is buffered, so that one write and one wake-up serve several lines.
const BUFFER_TIME: Duration = Duration::from_millis(10);

const TAIL_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Stderr,
    /// Stderr for systemd, which parses priorities from it.
    Journal,
    File(PathBuf),
    Syslog(syslog::SyslogSettings),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    Soon,
    /// The line may be the last one of this process, so it is written immediately.
    Now,
}

pub(super) struct Writer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    idle: Condvar,
    tail: Mutex<VecDeque<u8>>,
}

struct State {
    waiting: Vec<u8>,
    lost: u64,
    is_urgent: bool,
    is_writing: bool,
    target: Target,
    is_target_new: bool,
}

impl Writer {
    pub(super) fn start(target: Target) -> io::Result<Self> {
        let state =
            State { waiting: Vec::new(), lost: 0, is_urgent: false, is_writing: false, target, is_target_new: true };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            idle: Condvar::new(),
            tail: Mutex::default(),
        });
        let writing = Arc::clone(&shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writing.run())?;
        Ok(Self(shared))
    }

    /// The output of `write` must end with a line feed.
    pub(super) fn append(&self, urgency: Urgency, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        if state.waiting.len() >= BUFFERED_BYTES_MAX {
            state.lost += 1;
            return;
        }
        let begins = state.waiting.is_empty() || urgency == Urgency::Now && !state.is_urgent;
        state.is_urgent |= urgency == Urgency::Now;
        write(&mut state.waiting);
        drop(state);
        if begins {
            self.0.work.notify_one();
        }
    }

    pub(super) fn set_target(&self, target: Target) {
        let mut state = self.0.lock();
        if state.target != target {
            state.target = target;
            state.is_target_new = true;
            drop(state);
            self.0.work.notify_one();
        }
    }

    /// Waits until all previously appended lines are written.
    pub(super) fn flush(&self) {
        let mut state = self.0.lock();
        state.is_urgent = true;
        self.0.work.notify_one();
        let busy = |state: &mut State| !state.waiting.is_empty() || state.is_writing;
        drop(self.0.idle.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn tail(&self) -> Vec<u8> {
        self.0.tail.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut sink = Sink::Stderr;
        let mut lines = Vec::new();
        loop {
            let (mut lost, mut new_target) = (0, None);
            let nothing = |state: &mut State| state.waiting.is_empty() && !state.is_target_new;
            let state = self.work.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
            let may_wait = |state: &mut State| !state.is_urgent && !state.is_target_new;
            let waited = self.work.wait_timeout_while(state, BUFFER_TIME, may_wait);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_urgent = false;
            std::mem::swap(&mut state.waiting, &mut lines);
            std::mem::swap(&mut state.lost, &mut lost);
            if std::mem::take(&mut state.is_target_new) {
                new_target = Some(state.target.clone());
            }
            state.is_writing = true;
            drop(state);
            if let Some(target) = new_target {
                sink = Sink::open(&target);
            }
            self.write(&mut sink, &lines, lost);
            lines.clear();
            self.lock().is_writing = false;
            self.idle.notify_all();
        }
    }

    fn write(&self, sink: &mut Sink, lines: &[u8], lost: u64) {
        // Lines are valid text, except for output of libraries. Validation is faster than repair.
        let text = std::str::from_utf8(lines).map_or_else(|_| String::from_utf8_lossy(lines), Cow::Borrowed);
        let mut clean = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            clean.push_str(&redact(line));
        }
        if lost > 0 {
            clean.push_str(&format!("[warning] {lost} lines were lost, because writing the log took too long\n"));
        }
        sink.write(&clean);
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(clean.as_bytes());
        let surplus = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..surplus);
    }
}

enum Sink {
    Stderr,
    File { path: PathBuf, file: File },
    Syslog { host: String, syslog: Syslog },
}

impl Sink {
    fn open(target: &Target) -> Self {
        match target {
            Target::Stderr | Target::Journal => Self::Stderr,
            Target::File(path) => match append_to(path) {
                Ok(file) => Self::File { path: path.clone(), file },
                Err(error) => {
                    report_failure(format_args!("the log file {} cannot be written", path.display()), &error);
                    Self::Stderr
                }
            },
            Target::Syslog(wishes) => match Syslog::open(wishes) {
                Ok(syslog) => Self::Syslog { host: wishes.host.clone(), syslog },
                Err(error) => {
                    report_failure(format_args!("the collector of the log, {}, cannot be found", wishes.host), &error);
                    Self::Stderr
                }
            },
        }
    }

    fn write(&mut self, text: &str) {
        match self {
            Self::Stderr => {}
            Self::File { path, file } => {
                // A file that was moved, as by logrotate, is recreated.
                if has_moved(path, file)
                    && let Ok(new) = append_to(path)
                {
                    *file = new;
                }
                match file.write_all(text.as_bytes()) {
                    Ok(()) => return,
                    Err(error) => {
                        report_failure(format_args!("the log file {} cannot be written", path.display()), &error);
                    }
                }
            }
            Self::Syslog { host, syslog } => match syslog.write(text) {
                Ok(()) => return,
                Err(error) => {
                    report_failure(format_args!("the collector of the log, {host}, cannot be reached"), &error);
                }
            },
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    // Names of databases and documents must not be readable by all users.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

fn has_moved(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::metadata(path).map(identity);
    let ours = file.metadata().map(identity);
    !matches!((there, ours), (Ok(there), Ok(ours)) if there == ours)
}

fn report_failure(label: std::fmt::Arguments<'_>, error: &io::Error) {
    let _ = writeln!(io::stderr(), "[error] {label}: {error}");
}
