//! [`Tree`]: the files of a package, and reproducible archives of them: equal contents yield equal bytes, independent
//! of user and time.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Root,
    User(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Folder,
    File(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: Owner,
    content: Content,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    pub(crate) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry { mode: 0o644, owner: Owner::Root, content: Content::File(content.into()) });
    }

    pub(crate) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry { mode: 0o755, owner: Owner::Root, content: Content::File(content.into()) });
    }

    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: Owner) {
        self.add(path, Entry { mode, owner, content: Content::Folder });
    }

    fn add(&mut self, path: &str, entry: Entry) {
        self.entries.insert(path.to_owned(), entry);
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, u32, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match &entry.content {
            Content::File(content) => Some((path.as_str(), entry.mode, content.as_slice())),
            Content::Folder => None,
        })
    }

    pub(crate) fn renamed(self, rename: fn(&str) -> String) -> Self {
        Self { entries: self.entries.into_iter().map(|(path, entry)| (rename(&path), entry)).collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.files().map(|(_, _, content)| content.len()).sum()
    }

    fn above(&self) -> BTreeMap<String, Entry> {
        let folder = Entry { mode: 0o755, owner: Owner::Root, content: Content::Folder };
        let mut above = BTreeMap::new();
        for path in self.entries.keys() {
            for (at, _) in path.match_indices('/') {
                if !self.entries.contains_key(&path[..at]) {
                    above.insert(path[..at].to_owned(), folder.clone());
                }
            }
        }
        above
    }

    /// Sets modes, which would depend on the umask. The program that packs the directory sets owners.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let root_entry = Entry { mode: 0o755, owner: Owner::Root, content: Content::Folder };
        let mut all = self.above();
        all.extend([(String::new(), root_entry)]);
        all.extend(self.entries.clone());
        for (path, entry) in all {
            let path = root.join(path);
            let written = match &entry.content {
                Content::Folder => fs::create_dir_all(&path),
                Content::File(content) => fs::write(&path, content),
            };
            written
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)))
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }

    /// `time` (seconds of the epoch) is the time of everything in the archive.
    pub(crate) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let above = self.above();
        let mut all: Vec<_> = above.iter().chain(&self.entries).collect();
        all.sort_by_key(|(path, _)| *path);
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in all {
            let mut header = tar::Header::new_gnu();
            let owner = match entry.owner {
                Owner::Root => 0,
                Owner::User(number) => number,
            };
            let (kind, path, content): (_, _, &[u8]) = match &entry.content {
                Content::Folder => (tar::EntryType::Directory, format!("{path}/"), &[]),
                Content::File(content) => (tar::EntryType::Regular, path.clone(), content),
            };
            header.set_entry_type(kind);
            header.set_mode(entry.mode);
            header.set_uid(owner);
            header.set_gid(owner);
            header.set_mtime(time);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, &path, content).with_context(|| format!("{path} cannot be packed"))?;
        }
        archive.into_inner().context("an archive cannot be closed")
    }

    pub(crate) fn tar_gz(&self, time: u64) -> Result<Vec<u8>> {
        gzip(&self.tar(time)?)
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn sample() -> Tree {
        let mut tree = Tree::default();
        tree.program("usr/bin/settee", "program");
        tree.file("usr/share/doc/README.md", "text");
        tree.folder("data", 0o700, Owner::User(5984));
        tree
    }

    #[test]
    fn an_archive_has_the_folders_above_its_files() -> Result<()> {
        let tar = sample().tar_gz(1_000_000)?;
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tar.as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let mut content = String::new();
            entry.read_to_string(&mut content)?;
            let header = entry.header();
            assert_eq!(header.mtime()?, 1_000_000);
            found.push(format!("{} {:o} {} {content}", entry.path()?.display(), header.mode()?, header.uid()?));
        }
        let expected = [
            "data/ 700 5984 ",
            "usr/ 755 0 ",
            "usr/bin/ 755 0 ",
            "usr/bin/settee 755 0 program",
            "usr/share/ 755 0 ",
            "usr/share/doc/ 755 0 ",
            "usr/share/doc/README.md 644 0 text",
        ];
        assert_eq!(found, expected);
        Ok(())
    }

    #[test]
    fn a_written_tree_has_the_modes_of_its_entries() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("root");
        sample().renamed(|path| path.replace("usr/share", "share")).write(&root)?;
        for (path, mode) in [
            ("", 0o755),
            ("data", 0o700),
            ("share/doc", 0o755),
            ("share/doc/README.md", 0o644),
            ("usr/bin/settee", 0o755),
        ] {
            assert_eq!(fs::metadata(root.join(path))?.permissions().mode() & 0o7777, mode, "{path}");
        }
        assert_eq!(fs::read(root.join("usr/bin/settee"))?, b"program");
        Ok(())
    }

    #[test]
    fn the_same_contents_are_the_same_bytes() -> Result<()> {
        assert_eq!(sample().tar_gz(7)?, sample().tar_gz(7)?);
        assert_ne!(sample().tar(7)?, sample().tar(8)?);
        assert_eq!(sample().bytes(), 11);
        Ok(())
    }
}
