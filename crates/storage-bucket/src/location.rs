//! [`Location`]: a prefix in a bucket, or a directory. [`Bucket`] is the opened store of one.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, memory::InMemory};
use settee_storage::{Result, StorageError, durable};

/// File in a directory whose lock excludes other processes.
pub(crate) const LOCK: &str = "settee-lock";

/// Retries of one request by the client of the store. The library retries beyond them while the store is opened.
const RETRIES: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Region of a store of which none is configured.
const REGION: &str = "us-east-1";

const FORMS: &str = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY";

/// Location of a store. It contains no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    kind: Kind,
    /// Name of the bucket or container; empty for a directory.
    bucket: String,
    /// Path within the bucket, or of the directory.
    prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    S3,
    Google,
    Azure,
    Directory,
}

const SCHEMES: [(&str, Kind); 6] = [
    ("s3://", Kind::S3),
    ("gs://", Kind::Google),
    ("az://", Kind::Azure),
    ("azure://", Kind::Azure),
    ("abfs://", Kind::Azure),
    ("file://", Kind::Directory),
];

/// Access to a store, if not from its environment variables, which have the names that the tools of the provider use.
#[derive(Clone, Default)]
pub struct Access {
    /// Environment variables of the process.
    pub variables: Vec<(String, String)>,
    /// URL of the store, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// Id of the access key; the account of Azure.
    pub key_id: Option<String>,
    /// Secret of the access key.
    pub secret: Option<String>,
}

impl fmt::Debug for Access {
    /// Contains no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("endpoint", &self.endpoint).field("region", &self.region).finish_non_exhaustive()
    }
}

/// HTTP connections to a store.
pub type Connector = Arc<dyn HttpConnector>;

#[derive(Clone, Debug)]
struct SharedConnector(Connector);

impl HttpConnector for SharedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        self.0.connect(options)
    }
}

