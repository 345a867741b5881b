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
    Need { package: "g++", why: "compiles RocksDB", present: || process::exists("g++") || process::exists("clang++") },
    Need { package: "clang", why: "its headers are read for RocksDB's bindings", present: clang_headers },
    Need { package: "libclang-dev", why: "generates RocksDB's bindings", present: libclang },
    Need { package: "cmake", why: "configures C libraries", present: || process::exists("cmake") },
    Need { package: "make", why: "runs the commands of the Makefile", present: || process::exists("make") },
    Need { package: "pkg-config", why: "finds C libraries", present: || process::exists("pkg-config") },
    Need { package: "python3", why: "replays the recorded scenarios", present: || process::exists("python3") },
    Need { package: "curl", why: "runs the session of the README", present: || process::exists("curl") },
];

/// What builds the web console, and plays suites in JavaScript.
const NODE_NEEDS: &[Need] = &[
    Need { package: "nodejs", why: "version 20.19 or later builds the web console", present: node },
    Need { package: "npm", why: "installs what builds the web console", present: || process::exists("npm") },
];

/// What the suites in `clients/` call. The other commands do without.
const CLIENT_NEEDS: &[Need] = &[Need {
    package: "python3-venv",
    why: "installs couchdb-python",
    present: || {
        Command::new("python3")
            .args(["-c", "import ensurepip, venv"])
            .output()
            .is_ok_and(|output| output.status.success())
    },
}];

/// What the tests of the web console call.
const CONSOLE_NEEDS: &[Need] =
    &[Need { package: "chromium", why: "shows the web console to its tests", present: || process::exists("chromium") }];

/// Query servers that tests run if they are there. Without them these tests say so and are left out.
const LANGUAGE_NEEDS: &[Need] = &[
    Need { package: "erlang-base", why: "runs design documents in Erlang", present: || process::exists("escript") },
    Need { package: "pypy3", why: "runs couchpy faster than Python does", present: || process::exists("pypy3") },
];

/// The store of servers that outlive a machine. Without it its tests say so and are left out.
const STORAGE_NEEDS: &[Need] =
    &[Need { package: "postgresql", why: "holds data for the tests of storage-postgres", present: postgresql }];

/// The proxies of docs/operation/cluster.md that are small. Without them the tests of these say so and are left out.
const PROXY_NEEDS: &[Need] = &[
    Need { package: "nginx-light", why: "spreads requests over nodes in a test", present: || daemon("nginx") },
    Need { package: "haproxy", why: "spreads requests over nodes in a test", present: || daemon("haproxy") },
];

/// False if something is missing that could not be installed.
pub(crate) fn command() -> Result<bool> {
    let provided = provide(NEEDS)? && all(NODE_NEEDS)?;
    if !provide(LANGUAGE_NEEDS)? {
        println!("setup: without these, the tests of their languages are left out");
    }
    if !provide(STORAGE_NEEDS)? {
        println!("setup: without it, the tests on PostgreSQL are left out");
    }
    // Where packages start the services that they bring, nobody is to find a web server on port 80 after this.
    let starts_services = Path::new("/run/systemd/system").exists();
    if !starts_services && !provide(PROXY_NEEDS)? {
        println!("setup: without these, the tests of their configurations are left out");
    }
    Ok(provided)
}

/// The same for what the suites in `clients/` need.
pub(crate) fn clients() -> Result<bool> {
    Ok(all(NODE_NEEDS)? && all(CLIENT_NEEDS)?)
}

/// The same for what the tests of the web console need.
pub(crate) fn console() -> Result<bool> {
    Ok(all(NODE_NEEDS)? && all(CONSOLE_NEEDS)?)
}

fn all(needs: &[Need]) -> Result<bool> {
    Ok(provide(needs)? && needs.iter().all(|need| (need.present)()))
}

fn provide(needs: &[Need]) -> Result<bool> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.present)()).collect();
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
    install.args(["install", "--yes", "--no-install-recommends"]).args(&packages);
    if !process::run_shown(&mut update)? || !process::run_shown(&mut install)? {
        println!("setup: apt-get failed; its messages above say why");
        return Ok(false);
    }
    Ok(true)
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet").arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether this runs as root.
pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Node.js in a version that the console's build, nano and the test runner's options work with.
fn node() -> bool {
    let Ok(output) = Command::new("node").arg("--version").output() else {
        return false;
    };
    let version = String::from_utf8_lossy(&output.stdout);
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(20), Some(19))
}

/// A program that may lie where only root looks.
fn daemon(name: &str) -> bool {
    process::exists(name) || Path::new("/usr/sbin").join(name).is_file()
}

/// The programs of a server, which tests start themselves.
fn postgresql() -> bool {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else { return false };
    versions.flatten().any(|version| version.path().join("bin/initdb").exists())
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
    let folders =
        ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
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
    entries.flatten().any(|entry| accept(&entry.file_name().to_string_lossy()))
}
