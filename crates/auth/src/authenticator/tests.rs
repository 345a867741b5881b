//! Logins, the cache of verified passwords, and lockouts.

use super::*;
use crate::password::hash_password;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;

const POLICY: LoginPolicy = LoginPolicy {
    iterations: 1..=1000,
    lockout: LockoutPolicy { mode: LockoutMode::Enforce, threshold: 3, max_lifetime_ms: 1000 },
};

fn stored(name: &str, password: &str) -> (String, String) {
    (name.to_owned(), hash_password(password, "5a17", NonZeroU32::MIN))
}

fn authenticator() -> Authenticator {
    let authenticator = Authenticator::new([1; 32]);
    authenticator.set_admins([stored("admin", "secret"), stored("zoë", "p:w")]);
    authenticator
}

fn login(
    authenticator: &Authenticator,
    name: &str,
    password: &str,
    peer: u32,
    now_ms: u64,
) -> (&'static str, Result<(), AuthError>) {
    let account = authenticator.admin(name).unwrap();
    let login = Login { account, password: password.into(), peer: Ipv4Addr::from(peer).into(), now_ms };
    match authenticator.check(login, &POLICY) {
        Ok(Check::Right) => ("cheap", Ok(())),
        Ok(Check::NeedsHashing(job)) => ("slow", job.run()),
        Err(error) => ("cheap", Err(error)),
    }
}

#[test]
fn a_password_is_hashed_once_and_then_others_are_wrong_at_once() {
    let authenticator = authenticator();
    assert_eq!(login(&authenticator, "admin", "wrong", 1, 0), ("slow", Err(AuthError::Incorrect)));
    assert_eq!(login(&authenticator, "admin", "secret", 1, 0), ("slow", Ok(())));
    assert_eq!(login(&authenticator, "admin", "secret", 2, 0), ("cheap", Ok(())));
    assert_eq!(login(&authenticator, "admin", "wrong", 2, 0), ("cheap", Err(AuthError::Incorrect)));
    assert_eq!(login(&authenticator, "zoë", "secret", 2, 0), ("slow", Err(AuthError::Incorrect)));
    assert_eq!(login(&authenticator, "zoë", "p:w", 2, 0), ("slow", Ok(())));
}

#[test]
fn checks_are_counted_as_fast_or_slow() {
    let authenticator = authenticator();
    // (password, fast, slow): a successful derivation is added to the cache, which counts as a fast check.
    for (password, fast, slow) in [("wrong", 0, 1), ("secret", 1, 2), ("secret", 2, 2), ("wrong", 3, 2)] {
        let _ = login(&authenticator, "admin", password, 1, 0);
        let checks = authenticator.password_checks();
        assert_eq!((checks.fast(), checks.slow()), (fast, slow), "{password}");
    }
}

#[test]
fn a_new_password_ends_the_old_one_at_once() {
    let authenticator = authenticator();
    assert_eq!(login(&authenticator, "admin", "secret", 1, 0), ("slow", Ok(())));
    authenticator.set_admins([("admin".to_owned(), hash_password("new", "other", NonZeroU32::MIN))]);
    assert_eq!(login(&authenticator, "admin", "secret", 1, 0), ("slow", Err(AuthError::Incorrect)));
    assert_eq!(login(&authenticator, "admin", "new", 1, 0), ("slow", Ok(())));
    assert!(authenticator.admin("zoë").is_none());
}

#[test]
fn logins_that_queued_up_cost_one_derivation() {
    let authenticator = authenticator();
    let account = authenticator.admin("admin").unwrap();
    let job = |password: &str| {
        let (account, peer) = (Arc::clone(&account), Ipv4Addr::LOCALHOST.into());
        match authenticator.check(Login { account, password: password.into(), peer, now_ms: 0 }, &POLICY).unwrap() {
            Check::NeedsHashing(job) => job,
            Check::Right => panic!("nothing is remembered yet"),
        }
    };
    let jobs = [job("secret"), job("secret"), job("wrong")];
    authenticator.set_admins([]);
    let results = jobs.map(Job::run);
    assert_eq!(results, [Ok(()), Ok(()), Err(AuthError::Incorrect)]);
}

