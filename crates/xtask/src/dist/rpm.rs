//! The RPM package: the files of the Debian package, made by `rpmbuild`. Like the Debian package it does not start the
//! server.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::dist::contents::{Contents, VERSION};
use crate::dist::deb;
use crate::dist::target::Target;
use settee_e2e::process::output;

const RELEASE: &str = "1";

pub(crate) fn name(target: Target) -> String {
    format!("settee-{VERSION}-{RELEASE}.{}.rpm", target.linux())
}

/// Distributions with RPM have other directories for completions of zsh and for documentation.
fn installed_path(path: &str) -> String {
    path.replace("zsh/vendor-completions", "zsh/site-functions")
        .replace("share/doc/settee/copyright", "share/licenses/settee/copyright")
}

fn specification(paths: &[String], date: &str) -> String {
    let files: String = paths.iter().map(|path| format!("/{path}\n")).collect();
    format!(
        r#"Name: settee
Version: {VERSION}
Release: {RELEASE}
Summary: CouchDB-compatible document database in one program
License: Apache-2.0
AutoReqProv: no
Requires(pre): shadow-utils

%description
Documents with revision trees over HTTP and JSON, map/reduce views, Mango
queries, text search, a changes feed, and replication with CouchDB and PouchDB.
Built from the commit of {date}.

%pre
if ! getent passwd settee >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/settee --no-create-home --shell /sbin/nologin settee
fi

%post
if [ ! -d /var/lib/settee ]; then install -d -m 700 -o settee -g settee /var/lib/settee; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = 1 ]; then
    echo 'settee: set an administrator, then start the server:'
    echo 'settee:   systemctl edit settee    # Environment=COUCHDB_USER=... COUCHDB_PASSWORD=...'
    echo 'settee:   systemctl enable --now settee'
fi

%preun
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then systemctl --quiet disable --now settee.service || :; fi

%postun
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then systemctl try-restart settee.service || :; fi
fi

%files
%defattr(-,root,root)
{files}"#
    )
}

/// Everything that differs between two machines is set, so that equal contents yield equal bytes.
pub(crate) fn make(contents: &Contents, folder: &Path) -> Result<()> {
    let root = folder.join("root");
    let tree = deb::data(contents)?.renamed(installed_path);
    tree.write(&root)?;
    let paths: Vec<String> = tree.files().map(|(path, _, _)| path.to_owned()).collect();
    let spec = folder.join("settee.spec");
    fs::write(&spec, specification(&paths, &contents.release.date)).context("the spec file cannot be written")?;
    let mut command = Command::new("rpmbuild");
    command.args(["-bb", "--quiet", "--noclean", "--target"]).arg(format!("{}-linux", contents.target.linux()));
    let directory = folder.join("top");
    for (name, value) in [
        ("_topdir", directory.display().to_string()),
        ("_rpmdir", folder.display().to_string()),
        ("_build_name_fmt", "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned()),
        ("_buildhost", "settee".to_owned()),
        ("_binary_payload", "w9.gzdio".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("__os_install_post", "%{nil}".to_owned()),
        ("__spec_install_pre", "%{nil}".to_owned()),
        ("_build_id_links", "none".to_owned()),
    ] {
        command.arg("--define").arg(format!("{name} {value}"));
    }
    command.arg("--buildroot").arg(&root).arg(&spec).env("SOURCE_DATE_EPOCH", contents.release.time.to_string());
    output(&mut command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_names_every_file() {
        let paths = ["usr/bin/settee", "usr/share/zsh/vendor-completions/_settee"].map(installed_path);
        let text = specification(&paths, "2001-09-09T01:46:40Z");
        assert!(text.ends_with("/usr/bin/settee\n/usr/share/zsh/site-functions/_settee\n"), "{text}");
        assert!(text.contains(&format!("\nVersion: {VERSION}\n")), "{text}");
    }
}
