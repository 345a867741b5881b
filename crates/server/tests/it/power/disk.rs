//! [`Disk`]: a record of changes to the files of a directory, and the possible states after a power loss. The rules are
//! those of POSIX: contents are durable once the file was synced, names once their directory was. Of everything else
//! any subset may be durable: writes may be missing or truncated; a file may have its length without its bytes; names
//! may be changed independently of their files. Only a rename within a directory is atomic.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use settee_model::testing::Random;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Create { inode: u64, path: PathBuf },
    MakeDirectory { inode: u64, path: PathBuf },
    Write { inode: u64, at: u64, bytes: Vec<u8> },
    SetLength { inode: u64, length: u64 },
    Extend { inode: u64, length: u64 },
    Sync { inode: u64 },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    Link { from: PathBuf, to: PathBuf },
}

impl Event {
    pub(crate) fn read(record: &[u8]) -> Option<(Event, usize)> {
        let number = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let text = |at: usize| {
            let length = u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?) as usize;
            Some((record.get(at + 4..at + 4 + length)?, at + 4 + length))
        };
        let (inode, other) = (number(1)?, number(9)?);
        let (first, next) = text(17)?;
        let (second, end) = text(next)?;
        let path = |bytes: &[u8]| PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
        let event = match record[0] {
            1 => Event::Create { inode, path: path(first) },
            2 => Event::MakeDirectory { inode, path: path(first) },
            3 => Event::Write { inode, at: other, bytes: second.to_vec() },
            4 => Event::SetLength { inode, length: other },
            5 => Event::Extend { inode, length: other },
            6 => Event::Sync { inode },
            7 => Event::Rename { from: path(first), to: path(second) },
            8 => Event::Remove { path: path(first) },
            9 => Event::Link { from: path(first), to: path(second) },
            kind => panic!("no writer of events of kind {kind}"),
        };
        Some((event, end))
    }
}

/// Index in [`Disk::nodes`]. Unlike inodes, ids are not reused.
type Id = usize;

#[derive(Debug)]
enum Node {
    File { durable: Vec<u8>, pending: Vec<Change> },
    Directory { durable: BTreeMap<String, Id>, current: BTreeMap<String, Id>, pending: Vec<Naming> },
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    SetLength(u64),
    Extend(u64),
}

#[derive(Clone, Debug)]
enum Naming {
    Set(String, Id),
    Remove(String),
    Rename(String, String, Id),
}

/// Unsynced changes that survive a power loss.
#[derive(Clone, Copy, Debug)]
enum Survival {
    Nothing,
    Everything,
    Beginning,
    Any,
}

#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    inodes: HashMap<u64, Id>,
}

const ROOT: Id = 0;