impl Location {
    /// Returns true if the text is the URL of a bucket or of a directory.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        SCHEMES.iter().any(|(scheme, _)| text.starts_with(scheme))
    }

    /// Fails with a description of the valid forms.
    pub fn parse(url: &str) -> Result<Self, String> {
        let found = SCHEMES.iter().find_map(|(scheme, kind)| Some((*kind, url.strip_prefix(scheme)?)));
        let Some((kind, rest)) = found else { return Err(format!("it has an unknown scheme: {FORMS}")) };
        if rest.contains(['?', '#', '@']) {
            return Err(format!(
                "it contains parameters or credentials, which belong in variables or settings: {FORMS}"
            ));
        }
        if kind == Kind::Directory {
            if !rest.starts_with('/') || rest.trim_matches('/').is_empty() {
                return Err(format!("the path of a directory must be absolute: {FORMS}"));
            }
            return Ok(Self { kind, bucket: String::new(), prefix: rest.trim_end_matches('/').to_owned() });
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        if bucket.is_empty() {
            return Err(format!("it names no bucket: {FORMS}"));
        }
        if prefix.is_empty() {
            return Err(format!("it has no prefix, which separates clusters in a bucket: {FORMS}"));
        }
        Path::parse(prefix).map_err(|error| format!("its prefix is not valid: {error}"))?;
        Ok(Self { kind, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Opens the store without a request, except that a missing directory is created. Fails if the credentials are
    /// incomplete, or if another process uses the directory.
    pub fn open(&self, access: &Access, connector: Connector) -> Result<Bucket> {
        let ownership = match self.kind {
            Kind::Directory => Ownership::Locked(self.lock()?),
            _ => Ownership::Leased,
        };
        Ok(Bucket { objects: self.objects(access, connector)?, shown: self.to_string(), ownership })
    }

    /// Opens the state of a second of the Unix epoch, or that of now. Other processes may use
    /// and change the store. Changes of this process are not written.
    pub fn open_at(&self, time_s: Option<u64>, access: &Access, connector: Connector) -> Result<Bucket> {
        let ownership = Ownership::Past(time_s);
        Ok(Bucket { objects: self.objects(access, connector)?, shown: self.to_string(), ownership })
    }

    fn objects(&self, access: &Access, connector: Connector) -> Result<Arc<dyn ObjectStore>> {
        let failed = |error: object_store::Error| StorageError::Io(format!("{self} cannot be opened: {error}"));
        let connector = SharedConnector(connector);
        let objects: Arc<dyn ObjectStore> = match self.kind {
            Kind::S3 => Arc::new(self.s3(access).with_http_connector(connector).build().map_err(failed)?),
            Kind::Google => Arc::new(self.google(access).with_http_connector(connector).build().map_err(failed)?),
            Kind::Azure => Arc::new(self.azure(access).with_http_connector(connector).build().map_err(failed)?),
            Kind::Directory => {
                let objects = LocalFileSystem::new_with_prefix(&self.prefix).map_err(failed)?;
                // A put must survive a power loss.
                return Ok(Arc::new(objects.with_fsync(true)));
            }
        };
        Ok(Arc::new(PrefixStore::new(objects, self.prefix.as_str())))
    }

    /// Creates the directory, and locks it.
    fn lock(&self) -> Result<File> {
        let directory = FilePath::new(&self.prefix);
        let failed = |error: &dyn fmt::Display| StorageError::Io(format!("{} cannot be used: {error}", self.prefix));
        durable::create_directories(directory).map_err(|error| failed(&error))?;
        let lock = File::options().write(true).create(true).truncate(false).open(directory.join(LOCK));
        let lock = lock.map_err(|error| failed(&error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(&"it is in use by another process"),
            TryLockError::Error(error) => failed(&error),
        })?;
        Ok(lock)
    }

    fn s3(&self, access: &Access) -> AmazonS3Builder {
        let mut builder = AmazonS3Builder::new().with_region(REGION);
        for (name, value) in &access.variables {
            let key = name.starts_with("AWS_").then(|| name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>().ok());
            if let Some(key) = key.flatten() {
                builder = builder.with_config(key, value);
            }
        }
        builder = builder.with_bucket_name(&self.bucket).with_retry(retries());
        let variable = |name: &str| access.variables.iter().find(|(found, _)| found == name).map(|(_, value)| value);
        let endpoint = access.endpoint.as_ref().or_else(|| variable("AWS_ENDPOINT_URL"));
        if let Some(endpoint) = endpoint {
            let endpoint = endpoint.trim_end_matches('/');
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some(region) = &access.region {
            builder = builder.with_region(region);
        }
        if let (Some(id), Some(secret)) = (&access.key_id, &access.secret) {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        }
        builder
    }

    fn google(&self, access: &Access) -> GoogleCloudStorageBuilder {
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in &access.variables {
            let key = name.starts_with("GOOGLE_").then(|| name.to_ascii_lowercase().parse::<GoogleConfigKey>().ok());
            if let Some(key) = key.flatten() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint.trim_end_matches('/'));
        }
        builder.with_bucket_name(&self.bucket).with_retry(retries())
    }

    fn azure(&self, access: &Access) -> MicrosoftAzureBuilder {
        let mut builder = MicrosoftAzureBuilder::new();
        for (name, value) in &access.variables {
            let key = name.starts_with("AZURE_").then(|| name.to_ascii_lowercase().parse::<AzureConfigKey>().ok());
            if let Some(key) = key.flatten() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = &access.endpoint {
            let endpoint = endpoint.trim_end_matches('/').to_owned();
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        if let (Some(account), Some(key)) = (&access.key_id, &access.secret) {
            builder = builder.with_account(account).with_access_key(key);
        }
        builder.with_container_name(&self.bucket).with_retry(retries())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::S3 => "s3",
            Kind::Google => "gs",
            Kind::Azure => "az",
            Kind::Directory => return write!(f, "file://{}", self.prefix),
        };
        write!(f, "{scheme}://{}/{}", self.bucket, self.prefix)
    }
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

/// An opened store: objects below one prefix.
pub struct Bucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) shown: String,
    pub(crate) ownership: Ownership,
}

/// Relation to other processes.
pub(crate) enum Ownership {
    /// An object that the owner replaces at intervals excludes them.
    Leased,
    /// A lock of the file system excludes them, because a directory has no conditional replacement.
    Locked(File),
    /// Other processes may use the store, of which this one uses the state of a second, or that of now.
    Past(Option<u64>),
}

impl Bucket {
    /// `shown` is the location for operators.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, shown: String) -> Self {
        Self { objects, shown, ownership: Ownership::Leased }
    }

    /// As [`Location::open_at`].
    #[must_use]
    pub fn at(self, time_s: Option<u64>) -> Self {
        Self { ownership: Ownership::Past(time_s), ..self }
    }

    /// A store in memory, for tests.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Arc::new(InMemory::new()), "memory".to_owned())
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("shown", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_and_a_prefix_or_a_directory() {
        for (url, expected) in [
            ("s3://bucket/server", Some("s3://bucket/server")),
            ("s3://bucket/a/b/", Some("s3://bucket/a/b")),
            ("gs://bucket/a", Some("gs://bucket/a")),
            ("az://container/a", Some("az://container/a")),
            ("abfs://container/a", Some("az://container/a")),
            ("file:///var/lib/settee/", Some("file:///var/lib/settee")),
            ("s3://bucket", None),
            ("s3://bucket/", None),
            ("s3:///a", None),
            ("s3://key:secret@bucket/a", None),
            ("s3://bucket/a?region=x", None),
            ("s3://bucket/a//b", None),
            ("file://relative", None),
            ("file:///", None),
            ("ftp://host/a", None),
        ] {
            let parsed = Location::parse(url).map(|location| location.to_string());
            assert_eq!(parsed.as_deref().ok(), expected, "{url}: {parsed:?}");
        }
        assert!(Location::is_url("s3://bucket") && !Location::is_url("postgres://host/a") && !Location::is_url("data"));
    }

    #[test]
    fn a_directory_has_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::parse(&format!("file://{}/store", directory.path().display())).unwrap();
        let _first = location.lock().unwrap();
        let error = location.lock().unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
    }
}
