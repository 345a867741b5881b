//! Environment variables of the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;

use crate::config::presets::Preset;
use crate::config::{AdminSeed, Override};
pub(crate) use settee_admin::environment::{data_directory, monotonic_us, now_ms, now_us, random, random_u64, text};
use settee_settings::{SETTINGS, Setting};

/// A busy server leaves about a tenth of a processor to each thread of this nice value.
const NICENESS: i32 = 10;

/// Errors are ignored.
pub(crate) fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    // A thread that never sleeps keeps the rest of its time slice of some milliseconds.
    std::thread::sleep(Duration::from_micros(1));
}

/// `SETTEE_SECTION__KEY=value`. All characters except letters and digits become `_` in these names.
pub(crate) fn settings() -> Vec<Override> {
    let given = |name: &str, (section, key, value)| Override { section, key, value, source: name.to_owned() };
    let of = |name: &str, section: &str, key: &str, value: Option<String>| {
        value.map(|value| given(name, (section.to_owned(), key.to_owned(), value)))
    };
    let node = of("NODENAME", "cluster", "node", text("NODENAME").map(|host| node_name(&host)));
    let secret = of("COUCHDB_SECRET", "chttpd_auth", "secret", secret("COUCHDB_SECRET").ok().flatten());
    let storage = of("SETTEE_STORAGE", "storage", "url", text("SETTEE_STORAGE"));
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    node.into_iter()
        .chain(variables.filter_map(|(name, value)| Some(given(&name, setting(&name, value)?))))
        .chain(secret)
        .chain(storage)
        .collect()
}

fn node_name(host: &str) -> String {
    if host.contains('@') { host.to_owned() } else { format!("couchdb@{host}") }
}

fn setting(name: &str, value: String) -> Option<(String, String, String)> {
    let (section, key) = name.strip_prefix("SETTEE_")?.split_once("__")?;
    if section.is_empty() || key.is_empty() {
        return None;
    }
    let folded = |text: &str| text.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let is_meant = |known: &&Setting| folded(known.section) == folded(section) && folded(known.key) == folded(key);
    Some(match SETTINGS.iter().copied().find(is_meant) {
        Some(known) => (known.section.to_owned(), known.key.to_owned(), value),
        None => (section.to_ascii_lowercase(), key.to_ascii_lowercase(), value),
    })
}

pub(crate) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

pub(crate) fn configuration(given: Option<&Path>) -> Option<PathBuf> {
    given.map(Path::to_owned).or_else(|| text("SETTEE_CONFIG").map(PathBuf::from))
}

pub(crate) fn preset() -> anyhow::Result<Option<Preset>> {
    let Some(name) = text("SETTEE_PRESET") else { return Ok(None) };
    let Ok(preset) = Preset::from_str(&name, false) else {
        bail!("SETTEE_PRESET={name} is not a preset; `settee config presets` lists them")
    };
    Ok(Some(preset))
}

/// Returns a variable, or the content of the file that the variable `NAME_FILE` names.
fn secret(name: &str) -> anyhow::Result<Option<String>> {
    let file = format!("{name}_FILE");
    let (None, Some(path)) = (text(name), text(&file)) else { return Ok(text(name)) };
    let content = std::fs::read_to_string(&path).with_context(|| format!("{file}: {path} cannot be read"))?;
    Ok(Some(content.trim_end_matches('\n').to_owned()).filter(|value| !value.is_empty()))
}

pub(crate) fn check_files() -> anyhow::Result<()> {
    ["COUCHDB_USER", "COUCHDB_PASSWORD", "COUCHDB_SECRET"].into_iter().try_for_each(|name| secret(name).map(drop))
}

/// Setting only one of `COUCHDB_USER` and `COUCHDB_PASSWORD` is an error, because the server would be left open.
pub(crate) fn admin() -> anyhow::Result<Option<AdminSeed>> {
    match (secret("COUCHDB_USER")?, secret("COUCHDB_PASSWORD")?) {
        (Some(name), Some(password)) => Ok(Some(AdminSeed { name, password })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            bail!("COUCHDB_USER is set and COUCHDB_PASSWORD is not: set both to create an administrator, or none")
        }
        (None, Some(_)) => {
            bail!("COUCHDB_PASSWORD is set and COUCHDB_USER is not: set both to create an administrator, or none")
        }
    }
}

/// As in CouchDB 3, `COUCHDB_QUERY_SERVER_PYTHON` is the command for the language `python`.
pub(crate) fn query_servers() -> BTreeMap<String, String> {
    let server = |(name, command): (OsString, OsString)| {
        let language = name.to_str()?.strip_prefix("COUCHDB_QUERY_SERVER_")?.to_ascii_lowercase();
        let command = command.to_str()?.trim();
        (!command.is_empty()).then(|| (language, command.to_owned()))
    };
    std::env::vars_os().filter_map(server).collect()
}

pub(crate) fn is_native_erlang_on() -> bool {
    std::env::var_os("COUCHDB_NATIVE_QUERY_SERVER_ERLANG").is_some_and(|value| !value.is_empty())
}

/// Search paths, user and locale, but never secrets such as `COUCHDB_PASSWORD`.
pub(crate) fn for_query_servers() -> Vec<(OsString, OsString)> {
    const INHERITED_VARIABLES: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
    let variable = |name: &str| Some((OsString::from(name), std::env::var_os(name)?));
    let mut kept: Vec<_> = INHERITED_VARIABLES.into_iter().filter_map(variable).collect();
    if !kept.iter().any(|(name, _)| name == "LANG" || name == "LC_ALL") {
        // Lines are UTF-8, and many programs depend on this variable.
        kept.push(("LANG".into(), "C.UTF-8".into()));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_those_of_the_image() {
        assert_eq!(node_name("couchdb.1"), "couchdb@couchdb.1");
        assert_eq!(node_name("settee@10.0.0.7"), "settee@10.0.0.7");
    }

    #[test]
    fn names_of_the_environment_are_settings() {
        for (name, expected) in [
            ("SETTEE_CHTTPD__PORT", Some(("chttpd", "port"))),
            ("SETTEE_chttpd__Bind_Address", Some(("chttpd", "bind_address"))),
            ("SETTEE_CHTTPD__WWW_AUTHENTICATE", Some(("chttpd", "WWW-Authenticate"))),
            ("SETTEE_SMOOSH_RATIO_DBS__MIN_SIZE", Some(("smoosh.ratio_dbs", "min_size"))),
            ("SETTEE_ADMINS__ANN", Some(("admins", "ann"))),
            ("SETTEE_PORT", None),
            ("SETTEE___X", None),
            ("CHTTPD__PORT", None),
        ] {
            let found = setting(name, "v".to_owned());
            let found = found.as_ref().map(|(section, key, _)| (section.as_str(), key.as_str()));
            assert_eq!(found, expected, "{name}");
        }
    }
}
