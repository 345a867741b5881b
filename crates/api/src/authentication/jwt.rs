//! Bearer tokens and their verification keys: those of `[jwt_keys]` and those that identity providers publish
//! ([`Keys`]). Published keys are read again periodically, and when a token names an unknown key.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use settee_auth::UserContext;
use settee_auth::jwt::{KeySet, KeyType, Token, VerifyingKey};
use settee_settings::Settings;

use super::state::Authentication;
use crate::Error;
use crate::auth_policy::{AuthPolicy, KeySource};

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum interval between requests because of unknown keys, which clients can cause.
const REREAD_MS: u64 = 30_000;

const KEYS_MAX_BYTES: usize = 1 << 20;

const CONFIGURED_MAX: usize = 1024;

/// A function that reads the keys at a URL with the scheme `http` or `https`, or in a file. The error is for the log.
pub type KeyReader = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>> + Send + Sync>;

pub(super) async fn user(
    parts: &Authentication,
    policy: &AuthPolicy,
    headers: &HeaderMap,
) -> Result<Option<UserContext>, Error> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(text) = header.and_then(|header| header.split_once(' ')) else { return Ok(None) };
    if !text.0.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let misconfigured = || {
        tracing::error!("[jwt_auth] required_claims makes no sense");
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "misconfigured_server", "JWT is not configured correctly")
    };
    let tokens = policy.jwt.tokens.as_ref().ok_or_else(misconfigured)?;
    let now_ms = (parts.clock_ms)();
    let token = Token::parse(text.1.trim(), tokens)?;
    token.check(tokens, now_ms / 1000)?;
    let (key_type, id) = (token.algorithm().key_type(), token.key_id());
    let key = parts.keys.find(parts.settings.as_ref(), &policy.jwt.sources, key_type, id, now_ms).await?;
    token.verify(&key, &parts.authenticator)?;
    Ok(Some(token.context(tokens)?))
}

pub(crate) struct Keys {
    read: KeyReader,
    configured: Mutex<Configured>,
    published: Mutex<HashMap<String, Published>>,
    /// One task reads the keys; the others wait for its result.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Configured {
    version: Option<u64>,
    keys: HashMap<(KeyType, String), Arc<VerifyingKey>>,
}

#[derive(Clone, Default)]
struct Published {
    keys: Arc<KeySet>,
    /// Time of the last request to the provider, successful or not.
    asked_ms: u64,
}

impl Keys {
    pub(crate) fn new(read: KeyReader) -> Self {
        let (configured, published, reading) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { read, configured, published, reading }
    }

    async fn find(
        &self,
        settings: &dyn Settings,
        sources: &[KeySource],
        key_type: KeyType,
        id: Option<&str>,
        now_ms: u64,
    ) -> Result<Arc<VerifyingKey>, Error> {
        if let Some(key) = self.configured(settings, key_type, id.unwrap_or("_default"))? {
            return Ok(key);
        }
        for source in sources {
            if let Some(key) = self.published(source, key_type, id, now_ms).await {
                return Ok(Arc::new(key));
            }
        }
        Err(Error::bad_request("Unknown kid"))
    }

    fn configured(
        &self,
        settings: &dyn Settings,
        key_type: KeyType,
        id: &str,
    ) -> Result<Option<Arc<VerifyingKey>>, Error> {
        let version = settings.version();
        let named = (key_type, id.to_owned());
        let mut configured = self.configured.lock();
        if configured.version != version || configured.keys.len() >= CONFIGURED_MAX {
            *configured = Configured { version, keys: HashMap::new() };
        }
        if let Some(key) = configured.keys.get(&named) {
            return Ok(Some(Arc::clone(key)));
        }
        let Some(text) = settings.get("jwt_keys", &format!("{}:{id}", key_type.name())) else { return Ok(None) };
        let key = Arc::new(VerifyingKey::parse(key_type, &text)?);
        configured.keys.insert(named, Arc::clone(&key));
        Ok(Some(key))
    }

    async fn published(
        &self,
        source: &KeySource,
        key_type: KeyType,
        id: Option<&str>,
        now_ms: u64,
    ) -> Option<VerifyingKey> {
        let known = || self.published.lock().get(&source.address).cloned();
        let needs_reading = |published: &Option<Published>| {
            published.as_ref().is_none_or(|published| {
                let age_ms = now_ms.saturating_sub(published.asked_ms);
                let is_known = published.keys.find(key_type, id).is_some();
                age_ms >= source.fresh_ms || (!is_known && age_ms >= REREAD_MS)
            })
        };
        let mut published = known();
        if needs_reading(&published) {
            let _reading = self.reading.lock().await;
            // Another request may have read the keys while this one waited.
            published = known();
            if needs_reading(&published) {
                let keys = self.read(&source.address).await;
                let keys = keys.or_else(|| Some(published?.keys)).unwrap_or_default();
                let read = Published { keys, asked_ms: now_ms };
                self.published.lock().insert(source.address.clone(), read.clone());
                published = Some(read);
            }
        }
        published?.keys.find(key_type, id).cloned()
    }

    /// Reads a source. Errors are logged, and the previous keys stay in use.
    async fn read(&self, address: &str) -> Option<Arc<KeySet>> {
        let answer = tokio::time::timeout(READ_TIMEOUT, (self.read)(address.to_owned())).await;
        let problem = match answer {
            Err(_) => "no answer in time".to_owned(),
            Ok(Err(problem)) => problem,
            Ok(Ok(text)) if text.len() > KEYS_MAX_BYTES => "the answer is too long".to_owned(),
            Ok(Ok(text)) => match KeySet::parse(&text) {
                Some(keys) => return Some(Arc::new(keys)),
                None => "this is no set of keys".to_owned(),
            },
        };
        tracing::warn!(address, problem, "the keys of an identity provider could not be read");
        None
    }
}
