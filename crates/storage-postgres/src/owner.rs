//! [`Owner`]: one server for one database, as long as nodes do not tell each other what they changed.
//!
//! A lock, which PostgreSQL releases when the connection ends, refuses a second server. What makes it safe is not that: each
//! commit looks whether its server is still the last one that took the lock.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::Client;

use crate::OpenError;
use crate::connect::Connector;
use crate::schema::{mark, refused};

/// How long a server waits for the end of one that has just died: PostgreSQL has to notice it.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_STEP: Duration = Duration::from_millis(100);

/// The lock of a machine that was switched off is released within about half a minute.
const SETTINGS: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; \
     SET client_min_messages = error;";

/// Holds the lock.
pub(crate) struct Owner {
    id: [u8; 16],
    client: Mutex<Option<Client>>,
}

impl Owner {
    /// Takes the lock, and says so in the database.
    pub(crate) async fn take(connector: &Connector, id: [u8; 16]) -> Result<Self, OpenError> {
        let options = connector.options();
        let client = connector.connect_plain().await.map_err(|error| refused(&error, options))?;
        let begun = Instant::now();
        while !lock(&client, connector).await? {
            if begun.elapsed() > PATIENCE {
                return Err(OpenError::InUse { place: options.place(), since: since(&client, connector).await? });
            }
            tokio::time::sleep(PATIENCE_STEP).await;
        }
        let schema = &options.schema;
        let id_text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let statements = format!(
            "BEGIN; DELETE FROM {schema}.settee_owner; INSERT INTO {schema}.settee_owner (id) VALUES ('\\x{id_text}'); COMMIT"
        );
        client.batch_execute(&statements).await.map_err(|error| refused(&error, options))?;
        mark(&client, options).await?;
        Ok(Self { id, client: Mutex::new(Some(client)) })
    }

    pub(crate) fn id(&self) -> &[u8] {
        &self.id
    }

    /// Takes the lock again, if its connection was lost.
    pub(crate) async fn keep(&self, connector: &Connector) -> Result<(), OpenError> {
        if self.client.lock().as_ref().is_some_and(|client| !client.is_closed()) {
            return Ok(());
        }
        let options = connector.options();
        let client = connector.connect_plain().await.map_err(|error| refused(&error, options))?;
        if !lock(&client, connector).await? {
            return Err(OpenError::InUse { place: options.place(), since: since(&client, connector).await? });
        }
        *self.client.lock() = Some(client);
        Ok(())
    }
}

async fn lock(client: &Client, connector: &Connector) -> Result<bool, OpenError> {
    let options = connector.options();
    let at = |error: tokio_postgres::Error| refused(&error, options);
    client.batch_execute(SETTINGS).await.map_err(at)?;
    let name = format!("settee {}", options.schema);
    let row = client.query_one("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", &[&name]).await.map_err(at)?;
    row.try_get(0).map_err(at)
}

/// When the other server began, as far as it is told.
async fn since(client: &Client, connector: &Connector) -> Result<String, OpenError> {
    let options = connector.options();
    let at = |error: tokio_postgres::Error| refused(&error, options);
    let text = format!("SELECT max(since)::text FROM {}.settee_owner", options.schema);
    let row = client.query_one(&text, &[]).await.map_err(at)?;
    let since: Option<String> = row.try_get(0).map_err(at)?;
    Ok(since.unwrap_or_else(|| "a moment ago".to_owned()))
}
