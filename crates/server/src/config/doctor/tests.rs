//! Invalid configurations.

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

const ANN: &str = "[admins]\nann = -pbkdf2-1,1,1\n";

fn faults_of(directory: &Directory) -> Vec<(Verdict, String)> {
    let findings = settee_admin::doctor::examine(&directory.0, &|| examine(&directory.0, None));
    let of_machine = |found: &str| found.contains("disk") || found.contains("files");
    let ill = findings.into_iter().filter(|finding| finding.verdict > Verdict::Good && !of_machine(&finding.found));
    ill.map(|finding| {
        assert!(!finding.advice.is_empty(), "no advice: {}", finding.found);
        (finding.verdict, finding.found)
    })
    .collect()
}

#[test]
fn configuration_errors_are_reported() {
    use Verdict::{Error, Warning};
    let check = |ini: &str, expected: &[(Verdict, &str)]| {
        let directory = Directory::with(&format!("{ANN}{ini}"));
        let path = directory.0.join("local.ini").display().to_string();
        let found: Vec<(Verdict, String)> =
            faults_of(&directory).into_iter().map(|(verdict, text)| (verdict, text.replace(&path, "PATH"))).collect();
        let found: Vec<(Verdict, &str)> = found.iter().map(|(verdict, text)| (*verdict, text.as_str())).collect();
        assert_eq!(found, expected, "{ini}");
    };
    check("", &[]);
    check("[mine]\nown = 1\n[chttpd]\nport = 1\n[httpd]\nenable_cors = true\n", &[]);
    check(
        "[couchdb]\nmax_document_size = much\n",
        &[(Error, "PATH:4: [couchdb] max_document_size = much: it must be an integer or infinity")],
    );
    let directory = Directory::with(&format!("{ANN}[couchdb\n;max_document_size\nmax_document_size\n"));
    let path = directory.0.join("local.ini");
    let line = |number| (Error, format!("{}:{number}: the line is invalid and is ignored", path.display()));
    assert_eq!(faults_of(&directory), [line(3), line(5)]);
    check(
        "[couchdb]\nmax_docment_size = 1\n",
        &[(Error, "PATH:4: [couchdb] max_docment_size is not known; did you mean [couchdb] max_document_size?")],
    );
    check("[chttp]\nport = 1\n", &[(Error, "PATH:4: [chttp] port is not known; did you mean [chttpd] port?")]);
    check("[admins]\nbob = geheim\n", &[(Warning, "the password of bob is stored in plain text")]);
    check(
        "[couchdb]\nmaintenance_mode = nolb\n",
        &[(Warning, "maintenance_mode is nolb: /_up answers 404, and load balancers stay away")],
    );
    check(
        "[ssl]\nenable = true\nkey_file = /nosuch\n",
        &[(Error, "TLS is on, but [ssl] cert_file is not set"), (Error, "/nosuch of [ssl] key_file does not exist")],
    );
}

#[test]
fn missing_administrators_are_a_warning_on_loopback_and_an_error_elsewhere() {
    let party = |ini: &str| faults_of(&Directory::with(ini)).remove(0);
    assert_eq!(
        party(""),
        (Verdict::Warning, "there is no administrator: every user of this machine has all permissions".to_owned())
    );
    let outside = party("[chttpd]\nbind_address = 0.0.0.0\n");
    assert_eq!(
        outside,
        (Verdict::Error, "there is no administrator, so the server will not listen on 0.0.0.0".to_owned())
    );
}

#[test]
fn data_that_cannot_be_served_is_an_error() {
    let directory = Directory::with(ANN);
    fs::write(directory.0.join("version"), "99\n").unwrap();
    let layout = format!("the data has layout 99, this program supports {} at most", settee_admin::version::LAYOUT);
    let found = faults_of(&directory);
    assert_eq!(found[0], (Verdict::Error, layout));
    assert!(found.len() == 2 && found[1].1.starts_with("a server would not start"), "{found:?}");
    fs::write(directory.0.join("version"), "1\n").unwrap();
    fs::create_dir(directory.0.join(settee_admin::version::RESTORING)).unwrap();
    assert_eq!(faults_of(&directory)[0].0, Verdict::Error);
    let nowhere = settee_admin::doctor::examine(&directory.0.join("nosuch"), &Vec::new);
    assert_eq!(nowhere.len(), 1);
    assert_eq!(nowhere[0].verdict, Verdict::Error);
}

#[test]
fn an_examination_leaves_no_files() {
    let directory = Directory::with(ANN);
    settee_admin::doctor::examine(&directory.0, &Vec::new);
    let names: Vec<_> = fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["local.ini"]);
    assert_eq!(fs::read_to_string(directory.0.join("local.ini")).unwrap(), ANN);
}
