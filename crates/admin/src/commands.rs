//! Arguments and output of the maintenance commands `doctor`, `verify` and `salvage`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::doctor::Finding;
use crate::environment::data_directory;
use crate::{doctor, salvage, verify};

/// Arguments of `settee doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// The configuration file [default: SETTEE_CONFIG, or local.ini in the data directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only request /_up from the server that runs on the data, for health checks; the exit code is 0 if the status is
    /// 200
    #[arg(long)]
    up: bool,
}

/// Arguments of `settee verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// Maximum rate of reading files, in megabytes per second
    #[arg(long, value_name = "MB")]
    rate: Option<u64>,
    /// Verify the files only, not the databases in them
    #[arg(long)]
    files: bool,
}

/// Arguments of `settee salvage`
#[derive(Debug, Args)]
pub struct SalvageArgs {
    /// The damaged data directory
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
    /// The data directory to create, which must be empty or missing
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
}

impl DoctorArgs {
    /// `settings` examines the configuration of a data directory, with the file that was given.
    pub fn run(&self, settings: &dyn Fn(&Path, Option<&Path>) -> Vec<Finding>) -> ExitCode {
        if self.up {
            return doctor::is_up(&self.data);
        }
        doctor::run(&self.data, &|| settings(&self.data, self.config.as_deref()))
    }
}

impl VerifyArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        verify::run(&self.data, self.rate, self.files)
    }
}

impl SalvageArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        salvage::run(&self.data, &self.to)
    }
}
