//! Contents for the tests of packages.

use crate::dist::contents::{Contents, Release};
use crate::dist::target::Target;

pub(crate) fn contents(target: Target) -> Contents {
    let text = |name: &str| format!("{name} of the sample\n");
    Contents {
        target,
        release: Release {
            commit: "0123456789ab".to_owned(),
            time: 1_000_000_000,
            date: "2001-09-09T01:46:40Z".to_owned(),
            url: "https://example.org".to_owned(),
        },
        program: b"\x7fELF".to_vec(),
        pages: vec![("settee.1".to_owned(), b".TH settee 1\n".to_vec())],
        bash: text("bash").into_bytes(),
        zsh: text("zsh").into_bytes(),
        fish: text("fish").into_bytes(),
        unit: include_str!("../../../../packaging/settee.service").to_owned(),
        compose: text("compose"),
        readme: text("README"),
        changelog: text("CHANGELOG"),
        license: text("LICENSE"),
        notice: text("NOTICE"),
        libraries: text("LIBRARIES"),
        console_lock: text("package-lock.json"),
    }
}
