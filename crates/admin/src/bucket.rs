//! Opening of engines on object storage, from settings and from the environment variables of the providers.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use settee_api::PeerClient;
use settee_replication::{BoxFuture, TransportError};
use settee_settings::{Settings, storage};
use settee_storage::Engine;
use settee_storage_bucket::{Access, BucketEngine, ClusterId, Location, Options, PeerCall, PeerError, Peers};

use crate::backends::Opener;
use crate::connector::Connector;
use crate::environment;
use crate::storage::elsewhere;

/// Groups of a store that a command creates: the default of the setting.
const DEFAULT_GROUPS: NonZeroU32 = NonZeroU32::new(16).expect("positive");

/// Directory of the disk cache in the data directory.
const CACHE: &str = "bucket-cache";

/// Separates the location from the id of the cluster in the note of a data directory.
const CLUSTER: &str = ", cluster ";

/// Name of the process of a command.
const COMMAND: &str = "a command";

/// Prefixes of the environment variables that contain access to a store.
const VARIABLES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Opens the store of a server. Also returns its location and cluster, for the note of the data directory. Fails if the
/// data directory belongs to another cluster.
pub(crate) fn open(
    configuration: &dyn Settings,
    url: &str,
    opener: Opener<'_>,
) -> anyhow::Result<(Arc<dyn Engine>, String)> {
    let Opener { data, name, id, secret, peers } = opener;
    let ms = |value| Duration::from_millis(value);
    let disk_bytes = usize::try_from(storage::DISK_CACHE_MB.of(configuration)).unwrap_or(usize::MAX) << 20;
    let options = Options {
        groups: u32::try_from(storage::GROUPS.of(configuration))
            .ok()
            .and_then(NonZeroU32::new)
            .unwrap_or(NonZeroU32::MIN),
        secret,
        lease: ms(storage::LEASE_MS.of(configuration)),
        commit_interval: ms(storage::COMMIT_INTERVAL_MS.of(configuration)),
        flush_interval: ms(storage::FLUSH_INTERVAL_MS.of(configuration)),
        history: Duration::from_secs(storage::HISTORY_HOURS.of(configuration) * 3600),
        poll_interval: ms(storage::POLL_INTERVAL_MS.of(configuration)),
        timeout: ms(storage::TIMEOUT_MS.of(configuration)),
        cache_bytes: storage::CACHE_MB.of(configuration) << 20,
        disk_cache: (disk_bytes > 0).then(|| (data.join(CACHE), disk_bytes)),
        ..basic(id, name)
    };
    let peers: Arc<dyn Peers> = Arc::new(Client(peers));
    let access = Access {
        endpoint: storage::ENDPOINT.text(configuration),
        region: storage::REGION.text(configuration),
        key_id: storage::ACCESS_KEY_ID.text(configuration),
        secret: storage::SECRET_ACCESS_KEY.text(configuration),
        variables: variables(),
    };
    let authorities = storage::CA_FILE.text(configuration).map(PathBuf::from);
    let noted = elsewhere(data);
    let (location, connector) = place(url, (&access, authorities.as_deref()))?;
    let shown = location.to_string();
    let cluster = noted.and_then(|noted| cluster_of(&noted, &shown));
    let bucket = location.open(&access, connector)?;
    let engine = BucketEngine::open(bucket, &Options { cluster, ..options }, Some(peers))?;
    let note = format!("{shown}{CLUSTER}{:032x}", engine.cluster().0);
    Ok((Arc::new(engine), note))
}

/// Messages to the engines of other servers.
struct Client(Arc<PeerClient>);

impl Peers for Client {
    fn call(&self, call: PeerCall) -> BoxFuture<'static, Result<bytes::Bytes, PeerError>> {
        let client = Arc::clone(&self.0);
        Box::pin(async move {
            let PeerCall { address, secret, body, timeout } = call;
            client.call(&address, &secret, body, timeout).await.map_err(|error| match error {
                TransportError::Refused(why) => PeerError::Refused(why),
                error => PeerError::Failed(error.to_string()),
            })
        })
    }
}

