//! [`Preset`]: the settings that an application requires.

use std::fmt::Write as _;

use clap::ValueEnum;

use super::Override;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Self-hosted LiveSync of Obsidian
    ObsidianLivesync,
    /// PouchDB in pages of any origin
    Pouchdb,
    /// Community Health Toolkit
    Cht,
    /// State database of Hyperledger Fabric
    Fabric,
}

type Setting = (&'static str, &'static str, &'static str);

impl Preset {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ObsidianLivesync => "obsidian-livesync",
            Self::Pouchdb => "pouchdb",
            Self::Cht => "cht",
            Self::Fabric => "fabric",
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            Self::ObsidianLivesync => {
                "Self-hosted LiveSync of Obsidian: what its couchdb-init.sh sets, and /_up without a login, on which it waits"
            }
            Self::Pouchdb => {
                "PouchDB in pages of any origin: what add-cors-to-couchdb sets. Replace * by the origins of your pages, or any \
                 site can act with the session of a visitor"
            }
            Self::Cht => "Community Health Toolkit: the settings of its CouchDB image that have an effect here",
            Self::Fabric => {
                "State database of Hyperledger Fabric: the settings of its CouchDB image that have an effect here"
            }
        }
    }

    /// Sections have the names that the application uses. Files override old names under both names.
    fn settings(self) -> &'static [Setting] {
        match self {
            Self::ObsidianLivesync => &[
                ("chttpd", "require_valid_user", "true"),
                ("chttpd", "require_valid_user_except_for_up", "true"),
                ("chttpd_auth", "require_valid_user", "true"),
                ("httpd", "WWW-Authenticate", "Basic realm=\"couchdb\""),
                ("httpd", "enable_cors", "true"),
                ("chttpd", "enable_cors", "true"),
                ("chttpd", "max_http_request_size", "4294967296"),
                ("couchdb", "max_document_size", "50000000"),
                ("cors", "credentials", "true"),
                ("cors", "origins", "app://obsidian.md,capacitor://localhost,http://localhost"),
            ],
            Self::Pouchdb => &[
                ("httpd", "enable_cors", "true"),
                ("cors", "origins", "*"),
                ("cors", "credentials", "true"),
                ("cors", "methods", "GET, PUT, POST, HEAD, DELETE"),
                ("cors", "headers", "accept, authorization, content-type, origin, referer, x-csrf-token"),
            ],
            Self::Cht => &[
                ("chttpd", "require_valid_user", "true"),
                ("couch_httpd_auth", "timeout", "31536000"),
                ("couch_httpd_auth", "allow_persistent_cookies", "true"),
                ("chttpd_auth_lockout", "mode", "warn"),
                ("httpd", "WWW-Authenticate", "Basic realm=\"Medic Mobile Web Services\""),
                ("httpd", "secure_rewrites", "false"),
                ("httpd", "max_http_request_size", "4294967296"),
                ("couchdb", "max_document_size", "4294967296"),
                ("couchdb", "max_dbs_open", "5000"),
                ("cluster", "q", "12"),
                ("cluster", "n", "1"),
                ("couchdb", "os_process_timeout", "60000"),
                ("query_server_config", "os_process_limit", "1000"),
                (
                    "attachments",
                    "compressible_types",
                    "text/*, application/javascript, application/json, application/xml",
                ),
                ("attachments", "compression_level", "8"),
                ("nouveau", "enable", "true"),
            ],
            Self::Fabric => &[
                ("couchdb", "max_dbs_open", "8000"),
                ("cluster", "n", "1"),
                ("cluster", "q", "8"),
                (
                    "attachments",
                    "compressible_types",
                    "text/*, application/javascript, application/json, application/xml, application/octet-stream",
                ),
            ],
        }
    }

    pub(crate) fn given(self) -> Vec<Override> {
        let given = |(section, key, value): &Setting| Override {
            section: (*section).to_owned(),
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            source: format!("preset {}", self.name()),
        };
        self.settings().iter().map(given).collect()
    }

    pub(crate) fn show(self) -> String {
        let mut text = format!("; settee serve --preset {}\n", self.name());
        let _ = writeln!(text, "; {}.", self.purpose());
        let mut sections: Vec<&str> = Vec::new();
        for (section, ..) in self.settings() {
            if !sections.contains(section) {
                sections.push(section);
            }
        }
        for section in sections {
            let _ = writeln!(text, "[{section}]");
            for (_, key, value) in self.settings().iter().filter(|(own, ..)| *own == section) {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    pub(crate) fn show_all() -> String {
        let shown: Vec<String> = Self::value_variants().iter().map(|preset| preset.show()).collect();
        shown.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::check::{SettingSource, check};

    #[test]
    fn presets_contain_known_settings_with_an_effect() {
        for preset in Preset::value_variants() {
            let name = preset.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(name.as_deref(), Some(preset.name()));
            for Override { section, key, value, source } in preset.given() {
                assert_eq!(check(SettingSource::Override(source), &section, &key, &value), None, "[{section}] {key}");
            }
        }
    }

    #[test]
    fn a_preset_is_shown_as_a_file() {
        let text = Preset::Pouchdb.show();
        assert!(text.starts_with("; settee serve --preset pouchdb\n; PouchDB in pages"), "{text}");
        assert!(text.contains("[httpd]\nenable_cors = true\n[cors]\norigins = *\ncredentials = true\n"), "{text}");
        let entries = settee_settings::ini::Ini::parse(&Preset::show_all());
        let expected: usize = Preset::value_variants().iter().map(|preset| preset.settings().len()).sum();
        assert_eq!(entries.entries().count(), expected);
        assert_eq!(entries.invalid_lines().count(), 0);
    }
}
