//! Executes the examples of README.md and docs ([`run`]). The label of a block states its test ([`Check`]); without one
//! it fails.

mod blocks;
mod foreground;
mod session;
mod sources;
mod stage;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::build;
use crate::process;
use crate::server::{Access, Server, stopped_tally};
use crate::tally::Tally;
use crate::workspace::Workspace;
use blocks::{Block, Check};
use stage::Stage;

const ROOT_PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "COMPAT.md", "CONTRIBUTING.md"];

const NOT_CHECKED: &str = "docs/adr/history";

pub(crate) fn command(workspace: &Workspace) -> Result<Tally> {
    let mut tally = build::build(workspace)?;
    if tally.holds() {
        tally = run(workspace)?;
        tally += run_on_postgres(workspace)?;
    }
    Ok(tally)
}

/// Executes all examples except those on PostgreSQL.
pub fn run(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    for page in pages(workspace)? {
        tally += page.check_blocks(workspace)?;
        if !page.needs_postgres() {
            tally += page.execute(workspace)?;
        }
    }
    Ok(tally)
}

pub fn run_on_postgres(workspace: &Workspace) -> Result<Tally> {
    let mut tally = Tally::default();
    for page in pages(workspace)?.iter().filter(|page| page.needs_postgres()) {
        tally += page.execute(workspace)?;
    }
    Ok(tally)
}

pub fn against(workspace: &Workspace, path: &str, server: &Server) -> Result<Tally> {
    let page = Page::read(workspace, path)?;
    let stage = page.stage(workspace)?;
    page.run_session(&[Check::Session], &stage, server)
}

pub(crate) fn against_bucket(
    workspace: &Workspace,
    path: &str,
    server: &Server,
    variables: &[(&str, &str)],
    replacements: &[(&str, &str)],
) -> Result<Tally> {
    let page = Page::read(workspace, path)?;
    let mut stage = page.stage(workspace)?;
    stage.add(variables, replacements);
    page.run_session(&[Check::Session, blocks::BUCKET], &stage, server)
}

struct Page {
    path: String,
    text: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(workspace: &Workspace, path: &str) -> Result<Self> {
        let text = fs::read_to_string(workspace.root.join(path)).with_context(|| format!("cannot read {path}"))?;
        let blocks = blocks::parse(&text).with_context(|| path.to_owned())?;
        Ok(Self { path: path.to_owned(), text, blocks })
    }

    fn with_check<'a>(&'a self, checks: &'a [Check]) -> impl Iterator<Item = &'a Block> {
        self.blocks.iter().filter(|block| block.check().is_ok_and(|check| checks.contains(&check)))
    }

    fn needs_postgres(&self) -> bool {
        let executed = [Check::Session, Check::Foreground];
        self.with_check(&[Check::PostgresSettings]).next().is_some()
            || self.with_check(&executed).any(|block| block.text.contains("postgres://"))
    }

    fn stage(&self, workspace: &Workspace) -> Result<Stage> {
        let texts: String = self.blocks.iter().map(|block| block.text.as_str()).collect();
        Stage::prepare(workspace, &texts, self.needs_postgres())
    }

    fn check_blocks(&self, workspace: &Workspace) -> Result<Tally> {
        let mut tally = Tally::default();
        for line in blocks::indented(&self.text) {
            tally += self.report(line, "an indented block has no label; use a fence");
        }
        for block in &self.blocks {
            let defect = match block.check() {
                Ok(check) => sources::defect(workspace, &self.path, block, check)?,
                Err(defect) => Some(defect),
            };
            tally += defect.map_or(Tally::one(true), |defect| self.report(block.line, &defect));
        }
        Ok(tally)
    }

    fn execute(&self, workspace: &Workspace) -> Result<Tally> {
        let mut tally = Tally::default();
        let executed = [Check::Session, Check::Foreground, Check::PostgresSettings];
        if self.with_check(&executed).next().is_none() {
            return Ok(tally);
        }
        let stage = self.stage(workspace)?;
        for block in self.with_check(&[Check::PostgresSettings]) {
            let defect = stage.postgres_defect(&block.text)?;
            tally += defect.map_or(Tally::one(true), |defect| self.report(block.line, &defect));
        }
        if self.with_check(&[Check::Session]).next().is_some() {
            tally += self.run_with_server(workspace, &stage)?;
        }
        for block in self.with_check(&[Check::Foreground]) {
            let defect = foreground::defect(workspace, &stage, &block.text)?;
            tally += defect.map_or(Tally::one(true), |defect| self.report(block.line, &defect));
        }
        Ok(tally)
    }

    fn run_with_server(&self, workspace: &Workspace, stage: &Stage) -> Result<Tally> {
        let is_admin = self.text.contains(stage::ADMIN_ADDRESS);
        let access = if is_admin { Access::Admin } else { Access::AdminParty };
        let mut server = Server::start(workspace, "readme", access)?;
        let mut tally = self.run_session(&[Check::Session], stage, &server)?;
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

    fn run_session(&self, checks: &[Check], stage: &Stage, server: &Server) -> Result<Tally> {
        let blocks: Vec<&Block> = self.with_check(checks).collect();
        ensure!(!blocks.is_empty(), "{} has no session", self.path);
        session::run(&self.path, &blocks, stage, server)
    }

    fn report(&self, line: usize, defect: &str) -> Tally {
        println!("    {}:{line}: {defect}", self.path);
        Tally::one(false)
    }
}

fn pages(workspace: &Workspace) -> Result<Vec<Page>> {
    let mut paths: Vec<String> = ROOT_PAGES.map(str::to_owned).into();
    add_pages(&workspace.root, "docs", &mut paths)?;
    paths.sort();
    paths.iter().map(|path| Page::read(workspace, path)).collect()
}

fn add_pages(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            if path != NOT_CHECKED {
                add_pages(root, &path, paths)?;
            }
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    Ok(())
}