impl Disk {
    pub(crate) fn new(root: &Path, inode: u64) -> Self {
        Self { root: root.to_owned(), nodes: vec![Node::directory()], inodes: HashMap::from([(inode, ROOT)]) }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Create { inode, path } => self.make(inode, &path, Node::file()),
            Event::MakeDirectory { inode, path } => self.make(inode, &path, Node::directory()),
            Event::Write { inode, at, bytes } => self.change(inode, Change::Write { at, bytes }),
            Event::SetLength { inode, length } => self.change(inode, Change::SetLength(length)),
            Event::Extend { inode, length } => self.change(inode, Change::Extend(length)),
            Event::Sync { inode } => {
                if let Some(&id) = self.inodes.get(&inode) {
                    self.nodes[id].sync();
                }
            }
            Event::Rename { from, to } => self.rename(&from, &to),
            Event::Remove { path } => self.name(&path, Naming::Remove),
            Event::Link { from, to } => {
                if let Some(id) = self.find(&from) {
                    self.name(&to, |name| Naming::Set(name, id));
                }
            }
        }
    }

    fn make(&mut self, inode: u64, path: &Path, node: Node) {
        let id = self.nodes.len();
        self.nodes.push(node);
        self.inodes.insert(inode, id);
        self.name(path, |name| Naming::Set(name, id));
    }

    fn change(&mut self, inode: u64, change: Change) {
        let Some(&id) = self.inodes.get(&inode) else { return };
        if let Node::File { pending, .. } = &mut self.nodes[id] {
            pending.push(change);
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let Some(id) = self.find(from) else { return };
        if from.parent() == to.parent() {
            let new = name_of(to);
            self.name(from, |old| Naming::Rename(old, new, id));
        } else {
            self.name(from, Naming::Remove);
            self.name(to, |name| Naming::Set(name, id));
        }
    }

    fn name(&mut self, path: &Path, naming: impl FnOnce(String) -> Naming) {
        let above = path.parent().and_then(|above| self.find(above));
        let Some(Node::Directory { current, pending, .. }) = above.map(|above| &mut self.nodes[above]) else { return };
        let naming = naming(name_of(path));
        naming.apply(current);
        pending.push(naming);
    }

    fn find(&self, path: &Path) -> Option<Id> {
        let mut id = ROOT;
        for part in path.strip_prefix(&self.root).ok()?.components() {
            let Node::Directory { current, .. } = &self.nodes[id] else { return None };
            id = *current.get(&*part.as_os_str().to_string_lossy())?;
        }
        Some(id)
    }

    /// Writes a possible state after a power loss at this moment into the directory `to`.
    pub(crate) fn image(&self, to: &Path, random: &mut Random) {
        let mut left = Left { lucks: &Survival::ALL, random, files: HashMap::new() };
        self.write(ROOT, to, &mut left);
    }

    pub(crate) fn copy(&self, to: &Path) {
        let mut left = Left { lucks: &[Survival::Everything], random: &mut Random::of(0), files: HashMap::new() };
        self.write(ROOT, to, &mut left);
    }

    fn write(&self, id: Id, to: &Path, left: &mut Left<'_>) {
        let luck = left.lucks[left.random.below(left.lucks.len())];
        match &self.nodes[id] {
            Node::File { durable, pending } => {
                let random = &mut *left.random;
                let bytes = left.files.entry(id).or_insert_with(|| {
                    let mut bytes = durable.clone();
                    luck.choose(pending, random, |change, is_cut, random| change.apply(&mut bytes, is_cut, random));
                    bytes
                });
                fs::write(to, bytes).unwrap();
            }
            Node::Directory { durable, pending, .. } => {
                fs::create_dir(to).unwrap();
                let mut names = durable.clone();
                luck.choose(pending, left.random, |naming, _, _| naming.apply(&mut names));
                for (name, id) in names {
                    self.write(id, &to.join(name), left);
                }
            }
        }
    }
}

struct Left<'a> {
    lucks: &'a [Survival],
    random: &'a mut Random,
    files: HashMap<Id, Vec<u8>>,
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl Survival {
    const ALL: [Self; 4] = [Self::Nothing, Self::Everything, Self::Beginning, Self::Any];

    /// Calls `each` for the surviving `parts`, with true for the last one, which may be truncated.
    fn choose<T>(self, parts: &[T], random: &mut Random, mut each: impl FnMut(&T, bool, &mut Random)) {
        let end = match self {
            Self::Nothing => 0,
            Self::Everything | Self::Any => parts.len(),
            Self::Beginning => random.below(parts.len() + 1),
        };
        for (index, part) in parts[..end].iter().enumerate() {
            let is_cut = match self {
                Self::Nothing | Self::Everything => false,
                Self::Beginning => index + 1 == end,
                Self::Any if random.one_in(2) => continue,
                Self::Any => random.one_in(4),
            };
            each(part, is_cut, random);
        }
    }
}

impl Node {
    fn file() -> Self {
        Self::File { durable: Vec::new(), pending: Vec::new() }
    }

    fn directory() -> Self {
        Self::Directory { durable: BTreeMap::new(), current: BTreeMap::new(), pending: Vec::new() }
    }

    fn sync(&mut self) {
        match self {
            Self::File { durable, pending } => {
                for change in pending.drain(..) {
                    change.apply(durable, false, &mut Random::of(0));
                }
            }
            Self::Directory { durable, current, pending } => {
                durable.clone_from(current);
                pending.clear();
            }
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>, is_cut: bool, random: &mut Random) {
        match self {
            Self::Write { at, bytes } => {
                let (at, before) = (*at as usize, file.len());
                let kept = if is_cut { random.below(bytes.len() + 1) } else { bytes.len() };
                // The length of a truncated write may be durable or not.
                let has_length = !is_cut || random.one_in(2);
                let end = at + if has_length { bytes.len() } else { kept };
                file.resize(end.max(before), 0);
                file[at..at + kept].copy_from_slice(&bytes[..kept]);
            }
            Self::SetLength(length) => file.resize(*length as usize, 0),
            Self::Extend(length) => file.resize((*length as usize).max(file.len()), 0),
        }
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, Id>) {
        match self {
            Self::Set(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(old, new, id) => {
                names.remove(old);
                names.insert(new.clone(), *id);
            }
        }
    }
}