#[test]
fn too_many_failures_lock_out_here_but_not_elsewhere() {
    let authenticator = authenticator();
    assert_eq!(login(&authenticator, "admin", "secret", 1, 0), ("slow", Ok(())));
    for _ in 0..3 {
        assert_eq!(login(&authenticator, "admin", "wrong", 1, 0), ("cheap", Err(AuthError::Incorrect)));
    }
    for password in ["secret", "wrong"] {
        assert_eq!(login(&authenticator, "admin", password, 1, 999), ("cheap", Err(AuthError::LockedOut)));
    }
    assert_eq!(login(&authenticator, "admin", "secret", 2, 0), ("cheap", Ok(())));
    assert_eq!(login(&authenticator, "admin", "secret", 1, 1000), ("cheap", Ok(())));
    let unknown = |peer: u32| authenticator.refuse_unknown("nobody", Ipv4Addr::from(peer).into(), 0, &POLICY.lockout);
    for _ in 0..3 {
        assert_eq!(unknown(1), AuthError::Incorrect);
    }
    assert_eq!(unknown(1), AuthError::LockedOut);
    assert_eq!(unknown(2), AuthError::Incorrect);
}

/// A server with another secret cannot identify the suspect.
#[test]
fn failures_count_on_all_servers() {
    type Reported = Arc<std::sync::Mutex<Vec<Suspect>>>;
    let server = |secret: &'static str| {
        let (authenticator, reply) = (authenticator(), Reported::default());
        let reported = Arc::clone(&reply);
        authenticator.share_failures(Sharing {
            secret: Box::new(move || secret.into()),
            report: Box::new(move |suspect| reported.lock().unwrap().push(suspect)),
        });
        (authenticator, reply)
    };
    let servers = [server("one"), server("one"), server("another")];
    let report = |from: usize, to: usize| {
        for suspect in std::mem::take(&mut *servers[from].1.lock().unwrap()) {
            let sent = suspect.to_string();
            assert_eq!(Suspect::parse(&sent).as_ref(), Some(&suspect));
            servers[to].0.note_reported(&suspect, &POLICY.lockout, 0);
        }
    };
    for broken in ["", "12", "zz", &"0".repeat(31), &"0".repeat(33)] {
        assert_eq!(Suspect::parse(broken), None, "{broken}");
    }
    let refuse =
        |server: usize| servers[server].0.refuse_unknown("nobody", Ipv4Addr::LOCALHOST.into(), 0, &POLICY.lockout);
    for failure in 0..3 {
        assert_eq!(refuse(0), AuthError::Incorrect, "{failure}");
        report(0, [1, 2, 1][failure]);
    }
    assert_eq!(refuse(0), AuthError::LockedOut);
    assert_eq!([refuse(1), refuse(1)], [AuthError::Incorrect, AuthError::LockedOut]);
    assert_eq!(
        [refuse(2), refuse(2), refuse(2), refuse(2)].map(|error| error == AuthError::LockedOut),
        [false, false, false, true]
    );
    // A reported failure is not reported again, and rejecting a locked-out client is not a failure.
    assert_eq!(servers.each_ref().map(|(_, reply)| reply.lock().unwrap().len()), [0, 1, 3]);
    let password = |server: usize, tried: &str| login(&servers[server].0, "admin", tried, 9, 0).1;
    assert_eq!(password(0, "wrong"), Err(AuthError::Incorrect));
    report(0, 1);
    assert_eq!(
        [password(1, "wrong"), password(1, "wrong"), password(1, "secret")].map(Result::err),
        [Some(AuthError::Incorrect), Some(AuthError::Incorrect), Some(AuthError::LockedOut)]
    );
    assert_eq!(password(2, "secret"), Ok(()));
}

#[test]
fn the_party_ends_with_the_first_admin_even_a_damaged_one() {
    let authenticator = Authenticator::new([1; 32]);
    assert_eq!(authenticator.without_credentials(), UserContext::admin_party());
    for damaged in ["-pbkdf2:sha256-zz,salt,10", "secret", ""] {
        authenticator.set_admins([("admin".to_owned(), damaged.to_owned())]);
        assert_eq!(authenticator.without_credentials(), UserContext::anonymous(), "{damaged}");
        for password in ["secret", ""] {
            assert_eq!(login(&authenticator, "admin", password, 1, 0).1, Err(AuthError::Incorrect), "{damaged}");
        }
        authenticator.set_admins([]);
    }
    assert_eq!(authenticator.without_credentials(), UserContext::admin_party());
}

#[test]
fn debug_output_shows_no_secrets() {
    let authenticator = authenticator();
    let account = authenticator.admin("admin").unwrap();
    let login =
        Login { account: Arc::clone(&account), password: "secret".into(), peer: Ipv4Addr::LOCALHOST.into(), now_ms: 0 };
    let check = authenticator.check(login, &POLICY).unwrap();
    let shown = format!("{authenticator:?} {check:?} {account:?}");
    let hash = hash_password("secret", "5a17", NonZeroU32::MIN);
    assert!(!shown.contains("secret") && !shown.contains(&hash[16..]) && !shown.contains("5a17"), "{shown}");
}
