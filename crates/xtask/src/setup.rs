//! Checks that the machine has the programs that a command calls ([`command`]), and installs missing packages as root.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use settee_e2e::process;

struct Requirement {
    package: &'static str,
    why: &'static str,
    purpose: Purpose,
    present: fn() -> bool,
}

/// Each purpose includes the ones before it, except `DistArm64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// `make run`: compilation only.
    Run,
    /// `make dist`; tests make packages of samples.
    Dist,
    /// `make dist` for arm64.
    DistArm64,
    /// `make test`: unit and integration tests, one replay of the scenarios, the sessions of the documentation.
    Test,
    /// `make cluster`, and the tests that `make test-all` adds for several nodes: PostgreSQL and proxies.
    Cluster,
    /// `make test-all`: client suites and the console in a browser as well.
    TestAll,
}

const REQUIREMENTS: &[Requirement] = &[
    need("g++", "compiles RocksDB", Purpose::Run, || process::exists("g++") || process::exists("clang++")),
    need("clang", "compiles RocksDB and provides the headers of its bindings", Purpose::Run, clang_headers),
    need("libclang-dev", "generates RocksDB's bindings", Purpose::Run, libclang),
    need("cmake", "configures C libraries", Purpose::Run, || process::exists("cmake")),
    need("make", "runs the commands of the Makefile", Purpose::Run, || process::exists("make")),
    need("pkg-config", "finds C libraries", Purpose::Run, || process::exists("pkg-config")),
    need("nodejs", "version 20.19 or later builds the web console", Purpose::Run, node),
    need("npm", "installs the packages that build the web console", Purpose::Run, || process::exists("npm")),
    need("dpkg", "makes the Debian package", Purpose::Dist, || process::exists("dpkg-deb")),
    need("rpm", "makes the RPM package", Purpose::Dist, || process::exists("rpmbuild")),
    need("python3-wheel", "makes the Python package", Purpose::Dist, || python_with_wheel().is_some()),
    need("g++-aarch64-linux-gnu", "compiles and links for arm64", Purpose::DistArm64, || {
        process::exists("aarch64-linux-gnu-g++")
    }),
    need("qemu-user", "executes the program for arm64", Purpose::DistArm64, || {
        std::env::consts::ARCH == "aarch64" || process::exists("qemu-aarch64")
    }),
    need("python3", "replays the recorded scenarios", Purpose::Test, || process::exists("python3")),
    need("curl", "runs the sessions of the documentation", Purpose::Test, || process::exists("curl")),
    need("erlang-base", "runs design documents in Erlang", Purpose::Test, || process::exists("escript")),
    need("postgresql", "stores the data of several nodes", Purpose::Cluster, postgresql),
    need("nginx-light", "distributes requests over nodes", Purpose::Cluster, || daemon("nginx")),
    need("haproxy", "distributes requests over nodes", Purpose::Cluster, || daemon("haproxy")),
    need("caddy", "distributes requests over nodes", Purpose::Cluster, || daemon("caddy")),
    need("pypy3", "runs couchpy faster than Python does", Purpose::TestAll, || process::exists("pypy3")),
    need("python3-venv", "installs the client couchdb-python", Purpose::TestAll, venv),
    need("chromium", "displays the web console in tests", Purpose::TestAll, || process::exists("chromium")),
];

/// Packages that start a public service when they are installed on a machine with systemd.
const SERVICES: [&str; 3] = ["nginx-light", "haproxy", "caddy"];

const fn need(package: &'static str, why: &'static str, purpose: Purpose, present: fn() -> bool) -> Requirement {
    Requirement { package, why, purpose, present }
}

/// Reads `--for` and a purpose; the default is `run`.
pub(crate) fn parse(arguments: &[String]) -> Result<Purpose> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["--for", "run"] => Ok(Purpose::Run),
        ["--for", "dist"] => Ok(Purpose::Dist),
        ["--for", "dist-arm64"] => Ok(Purpose::DistArm64),
        ["--for", "test"] => Ok(Purpose::Test),
        ["--for", "cluster"] => Ok(Purpose::Cluster),
        ["--for", "test-all"] => Ok(Purpose::TestAll),
        _ => bail!("setup takes --for run, dist, dist-arm64, test, cluster or test-all"),
    }
}

/// Installs missing packages if this program runs as root and apt-get exists. Returns false if one is still missing.
pub(crate) fn command(purpose: Purpose) -> Result<bool> {
    let missing = missing_for(purpose);
    if missing.is_empty() {
        return Ok(true);
    }
    for need in &missing {
        println!("setup: {} is missing ({})", need.package, need.why);
    }
    let systemd = Path::new("/run/systemd/system").exists();
    let is_installed_by_hand = |need: &&&Requirement| systemd && SERVICES.contains(&need.package);
    let packages: Vec<&str> =
        missing.iter().filter(|need| !is_installed_by_hand(need)).map(|need| need.package).collect();
    if process::exists("apt-get") && is_root() && !packages.is_empty() {
        println!("setup: installing {}", packages.join(" "));
        let mut update = apt_get();
        update.arg("update");
        let mut install = apt_get();
        install.args(["install", "--yes", "--no-install-recommends"]).args(&packages);
        if !process::run_shown(&mut update)? || !process::run_shown(&mut install)? {
            println!("setup: apt-get failed; its messages above state the cause");
        }
    }
    let missing: Vec<&str> = missing_for(purpose).iter().map(|need| need.package).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    println!("setup: still missing: {}", missing.join(" "));
    println!("setup: install these with the package manager of your system, on Debian and Ubuntu with");
    println!("setup:   sudo apt-get install {}", missing.join(" "));
    Ok(false)
}

pub(crate) fn missing(packages: &[&str]) -> Vec<&'static str> {
    let is_asked_for = |need: &&Requirement| packages.contains(&need.package);
    REQUIREMENTS.iter().filter(is_asked_for).filter(|need| !(need.present)()).map(|need| need.package).collect()
}

fn missing_for(purpose: Purpose) -> Vec<&'static Requirement> {
    let is_included =
        |need: &&Requirement| need.purpose == purpose || need.purpose < purpose && need.purpose != Purpose::DistArm64;
    REQUIREMENTS.iter().filter(is_included).filter(|need| !(need.present)()).collect()
}

/// The first Python of the path, or that of the system, to which packages add modules.
pub(crate) fn python_with_wheel() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-m", "wheel", "version"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

fn venv() -> bool {
    let output = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet").arg("--quiet").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// The console's build, nano and the test runner's options need this version.
fn node() -> bool {
    let Ok(output) = Command::new("node").arg("--version").output() else {
        return false;
    };
    let version = String::from_utf8_lossy(&output.stdout);
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(20), Some(19))
}

/// The directory of a daemon may be absent from the path of ordinary users.
fn daemon(name: &str) -> bool {
    process::exists(name) || Path::new("/usr/sbin").join(name).is_file()
}

/// Tests start the programs of a PostgreSQL server directly.
fn postgresql() -> bool {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else { return false };
    versions.flatten().any(|version| version.path().join("bin/initdb").exists())
}

/// The C headers that belong to the compiler itself, such as `stddef.h`: clang's, or else gcc's.
fn clang_headers() -> bool {
    process::exists("clang") || any_entry("/usr/lib/clang", |_| true)
}

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
