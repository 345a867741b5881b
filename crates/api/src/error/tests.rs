//! The table of errors, as a file.

use std::fmt::Write as _;

use settee_design::DesignDocument;
use settee_model::{Document, Rev, validate_doc_id};
use settee_views::QueryError;

use super::*;
use crate::tests::{check_file, json, show};

fn line(text: &mut String, label: &str, error: impl Into<Error>) {
    writeln!(text, "{label}\n    {}", show(&error.into())).expect("a String takes everything");
}

fn storage_errors() -> [(&'static str, StorageError); 7] {
    [
        ("Io", StorageError::Io("EIO".to_owned())),
        ("Corrupt", StorageError::Corrupt("a block".to_owned())),
        ("Poisoned", StorageError::Poisoned("EIO".to_owned())),
        ("Full", StorageError::Full("ENOSPC".to_owned())),
        ("Unreached", StorageError::Unreached("no answer".to_owned())),
        ("InDoubt", StorageError::InDoubt("no answer".to_owned())),
        ("Interrupted", StorageError::Interrupted("opened again".to_owned())),
    ]
}

#[test]
fn every_error_has_a_status_a_name_and_a_reason() {
    let mut text = String::new();
    for (name, error) in storage_errors() {
        line(&mut text, &format!("storage {name}"), error);
    }
    line(&mut text, "database NotFound", DatabaseError::NotFound);
    line(&mut text, "database Exists", DatabaseError::Exists);
    line(&mut text, "database IllegalName", DatabaseError::IllegalName("Bad".to_owned()));
    line(&mut text, "database NameTooLong", DatabaseError::NameTooLong("long".to_owned()));
    line(&mut text, "database Corrupt", DatabaseError::Corrupt("record"));
    for (name, error) in storage_errors() {
        line(&mut text, &format!("database Storage {name}"), DatabaseError::Storage(error));
    }
    line(&mut text, "auth Incorrect", AuthError::Incorrect);
    line(&mut text, "auth LockedOut", AuthError::LockedOut);
    line(&mut text, "auth IterationsTooLow", AuthError::IterationsTooLow);
    line(&mut text, "auth IterationsTooHigh", AuthError::IterationsTooHigh);
    line(&mut text, "auth InvalidPrf", AuthError::InvalidPrf);
    line(&mut text, "auth InvalidHeader", InvalidHeader);
    line(&mut text, "auth MalformedCookie", MalformedCookie);
    line(&mut text, "jwt BadRequest", JwtError::BadRequest("Malformed token".to_owned()));
    line(&mut text, "jwt Unauthorized", JwtError::Unauthorized("exp not in future".to_owned()));
    line(&mut text, "jwt NotFound", JwtError::NotFound("missing json key: roles".to_owned()));
    for error in [KeyError::Invalid, KeyError::NotRsa, KeyError::NotEc] {
        line(&mut text, &format!("jwt key {error:?}"), error);
    }
    line(&mut text, "password NoText", PasswordRefused::NoText("5".to_owned()));
    line(&mut text, "password Unfit", PasswordRefused::Unfit("Too short.".to_owned()));
    line(&mut text, "password Misconfigured", PasswordRefused::Misconfigured);
    let service = settee_service::Error::Unauthorized("You are not a server admin.");
    line(&mut text, "service Unauthorized", service);
    line(&mut text, "service Forbidden", settee_service::Error::forbidden("You are not a db or server admin."));
    for error in [
        settee_service::Error::Conflict,
        settee_service::Error::PartitionOverflow("p:a".to_owned()),
        settee_service::Error::Missing,
        settee_service::Error::Deleted,
        settee_service::Error::MissingFunction("shows".to_owned()),
        settee_service::Error::UnknownLanguage("cobol".to_owned()),
        settee_service::Error::TooManyCalls,
        settee_service::Error::TooManyLogins,
        settee_service::Error::Internal("the update was not answered"),
    ] {
        line(&mut text, &format!("service {error:?}"), error);
    }
    line(&mut text, "settings Unknown", SettingsError::Unknown);
    line(&mut text, "settings Invalid", SettingsError::Invalid("must be a number".to_owned()));
    line(&mut text, "settings File", SettingsError::File("read-only".to_owned()));
    line(&mut text, "settings Unavailable", SettingsError::Unavailable("no answer".to_owned()));
    line(&mut text, "compile Source", CompileError::Source("x is not defined".to_owned()));
    line(&mut text, "compile Unavailable", CompileError::Unavailable("no worker".to_owned()));
    let fatal = || RunError::Fatal { name: "timeout".into(), reason: "too slow".into() };
    line(&mut text, "run Fatal", fatal());
    line(&mut text, "run Machinery", RunError::Machinery("the worker ended".to_owned()));
    line(&mut text, "call Forbidden", CallError::Forbidden("no".into()));
    line(&mut text, "call Unauthorized", CallError::Unauthorized("who".into()));
    line(&mut text, "call NotFound", CallError::NotFound("document not found".to_owned()));
    for name in ["bad_request", "compilation_error", "method_not_allowed", "not_acceptable", "conflict", "TypeError"] {
        let error = CallError::Failed { name: name.to_owned(), reason: "thrown".to_owned() };
        line(&mut text, &format!("call Failed {name}"), error);
    }
    line(&mut text, "call Run", CallError::Run(fatal()));
    line(&mut text, "view MissingView", ViewError::MissingView);
    for error in [
        QueryError::ReduceOnMap,
        QueryError::GroupingOnMap,
        QueryError::DocsOnReduce,
        QueryError::ManyKeysOnReduce,
        QueryError::RangeNotAscending,
        QueryError::RangeNotDescending,
    ] {
        line(&mut text, &format!("view Query {error:?}"), ViewError::Query(error));
    }
    line(&mut text, "view Compile", ViewError::Compile(CompileError::Source("x".to_owned())));
    line(&mut text, "view UnknownLanguage", ViewError::UnknownLanguage("cobol".to_owned()));
    line(&mut text, "view Run", ViewError::Run(fatal()));
    for (name, error) in storage_errors() {
        line(&mut text, &format!("view Storage {name}"), ViewError::Storage(error));
    }
    line(&mut text, "view Spill", ViewError::Spill("ENOSPC".to_owned()));
    line(&mut text, "view Source", ViewError::Source("unreadable".to_owned()));
    line(&mut text, "view Stopped", ViewError::Stopped);
    line(&mut text, "view Paused", ViewError::Paused);
    line(&mut text, "view Cancelled", ViewError::Cancelled);
    line(&mut text, "view Contended", ViewError::Contended);
    line(&mut text, "view Memory", ViewError::Memory);
    line(&mut text, "view Corrupt", ViewError::Corrupt("node"));
    line(&mut text, "mango Refused", MangoError::Refused(Refusal::InvalidOperator("$nosuch".to_owned())));
    line(&mut text, "mango NoSuchIndex", MangoError::NoSuchIndex);
    line(&mut text, "mango ServiceUnavailable", MangoError::ServiceUnavailable("text".to_owned()));
    line(&mut text, "mango DesignConflict", MangoError::DesignConflict);
    line(&mut text, "mango Database", MangoError::Database(DatabaseError::NotFound));
    line(&mut text, "mango View", MangoError::View(ViewError::MissingView));
    line(&mut text, "mango Search", MangoError::Search(SearchError::MissingIndex("i".to_owned())));
    search_errors(&mut text);
    check_file("errors.txt", &text);
}

fn search_errors(text: &mut String) {
    use settee_search::Error as Cause;
    line(text, "search MissingIndex", SearchError::MissingIndex("i".to_owned()));
    line(text, "search NoFunction", SearchError::NoFunction("i".to_owned()));
    line(text, "search Build", SearchError::Build(ViewError::Paused));
    line(text, "search Syntax", Cause::Syntax { query: "(x".to_owned(), reason: "why".to_owned() });
    line(text, "search BadRequest", Cause::BadRequest("why".to_owned()));
    let conflict = Cause::TypeConflict { field: "f".to_owned(), found: "STRING", expected: "DOUBLE" };
    line(text, "search TypeConflict", SearchError::Index(conflict));
    line(text, "search BadField", Cause::BadField("why".to_owned()));
    line(text, "search TooLarge", Cause::TooLarge("why".to_owned()));
    line(text, "search OutOfMemory", Cause::OutOfMemory);
    line(text, "search TimedOut", Cause::TimedOut);
    line(text, "search Disconnected", Cause::Disconnected);
    line(text, "search Contended", Cause::Contended);
    line(text, "search Storage", Cause::Storage(StorageError::Full("why".to_owned())));
    line(text, "search Corrupt", Cause::Corrupt("why".to_owned()));
}

/// Messages of other crates' errors, which were recorded from CouchDB.
#[test]
fn documents_that_make_no_sense() {
    let check = |document: &str, expected: &str| {
        let error = Document::parse(json(document).value()).map(|_| ()).map_err(|error| show(&error.into()));
        assert_eq!(error, Err(expected.to_owned()), "{document}");
    };
    check("[]", "400 bad_request: Document must be a JSON object");
    check(r#"{"_rev":"x"}"#, "400 bad_request: Invalid rev format");
    check(r#"{"_id":1}"#, "400 illegal_docid: Document id must be a string");
    check(r#"{"_id":""}"#, "400 illegal_docid: Document id must not be empty");
    check(r#"{"_x":1}"#, "400 doc_validation: Bad special document member: _x");
    check(r#"{"_revisions":{"start":"a","ids":[]}}"#, "400 doc_validation: _revisions.start isn't an integer.");
    let refuse = |id: &str| validate_doc_id(id).map_err(|error| show(&error.into()));
    let reserved = "400 illegal_docid: Only reserved document ids may start with underscore.";
    assert_eq!(refuse("_x"), Err(reserved.to_owned()));
    assert_eq!(refuse("_design/"), Err("400 illegal_docid: Illegal document id `_design/`".to_owned()));
    assert_eq!(refuse(&"x".repeat(8001)), Err("400 illegal_docid: Document id is too long".to_owned()));
    assert_eq!(refuse(&"x".repeat(8000)), Ok(()));
}

#[test]
fn texts_that_make_no_sense() {
    let json_error = settee_model::json::Json::parse(b"{").map(|_| ()).map_err(|error| show(&error.into()));
    assert_eq!(json_error, Err("400 bad_request: invalid UTF-8 JSON".to_owned()));
    let rev = Rev::parse("1").map(|_| ()).map_err(|error| show(&error.into()));
    assert_eq!(rev, Err("400 bad_request: Invalid rev format".to_owned()));
    assert!(DesignDocument::parse("", json(r#"{"views":1}"#).value()).is_err());
}
