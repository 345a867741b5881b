//! Authentication: accounts, passwords, session cookies, tokens, and the resulting user context.
//!
//! A request with basic credentials is authenticated in these steps:
//!
//! 1. The caller finds the [`Account`]: of a server admin ([`Authenticator::admin`]), or of a document of the users
//!    database ([`Account::of_document`]).
//! 2. [`Authenticator::check`] checks the [`Login`], within microseconds if the password is cached. Too many failures
//!    lock the user out.
//! 3. Otherwise it returns a [`Job`]. [`Job::run`] derives the key, which deliberately takes 0.1 s or more, so it must
//!    run on a thread that serves no requests, with few jobs at once.
//!
//! Cookies ([`SessionCookie`]), tokens ([`jwt`]) and proxies ([`proxy_token_matches`]) are authenticated by signatures.
//!
//! The crate performs no I/O: callers supply time, salts, keys and settings.

mod account;
mod algorithm;
mod authenticator;
mod basic;
mod cache;
mod cookie;
pub mod jwt;
mod lockout;
mod node_token;
mod password;
mod proxy;
mod totp;
mod user;
pub mod user_document;

pub use account::Account;
pub use algorithm::Algorithm;
pub use authenticator::{AuthError, Authenticator, Check, Job, Login, LoginPolicy, PasswordChecks};
pub use basic::{BasicCredentials, InvalidHeader};
pub use cookie::{MalformedCookie, SESSION_COOKIE, SessionCookie};
pub use lockout::{LockoutMode, LockoutPolicy, Sharing, Suspect};
pub use node_token::{NodeRequest, NodeToken, SeenTokens};
pub use password::{HashError, Hashing, NewScheme, PasswordHash, hash_password, is_hashed};
pub use proxy::proxy_token_matches;
pub use totp::Totp;
pub use user::{ADMIN_ROLE, METRICS_ROLE, UserContext};
