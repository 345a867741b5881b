//! Who a request speaks for: accounts, passwords, session cookies, tokens, and the context that comes of them.
//!
//! A request with basic credentials goes this way:
//!
//! 1. The caller finds the [`Account`]: of a server admin ([`Authenticator::admin`]), or of a document of the users database
//!    ([`Account::of_document`]).
//! 2. [`Authenticator::check`] judges the [`Login`]. A password that was verified before is right, and any other of that
//!    account wrong, in microseconds; too many failures lock the user out.
//! 3. Otherwise the caller gets a [`Job`]. [`Job::run`] derives the key, which takes a tenth of a second or more on purpose,
//!    so it belongs on a thread that serves no requests, and few may run at once.
//!
//! Cookies ([`SessionCookie`]), tokens ([`jwt`]) and proxies ([`proxy_token_matches`]) prove with signatures, which are
//! quick.
//!
//! Everything here is synchronous and pure: time, salts, keys and settings are handed in. The crate reads no clock, no
//! entropy and no configuration, and knows no status codes.

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
pub use authenticator::{AuthError, Authenticator, Check, Job, Login, LoginPolicy};
pub use basic::{BasicCredentials, InvalidHeader};
pub use cookie::{MalformedCookie, SESSION_COOKIE, SessionCookie};
pub use lockout::{LockoutMode, LockoutPolicy, Sharing, Suspect};
pub use node_token::{NodeRequest, NodeToken, SeenTokens};
pub use password::{HashError, Hashing, NewScheme, PasswordHash, hash_password, is_hashed};
pub use proxy::proxy_token_matches;
pub use totp::Totp;
pub use user::{ADMIN_ROLE, METRICS_ROLE, UserContext};
