//! [`Workspace`]: paths of the checkout, the build directory, and the recorded scenarios.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

pub const ALLOW_MISSING: &str = "SETTEE_ALLOW_MISSING";

pub struct Workspace {
    pub root: PathBuf,
    profile: PathBuf,
    pub program: Option<PathBuf>,
    /// Tests and steps whose packages are missing are skipped. Otherwise they fail.
    pub allow_missing: bool,
}

impl Workspace {
    pub fn find(program: Option<PathBuf>, allow_missing: bool) -> Result<Self> {
        // From the running `cargo`, not from the build, because two checkouts may share a build directory.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).ancestors().nth(2).context("this crate is not in crates/")?.to_owned();
        let own = std::env::current_exe().context("cannot read the path of this program")?;
        let profile = own.parent().context("the path of this program has no folder")?.to_owned();
        Ok(Self { root, profile, program, allow_missing })
    }

    pub fn binary(&self) -> PathBuf {
        self.program.clone().unwrap_or_else(|| self.profile.join("settee"))
    }

    pub fn profile(&self) -> &Path {
        &self.profile
    }

    pub fn target(&self) -> Result<PathBuf> {
        Ok(self.profile.parent().context("the build directory has no parent")?.to_owned())
    }

    pub fn log(&self, step: &str) -> Result<PathBuf> {
        let folder = self.profile.join("xtask-logs");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder.join(format!("{step}.log")))
    }

    pub fn packages(&self, language: &str) -> PathBuf {
        self.profile.join("xtask-packages").join(language)
    }

    pub fn scratch(&self, purpose: &str) -> PathBuf {
        std::env::temp_dir().join(format!("settee-{purpose}-{}", std::process::id()))
    }

    pub fn conformance(&self) -> PathBuf {
        self.root.join("conformance")
    }

    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root);
        if self.allow_missing {
            command.env(ALLOW_MISSING, "1");
        }
        command
    }
}
