//! The Debian package, made by `dpkg-deb`: the program, a unit, manual pages, completions. It depends only on `useradd`.
//! The installation does not start the server: without an administrator, all users would have all permissions.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::tree::{Tree, gzip};
use settee_e2e::process::output;

const AFTER_INSTALLATION: &str = include_str!("../../../../packaging/deb/postinst");
const BEFORE_REMOVAL: &str = include_str!("../../../../packaging/deb/prerm");
const AFTER_REMOVAL: &str = include_str!("../../../../packaging/deb/postrm");

const USER: &str = "u settee - \"Settee\" /var/lib/settee\n";

pub(crate) fn name(target: Target) -> String {
    format!("settee_{VERSION}_{}.deb", target.debian())
}

/// `SOURCE_DATE_EPOCH` replaces the later times of files.
pub(crate) fn make(contents: &Contents, folder: &Path) -> Result<()> {
    let mut tree = data(contents)?;
    tree.file("DEBIAN/control", about(contents.target, tree.bytes().div_ceil(1024)));
    tree.program("DEBIAN/postinst", AFTER_INSTALLATION);
    tree.program("DEBIAN/prerm", BEFORE_REMOVAL);
    tree.program("DEBIAN/postrm", AFTER_REMOVAL);
    let root = folder.join("root");
    tree.write(&root)?;
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Zgzip", "--build"]).arg(&root).arg(folder.join(name(contents.target)));
    output(command.env("SOURCE_DATE_EPOCH", contents.release.time.to_string()))?;
    Ok(())
}

fn about(target: Target, kilobytes: usize) -> String {
    format!(
        "Package: settee\n\
         Version: {VERSION}\n\
         Architecture: {}\n\
         Maintainer: The authors of Settee <settee@localhost>\n\
         Installed-Size: {kilobytes}\n\
         Depends: passwd\n\
         Section: database\n\
         Priority: optional\n\
         Description: CouchDB-compatible document database in one program\n \
         Documents with revision trees over HTTP and JSON, map/reduce views, Mango\n \
         queries, text search, a changes feed, and replication with CouchDB and PouchDB.\n",
        target.debian()
    )
}

pub(crate) fn data(contents: &Contents) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.program("usr/bin/settee", contents.program.as_slice());
    tree.file("usr/lib/systemd/system/settee.service", unit(&contents.unit)?);
    tree.file("usr/lib/sysusers.d/settee.conf", USER);
    for (name, text) in &contents.pages {
        tree.file(&format!("usr/share/man/man1/{name}.gz"), gzip(text)?);
    }
    tree.file("usr/share/bash-completion/completions/settee", contents.bash.as_slice());
    tree.file("usr/share/zsh/vendor-completions/_settee", contents.zsh.as_slice());
    tree.file("usr/share/fish/vendor_completions.d/settee.fish", contents.fish.as_slice());
    tree.file("usr/share/doc/settee/README.md.gz", gzip(contents.readme.as_bytes())?);
    tree.file("usr/share/doc/settee/changelog.gz", gzip(contents.changelog.as_bytes())?);
    tree.file("usr/share/doc/settee/copyright", copyright(contents));
    Ok(tree)
}

fn copyright(contents: &Contents) -> String {
    let Contents { notice, license, libraries, .. } = contents;
    format!("{notice}\n{libraries}\n{license}")
}

/// The package creates a static user, so that the data has a permanent owner.
fn unit(unit: &str) -> Result<String> {
    let mut lines = Vec::new();
    let mut found = false;
    for line in unit.lines() {
        match line {
            "DynamicUser=yes" => {
                found = true;
                lines.push("Group=settee");
            }
            line if line.starts_with("# Stored in /var/lib/private") => {}
            line => lines.push(line),
        }
    }
    if !found {
        bail!("packaging/settee.service has no line DynamicUser=yes; adapt the unit of the Debian package");
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn the_unit_has_a_user_that_stays() -> Result<()> {
        let unit = unit(&samples::contents(Target::X86_64).unit)?;
        assert!(unit.contains("User=settee\nGroup=settee\nStateDirectory=settee\n"), "{unit}");
        assert!(!unit.contains("DynamicUser") && !unit.contains("private\n"), "{unit}");
        assert!(super::unit("[Service]\nUser=settee\n").is_err());
        Ok(())
    }

    #[test]
    fn every_line_of_the_description_is_indented() {
        let about = about(Target::Arm64, 1000);
        let description = about.split_once("Description: ").map(|(_, rest)| rest.lines().skip(1).collect::<Vec<_>>());
        assert!(description.is_some_and(|lines| lines.len() == 2 && lines.iter().all(|line| line.starts_with(' '))));
        assert!(about.starts_with("Package: settee\nVersion: "), "{about}");
        assert!(about.contains("\nArchitecture: arm64\n"), "{about}");
    }
}
