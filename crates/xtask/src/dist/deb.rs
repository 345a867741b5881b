//! The Debian package: the program, a unit, manual pages, completions. It depends only on `useradd`.
//! The installation does not start the server: without an administrator, all users would have all permissions.

use anyhow::{Context as _, Result, bail};

use crate::dist::contents::{Contents, VERSION};
use crate::dist::tree::{Tree, gzip};

const AFTER_INSTALLATION: &str = include_str!("../../../../packaging/deb/postinst");
const BEFORE_REMOVAL: &str = include_str!("../../../../packaging/deb/prerm");
const AFTER_REMOVAL: &str = include_str!("../../../../packaging/deb/postrm");

const USER: &str = "u settee - \"Settee\" /var/lib/settee\n";

pub(crate) fn name() -> String {
    format!("settee_{VERSION}_amd64.deb")
}

pub(crate) fn make(contents: &Contents) -> Result<Vec<u8>> {
    let data = data(contents)?;
    let time = contents.release.time;
    let mut control = Tree::default();
    control.file("control", about(data.bytes().div_ceil(1024)));
    control.program("postinst", AFTER_INSTALLATION);
    control.program("prerm", BEFORE_REMOVAL);
    control.program("postrm", AFTER_REMOVAL);
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.tar_gz(time)?),
        ("data.tar.gz", data.tar_gz(time)?),
    ];
    ar(time, &members)
}

fn about(kilobytes: usize) -> String {
    format!(
        "Package: settee\n\
         Version: {VERSION}\n\
         Architecture: amd64\n\
         Maintainer: The authors of Settee <settee@localhost>\n\
         Installed-Size: {kilobytes}\n\
         Depends: passwd\n\
         Section: database\n\
         Priority: optional\n\
         Description: CouchDB-compatible document database in one program\n \
         Documents with revision trees over HTTP and JSON, map/reduce views, Mango\n \
         queries, text search, a changes feed, and replication with CouchDB and PouchDB.\n"
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

fn ar(time: u64, members: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let head = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, content.len());
        if head.len() != 60 {
            Err(anyhow::anyhow!("a field is too long")).with_context(|| format!("{name} cannot be packed"))?;
        }
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(content);
        if content.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn members_begin_at_even_places() -> Result<()> {
        let archive = ar(7, &[("a", b"123".to_vec()), ("b", b"4567".to_vec())])?;
        let text = String::from_utf8(archive)?;
        let expected = "!<arch>\n\
             a               7           0     0     100644  3         `\n123\n\
             b               7           0     0     100644  4         `\n4567";
        assert_eq!(text, expected);
        assert!(ar(7, &[("a name that is too long", Vec::new())]).is_err());
        Ok(())
    }

    #[test]
    fn the_unit_has_a_user_that_stays() -> Result<()> {
        let unit = unit(&samples::contents().unit)?;
        assert!(unit.contains("User=settee\nGroup=settee\nStateDirectory=settee\n"), "{unit}");
        assert!(!unit.contains("DynamicUser") && !unit.contains("private\n"), "{unit}");
        assert!(super::unit("[Service]\nUser=settee\n").is_err());
        Ok(())
    }

    #[test]
    fn every_line_of_the_description_is_indented() {
        let about = about(1000);
        let description = about.split_once("Description: ").map(|(_, rest)| rest.lines().skip(1).collect::<Vec<_>>());
        assert!(description.is_some_and(|lines| lines.len() == 2 && lines.iter().all(|line| line.starts_with(' '))));
        assert!(about.starts_with("Package: settee\nVersion: "), "{about}");
    }
}
