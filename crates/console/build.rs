//! Builds the web console of `console/` with Node.js and writes `files.rs`, the list of its files.
//!
//! The checkout is not changed: sources are copied into the build directory, and packages are installed there, again
//! only when the lockfile changes. `SETTEE_CONSOLE_DIST` names a directory with a finished build instead, for machines
//! without npm or network.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const SOURCES: [&str; 6] =
    ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "src"];
const GIVEN: &str = "SETTEE_CONSOLE_DIST";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // The variable is read at run time, because another checkout may have compiled this script into the same build
    // directory.
    let sources = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../console");
    println!("cargo:rerun-if-env-changed={GIVEN}");
    for name in SOURCES {
        println!("cargo:rerun-if-changed={}", sources.join(name).display());
    }
    let dist = match env::var_os(GIVEN) {
        Some(given) => {
            println!("cargo:rerun-if-changed={}", Path::new(&given).display());
            PathBuf::from(given)
        }
        // Built files must not be watched: they are newer than this run, so that every build would rebuild them.
        None => build(&sources, &out.join("console")),
    };
    let list = list(&dist).unwrap_or_else(|error| fail(&format!("{} cannot be read: {error}", dist.display())));
    fs::write(out.join("files.rs"), list).unwrap_or_else(|error| fail(&format!("files.rs cannot be written: {error}")));
}

fn build(sources: &Path, work: &Path) -> PathBuf {
    let copied = fs::create_dir_all(work).and_then(|()| {
        // Files that were deleted from the sources must not remain in the copy.
        let _ = fs::remove_dir_all(work.join("src"));
        SOURCES.iter().try_for_each(|name| copy(&sources.join(name), &work.join(name)))
    });
    copied.unwrap_or_else(|error| fail(&format!("the sources in {} cannot be copied: {error}", sources.display())));
    let lock = fs::read_to_string(work.join("package-lock.json")).unwrap_or_default();
    let stamp = work.join("installed.txt");
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&lock) {
        // Install scripts are not needed, and neither are the packages for tests.
        npm(work, &["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]);
        fs::write(&stamp, lock)
            .unwrap_or_else(|error| fail(&format!("{} cannot be written: {error}", stamp.display())));
    }
    npm(work, &["run", "--silent", "build"]);
    work.join("dist")
}

fn npm(work: &Path, arguments: &[&str]) {
    let program = if cfg!(windows) { "npm.cmd" } else { "npm" };
    let output = Command::new(program).args(arguments).current_dir(work).output().unwrap_or_else(|error| {
        fail(&format!(
            "npm cannot be started ({error}). The web console is built with Node.js 20.19 or later and its npm: `cargo xtask setup` \
             installs them where it may. On a machine without, set {GIVEN} to the directory of a finished build"
        ))
    });
    if !output.status.success() {
        let reply = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
        fail(&format!(
            "`npm {}` failed in {}; the web console needs Node.js 20.19 or later, and its packages from npm's registry.\n{reply}",
            arguments.join(" "),
            work.display()
        ));
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn list(dist: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    collect(dist, "", &mut names)?;
    names.sort();
    if !names.iter().any(|name| name == "index.html") {
        return Err(io::Error::other("there is no index.html.gz"));
    }
    let mut text = "[\n".to_owned();
    for name in names {
        let path = fs::canonicalize(dist.join(format!("{name}.gz")))?;
        // Names below `assets/` contain a hash of the content.
        let is_immutable = name.starts_with("assets/");
        let _ = writeln!(
            text,
            "File {{ path: {name:?}, content_type: {:?}, is_immutable: {is_immutable}, gzip: include_bytes!({:?}) }},",
            content_type(&name),
            path.display().to_string()
        );
    }
    text.push(']');
    Ok(text)
}

fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else if let Some(name) = name.strip_suffix(".gz") {
            names.push(name.to_owned());
        }
    }
    Ok(())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => fail(&format!("{name}: this kind of file has no content type yet")),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    exit(1)
}
