//! Login with a name and a password, for basic credentials and for sessions.

use std::net::IpAddr;
use std::sync::Arc;

use settee_auth::{Account, AuthError, BasicCredentials, Check, Login, UserContext};

use super::state::Authentication;
use crate::Error;
use crate::auth_policy::AuthPolicy;

/// Returns the user of basic credentials. Users with one-time passwords must start sessions instead.
pub(super) async fn basic(
    parts: &Authentication,
    policy: &AuthPolicy,
    peer: IpAddr,
    credentials: BasicCredentials,
) -> Result<UserContext, Error> {
    let name = String::from_utf8(credentials.name).map_err(|_| AuthError::Incorrect)?;
    let account = parts.users.account(&name).await?.ok_or(AuthError::Incorrect)?;
    if account.totp().is_some() {
        return Err(AuthError::Incorrect.into());
    }
    check(parts, policy, peer, Arc::clone(&account), credentials.password).await?;
    Ok(account.context())
}

pub(super) async fn is_unknown(parts: &Authentication, credentials: &BasicCredentials) -> Result<bool, Error> {
    let Ok(name) = std::str::from_utf8(&credentials.name) else { return Ok(true) };
    Ok(parts.users.account(name).await?.is_none())
}

pub(crate) async fn session(
    parts: &Authentication,
    policy: &AuthPolicy,
    peer: IpAddr,
    name: &str,
    password: Vec<u8>,
    token: &str,
) -> Result<Arc<Account>, Error> {
    let now_ms = (parts.clock_ms)();
    let Some(account) = parts.users.account(name).await? else {
        warn(name, peer);
        return Err(parts.authenticator.refuse_unknown(name, peer, now_ms, &policy.login.lockout).into());
    };
    check(parts, policy, peer, Arc::clone(&account), password).await?;
    if account.totp().is_some_and(|totp| !totp.verify(token, now_ms / 1000)) {
        warn(name, peer);
        return Err(AuthError::Incorrect.into());
    }
    Ok(account)
}

async fn check(
    parts: &Authentication,
    policy: &AuthPolicy,
    peer: IpAddr,
    account: Arc<Account>,
    password: Vec<u8>,
) -> Result<(), Error> {
    let login = Login { account: Arc::clone(&account), password: password.clone(), peer, now_ms: (parts.clock_ms)() };
    let result = match parts.authenticator.check(login, &policy.login) {
        Ok(Check::Right) => return Ok(()),
        Ok(Check::NeedsHashing(job)) => parts.hashers.run(Some(peer), move || job.run()).await?,
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => {
            settee_service::upgrade(&parts.writer, &account, password);
            Ok(())
        }
        Err(error) => {
            warn(account.name(), peer);
            Err(error.into())
        }
    }
}

fn warn(user: &str, peer: IpAddr) {
    tracing::warn!(user, %peer, "authentication failed");
}
