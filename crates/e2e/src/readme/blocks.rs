//! [`Block`]: a fenced block of a page.

use anyhow::{Result, bail, ensure};

const FENCE: &str = "```";

/// Labels that other tests execute; their files name the page.
const SUITES: [(&str, &str); 8] = [
    ("caddy", "crates/server/tests/it/on_postgresql/proxies.rs"),
    ("coffeescript", "crates/js/tests/it/coffeescript.rs"),
    ("erlang", "crates/process/tests/it/erlang.rs"),
    ("haproxy", "crates/server/tests/it/on_postgresql/proxies.rs"),
    ("nginx", "crates/server/tests/it/on_postgresql/proxies.rs"),
    ("python", "clients/python/test_query_servers.py"),
    ("sh bucket", "crates/e2e/src/s3/mod.rs"),
    ("sh walkthrough", "console/browser/walkthrough.test.mjs"),
];

pub(super) const BUCKET: Check = Check::Suite("crates/e2e/src/s3/mod.rs");

/// Programs that these tests must not call, with the reason.
const NOT_EXECUTED: [(&str, &str); 8] = [
    ("apt", "installs packages on this machine"),
    ("docker", "requires a container engine"),
    ("make", "builds for minutes or runs until Ctrl-C; `cargo xtask dist --try` tests the packages"),
    ("npm", "downloads packages; `cargo xtask console` and `clients` do the same"),
    ("npx", "downloads a compiler"),
    ("rustup", "installs a compiler"),
    ("settee-bench", "measures for an hour"),
    ("systemctl", "changes the services of this machine"),
];

const COMMANDS: [&str; 12] =
    ["$", "apt", "bash", "cargo", "curl", "docker", "make", "npm", "npx", "python3", "settee", "sudo"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Session,
    Foreground,
    Json,
    Settings,
    PostgresSettings,
    Example,
    Suite(&'static str),
    Unavailable,
    Text,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) label: String,
    pub(super) line: usize,
    pub(super) text: String,
}

impl Block {
    pub(super) fn check(&self) -> Result<Check, String> {
        let suite = SUITES.iter().find(|(label, _)| self.label == *label);
        match self.label.as_str() {
            "sh session" => Ok(Check::Session),
            "sh serve" => Ok(Check::Foreground),
            "json" => Ok(Check::Json),
            "ini" => Ok(Check::Settings),
            "ini postgresql" => Ok(Check::PostgresSettings),
            "rust" => Ok(Check::Example),
            "text" => self.check_text(),
            label => match (suite, label.strip_prefix("sh needs ")) {
                (Some((_, file)), _) => Ok(Check::Suite(file)),
                (None, Some(program)) => self.check_exemption(program),
                (None, None) => Err(format!("no test executes a block with the label `{label}`; use `sh session`")),
            },
        }
    }

    fn check_text(&self) -> Result<Check, String> {
        let mut words = self.text.lines().filter_map(|line| line.split_whitespace().next());
        match words.find(|word| COMMANDS.contains(word)) {
            Some(word) => Err(format!("a block of text contains a command of {word}; use `sh session`")),
            None => Ok(Check::Text),
        }
    }

    fn check_exemption(&self, program: &str) -> Result<Check, String> {
        if !NOT_EXECUTED.iter().any(|(exempted, _)| *exempted == program) {
            return Err(format!("commands of {program} can be executed; use `sh session`"));
        }
        let calls = self.text.lines().any(|line| line.split_whitespace().any(|word| word == program));
        if calls { Ok(Check::Unavailable) } else { Err(format!("the block does not call {program}")) }
    }
}

pub(super) fn parse(page: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, number) in page.lines().zip(1..) {
        ensure!(!line.starts_with(' ') || !line.trim_start().starts_with(FENCE), "line {number}: an indented fence");
        match (line.strip_prefix(FENCE), blocks.last_mut()) {
            (Some(label), _) if !is_open => {
                let label = label.trim().to_owned();
                blocks.push(Block { label, line: number, text: String::new() });
                is_open = true;
            }
            (Some(_), _) => is_open = false,
            (None, Some(block)) if is_open => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, _) => {}
        }
    }
    match blocks.last() {
        Some(block) if is_open => bail!("the block of line {} has no end", block.line),
        _ => Ok(blocks),
    }
}

pub(super) fn indented(page: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut is_code, mut follows_blank) = (false, false);
    for (line, number) in page.lines().zip(1..) {
        is_code ^= line.starts_with(FENCE);
        if !is_code && follows_blank && line.starts_with("    ") {
            found.push(number);
        }
        follows_blank = line.trim().is_empty();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(label: &str, text: &str) -> Result<Check, String> {
        Block { label: label.to_owned(), line: 1, text: text.to_owned() }.check()
    }

    #[test]
    fn a_block_without_a_test_is_a_defect() {
        for label in ["", "sh", "console", "bash", "sh session now", "toml", "sh needs", "sh needs curl"] {
            assert!(check(label, "curl http://127.0.0.1:5984/\n").is_err(), "{label}");
        }
        assert_eq!(check("sh session", "curl http://127.0.0.1:5984/\n"), Ok(Check::Session));
        assert_eq!(check("haproxy", "defaults\n"), Ok(Check::Suite("crates/server/tests/it/on_postgresql/proxies.rs")));
    }

    #[test]
    fn only_commands_of_the_stated_program_are_exempted() {
        assert_eq!(check("sh needs apt", "sudo apt install ./x.deb\n"), Ok(Check::Unavailable));
        assert!(check("sh needs apt", "settee serve\n").is_err());
        assert!(check("sh needs apt", "aptitude\n").is_err());
    }

    #[test]
    fn text_contains_no_commands() {
        assert_eq!(check("text", "flags  1 deleted\n"), Ok(Check::Text));
        assert!(check("text", "seq  varint\n  settee verify\n").is_err());
    }

    #[test]
    fn blocks_and_indented_blocks_are_found() -> Result<()> {
        let page = "# A\n\n    code\n\n```sh session\n\n    x\n```\n- item\n\n  text\n```\ny\n```\n";
        let found = parse(page)?;
        let found: Vec<_> = found.iter().map(|block| (block.label.as_str(), block.line, block.text.as_str())).collect();
        assert_eq!(found, [("sh session", 5, "\n    x\n"), ("", 12, "y\n")]);
        assert_eq!(indented(page), [3]);
        assert!(parse("```sh\n").is_err());
        assert!(parse("- item\n\n  ```sh\n  ```\n").is_err());
        Ok(())
    }
}
