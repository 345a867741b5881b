//! Installs every package in an empty environment ([`run`]), measures the time to the server's first response, and runs
//! the README's session.
//! A trial whose requirements the machine lacks is skipped with a message and never counts as passed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::dist::contents::VERSION;
use crate::dist::target::Target;
use crate::dist::text::{member, sha256};
use crate::dist::{SUMS, archive, deb, formula, image, npm, python, rpm as rpm_package};
use crate::setup;
use settee_e2e::process::{self, output};
use settee_e2e::readme;
use settee_e2e::server::{Access, Server, free_port, stopped_tally};
use settee_e2e::tally::Tally;
use settee_e2e::workspace::Workspace;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rights {
    Any,
    Root,
}

struct Trial {
    name: &'static str,
    rights: Rights,
    programs: &'static [&'static str],
    install: fn(&Place) -> Result<Installed>,
    remove: fn(&Place) -> Result<()>,
}

const TRIALS: &[Trial] = &[
    Trial { name: "tar.gz", rights: Rights::Root, programs: &["tar", "unshare"], install: tar_gz, remove: nothing },
    Trial {
        name: "deb",
        rights: Rights::Root,
        programs: &["dpkg", "unshare"],
        install: install_deb,
        remove: purge_deb,
    },
    Trial {
        name: "rpm",
        rights: Rights::Root,
        programs: &["rpm", "rpmbuild", "unshare"],
        install: install_rpm,
        remove: erase_rpm,
    },
    Trial {
        name: "image",
        rights: Rights::Root,
        programs: &["tar", "unshare"],
        install: unpack_image,
        remove: nothing,
    },
    Trial { name: "wheel", rights: Rights::Any, programs: &["python3"], install: pip_install, remove: nothing },
    Trial { name: "npm", rights: Rights::Any, programs: &["npm", "npx"], install: npm_install, remove: nothing },
    Trial { name: "formula", rights: Rights::Any, programs: &["ruby", "tar"], install: brew, remove: nothing },
];

const EMULATED: &[Trial] = &[Trial {
    name: "emulated",
    rights: Rights::Any,
    programs: &["tar", "unshare"],
    install: emulated,
    remove: nothing,
}];

struct Place {
    target: Target,
    packages: PathBuf,
    folder: PathBuf,
    root: PathBuf,
    port: u16,
}

struct Installed {
    command: Command,
    access: Access,
}

pub(crate) fn run(workspace: &Workspace, packages: &Path, targets: &[Target]) -> Result<Tally> {
    let mut tally = Tally::one(sums_hold(packages)?);
    for target in targets {
        tally += run_for(workspace, packages, *target)?;
    }
    Ok(tally)
}

fn run_for(workspace: &Workspace, packages: &Path, target: Target) -> Result<Tally> {
    let mut tally = Tally::default();
    println!("{:<9} {:>18}  session", target.linux(), "s to first answer");
    let trials = if target.emulator().is_none() { TRIALS } else { EMULATED };
    for trial in trials {
        if let Some(lack) = lack(trial, target) {
            println!("{:<9} left out: {lack}", trial.name);
            continue;
        }
        let folder = workspace.scratch(&format!("trial-{}", trial.name));
        let root = folder.join("root");
        let place = Place { target, packages: packages.to_owned(), folder, root, port: free_port()? };
        tally += attempt(workspace, trial, &place).unwrap_or_else(|error| {
            println!("{:<9} FAILED: {error:#}", trial.name);
            Tally::one(false)
        });
        let _ = fs::remove_dir_all(&place.folder);
    }
    Ok(tally)
}

fn lack(trial: &Trial, target: Target) -> Option<String> {
    if trial.rights == Rights::Root && !setup::is_root() {
        return Some("it enters another root, which only root may".to_owned());
    }
    let mut programs = trial.programs.iter().map(|program| (*program).to_owned()).chain(target.emulator());
    if let Some(missing) = programs.find(|program| !process::exists(program)) {
        return Some(format!("{missing} is not here"));
    }
    let error = target.call_with_children(Path::new("true")).and_then(|mut command| output(&mut command)).err()?;
    Some(format!("child processes of an emulated program require Linux 6.7 and user name spaces: {error:#}"))
}

