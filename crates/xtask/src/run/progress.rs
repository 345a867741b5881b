//! [`build`]: a first build with a progress line: finished libraries, and compiled files of RocksDB.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use settee_e2e::build::BUILD;
use settee_e2e::process::output;
use settee_e2e::workspace::Workspace;

const LINE_INTERVAL: Duration = Duration::from_secs(30);
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);

const ROCKSDB_FILES: usize = 340;

/// Returns false if the build failed; cargo has printed the reason.
pub(super) fn build(workspace: &Workspace) -> Result<bool> {
    let mut cargo = workspace.cargo(BUILD);
    cargo.args(["--quiet", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let all = libraries(workspace)?;
    let mut child = cargo.spawn().context("cannot start cargo")?;
    let lines = BufReader::new(child.stdout.take().context("cargo says nothing")?).lines();
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut done = BTreeSet::new();
    let display = Display::begin();
    let mut next = display.began + display.pause;
    loop {
        match receiver.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(line) => done.extend(finished(&line).map(str::to_owned)),
            Err(RecvTimeoutError::Timeout) => {
                display.show(done.len(), all, objects(&workspace.profile().join("build")));
                next = Instant::now() + display.pause;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = reader.join();
    let built = child.wait().context("cannot wait for cargo")?.success();
    display.end(built);
    Ok(built)
}

fn libraries(workspace: &Workspace) -> Result<usize> {
    let mut tree = workspace.cargo(&["tree", "--quiet", "--package", "settee-server", "--edges", "normal,build"]);
    let printed = output(tree.args(["--prefix", "none", "--format", "{p}"]))?;
    let names: BTreeSet<&str> = printed.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(names.iter().filter(|name| !name.is_empty()).count())
}

/// Returns the package of a message that cargo prints for a compiled library; `None` for other messages.
fn finished(line: &str) -> Option<&str> {
    if !line.starts_with("{\"reason\":\"compiler-artifact\"") || line.contains("\"kind\":[\"custom-build\"]") {
        return None;
    }
    line.split_once("\"package_id\":\"")?.1.split('"').next()
}

fn objects(builds: &Path) -> usize {
    let named = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let is_rocksdb =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librocksdb-sys-"));
    let mut open: Vec<PathBuf> = named(builds).into_iter().filter(is_rocksdb).map(|path| path.join("out")).collect();
    let mut count = 0;
    while let Some(folder) = open.pop() {
        for path in named(&folder) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "o") {
                count += 1;
            }
        }
    }
    count
}

struct Display {
    began: Instant,
    pause: Duration,
    is_terminal: bool,
}

impl Display {
    fn begin() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self { began: Instant::now(), pause: if is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL }, is_terminal }
    }

    fn show(&self, done: usize, all: usize, objects: usize) {
        let line = sentence(self.began.elapsed(), done, all, objects);
        let mut stdout = std::io::stdout().lock();
        let _ = if self.is_terminal { write!(stdout, "\r\u{1b}[K{line}") } else { writeln!(stdout, "{line}") };
        let _ = stdout.flush();
    }

    fn end(&self, built: bool) {
        if self.is_terminal {
            println!();
        }
        if built {
            println!("built in {}", minutes(self.began.elapsed()));
        }
    }
}

fn sentence(elapsed: Duration, done: usize, all: usize, objects: usize) -> String {
    let objects = objects.min(ROCKSDB_FILES);
    format!("{}: {done} of {all} libraries, {objects} of about {ROCKSDB_FILES} files of RocksDB", minutes(elapsed))
}

fn minutes(elapsed: Duration) -> String {
    format!("{}:{:02} min", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_counted_by_package() {
        let artifact = |kind: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"registry+x#anyhow@1.0.104\",\"target\":{{\"kind\":[\"{kind}\"]}}}}"
            )
        };
        let cases = [
            (artifact("lib"), Some("registry+x#anyhow@1.0.104")),
            (artifact("proc-macro"), Some("registry+x#anyhow@1.0.104")),
            (artifact("custom-build"), None),
            ("{\"reason\":\"build-script-executed\",\"package_id\":\"a\"}".to_owned(), None),
            ("{\"reason\":\"build-finished\",\"success\":true}".to_owned(), None),
        ];
        for (line, expected) in cases {
            assert_eq!(finished(&line), expected, "{line}");
        }
    }

    #[test]
    fn objects_are_found_at_any_depth() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("settee-progress-{}", std::process::id()));
        let out = folder.join("librocksdb-sys-1234/out");
        std::fs::create_dir_all(out.join("rocksdb/db"))?;
        std::fs::create_dir_all(folder.join("other-1234/out"))?;
        for path in ["librocksdb-sys-1234/out/a.o", "librocksdb-sys-1234/out/rocksdb/db/b.o", "other-1234/out/c.o"] {
            std::fs::write(folder.join(path), "")?;
        }
        std::fs::write(out.join("librocksdb.a"), "")?;
        assert_eq!((objects(&folder), objects(&folder.join("nowhere"))), (2, 0));
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }

    #[test]
    fn a_line_reports_the_progress() {
        let printed_text = sentence(Duration::from_secs(125), 200, 380, 400);
        assert_eq!(printed_text, "2:05 min: 200 of 380 libraries, 340 of about 340 files of RocksDB");
    }
}
