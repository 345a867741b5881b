//! The npm package: the program as the command `settee`, without JavaScript, so signals and exit codes are unchanged.

use anyhow::Result;

use crate::dist::contents::{Contents, VERSION};
use crate::dist::tree::Tree;

pub(crate) fn name() -> String {
    format!("settee-{VERSION}.tgz")
}

pub(crate) fn make(contents: &Contents) -> Result<Vec<u8>> {
    tree(contents).tar_gz(contents.release.time)
}

fn tree(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    tree.program("package/bin/settee", contents.program.as_slice());
    tree.file("package/package.json", about());
    tree.file("package/README.md", contents.readme.as_str());
    contents.legal(&mut tree, "package");
    tree
}

fn about() -> String {
    format!(
        "{{\n  \"name\": \"settee\",\n  \"version\": \"{VERSION}\",\n  \
         \"description\": \"CouchDB-compatible document database in one program\",\n  \"license\": \"Apache-2.0\",\n  \
         \"os\": [\"linux\"],\n  \"cpu\": [\"x64\"],\n  \"bin\": {{ \"settee\": \"bin/settee\" }},\n  \
         \"files\": [\"bin\", \"README.md\", \"LICENSE\", \"NOTICE\", \"LIBRARIES\"]\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn the_command_is_the_program() {
        let tree = tree(&samples::contents());
        let programs: Vec<_> = tree.files().filter(|(_, mode, _)| *mode == 0o755).map(|(path, _, _)| path).collect();
        assert_eq!(programs, ["package/bin/settee"]);
        assert!(about().contains(r#""bin": { "settee": "bin/settee" }"#), "{}", about());
    }
}
