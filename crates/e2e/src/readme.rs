//! Runs the shell sessions of README.md and of the pages in docs, each against a server of its own ([`run`]). A session
//! consists of all blocks of a page fenced as `sh session`. Lines that start with `#=>` contain the expected output of
//! the commands above them; `...` matches any text. The address of the default port and `./data` are replaced by the
//! server's. Other blocks are not run.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use crate::build;
use crate::process;
use crate::server::{Access, Server, stopped_tally};
use crate::tally::Tally;
use crate::workspace::Workspace;

const ADDRESS: &str = "http://127.0.0.1:5984";
const FENCE: &str = "```sh session";
const EXPECTATION: &str = "#=>";
const SEPARATOR: char = '\u{1e}';

#[derive(Debug, PartialEq, Eq)]
struct Chunk {
    commands: String,
    line: usize,
    expected: Option<String>,
}

pub(crate) fn command(workspace: &Workspace) -> Result<Tally> {
    let built = build::build(workspace)?;
    if built.holds() { run(workspace) } else { Ok(built) }
}

pub fn run(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    for page in pages(workspace)? {
        tally += run_page(workspace, &page)?;
    }
    Ok(tally)
}

/// Paths below the root of pages with sessions. README.md must be one.
fn pages(workspace: &Workspace) -> Result<Vec<String>> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/operation"] {
        for entry in std::fs::read_dir(workspace.root.join(folder)).with_context(|| format!("cannot read {folder}"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if name.ends_with(".md") && std::fs::read_to_string(workspace.root.join(&path))?.contains(FENCE) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn run_page(workspace: &Workspace, page: &str) -> Result<Tally> {
    let mut server = Server::start(workspace, "readme", Access::AdminParty)?;
    let mut tally = against(workspace, page, &server)?;
    let stopped = server.stop();
    if let Err(error) = &stopped {
        println!("    {error:#}");
    }
    tally += stopped_tally(&stopped);
    if !tally.holds() {
        process::show_tail(server.log());
    }
    Ok(tally)
}

pub fn against(workspace: &Workspace, page: &str, server: &Server) -> Result<Tally> {
    let text = std::fs::read_to_string(workspace.root.join(page)).with_context(|| format!("cannot read {page}"))?;
    let chunks = chunks(page, &text)?;
    if chunks.is_empty() {
        bail!("{page} has no block that starts with {FENCE}");
    }
    let data = server.data().display().to_string();
    let script = script(&chunks).replace(ADDRESS, &server.url()).replace("./data", &data);
    let output = in_folder(workspace, &script)?;
    // Rows end with CR LF, which is invisible on a terminal.
    let printed = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    let mut tally = compare(page, &chunks, &printed);
    if !output.status.success() {
        println!("    the session of {page} ended with {}", output.status);
        tally += Tally::one(false);
    }
    if !tally.holds() {
        println!("    {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "\n    "));
    }
    Ok(tally)
}

fn in_folder(workspace: &Workspace, script: &str) -> Result<Output> {
    let folder = workspace.scratch("session");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let programs = workspace.binary().parent().map(Path::to_owned).unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(&folder).env("PATH", format!("{}:{path}", programs.display()));
    let output = command.output().context("cannot start bash");
    let _ = std::fs::remove_dir_all(&folder);
    output
}

/// A chunk is commands up to and including their expected output.
fn chunks(name: &str, page: &str) -> Result<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut inside = false;
    let mut open = false;
    for (index, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside && line.trim_end() == FENCE;
            open = false;
        } else if !inside {
        } else if let Some(expected) = line.strip_prefix(EXPECTATION) {
            let Some(chunk) = chunks.last_mut() else {
                bail!("{name}:{}: {EXPECTATION} follows no command", index + 1)
            };
            let text = chunk.expected.get_or_insert_default();
            text.push_str(expected.trim());
            text.push('\n');
            open = false;
        } else if open {
            let chunk = chunks.last_mut().expect("an open chunk is the last one");
            chunk.commands.push_str(line);
            chunk.commands.push('\n');
        } else if !line.trim().is_empty() {
            chunks.push(Chunk { commands: format!("{line}\n"), line: index + 1, expected: None });
            open = true;
        }
    }
    Ok(chunks)
}

/// One script of all chunks, so that variables persist from one to the next.
fn script(chunks: &[Chunk]) -> String {
    let mut script = String::from("set -euo pipefail\n");
    for chunk in chunks {
        script.push_str(&chunk.commands);
        script.push_str("printf '\\036'\n");
    }
    script
}

fn compare(page: &str, chunks: &[Chunk], output: &str) -> Tally {
    let mut tally = Tally::default();
    let mut outputs = output.split(SEPARATOR);
    for chunk in chunks {
        let printed = outputs.next().unwrap_or_default().trim();
        let Some(expected) = &chunk.expected else { continue };
        let expected = expected.trim();
        let agree = matches(expected, printed);
        tally += Tally::one(agree);
        if !agree {
            println!("    {page}:{}: {}", chunk.line, chunk.commands.trim().replace('\n', "\n      "));
            println!("      expected {}", expected.replace('\n', "\n               "));
            println!("      printed  {}", printed.replace('\n', "\n               "));
        }
    }
    tally
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once("...") else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title
```sh
make run
```
```sh session
X=a
echo $X \\
  b
#=> a b
echo 1; echo 2

#=> 1
#=> 2
```
Text.
```sh session
curl http://127.0.0.1:5984/
```
";

    #[test]
    fn blocks_become_chunks() -> Result<()> {
        let found = chunks("page", PAGE)?;
        let lines: Vec<_> = found.iter().map(|chunk| (chunk.line, chunk.expected.as_deref())).collect();
        assert_eq!(lines, [(6, Some("a b\n")), (10, Some("1\n2\n")), (17, None)]);
        assert_eq!(found[0].commands, "X=a\necho $X \\\n  b\n");
        assert!(chunks("page", "```sh session\n#=> a\n```\n").is_err());
        Ok(())
    }

    #[test]
    fn outputs_are_compared_chunk_by_chunk() -> Result<()> {
        let found = chunks("page", PAGE)?;
        assert_eq!(compare("page", &found, "a b\n\u{1e}1\n2\n\u{1e}{}\u{1e}"), Tally::of(2, 0));
        assert_eq!(compare("page", &found, "a b\n\u{1e}1\n3\n\u{1e}{}\u{1e}"), Tally::of(1, 1));
        assert_eq!(compare("page", &found, "a"), Tally::of(0, 2));
        Ok(())
    }

    #[test]
    fn the_session_runs_as_one_script() -> Result<()> {
        let found = chunks("page", PAGE)?;
        let output = Command::new("bash").args(["-c", &script(&found[..2])]).output()?;
        assert_eq!(compare("page", &found[..2], &String::from_utf8_lossy(&output.stdout)), Tally::of(2, 0));
        Ok(())
    }

    #[test]
    fn dots_stand_for_anything() {
        let cases = [
            ("a", "a", true),
            ("a", "b", false),
            ("a...d", "abcd", true),
            ("a...d", "ad", true),
            ("a...d", "abc", false),
            ("...", "", true),
            ("[...]", "[{\"é\":1}\n]", true),
            ("1...2...3", "1 2 2 3", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
