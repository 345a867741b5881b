//! [`Target`]: the architecture of a package and its names in packaging formats.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use settee_e2e::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    X86_64,
    Arm64,
}

impl Target {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    pub(crate) fn of_this_machine() -> Result<Self> {
        let arch = std::env::consts::ARCH;
        Self::ALL.into_iter().find(|target| target.linux() == arch).with_context(|| format!("{arch} is not supported"))
    }

    pub(crate) fn parse(triple: &str) -> Result<Self> {
        let Some(target) = Self::ALL.into_iter().find(|target| target.triple() == triple) else {
            bail!("`{triple}` is not supported; the targets are {}", Self::ALL.map(Self::triple).join(" and "));
        };
        Ok(target)
    }

    /// The name in ELF files.
    fn elf(self) -> u8 {
        match self {
            Self::X86_64 => 62,
            Self::Arm64 => 183,
        }
    }

    pub(crate) fn from_elf(machine: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|target| u64::from(target.elf()) == machine)
    }

    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The name of the kernel, RPM and Python.
    pub(crate) fn linux(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// The name of Debian and of container images.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    pub(crate) fn node(self) -> &'static str {
        match self {
            Self::X86_64 => "x64",
            Self::Arm64 => "arm64",
        }
    }

    pub(crate) fn homebrew(self) -> &'static str {
        match self {
            Self::X86_64 => "on_intel",
            Self::Arm64 => "on_arm",
        }
    }

    /// For file names whose format states no architecture.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Arm64 => "-arm64",
        }
    }

    /// `None` on a machine of this architecture.
    pub(crate) fn emulator(self) -> Option<String> {
        (std::env::consts::ARCH != self.linux()).then(|| format!("qemu-{}", self.linux()))
    }

    pub(crate) fn call(self, program: &Path) -> Command {
        let Some(emulator) = self.emulator() else { return Command::new(program) };
        let mut command = Command::new(emulator);
        command.arg(program);
        command
    }

    /// Within a user name space, the kernel calls the emulator for the program and its children.
    pub(crate) fn call_with_children(self, program: &Path) -> Result<Command> {
        const SCRIPT: &str = "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && \
                              printf %s \"$0\" >/proc/sys/fs/binfmt_misc/register && exec \"$@\"";
        let Some(emulator) = self.emulator() else { return Ok(Command::new(program)) };
        let emulator = process::find(&emulator).with_context(|| format!("{emulator} is missing"))?;
        let rule = format!(":settee:M:18:\\x{:x}\\x00::{}:", self.elf(), emulator.display());
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT]).arg(rule).arg(program);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_names_of_rust() -> Result<()> {
        for target in Target::ALL {
            assert_eq!(Target::parse(target.triple())?, target);
            assert!(target.triple().starts_with(target.linux()));
            assert_eq!(Target::from_elf(target.elf().into()), Some(target));
        }
        let error = Target::parse("riscv64gc-unknown-linux-gnu").expect_err("not supported").to_string();
        assert!(error.contains("x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu"), "{error}");
        assert_eq!(Target::of_this_machine()?.emulator(), None);
        Ok(())
    }
}
