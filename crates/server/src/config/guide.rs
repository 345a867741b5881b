//! Texts of `settee config --defaults` in addition to the table of settings: the purpose of each section.

use std::fmt::Write as _;
use std::path::Path;

use settee_settings::{Applies, Kind, SETTINGS, Setting, Visibility};

const HEAD: &str = "\
; The configuration of Settee. This is the output of `settee config --defaults`: every setting of Settee, with its
; default. A server reads these sources; later ones take precedence:
;
;   1. these defaults, which need no file, and the preset of --preset;
;   2. local.ini in the data directory, or the file that --config names;
;   3. local.d/*.ini in the directory of that file, in the order of their names;
;   4. the environment: SETTEE_SECTION__KEY=value, for example SETTEE_CHTTPD__PORT=5985 or
;      SETTEE_COUCHDB__MAX_DOCUMENT_SIZE=16000000. Characters of a name other than letters and digits become _;
;   5. the command line: --set section/key=value, and --bind and --port.
;
; Changes over HTTP (PUT /_node/_local/_config/section/key) are written to the last of the files and apply at once,
; except those marked \"after a restart\"; the response header X-Settee-Applies states it. POST
; /_node/_local/_config/_reload reads the files again. Unknown sections and keys are kept.
;
; `;` starts a comment, at the start of a line or after a space. An empty value resets the setting to its default.
; Lines that start with `;` and a key show defaults: remove the `;` to change them.
";

const SECTIONS: &[(&str, &str)] = &[
    ("couchdb", "Databases and documents, and their limits."),
    (
        "chttpd",
        "The HTTP interface. [httpd], the section of version 1, is an alias for these keys, except port and bind_address.",
    ),
    (
        "admins",
        "Server administrators: name = password. Passwords are hashed when the server starts. Without an\nadministrator the server listens on loopback addresses only, and every local user has all permissions. COUCHDB_USER\nand COUCHDB_PASSWORD in the environment create one at the first start.",
    ),
    ("chttpd_auth", "Users, passwords and sessions. [couch_httpd_auth], the old section, is an alias."),
    ("jwt_auth", "Tokens that another service signs, if [chttpd] authentication_handlers names JWT."),
    ("chttpd_auth_lockout", "Rejection of clients that try passwords."),
    ("cors", "Web pages of other origins that may use the server, if [chttpd] enable_cors is true."),
    (
        "x_frame_options",
        "Pages that may show responses of the server in a frame, if [chttpd] enable_xframe_options is true.",
    ),
    ("csp", "Headers that restrict attachments and rendered pages in a browser."),
    ("rate_limit", "Limit of the requests of one client. Off unless requests_per_second is set."),
    ("ssl", "TLS, in addition to the plain port."),
    ("vendor", "Name of the server in its responses."),
    ("compaction_daemon", "Schedule of background compaction of databases."),
    ("smoosh.ratio_dbs", "Selection of databases for background compaction."),
    ("view_updater", "Updates of view indexes."),
    ("ken", "Indexes that are updated in the background, before a client queries them."),
    ("view_cleanup", "Removal of indexes that no design document defines any more."),
    ("global_changes", "Events of databases, for _db_updates."),
    (
        "backup",
        "Backups of the whole server in an S3 bucket, and the log of the commits between them. Off without a url;\ndocs/operation/backup.md describes how to restore.",
    ),
    ("replicator", "Replications that this server runs."),
    ("uuids", "Ids for documents that are created without one."),
    ("purge", "Limits of one _purge request."),
    ("storage", "Location of the data. --storage URL and the variable SETTEE_STORAGE are equivalent."),
    (
        "cluster",
        "Nodes that share a store in PostgreSQL; docs/operation/cluster.md. q and n are accepted for compatibility.",
    ),
    ("log", "The log. Passwords, cookies and credentials in URLs are removed from every line."),
    ("tracing", "Traces by OpenTelemetry: each request as a span, in JSON over HTTP. Off without an endpoint."),
    ("query_server_config", "Views and their functions."),
    ("native_query_servers", "Languages of design documents in addition to JavaScript."),
    ("search", "Text search, through all of its interfaces."),
    ("nouveau", "Text search with the interface of CouchDB's Nouveau."),
    ("dreyfus", "Text search with the interface of CouchDB with Clouseau, and of Cloudant."),
    ("per_doc_access", "Databases with access lists in documents; docs/access.md."),
    ("attachments", "How attachments are stored."),
];

/// Renders all settings as an INI file for a server with this data directory. Settings outside the listed defaults are
/// commented out, as in CouchDB's `default.ini`.
pub(crate) fn render(data_dir: &Path) -> String {
    let mut text = HEAD.to_owned();
    for (section, about) in SECTIONS {
        text.push('\n');
        for line in about.lines() {
            let _ = writeln!(text, "; {line}");
        }
        let _ = writeln!(text, "[{section}]");
        if *section == "admins" {
            text.push_str(";admin = a password\n");
        }
        for setting in SETTINGS.iter().filter(|setting| setting.section == *section) {
            render_setting(&mut text, setting, data_dir);
        }
    }
    text
}

fn render_setting(text: &mut String, setting: &Setting, data_dir: &Path) {
    let mark = if setting.visibility == Visibility::Listed { "" } else { ";" };
    let line = format!("{mark}{} = {}", setting.key, setting.default_for(data_dir).unwrap_or_default());
    let about = format!("{}. {}{}", setting.doc, kind(setting.kind), when(setting));
    let _ = writeln!(text, "; {}\n{}", about.trim_end(), line.trim_end());
}

fn kind(kind: Kind) -> String {
    let (Kind::Bool
    | Kind::Integer(..)
    | Kind::Limit
    | Kind::Milliseconds
    | Kind::Seconds
    | Kind::Address
    | Kind::Word(_)) = kind
    else {
        return String::new();
    };
    let wanted = kind.violation("?").unwrap_or_default();
    let mut letters = wanted.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{}. ", first.into_iter().chain(letters).collect::<String>())
}

fn when(setting: &Setting) -> &'static str {
    match setting.applies {
        Applies::AtOnce => "",
        Applies::AfterRestart => "After a restart.",
        Applies::Nowhere => "Stored, without effect.",
    }
}

#[cfg(test)]
pub(super) fn sections() -> Vec<&'static str> {
    SECTIONS.iter().map(|(section, _)| *section).collect()
}
