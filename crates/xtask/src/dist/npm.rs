//! The npm package, made by `npm pack`: the program as the command `settee`, without JavaScript, so signals and exit
//! codes are unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::tree::Tree;
use settee_e2e::process::output;

pub(crate) fn name(target: Target) -> String {
    format!("settee-{VERSION}{}.tgz", target.suffix())
}

/// `npm pack` sets a fixed time.
pub(crate) fn make(contents: &Contents, folder: &Path) -> Result<()> {
    let root = folder.join("root");
    tree(contents).write(&root)?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--offline", "--ignore-scripts", "--pack-destination"]).arg(folder).arg(&root);
    output(&mut npm)?;
    let package = folder.join(format!("settee-{VERSION}.tgz"));
    fs::rename(&package, folder.join(name(contents.target)))
        .with_context(|| format!("`npm pack` did not write {}", package.display()))
}

fn tree(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    tree.program("bin/settee", contents.program.as_slice());
    tree.file("package.json", about(contents.target));
    tree.file("README.md", contents.readme.as_str());
    tree.file("LICENSE", contents.license.as_str());
    tree.file("NOTICE", contents.notice.as_str());
    tree.file("LIBRARIES", contents.libraries.as_str());
    tree
}

fn about(target: Target) -> String {
    format!(
        "{{\n  \"name\": \"settee\",\n  \"version\": \"{VERSION}\",\n  \
         \"description\": \"CouchDB-compatible document database in one program\",\n  \"license\": \"Apache-2.0\",\n  \
         \"os\": [\"linux\"],\n  \"cpu\": [\"{}\"],\n  \"bin\": {{ \"settee\": \"bin/settee\" }},\n  \
         \"files\": [\"bin\", \"README.md\", \"LICENSE\", \"NOTICE\", \"LIBRARIES\"]\n}}\n",
        target.node()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn the_command_is_the_program() {
        let tree = tree(&samples::contents(Target::X86_64));
        let programs: Vec<_> = tree.files().filter(|(_, mode, _)| *mode == 0o755).map(|(path, _, _)| path).collect();
        assert_eq!(programs, ["bin/settee"]);
        let about = about(Target::Arm64);
        assert!(about.contains(r#""bin": { "settee": "bin/settee" }"#), "{about}");
        assert!(about.contains(r#""cpu": ["arm64"]"#), "{about}");
    }
}
