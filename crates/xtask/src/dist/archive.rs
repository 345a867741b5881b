//! The program as `tar.gz`, with the usual layout below a prefix such as `/usr/local`.

use anyhow::Result;

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::tree::Tree;

pub(crate) fn folder(target: Target) -> String {
    format!("settee-{VERSION}-{}-linux", target.linux())
}

pub(crate) fn name(target: Target) -> String {
    format!("{}.tar.gz", folder(target))
}

pub(crate) fn make(contents: &Contents) -> Result<Vec<u8>> {
    tree(contents).tar_gz(contents.release.time)
}

fn tree(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    let within = |path: &str| format!("{}/{path}", folder(contents.target));
    tree.program(&within("bin/settee"), contents.program.as_slice());
    for (name, text) in &contents.pages {
        tree.file(&within(&format!("share/man/man1/{name}")), text.as_slice());
    }
    tree.file(&within("share/bash-completion/completions/settee"), contents.bash.as_slice());
    tree.file(&within("share/zsh/site-functions/_settee"), contents.zsh.as_slice());
    tree.file(&within("share/fish/vendor_completions.d/settee.fish"), contents.fish.as_slice());
    tree.file(&within("lib/systemd/system/settee.service"), contents.unit.as_str());
    tree.file(&within("share/doc/settee/README.md"), contents.readme.as_str());
    tree.file(&within("share/doc/settee/CHANGELOG.md"), contents.changelog.as_str());
    contents.legal(&mut tree, &within("share/doc/settee"));
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn everything_lies_in_one_folder() {
        let contents = samples::contents(Target::Arm64);
        let tree = tree(&contents);
        let folder = folder(contents.target);
        assert!(folder.ends_with("-aarch64-linux"), "{folder}");
        assert!(tree.files().all(|(path, _, _)| path.starts_with(&format!("{folder}/"))));
        let programs: Vec<_> = tree.files().filter(|(_, mode, _)| *mode == 0o755).map(|(path, _, _)| path).collect();
        assert_eq!(programs, [format!("{folder}/bin/settee")]);
    }
}
