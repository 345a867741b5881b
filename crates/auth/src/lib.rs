//! Who a request speaks for: user contexts, password hashes and the check of credentials against the server's admins.
//!
//! A request with basic credentials goes this way:
//!
//! 1. [`Authenticator::check`] reads the `Authorization` header. No credentials: the anonymous context, or an admin when
//!    the server has no admins at all (the admin party).
//! 2. A name and password that were verified before answer from the cache, in microseconds.
//! 3. Otherwise the caller gets a [`Job`]. [`Job::run`] derives the key, which takes a tenth of a second or more on purpose,
//!    so it belongs on a thread that serves no requests, and few may run at once.
//!
//! Everything here is synchronous and pure: salts, keys and settings are handed in. The crate reads no clock, no entropy
//! and no configuration, and knows no status codes.

mod authenticator;
mod base64;
mod cache;
mod hex;
mod password;
mod user;

pub use authenticator::{AuthError, Authenticator, Check, Job};
pub use password::{HashError, PasswordHash, hash_password, is_hashed};
pub use user::{ADMIN_ROLE, UserContext};
