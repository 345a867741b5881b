//! Texts of `settee config --defaults` in addition to the table of settings: the purpose of each section.

use std::fmt::Write as _;
use std::path::Path;

use settee_settings::{Applies, Kind, SETTINGS, Setting, Visibility};

const HEAD: &str = "\
; The configuration of Settee. This text is what `settee config --defaults` prints: every setting that Settee knows, with
; its default. A server reads, each file over the ones before:
;
;   1. these defaults, which need no file;
;   2. local.ini in the data directory, or the file that --config names;
;   3. local.d/*.ini beside that file, in the order of their names;
;   4. the environment: SETTEE_SECTION__KEY=value, for example SETTEE_CHTTPD__PORT=5985 or
;      SETTEE_COUCHDB__MAX_DOCUMENT_SIZE=16000000. What is neither letter nor digit in a name becomes _;
;   5. the command line: --set section/key=value, and --bind and --port.
;
; Changes over HTTP (PUT /_node/_local/_config/section/key) are written to the last of the files and apply at once,
; except where it says \"after a restart\"; the answer's header X-Settee-Applies tells. POST /_node/_local/_config/_reload
; reads the files again. Sections and keys that nobody knows are kept.
;
; `;` begins a comment, at the start of a line or after a space. An empty value takes back what earlier files said.
; Lines that begin with `;` and a key show defaults: remove the `;` to change them.
";

/// The purposes of sections, in the order of the table.
const SECTIONS: &[(&str, &str)] = &[
    ("couchdb", "Databases and documents, and what they may hold."),
    (
        "chttpd",
        "The HTTP interface. [httpd], the section of version 1, is understood for these keys as well, except port and\nbind_address.",
    ),
    (
        "admins",
        "Server administrators: name = password. Passwords are hashed when the server starts. Without any administrator\neverybody on this machine may do everything, and nobody else anything. COUCHDB_USER and COUCHDB_PASSWORD in the\nenvironment make one at the first start.",
    ),
    ("chttpd_auth", "Users, passwords and sessions. [couch_httpd_auth], the old section, is understood as well."),
    ("jwt_auth", "Tokens that another service signs, if [chttpd] authentication_handlers names JWT."),
    ("chttpd_auth_lockout", "What happens to who tries passwords."),
    ("cors", "Which web pages of other origins may use the server, if [chttpd] enable_cors is true."),
    (
        "x_frame_options",
        "Which pages may show answers of the server in a frame, if [chttpd] enable_xframe_options is true.",
    ),
    ("csp", "Headers against what attachments and rendered pages could do in a browser."),
    ("rate_limit", "How many requests one client may make. Off unless requests_per_second is set."),
    ("ssl", "TLS beside the plain port."),
    ("vendor", "What the server calls itself."),
    ("compaction_daemon", "When databases are compacted in the background."),
    ("smoosh.ratio_dbs", "Which databases are compacted in the background."),
    ("view_updater", "How indexes of views are brought up to date."),
    ("ken", "Which indexes are brought up to date in the background, before somebody asks for them."),
    ("view_cleanup", "When indexes that no design document needs any more are removed."),
    ("global_changes", "What happens to databases, for _db_updates."),
    (
        "backup",
        "Backups of the whole server in a bucket that speaks S3, and the log of what is committed between them. Off without a\nurl; docs/operation/backup.md tells how to restore.",
    ),
    ("replicator", "Replications that this server runs."),
    ("uuids", "Ids for documents that come without one."),
    ("purge", "How much one _purge request may do."),
    ("storage", "Where the data lie. --storage URL and the variable SETTEE_STORAGE say the same."),
    (
        "cluster",
        "Nodes that share a store in PostgreSQL; docs/operation/cluster.md. q and n are understood for the sake of clients.",
    ),
    ("log", "The log. Passwords, cookies and credentials in URLs are taken out of every line."),
    ("tracing", "Traces by OpenTelemetry: each request as a span, in JSON over HTTP. Off without an endpoint."),
    ("query_server_config", "Views and their functions."),
    ("native_query_servers", "Languages of design documents beside JavaScript."),
    ("search", "Text search, whatever it is asked through."),
    ("nouveau", "Text search as CouchDB's Nouveau serves it."),
    ("dreyfus", "Text search as CouchDB serves it with Clouseau, and Cloudant does."),
    ("attachments", "How attachments are stored."),
];

/// All settings as an INI file for a server with this data directory. Settings outside the listed defaults are
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
        Applies::Nowhere => "Kept, but it changes nothing here.",
    }
}

/// The sections of the table and their order, for tests.
#[cfg(test)]
pub(super) fn sections() -> Vec<&'static str> {
    SECTIONS.iter().map(|(section, _)| *section).collect()
}
