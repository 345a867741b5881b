//! Checks that the machine has what the build and the tests need, and installs it where this program
//! may: as root, with apt-get. Elsewhere it says what is missing and why it is needed.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// Something the build or the tests call.
struct Need {
    /// The Debian package that brings it.
    package: &'static str,
    why: &'static str,
    present: fn() -> bool,
}

const NEEDS: &[Need] = &[
    Need {
        package: "g++",
        why: "compiles RocksDB",
        present: || process::exists("g++") || process::exists("clang++"),
    },
    Need {
        package: "clang",
        why: "its headers are read for RocksDB's bindings",
        present: clang_headers,
    },
    Need {
        package: "libclang-dev",
        why: "generates RocksDB's bindings",
        present: libclang,
    },
    Need {
        package: "cmake",
        why: "configures C libraries",
        present: || process::exists("cmake"),
    },
    Need {
        package: "make",
        why: "runs the commands of the Makefile",
        present: || process::exists("make"),
    },
    Need {
        package: "pkg-config",
        why: "finds C libraries",
        present: || process::exists("pkg-config"),
    },
    Need {
        package: "python3",
        why: "replays the recorded scenarios",
        present: || process::exists("python3"),
    },
    Need {
        package: "curl",
        why: "runs the session of the README",
        present: || process::exists("curl"),
    },
];

/// False if something is missing that could not be installed.
pub(crate) fn command() -> Result<bool> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    for need in &missing {
        println!("setup: {} is missing ({})", need.package, need.why);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !process::exists("apt-get") || !is_root() {
        println!("setup: install these with your system's package manager, on Debian and Ubuntu with");
        println!("setup:   sudo apt-get install {}", packages.join(" "));
        return Ok(false);
    }
    println!("setup: installing {}", packages.join(" "));
    let mut update = apt_get();
    update.arg("update");
    let mut install = apt_get();
    install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&packages);
    if !process::run_shown(&mut update)? || !process::run_shown(&mut install)? {
        println!("setup: apt-get failed; its messages above say why");
        return Ok(false);
    }
    Ok(true)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .arg("--quiet")
        .arg("--quiet")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// The C headers that belong to the compiler itself, such as `stddef.h`: clang's, or else gcc's.
fn clang_headers() -> bool {
    process::exists("clang") || any_entry("/usr/lib/clang", |_| true)
}

/// A libclang that can be loaded at build time.
fn libclang() -> bool {
    let is_libclang = |name: &str| name.starts_with("libclang.") || name.starts_with("libclang-");
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    folders.iter().any(|folder| any_entry(folder, is_libclang))
        || any_entry("/usr/lib", |name| {
            name.starts_with("llvm") && any_entry(format!("/usr/lib/{name}/lib"), is_libclang)
        })
        || any_entry("/Library/Developer/CommandLineTools/usr/lib", is_libclang)
        || any_entry("/opt/homebrew/opt/llvm/lib", is_libclang)
}

fn any_entry(folder: impl AsRef<Path>, accept: impl Fn(&str) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| accept(&entry.file_name().to_string_lossy()))
}
