//! `settee salvage`: creates a new data directory from the readable part of a damaged one, and a list of the rest.
//!
//! 1. Entries of the engine's files with correct checksums are written to new files.
//! 2. Databases that may lack entries are verified, and inconsistent ones are rebuilt document by document.
//! 3. Indexes that may lack entries are removed; the next query rebuilds them.

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use settee_database::verify::CatalogEntry;
use settee_database::{Catalog, LostData};
use settee_storage::durable::{self, Readers};

use crate::backends::{self, Salvaged};
use crate::descriptors::Descriptors;
use crate::lock::DataLock;
use crate::names::{self, Names};
use crate::output::print_text;
use crate::verify::{ENGINE, Progress, own_files, size};
use crate::{environment, regular, storage, version};

const LIST: &str = "salvage.txt";

const SHOWN_MAX: usize = 100;

pub(crate) fn run(data: &Path, to: &Path) -> anyhow::Result<ExitCode> {
    let data = data.canonicalize().with_context(|| format!("{} cannot be found", data.display()))?;
    regular::check_data(&data)?;
    storage::refuse_elsewhere(&data)?;
    ensure!(data.join(ENGINE).is_dir(), "{} contains no data of a server", data.display());
    durable::create_directories(to).with_context(|| format!("{} cannot be created", to.display()))?;
    let to = to.canonicalize()?;
    ensure!(!to.starts_with(data.join(ENGINE)), "the new directory must not be inside the old one");
    if let Some(entry) = fs::read_dir(&to)?.flatten().find(|entry| entry.file_name() != "lost+found") {
        bail!("{} is not empty: {} is in it", to.display(), entry.file_name().to_string_lossy());
    }
    let _lock = DataLock::take(&data)?;
    let mut progress = Progress::new(None);
    let salvaged = backends::salvage(&data.join(ENGINE), &to.join(ENGINE), &mut |bytes| progress.read(bytes, 0))?;
    progress.end();
    let mut list = List {
        lost: own_files(&data).into_iter().map(|(path, why)| format!("{}: {why}", path.display())).collect(),
        kept: Vec::new(),
    };
    copy_configuration(&data, &to)?;
    version::mark(&to)?;
    let engine = backends::open(&to, Descriptors::claim()?.engine)?;
    let known = names::read(&data).unwrap_or_default();
    repair(&Arc::new(Catalog::open(Arc::clone(&engine), environment::random_u64())?), &salvaged, &known, &mut list)?;
    names::write(&to, engine.as_ref());
    engine.sync()?;
    let text = list.text(&salvaged);
    durable::write(&to.join(LIST), Readers::Owner, text.as_bytes())
        .with_context(|| format!("{LIST} cannot be written"))?;
    let shown: Vec<&str> = text.lines().take(SHOWN_MAX).collect();
    print_text(&format!("{}\n", shown.join("\n")));
    if text.lines().count() > SHOWN_MAX {
        print_text(&format!("… and more in {}\n", to.join(LIST).display()));
    }
    print_text(&format!("Start a server on it with: settee serve --data {}\n", to.display()));
    Ok(ExitCode::SUCCESS)
}

struct List {
    lost: Vec<String>,
    kept: Vec<String>,
}

impl List {
    fn text(&self, salvaged: &Salvaged) -> String {
        let mut text = format!("{} entries with {} were read.\n", salvaged.entries, size(salvaged.bytes));
        for line in &self.kept {
            let _ = writeln!(text, "{line}");
        }
        if salvaged.lost_writes {
            text.push_str("The log of writes is damaged: some of the last writes may be lost without being listed.\n");
        }
        match self.lost.as_slice() {
            [] => text.push_str("No loss was detected.\n"),
            lost => {
                let _ = writeln!(text, "Lost:");
                for line in lost {
                    let _ = writeln!(text, "  {line}");
                }
            }
        }
        text
    }
}

fn repair(catalog: &Arc<Catalog>, salvaged: &Salvaged, known: &Names, list: &mut List) -> anyhow::Result<()> {
    let shards: Vec<u64> = salvaged.shards.iter().copied().collect();
    for (name, is_known) in catalog.adopt(&shards, known, environment::random_u64())? {
        list.lost.push(match is_known {
            true => {
                format!("{name}: perhaps its security object and settings; without one only administrators may use it")
            }
            false => format!("the name of a database, and perhaps its security object: its documents are in {name}"),
        });
    }
    let (places, error) = settee_database::verify::places(catalog.engine().as_ref());
    if let Some(error) = error {
        list.lost.push(format!("names of databases: {error}"));
    }
    for place in places {
        repair_database(catalog, salvaged, &place, list)?;
    }
    Ok(())
}

fn repair_database(
    catalog: &Catalog,
    salvaged: &Salvaged,
    place: &CatalogEntry,
    list: &mut List,
) -> anyhow::Result<()> {
    let name = &place.name;
    let is_damaged = |shard: u64| salvaged.damaged.iter().any(|range| range.contains(&shard));
    let is_concerned = salvaged.lost_writes || is_damaged(place.shard.0);
    if is_concerned {
        let found =
            settee_database::verify::verify(catalog.engine().as_ref(), place.shard, &mut |_| ControlFlow::Continue(()));
        if !found.is_good() {
            let rebuilt = catalog.salvage(name, environment::random_u64())?;
            let (documents, revisions) = (rebuilt.documents, rebuilt.revisions);
            list.kept.push(format!("{name}: rebuilt with {documents} documents in {revisions} revisions"));
            for LostData { document, description } in rebuilt.losses {
                list.lost.push(match document {
                    Some(document) => format!("{name}, document {document}: {description}"),
                    None => format!("{name}: {description}"),
                });
            }
            if list.lost.is_empty() {
                list.lost.push(format!("{name}: documents without any readable part may be lost"));
            }
            return Ok(());
        }
        list.kept.push(format!("{name}: {} documents, all complete", found.documents));
    } else {
        list.kept.push(format!("{name}: not affected by damage"));
    }
    let damaged = (!salvaged.lost_writes).then_some(salvaged.damaged.as_slice());
    match catalog.remove_indexes(name, damaged)? {
        0 => {}
        removed => list.kept.push(format!("{name}: {removed} indexes will be rebuilt")),
    }
    Ok(())
}

/// Of a damaged file only the lines that are valid text are copied.
fn copy_configuration(data: &Path, to: &Path) -> anyhow::Result<()> {
    let mut files = vec!["local.ini".to_owned()];
    if let Ok(entries) = fs::read_dir(data.join("local.d")) {
        durable::create_directories(&to.join("local.d"))?;
        files.extend(entries.flatten().map(|entry| format!("local.d/{}", entry.file_name().to_string_lossy())));
    }
    for name in files {
        let Ok(bytes) = fs::read(data.join(&name)) else { continue };
        let is_text = |line: &&[u8]| {
            std::str::from_utf8(line).is_ok_and(|text| !text.chars().any(|c| c.is_control() && c != '\t' && c != '\r'))
        };
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(is_text).collect();
        durable::write(&to.join(&name), Readers::Owner, &lines.join(&b'\n'))
            .with_context(|| format!("{name} cannot be copied"))?;
        #[cfg(unix)]
        fs::set_permissions(to.join(&name), fs::metadata(data.join(&name))?.permissions())?;
    }
    Ok(())
}
