//! Checks of the configuration: invalid values, names that look mistyped, administrators, certificate files.

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::path::Path;

use settee_admin::doctor::{Finding, Verdict, readable};
use settee_auth::is_hashed;
use settee_settings::{Key, chttpd, couchdb, key::Text, ssl};

use super::check::Severity;
use super::presets::Preset;
use super::{Configuration, Options};
use crate::environment;

pub(crate) fn examine(data: &Path, config: Option<&Path>) -> Vec<Finding> {
    let options = Options {
        data_dir: data.to_owned(),
        file: environment::configuration(config),
        preset: environment::preset().ok().flatten().map(Preset::given).unwrap_or_default(),
        overrides: environment::settings(),
        admin: None,
        entropy: std::sync::Arc::new(environment::random),
    };
    match Configuration::open_without_corrections(options) {
        Ok(configuration) => of(&configuration),
        Err(error) => {
            vec![Finding::error(format!("the configuration cannot be read: {error}"), "Repair the file.")]
        }
    }
}

fn of(configuration: &Configuration) -> Vec<Finding> {
    let advice = "Correct it; `settee config --defaults` shows the syntax and the permitted values.";
    let mut findings = Vec::new();
    let given = configuration.findings().unwrap_or_default();
    for warning in configuration.warnings() {
        let idle = given.iter().any(|finding| finding.severity == Severity::NoEffect && finding.to_string() == warning);
        findings.push(if idle { Finding::good(warning) } else { Finding::error(warning, advice) });
    }
    findings.extend(plain_passwords(configuration));
    findings.push(administrators(configuration));
    findings.extend(certificates(configuration));
    if let Some(mode @ ("true" | "nolb")) = couchdb::MAINTENANCE_MODE.text(configuration).as_deref() {
        let found = format!("maintenance_mode is {mode}: /_up answers 404, and load balancers stay away");
        findings.push(Finding::warning(found, "Set [couchdb] maintenance_mode to false when the work is done."));
    }
    if findings.iter().all(|finding| finding.verdict == Verdict::Good) {
        findings.insert(0, Finding::good("the configuration is valid"));
    }
    findings
}

fn plain_passwords(configuration: &Configuration) -> Option<Finding> {
    let plain = configuration.section("admins").into_iter().filter(|(_, password)| !is_hashed(password));
    let names: Vec<String> = plain.map(|(name, _)| name).collect();
    if names.is_empty() {
        return None;
    }
    let found = format!("the password of {} is stored in plain text", names.join(", "));
    Some(Finding::warning(found, "The next start of the server hashes it, if it may write the file."))
}

fn administrators(configuration: &Configuration) -> Finding {
    let count = configuration.section("admins").len();
    if count > 0 {
        return Finding::good(format!("there are administrators: {count}"));
    }
    let address = chttpd::BIND_ADDRESS.of(configuration);
    let is_private = settee_settings::key::address(&address).is_some_and(|address| address.is_loopback());
    let advice = "Create one: COUCHDB_USER and COUCHDB_PASSWORD in the environment of the next start, or `name = password` in\n\
                  the section [admins] of local.ini.";
    if is_private {
        Finding::warning("there is no administrator: every user of this machine has all permissions", advice)
    } else {
        Finding::error(format!("there is no administrator, so the server will not listen on {address}"), advice)
    }
}

fn certificates(configuration: &Configuration) -> Vec<Finding> {
    if !ssl::ENABLE.of(configuration) {
        return Vec::new();
    }
    let files = [(&ssl::CERT_FILE, "-----BEGIN CERTIFICATE-----"), (&ssl::KEY_FILE, "PRIVATE KEY-----")];
    let examine = |(setting, wanted): (&Key<Text>, &str)| {
        let key = setting.name();
        let advice = format!("Set [ssl] {key} to a file in PEM format.");
        let Some(path) = setting.text(configuration) else {
            return Finding::error(format!("TLS is on, but [ssl] {key} is not set"), advice);
        };
        match readable(Path::new(&path)) {
            Ok(text) if text.contains(wanted) => Finding::good(format!("{path} looks like a {key}")),
            Ok(_) => Finding::error(format!("{path} of [ssl] {key} contains no line with {wanted}"), advice),
            Err(why) => Finding::error(format!("{path} of [ssl] {key} {why}"), advice),
        }
    };
    files.into_iter().map(examine).collect()
}
