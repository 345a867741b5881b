//! Who gets in: the admin party, basic credentials, and what is remembered of them.

use super::*;
use crate::password::hash_password;
use std::num::NonZeroU32;

/// `admin:secret` and `zoë:p:w` (a colon in the password), hashed with few iterations.
fn authenticator() -> Authenticator {
    let authenticator = Authenticator::new([1; 32]);
    authenticator.set_admins([stored("admin", "secret"), stored("zoë", "p:w")]);
    authenticator
}

fn stored(name: &str, password: &str) -> (String, String) {
    (name.to_owned(), hash_password(password, "5a17", NonZeroU32::MIN))
}

#[track_caller]
fn check(authenticator: &Authenticator, header: &str, expect: &Result<UserContext, AuthError>) {
    assert_eq!(&authenticator.basic(Some(header)), expect, "{header}");
}

#[test]
fn headers() {
    let authenticator = authenticator();
    for (header, expect) in [
        ("Basic YWRtaW46c2VjcmV0", Ok(UserContext::admin("admin"))),
        ("basic  YWRtaW46c2VjcmV0 ", Ok(UserContext::admin("admin"))),
        // zoë:p:w
        ("Basic em/DqzpwOnc=", Ok(UserContext::admin("zoë"))),
        // admin:wrong, admin: and nobody:secret
        ("Basic YWRtaW46d3Jvbmc=", Err(AuthError::Incorrect)),
        ("Basic YWRtaW46", Err(AuthError::Incorrect)),
        ("Basic bm9ib2R5OnNlY3JldA==", Err(AuthError::Incorrect)),
        // a name that is not UTF-8
        ("Basic /zpzZWNyZXQ=", Err(AuthError::Incorrect)),
        ("Basic nonsense!", Err(AuthError::InvalidHeader)),
        // decodes, but has no colon
        ("Basic nonsense", Ok(UserContext::anonymous())),
        ("Basic Xzpf", Ok(UserContext::anonymous())),
        ("Basic", Ok(UserContext::anonymous())),
        ("Bearer YWRtaW46c2VjcmV0", Ok(UserContext::anonymous())),
        ("", Ok(UserContext::anonymous())),
    ] {
        check(&authenticator, header, &expect);
    }
    assert_eq!(authenticator.basic(None), Ok(UserContext::anonymous()));
}

#[test]
fn the_party_ends_with_the_first_admin_even_a_damaged_one() {
    let authenticator = Authenticator::new([1; 32]);
    assert_eq!(authenticator.basic(None), Ok(UserContext::admin_party()));
    check(&authenticator, "Basic YWRtaW46c2VjcmV0", &Err(AuthError::Incorrect));
    for damaged in ["-pbkdf2:sha256-zz,salt,10", "secret", ""] {
        authenticator.set_admins([("admin".to_owned(), damaged.to_owned())]);
        assert_eq!(authenticator.basic(None), Ok(UserContext::anonymous()), "{damaged}");
        check(&authenticator, "Basic YWRtaW46c2VjcmV0", &Err(AuthError::Incorrect));
    }
    authenticator.set_admins([]);
    assert_eq!(authenticator.basic(None), Ok(UserContext::admin_party()));
}

#[test]
fn only_right_passwords_are_remembered() {
    let authenticator = authenticator();
    let needs_hashing = |header| matches!(authenticator.check(Some(header)), Ok(Check::NeedsHashing(_)));
    let (right, wrong) = ("Basic YWRtaW46c2VjcmV0", "Basic YWRtaW46d3Jvbmc=");
    assert!(needs_hashing(right));
    check(&authenticator, right, &Ok(UserContext::admin("admin")));
    assert!(!needs_hashing(right));
    for _ in 0..3 {
        assert!(needs_hashing(wrong));
        check(&authenticator, wrong, &Err(AuthError::Incorrect));
    }
    // The same password under a fresh salt is another stored hash.
    authenticator.set_admins([("admin".to_owned(), hash_password("secret", "0ther", NonZeroU32::MIN))]);
    assert!(needs_hashing(right));
    check(&authenticator, right, &Ok(UserContext::admin("admin")));
    authenticator.set_admins([stored("admin", "changed")]);
    check(&authenticator, right, &Err(AuthError::Incorrect));
    authenticator.set_admins([stored("other", "secret")]);
    check(&authenticator, right, &Err(AuthError::Incorrect));
}

#[test]
fn a_job_that_waited_behind_the_same_credentials_is_free() {
    let slow = hash_password("secret", "5a17", NonZeroU32::MIN);
    let authenticator = Authenticator::new([1; 32]);
    authenticator.set_admins([("admin".to_owned(), slow)]);
    let job = || match authenticator.check(Some("Basic YWRtaW46c2VjcmV0")) {
        Ok(Check::NeedsHashing(job)) => job,
        other => panic!("{other:?}"),
    };
    let (first, mut second) = (job(), job());
    assert_eq!(first.run(), Ok(UserContext::admin("admin")));
    // Without the cache this hash could not let anybody in.
    second.admin = Arc::new(Admin { stored: String::new(), hash: None });
    assert_eq!(second.run(), Ok(UserContext::admin("admin")));
}

#[test]
fn debug_output_hides_secrets() {
    let authenticator = authenticator();
    let checked = authenticator.check(Some("Basic YWRtaW46c2VjcmV0"));
    let text = format!("{authenticator:?} {checked:?}");
    assert!(text.contains("admin"), "{text}");
    assert!(!text.contains("secret") && !text.contains("115, 101") && !text.contains("5a17"), "{text}");
}
