//! The wheel: the program as a script, and a module that starts it (`python -m settee`), for any Python and libc.

use std::fmt::Write as _;

use anyhow::Result;

use crate::dist::contents::{Contents, VERSION};
use crate::dist::text::sha256_base64;
use crate::dist::tree::Tree;
use crate::dist::zip::zip;

/// A static program runs on all of these platforms.
const PLATFORMS: &str = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64";

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

pub(crate) fn name() -> String {
    format!("settee-{VERSION}-py3-none-{PLATFORMS}.whl")
}

pub(crate) fn make(contents: &Contents) -> Result<Vec<u8>> {
    zip(tree(contents).files())
}

fn tree(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    let about = format!("settee-{VERSION}.dist-info");
    tree.program(&format!("settee-{VERSION}.data/scripts/settee"), contents.program.as_slice());
    tree.file("settee/__init__.py", MODULE);
    tree.file("settee/__main__.py", MAIN);
    tree.file(&format!("{about}/METADATA"), metadata(&contents.readme));
    tree.file(&format!("{about}/WHEEL"), wheel());
    contents.legal(&mut tree, &format!("{about}/licenses"));
    let record = record(&tree, &format!("{about}/RECORD"));
    tree.file(&format!("{about}/RECORD"), record);
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

fn wheel() -> String {
    let mut text = "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\n".to_owned();
    for platform in PLATFORMS.split('.') {
        let _ = writeln!(text, "Tag: py3-none-{platform}");
    }
    text
}

/// All files with their checksums. The entry of the list itself has no checksum.
fn record(tree: &Tree, own: &str) -> String {
    let mut text = String::new();
    for (path, _, content) in tree.files() {
        let _ = writeln!(text, "{path},sha256={},{}", sha256_base64(content), content.len());
    }
    text + own + ",,\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn the_record_lists_every_file() {
        let tree = tree(&samples::contents());
        let record = tree.files().find(|(path, _, _)| path.ends_with("/RECORD")).map(|(_, _, text)| text.to_vec());
        let record = String::from_utf8(record.unwrap_or_default()).unwrap_or_default();
        let listed: Vec<&str> = record.lines().filter_map(|line| line.split(',').next()).collect();
        let mut files: Vec<&str> = tree.files().map(|(path, _, _)| path).collect();
        let own = files.iter().position(|path| path.ends_with("/RECORD")).expect("it is there");
        let own = files.remove(own);
        files.push(own);
        assert_eq!(listed, files);
        assert!(record.contains(&format!("settee-{VERSION}.data/scripts/settee,sha256=")), "{record}");
    }

    #[test]
    fn name_and_tags_agree() {
        let tags: Vec<String> =
            wheel().lines().filter_map(|line| line.strip_prefix("Tag: ").map(str::to_owned)).collect();
        assert_eq!(tags.len(), 3);
        assert!(tags.iter().all(|tag| tag.starts_with("py3-none-") && name().contains(&tag["py3-none-".len()..])));
    }
}
