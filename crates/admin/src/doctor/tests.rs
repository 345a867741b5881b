//! Tests with directories that have one problem each.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Directory(PathBuf);

impl Directory {
    fn with(ini: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("settee-doctor-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("local.ini"), ini).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An administrator, so that the check for administrators passes.
const ANN: &str = "[admins]\nann = -pbkdf2-1,1,1\n";

/// The findings that are not good, except those about the disk and the shell of the machine.
fn faults_of(directory: &Directory) -> Vec<(Verdict, String)> {
    let findings = examine(&directory.0, &Vec::new);
    let of_machine = |found: &str| found.contains("disk") || found.contains("files");
    let ill = findings.into_iter().filter(|finding| finding.verdict > Verdict::Good && !of_machine(&finding.found));
    ill.map(|finding| {
        assert!(!finding.advice.is_empty(), "no advice: {}", finding.found);
        (finding.verdict, finding.found)
    })
    .collect()
}

#[test]
fn data_that_cannot_be_served_is_an_error() {
    let directory = Directory::with(ANN);
    fs::write(directory.0.join("version"), "99\n").unwrap();
    let layout = format!("the data has layout 99, this program supports {} at most", crate::version::LAYOUT);
    let found = faults_of(&directory);
    assert_eq!(found[0], (Verdict::Error, layout));
    // There is a version and no store.
    assert!(found.len() == 2 && found[1].1.starts_with("a server would not start"), "{found:?}");
    fs::write(directory.0.join("version"), "1\n").unwrap();
    fs::create_dir(directory.0.join(crate::version::RESTORING)).unwrap();
    assert_eq!(faults_of(&directory)[0].0, Verdict::Error);
    let nowhere = examine(&directory.0.join("nosuch"), &Vec::new);
    assert_eq!(nowhere.len(), 1);
    assert_eq!(nowhere[0].verdict, Verdict::Error);
}

#[test]
fn an_examination_leaves_no_files() {
    let directory = Directory::with(ANN);
    examine(&directory.0, &Vec::new);
    let names: Vec<_> = fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["local.ini"]);
    assert_eq!(fs::read_to_string(directory.0.join("local.ini")).unwrap(), ANN);
}
