//! [`run`]: executes the blocks of a session as one script. Lines that start with `#=>` contain the expected output of
//! the commands above them; `...` matches any text.

use anyhow::{Context as _, Result, bail};

use super::blocks::Block;
use super::stage::Stage;
use crate::server::Server;
use crate::tally::Tally;

const EXPECTATION: &str = "#=>";
const SEPARATOR: char = '\u{1e}';

#[derive(Debug, PartialEq, Eq)]
struct Chunk {
    commands: String,
    line: usize,
    expected: Option<String>,
}

pub(super) fn run(page: &str, blocks: &[&Block], stage: &Stage, server: &Server) -> Result<Tally> {
    let chunks = chunks(page, blocks)?;
    let output = stage.shell(&stage.for_server(&script(&chunks), server)).output().context("cannot start bash")?;
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

/// A chunk is commands up to and including their expected output.
fn chunks(page: &str, blocks: &[&Block]) -> Result<Vec<Chunk>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for block in blocks {
        let mut open = false;
        for (line, number) in block.text.lines().zip(block.line + 1..) {
            if let Some(expected) = line.strip_prefix(EXPECTATION) {
                let Some(chunk) = chunks.last_mut() else { bail!("{page}:{number}: {EXPECTATION} follows no command") };
                let text = chunk.expected.get_or_insert_default();
                text.push_str(expected.trim());
                text.push('\n');
                open = false;
            } else if open {
                let chunk = chunks.last_mut().expect("an open chunk is the last one");
                chunk.commands.push_str(line);
                chunk.commands.push('\n');
            } else if !line.trim().is_empty() {
                chunks.push(Chunk { commands: format!("{line}\n"), line: number, expected: None });
                open = true;
            }
        }
    }
    Ok(chunks)
}

/// One script, so that variables persist.
fn script(chunks: &[Chunk]) -> String {
    let mut script = String::from("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n");
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
    use std::process::Command;

    use super::super::blocks;
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

    fn session(page: &str) -> Result<Vec<Chunk>> {
        let blocks = blocks::parse(page)?;
        chunks("page", &blocks.iter().filter(|block| block.label == "sh session").collect::<Vec<_>>())
    }

    #[test]
    fn blocks_become_chunks() -> Result<()> {
        let found = session(PAGE)?;
        let lines: Vec<_> = found.iter().map(|chunk| (chunk.line, chunk.expected.as_deref())).collect();
        assert_eq!(lines, [(6, Some("a b\n")), (10, Some("1\n2\n")), (17, None)]);
        assert_eq!(found[0].commands, "X=a\necho $X \\\n  b\n");
        assert!(session("```sh session\n#=> a\n```\n").is_err());
        Ok(())
    }

    #[test]
    fn outputs_are_compared_chunk_by_chunk() -> Result<()> {
        let found = session(PAGE)?;
        assert_eq!(compare("page", &found, "a b\n\u{1e}1\n2\n\u{1e}{}\u{1e}"), Tally::of(2, 0));
        assert_eq!(compare("page", &found, "a b\n\u{1e}1\n3\n\u{1e}{}\u{1e}"), Tally::of(1, 1));
        assert_eq!(compare("page", &found, "a"), Tally::of(0, 2));
        Ok(())
    }

    #[test]
    fn the_session_runs_as_one_script() -> Result<()> {
        let found = session(PAGE)?;
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
