//! Hashing of passwords, rules for them, and public members.

use super::*;
use crate::account::Account;
use crate::algorithm::Algorithm;
use std::num::NonZeroU32;

const HASHING: Hashing =
    Hashing { scheme: NewScheme::Pbkdf2, prf: Algorithm::Sha256, iterations: NonZeroU32::new(2).unwrap() };

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn protected(text: &str, rules: &str) -> Result<Option<String>, PasswordRefused> {
    let rules = PasswordRules::parse(rules)?;
    let done = protect(json(text).value(), &HASHING, &rules, "5a17")?;
    Ok(done.map(|json| String::from_utf8(json.into_bytes()).unwrap()))
}

#[test]
fn a_password_becomes_its_hash_in_front() {
    let old = r#"{"name":"ann","salt":"old","password":"secret","derived_key":"00","password_sha":"11","preserve_salt":true,"roles":[1.50]}"#;
    let hash = HASHING.hash(b"secret", "5a17");
    let expected = format!(
        r#"{{"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"5a17","iterations":2,"derived_key":"{hash}","name":"ann","roles":[1.50]}}"#
    );
    assert_eq!(protected(old, ""), Ok(Some(expected.clone())));
    let account = Account::of_document("ann", json(&expected).value());
    assert!(account.hash(&(1..=9)).unwrap().verify(b"secret"));
    let simple = Hashing { scheme: NewScheme::Simple, ..HASHING };
    let simple = with_hash(json(old).value(), &simple, b"secret", "5a17");
    let account = Account::of_document("ann", simple.value());
    assert!(account.hash(&(1..=9)).unwrap().verify(b"secret"));
}

#[test]
fn documents_without_a_password_stay() {
    for text in ["{}", r#"{"password":null,"salt":"x"}"#, r#"{"Password":"x"}"#] {
        assert_eq!(protected(text, ""), Ok(None), "{text}");
    }
}

#[test]
fn passwords_that_are_no_text() {
    for (text, shown) in [("5", "5"), ("true", "true"), ("[1,2]", "[1,2]"), (r#"{"a":1}"#, r#"{"a":1}"#)] {
        let refused = protected(&format!(r#"{{"password":{text}}}"#), "").unwrap_err();
        assert_eq!(refused.to_string(), format!("Password value of '{shown}' is invalid."));
    }
}

#[test]
fn rules() {
    let check = |rules: &str, expected: &str| {
        let result = protected(r#"{"password":"secret"}"#, rules);
        assert_eq!(result.map_or_else(|refused| refused.to_string(), |_| "ok".to_owned()), expected, "{rules}");
    };
    for fits in ["", "[]", " [ ] .", r#"["^[a-z]+$"]"#, r#"[{".{6}", "Six."}, "c", {"e"}]"#, r#"["\\w"]"#] {
        check(fits, "ok");
    }
    check(r#"[".{7,}"]"#, "Password does not conform to requirements.");
    check(r#"["s", {".{7,}", "At least 7."}, "X"]"#, "Password does not conform to requirements. At least 7.");
    for nonsense in ["x", r#"["s""#, r#"["s"] x"#, r#"["("]"#, "[s]", r#"[{"s","t"]"#, r#"[{"s",5}]"#, r#""s""#] {
        check(nonsense, "Server cannot hash passwords at this time.");
    }
    let long = format!(r#"{{"password":"{}"}}"#, "x".repeat(PASSWORD_MAX_BYTES + 1));
    assert_eq!(protected(&long, "").unwrap_err().to_string(), "Password does not conform to requirements.");
}

#[test]
fn public_members() {
    let document = json(r#"{"_id":"org.couchdb.user:ann","_rev":"1-x","name":"ann","salt":"s","Salt":7,"n":1.0}"#);
    let check = |fields: &str, expected: Option<&str>| {
        assert_eq!(public_part(document.value(), fields), expected.map(json), "{fields}");
    };
    check("", None);
    check("other", None);
    check("_id", None);
    check(" n ,name", Some(r#"{"_id":"org.couchdb.user:ann","_rev":"1-x","name":"ann","n":1.0}"#));
    check("Salt", Some(r#"{"_id":"org.couchdb.user:ann","_rev":"1-x","Salt":7}"#));
}
