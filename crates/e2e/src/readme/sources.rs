//! [`defect`]: checks a block without executing it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::blocks::{Block, Check};
use crate::process;
use crate::workspace::Workspace;

const RUST_EXAMPLE: &str = "sdk/wasm/examples/rust/src/lib.rs";

pub(super) fn defect(workspace: &Workspace, page: &str, block: &Block, check: Check) -> Result<Option<String>> {
    let text = block.text.as_str();
    match check {
        Check::Json => refusal(Command::new("python3").args(["-c", "import json, sys; json.load(sys.stdin)"]), text),
        Check::Settings => settings_defect(workspace, text),
        Check::Example => {
            let found = read(workspace, RUST_EXAMPLE)?.contains(text);
            Ok((!found).then(|| format!("{RUST_EXAMPLE} does not contain this text")))
        }
        Check::Suite(file) => {
            let name = page.rsplit('/').next().unwrap_or(page);
            let found = read(workspace, file)?.contains(name);
            Ok((!found).then(|| format!("{file} does not execute {page}")))
        }
        Check::Unavailable => {
            let syntax = refusal(Command::new("bash").args(["-n"]), text)?;
            if syntax.is_some() { Ok(syntax) } else { unknown_option(workspace, text) }
        }
        Check::Session | Check::Foreground | Check::PostgresSettings | Check::Text => Ok(None),
    }
}

fn read(workspace: &Workspace, path: &str) -> Result<String> {
    fs::read_to_string(workspace.root.join(path)).with_context(|| format!("cannot read {path}"))
}

fn refusal(command: &mut Command, input: &str) -> Result<Option<String>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a program that checks a block")?;
    child.stdin.take().context("there is no pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success()).then(|| message.lines().last().unwrap_or("refused").to_owned()))
}

fn settings_defect(workspace: &Workspace, text: &str) -> Result<Option<String>> {
    let file = workspace.scratch("readme.ini");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let checked = process::output(Command::new(workspace.binary()).args(["config", "check"]).arg(&file));
    let _ = fs::remove_file(&file);
    match checked {
        Ok(message) if message.trim_end().lines().count() == 1 => Ok(None),
        Ok(message) => Ok(Some(message.trim_end().to_owned())),
        Err(error) => Ok(Some(format!("{error:#}"))),
    }
}

fn unknown_option(workspace: &Workspace, text: &str) -> Result<Option<String>> {
    for line in text.replace("\\\n", " ").lines() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        // The first name can be that of a container.
        let Some(at) = words.iter().rposition(|word| *word == "settee") else { continue };
        let is_name = |word: &&&str| word.starts_with(|char: char| char.is_ascii_lowercase()) && !word.contains(':');
        let names: Vec<&str> = words[at + 1..].iter().take_while(is_name).copied().collect();
        let command = names.join(" ");
        let help = process::output(Command::new(workspace.binary()).args(&names).arg("--help"));
        let Ok(help) = help else { return Ok(Some(format!("settee has no command {command}"))) };
        let options = words[at + 1..].iter().filter(|word| word.starts_with("--"));
        let mut options = options.map(|option| option.split('=').next().unwrap_or(option));
        let is_unknown = |option: &&str| !help.split([' ', '\n', ',']).any(|word| word == *option);
        if let Some(option) = options.find(is_unknown) {
            return Ok(Some(format!("settee {command} has no option {option}")));
        }
    }
    Ok(None)
}
