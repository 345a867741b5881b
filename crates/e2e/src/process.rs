//! Runs other programs with their output in a file ([`run_logged`]). Prints progress once a minute, and the end of the
//! log after a failure.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const TAIL_LINES: usize = 120;

/// `log` receives everything that `command` prints. Returns true if it succeeded.
pub fn run_logged(command: &mut Command, log: &Path) -> Result<bool> {
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let errors = output.try_clone().context("cannot share the log")?;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdout(output).stderr(errors).spawn().with_context(|| format!("cannot start `{program}`"))?;
    let started = Instant::now();
    let mut next_sign = PROGRESS_INTERVAL;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a child process")? {
            return Ok(status.success());
        }
        if started.elapsed() > next_sign {
            println!("    {:>3} min: {}", next_sign.as_secs() / 60, last_line(log));
            next_sign += PROGRESS_INTERVAL;
        }
        thread::sleep(POLL);
    }
}

pub fn run_shown(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start `{program}`"))?;
    Ok(status.success())
}

pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start `{program}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("`{program}` ended with {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(text)
}

/// Searches the directories of `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

pub fn exists(program: &str) -> bool {
    find(program).is_some()
}

pub fn show_tail(log: &Path) {
    let text = read_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
        println!("    {line}");
    }
    println!("    the whole output: {}", log.display());
}

pub fn read_lossy(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn last_line(log: &Path) -> String {
    let text = read_lossy(log);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output yet").to_owned()
}
