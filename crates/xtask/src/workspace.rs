//! Where things lie ([`Workspace`]): the checkout, the build directory, the recorded scenarios.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The places that commands need.
pub(crate) struct Workspace {
    /// The root of the checkout.
    pub(crate) root: PathBuf,
    /// Where cargo puts programs of the release profile; this program runs from there.
    profile: PathBuf,
    /// A program to be taken in place of the one that is built here.
    pub(crate) program: Option<PathBuf>,
}

impl Workspace {
    pub(crate) fn find(program: Option<PathBuf>) -> Result<Self> {
        // Of the running `cargo`, not of the build: checkouts in two places may share a build directory.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).ancestors().nth(2).context("this crate does not lie in crates/")?.to_owned();
        let own = std::env::current_exe().context("cannot tell where this program lies")?;
        let profile = own.parent().context("this program lies in no folder")?.to_owned();
        Ok(Self { root, profile, program })
    }

    /// The `settee` program: the one that was given, or the one that is built here, once it has been.
    pub(crate) fn binary(&self) -> PathBuf {
        self.program.clone().unwrap_or_else(|| self.profile.join("settee"))
    }

    /// Where programs of the release profile are.
    pub(crate) fn profile(&self) -> &Path {
        &self.profile
    }

    /// The build directory: that of this program.
    pub(crate) fn target(&self) -> Result<PathBuf> {
        Ok(self.profile.parent().context("the build directory has no parent")?.to_owned())
    }

    /// Where the output of a step goes.
    pub(crate) fn log(&self, step: &str) -> Result<PathBuf> {
        let folder = self.profile.join("xtask-logs");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder.join(format!("{step}.log")))
    }

    /// Where packages of another language are installed for tests.
    pub(crate) fn packages(&self, language: &str) -> PathBuf {
        self.profile.join("xtask-packages").join(language)
    }

    /// A folder for the data of one run of a server. It does not exist yet.
    pub(crate) fn scratch(&self, purpose: &str) -> PathBuf {
        std::env::temp_dir().join(format!("settee-{purpose}-{}", std::process::id()))
    }

    /// The recorded scenarios and the program that replays them; `None` where they are absent.
    /// They are not part of this repository: they are looked for beside the checkout, or where the
    /// variable `SETTEE_CONFORMANCE` points.
    pub(crate) fn scenarios(&self) -> Option<PathBuf> {
        let folder = match std::env::var_os("SETTEE_CONFORMANCE") {
            Some(folder) => PathBuf::from(folder),
            None => self.root.join("../shared/conformance"),
        };
        folder.join("replay.py").is_file().then_some(folder)
    }

    /// A call of cargo in the root of the checkout.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.root);
        command
    }
}