/// Opens a store for a command. Fails if a server uses it.
pub(crate) fn open_for_command(url: &str, id: [u8; 16], secret: [u8; 32]) -> anyhow::Result<Arc<dyn Engine>> {
    let access = Access { variables: variables(), ..Access::default() };
    let options = Options { secret, groups: DEFAULT_GROUPS, is_exclusive: true, ..basic(id, COMMAND) };
    let (location, connector) = place(url, (&access, None))?;
    Ok(Arc::new(BucketEngine::open(location.open(&access, connector)?, &options, None)?))
}

/// As [`crate::backends::open_bucket_at`].
pub(crate) fn open_at(url: &str, time_s: Option<u64>) -> anyhow::Result<(Arc<dyn Engine>, u64)> {
    let access = Access { variables: variables(), ..Access::default() };
    let (location, connector) = place(url, (&access, None))?;
    let engine = BucketEngine::open(location.open_at(time_s, &access, connector)?, &basic([0; 16], COMMAND), None)?;
    let time_s = engine.time_s().context("the engine contains the current state")?;
    Ok((Arc::new(engine), time_s))
}

fn basic(id: [u8; 16], name: &str) -> Options {
    let started_ms = environment::now_ms();
    Options { id: u128::from_be_bytes(id), started_ms, name: name.to_owned(), ..Options::default() }
}

fn variables() -> Vec<(String, String)> {
    let text =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    text.filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Returns a location, and the connections to it.
fn place(url: &str, (access, authorities): (&Access, Option<&Path>)) -> anyhow::Result<(Location, Arc<Connector>)> {
    let location = Location::parse(url).map_err(anyhow::Error::msg).context("the URL of the storage cannot be used")?;
    let endpoint = access.endpoint.as_deref().unwrap_or("https://localhost").trim_end_matches('/');
    Ok((location, Arc::new(Connector::new(endpoint, authorities)?)))
}

/// Returns the cluster that a data directory has noted for a location.
fn cluster_of(noted: &str, shown: &str) -> Option<ClusterId> {
    let (place, cluster) = noted.split_once(CLUSTER)?;
    let cluster = u128::from_str_radix(cluster, 16).ok()?;
    (place == shown).then_some(ClusterId(cluster))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_settings::{Persist, SettingsError};

    use super::*;

    /// All settings have their defaults.
    struct NoSettings;

    impl Settings for NoSettings {
        fn get(&self, _: &str, _: &str) -> Option<String> {
            None
        }

        fn section(&self, _: &str) -> Vec<(String, String)> {
            Vec::new()
        }

        fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
            Vec::new()
        }

        fn set(&self, _: &str, _: &str, _: &str, _: Persist) -> Result<Option<String>, SettingsError> {
            unreachable!("no setting is changed")
        }

        fn delete(&self, _: &str, _: &str, _: Persist) -> Result<String, SettingsError> {
            unreachable!("no setting is changed")
        }

        fn reload(&self) -> Result<(), SettingsError> {
            Ok(())
        }
    }

    #[test]
    fn a_data_directory_belongs_to_a_cluster() {
        let noted = format!("s3://bucket/a{CLUSTER}{:032x}", 77);
        assert_eq!(cluster_of(&noted, "s3://bucket/a"), Some(ClusterId(77)));
        assert_eq!(cluster_of(&noted, "s3://bucket/b"), None, "the data was moved");
        assert_eq!(cluster_of("database a on b", "s3://bucket/b"), None);
    }

    #[test]
    fn a_store_in_a_directory_is_opened_with_default_settings() {
        let directory = std::env::temp_dir().join(format!("settee-bucket-{}", std::process::id()));
        let url = format!("file://{}/store", directory.display());
        let settings = NoSettings;
        let network = crate::remote_server::network(None).unwrap();
        let peers = Arc::new(PeerClient::new(network, 1, Box::new(|| 0)));
        let opener = |id, name| Opener { data: &directory, name, id, secret: [7; 32], peers: Arc::clone(&peers) };
        let (engine, note) = open(&settings, &url, opener([1; 16], "settee@here")).unwrap();
        engine.sync().unwrap();
        assert!(
            note.starts_with(&url) && cluster_of(&note, &url) == Some(ClusterId(u128::from_be_bytes([1; 16]))),
            "{note}"
        );
        let error = format!("{:#}", open(&settings, &url, opener([2; 16], "settee@there")).err().unwrap());
        assert!(error.contains("in use by another process"), "{error}");
        drop(engine);
        open_for_command(&url, [3; 16], [7; 32]).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
