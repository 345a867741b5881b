//! Passes the commit and the enabled features to the program for `settee --version`. Without git, the commit is the
//! value of `SETTEE_COMMIT`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=SETTEE_COMMIT");
    let given = env::var("SETTEE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(checked_out).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=SETTEE_COMMIT={commit}");
    println!("cargo:rustc-env=SETTEE_FEATURES={}", features());
    println!("cargo:rustc-env=SETTEE_TARGET={}", env::var("TARGET").expect("cargo sets it"));
}

/// Cargo passes the names of the features in capitals.
fn features() -> String {
    let mut names: Vec<String> = env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-")))
        .filter(|name| name != "default")
        .collect();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// `None` if the sources are unpacked inside the repository of another project.
fn checked_out() -> Option<String> {
    // Read from the running cargo, because checkouts may share a build directory.
    let folder = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&folder);
    if git(folder, &["rev-parse", "--show-prefix"])? != "crates/server/" {
        return None;
    }
    // This file grows with every commit and every checkout of another commit.
    let log = folder.join(git(folder, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.is_file() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    git(folder, &["rev-parse", "--short=12", "HEAD"])
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