fn attempt(workspace: &Workspace, trial: &Trial, place: &Place) -> Result<Tally> {
    for folder in [&place.root, &place.folder.join("home")] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let began = Instant::now();
    let mut installed = (trial.install)(place)?;
    let purpose = format!("trial-{}", trial.name);
    let data = place.folder.join("data");
    let mut server = Server::start_prepared(workspace, &purpose, installed.access, &mut installed.command, data)?;
    output(Command::new("curl").args(["--silent", "--fail"]).arg(server.url()))?;
    let seconds = began.elapsed().as_secs_f64();
    let mut tally = readme::against(workspace, "README.md", &server)?;
    tally += worker_session(&server)?;
    let stopped = server.stop();
    if let Err(error) = &stopped {
        println!("    {error:#}");
    }
    tally += stopped_tally(&stopped);
    (trial.remove)(place)?;
    println!("{:<9} {seconds:>18.2}  {} passed, {} failed", trial.name, tally.passed, tally.failed);
    if !tally.holds() {
        process::show_tail(server.log());
    }
    Ok(tally)
}

/// Destructuring requires a worker.
fn worker_session(server: &Server) -> Result<Tally> {
    let design = r#"{"views":{"v":{"map":"function ({n}) { emit(n, null); }"}}}"#;
    let mut tally = Tally::default();
    for (method, path, body, expected) in [
        ("PUT", "/worked", "", r#"{"ok":true}"#),
        ("PUT", "/worked/b", r#"{"n":1}"#, r#"{"ok":true,"id":"b","rev":"1-"#),
        ("PUT", "/worked/_design/d", design, r#"{"ok":true,"id":"_design/d""#),
        ("GET", "/worked/_design/d/_view/v?key=1", "", r#"{"id":"b","key":1,"value":null}"#),
        ("GET", "/worked/_design/d/_info", "", r#""engines":{"v":"quickjs"}"#),
        ("DELETE", "/worked", "", r#"{"ok":true}"#),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--request", method, "--header", "Content-Type: application/json"]);
        if !body.is_empty() {
            curl.args(["--data", body]);
        }
        let reply = output(curl.arg(format!("{}{path}", server.url())))?;
        let holds = reply.contains(expected);
        if !holds {
            println!("    {method} {path} is answered by {reply}");
        }
        tally += Tally::one(holds);
    }
    Ok(tally)
}

fn sums_hold(packages: &Path) -> Result<bool> {
    let list = fs::read_to_string(packages.join(SUMS)).with_context(|| format!("{SUMS} cannot be read"))?;
    let mut hold = !list.is_empty();
    for line in list.lines() {
        let (sum, name) = line.split_once("  ").with_context(|| format!("{SUMS} has the line {line}"))?;
        let found = fs::read(packages.join(name)).with_context(|| format!("{name} cannot be read"))?;
        if sha256(&found) != sum {
            println!("    {name} is not what {SUMS} says");
            hold = false;
        }
    }
    Ok(hold)
}

impl Place {
    /// The home is empty, so that no user configuration of this machine applies.
    fn call(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.folder.join("home")).current_dir(&self.folder);
        command
    }

    /// The root contains only a package, `/proc` and `/dev`.
    fn run_in_root(&self, root: &Path, user: &str, program: &str) -> Result<Command> {
        for folder in ["proc", "dev"] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("cannot make /{folder}"))?;
        }
        let script = "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && user=$1 && shift && \
                      exec chroot --userspec=\"$user\" \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(root).arg(user).arg(program);
        Ok(command)
    }

    fn serve(&self, mut command: Command, data: &str) -> Installed {
        command.args(["serve", "--bind", "127.0.0.1", "--port", &self.port.to_string(), "--data", data]);
        Installed { command, access: Access::AdminParty }
    }

    fn serve_here(&self, program: &Path) -> Result<Installed> {
        let call = || {
            let mut command = self.target.call_with_children(program)?;
            command.env("HOME", self.folder.join("home")).current_dir(&self.folder).env_remove("SETTEE_DATA");
            Ok::<_, anyhow::Error>(command)
        };
        let printed_text = output(call()?.arg("--version"))?;
        ensure!(printed_text.starts_with(&format!("settee {VERSION}\n")), "the program says {printed_text}");
        Ok(self.serve(call()?, &self.folder.join("data").display().to_string()))
    }
}

fn nothing(_: &Place) -> Result<()> {
    Ok(())
}

fn unpack(place: &Place) -> Result<PathBuf> {
    output(place.call("tar").arg("--extract").arg("--file").arg(place.packages.join(archive::name(place.target))))?;
    Ok(place.folder.join(archive::folder(place.target)))
}

fn tar_gz(place: &Place) -> Result<Installed> {
    Ok(place.serve(place.run_in_root(&unpack(place)?, "0:0", "/bin/settee")?, "/data"))
}

fn emulated(place: &Place) -> Result<Installed> {
    place.serve_here(&unpack(place)?.join("bin/settee"))
}

/// `dpkg` does not enter the root, because it contains no shell.
fn dpkg(place: &Place) -> Command {
    let mut command = place.call("dpkg");
    command.arg(format!("--root={}", place.root.display()));
    command.args(["--force-script-chrootless", "--force-depends"]);
    command
}

fn install_deb(place: &Place) -> Result<Installed> {
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        fs::create_dir_all(place.root.join(folder)).with_context(|| format!("cannot make {folder}"))?;
    }
    fs::write(place.root.join("var/lib/dpkg/status"), "").context("cannot write the status of dpkg")?;
    output(dpkg(place).arg("--install").arg(place.packages.join(deb::name(place.target))))?;
    let users = fs::read_to_string(place.root.join("etc/passwd")).context("the package made no user")?;
    let user = users.lines().find_map(|line| line.strip_prefix("settee:")).context("the package made no user")?;
    let numbers: Vec<&str> = user.split(':').skip(1).take(2).collect();
    let unit =
        fs::read_to_string(place.root.join("usr/lib/systemd/system/settee.service")).context("there is no unit")?;
    ensure!(
        unit.contains("ExecStart=/usr/bin/settee serve --data /var/lib/settee\n"),
        "the unit is another one: {unit}"
    );
    Ok(place.serve(place.run_in_root(&place.root, &numbers.join(":"), "/usr/bin/settee")?, "/var/lib/settee"))
}

fn purge_deb(place: &Place) -> Result<()> {
    output(dpkg(place).args(["--purge", "settee"]))?;
    ensure!(!place.root.join("usr/bin/settee").exists(), "the program is still there after a purge");
    ensure!(place.root.join("var/lib/settee/version").exists(), "the data went with the package");
    Ok(())
}

/// The root contains no shell, so the scripts of the package are not executed.
fn rpm(place: &Place) -> Command {
    let mut command = place.call("rpm");
    command.arg("--root").arg(&place.root).args(["--nodeps", "--noscripts"]);
    command
}

fn install_rpm(place: &Place) -> Result<Installed> {
    output(rpm(place).arg("--install").arg(place.packages.join(rpm_package::name(place.target))))?;
    fs::create_dir_all(place.root.join("var/lib")).context("cannot make var/lib")?;
    Ok(place.serve(place.run_in_root(&place.root, "0:0", "/usr/bin/settee")?, "/var/lib/settee"))
}

fn erase_rpm(place: &Place) -> Result<()> {
    output(rpm(place).args(["--erase", "settee"]))?;
    ensure!(!place.root.join("usr/bin/settee").exists(), "the program is still there after an erasure");
    ensure!(place.root.join("var/lib/settee/version").exists(), "the data was removed with the package");
    Ok(())
}

/// Unpacks an image like a container engine: from the index to the layers, each verified by its checksum.
fn unpack_image(place: &Place) -> Result<Installed> {
    let layout = place.folder.join("layout");
    fs::create_dir_all(&layout).context("cannot make a folder")?;
    output(
        place
            .call("tar")
            .arg("--extract")
            .arg("--directory")
            .arg(&layout)
            .arg("--file")
            .arg(place.packages.join(image::name(place.target))),
    )?;
    let read = |path: &str| fs::read(layout.join(path)).with_context(|| format!("{path} is not in the image"));
    let text = |path: &str| Ok::<_, anyhow::Error>(String::from_utf8_lossy(&read(path)?).into_owned());
    let blob = |digest: &str| {
        let path = format!("blobs/{}", digest.replace(':', "/"));
        ensure!(format!("sha256:{}", sha256(&read(&path)?)) == digest, "{path} is not what its name says");
        Ok(path)
    };
    let index = text("index.json")?;
    let manifest = text(&blob(member(&index, "digest").context("the index names no manifest")?)?)?;
    let (head, layers) = manifest.split_once("\"layers\":").context("the manifest has no layers")?;
    let config = text(&blob(member(head, "digest").context("the manifest names no configuration")?)?)?;
    for layer in layers.split("\"digest\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let path = layout.join(blob(layer)?);
        output(
            place
                .call("tar")
                .args(["--extract", "--same-owner", "--directory"])
                .arg(&place.root)
                .arg("--file")
                .arg(path),
        )?;
    }
    let user = member(&config, "User").context("the configuration names no user")?;
    let (_, variables) = config.split_once("\"Env\":[").context("the configuration has no environment")?;
    let (variables, _) = variables.split_once(']').context("the configuration is cut off")?;
    let mut command = place.run_in_root(&place.root, user, "/usr/bin/settee")?;
    command.args(["serve", "--port", &place.port.to_string()]);
    for (name, value) in variables.split(',').filter_map(|variable| variable.trim_matches('"').split_once('=')) {
        if name != "PATH" {
            command.env(name, value);
        }
    }
    Ok(Installed { command, access: Access::Admin })
}

fn pip_install(place: &Place) -> Result<Installed> {
    let environment = place.folder.join("environment");
    output(place.call("python3").args(["-m", "venv"]).arg(&environment))?;
    let program = |name: &str| environment.join("bin").join(name);
    let mut pip = place.call(&program("pip").display().to_string());
    pip.args(["install", "--quiet", "--no-index", "--disable-pip-version-check"])
        .arg(place.packages.join(python::name(place.target)));
    output(&mut pip)?;
    let printed_text = output(place.call(&program("python").display().to_string()).args(["-m", "settee", "-V"]))?;
    ensure!(printed_text == format!("settee {VERSION}\n"), "python -m settee says {printed_text}");
    place.serve_here(&program("settee"))
}

fn npm_install(place: &Place) -> Result<Installed> {
    let package = place.packages.join(npm::name(place.target));
    let mut npm = place.call("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--silent", "--prefix"])
        .arg(place.folder.join("prefix"));
    output(npm.arg(&package))?;
    let mut npx = place.call("npx");
    npx.args(["--offline", "--yes"]).arg(format!("--package={}", package.display())).args(["--", "settee", "-V"]);
    let printed_text = output(&mut npx)?;
    ensure!(printed_text == format!("settee {VERSION}\n"), "npx settee says {printed_text}");
    place.serve_here(&place.folder.join("prefix/node_modules/.bin/settee"))
}

/// Evaluates the formula in Ruby with a few lines that imitate Homebrew.
fn brew(place: &Place) -> Result<Installed> {
    let player = place.folder.join("brew.rb");
    fs::write(&player, include_str!("brew.rb")).context("cannot write a script")?;
    let prefix = place.folder.join("prefix");
    output(place.call("ruby").arg(&player).arg(place.packages.join(formula::NAME)).arg(&place.packages).arg(&prefix))?;
    place.serve_here(&prefix.join("bin/settee"))
}
