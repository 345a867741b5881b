//! The wheel, made by `wheel pack`: the program as a script, and a module that starts it (`python -m settee`), for any
//! Python and libc.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::tree::Tree;
use crate::setup;
use settee_e2e::process::output;

/// A static program runs on all of these platforms. `wheel pack` sorts them.
const PLATFORMS: [&str; 3] = ["manylinux2014", "manylinux_2_17", "musllinux_1_1"];

const MODULE: &str = "\
\"\"\"The document database Settee as a program of this Python environment.\"\"\"
";

const MAIN: &str = "\
\"\"\"Becomes the program `settee` that was installed with this module.\"\"\"

import os
import sys
import sysconfig

PLACES = [sysconfig.get_path(\"scripts\"), os.path.join(os.path.expanduser(\"~\"), \".local\", \"bin\")]
for place in PLACES:
    program = os.path.join(place, \"settee\")
    if os.path.isfile(program):
        os.execv(program, [\"settee\", *sys.argv[1:]])
sys.exit(\"settee: the program is not in \" + \" nor in \".join(PLACES))
";

pub(crate) fn name(target: Target) -> String {
    let platforms = PLATFORMS.map(|platform| format!("{platform}_{}", target.linux()));
    format!("settee-{VERSION}-py3-none-{}.whl", platforms.join("."))
}

/// `wheel pack` adds the list of files with checksums.
pub(crate) fn make(contents: &Contents, folder: &Path) -> Result<()> {
    let root = folder.join("root");
    tree(contents).write(&root)?;
    let mut python = Command::new(setup::python_with_wheel().context("no Python has the module wheel")?);
    python.args(["-m", "wheel", "pack", "--dest-dir"]).arg(folder).arg(&root);
    output(python.env("SOURCE_DATE_EPOCH", contents.release.time.to_string()))?;
    Ok(())
}

fn tree(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    let about = format!("settee-{VERSION}.dist-info");
    tree.program(&format!("settee-{VERSION}.data/scripts/settee"), contents.program.as_slice());
    tree.file("settee/__init__.py", MODULE);
    tree.file("settee/__main__.py", MAIN);
    tree.file(&format!("{about}/METADATA"), metadata(&contents.readme));
    tree.file(&format!("{about}/WHEEL"), wheel(contents.target));
    contents.legal(&mut tree, &format!("{about}/licenses"));
    tree
}

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\n\
         Name: settee\n\
         Version: {VERSION}\n\
         Summary: CouchDB-compatible document database in one program\n\
         License: Apache-2.0\n\
         Requires-Python: >=3.7\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}

fn wheel(target: Target) -> String {
    let tags = PLATFORMS.map(|platform| format!("Tag: py3-none-{platform}_{}\n", target.linux()));
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\n{}", tags.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_tags_agree() {
        let wheel = wheel(Target::Arm64);
        let tags: Vec<&str> = wheel.lines().filter_map(|line| line.strip_prefix("Tag: py3-none-")).collect();
        assert_eq!(name(Target::Arm64), format!("settee-{VERSION}-py3-none-{}.whl", tags.join(".")));
        assert!(tags.is_sorted() && tags.iter().all(|tag| tag.ends_with("_aarch64")), "{tags:?}");
    }
}
