//! [`open`]: a [`Store`] in an S3 bucket, with the transport of replications. Credentials are not discovered.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use object_store::RetryConfig;
use object_store::aws::AmazonS3Builder;

use super::seal::Key;
use super::store::Store;
use crate::connector::Connector;
use crate::environment;

const SCHEME: &str = "s3://";

const REGION: &str = "us-east-1";

const RETRIES: usize = 4;
const RETRY_TIME: Duration = Duration::from_secs(60);

/// Missing values come from the environment variables of the AWS tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// `s3://bucket/prefix`
    pub url: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<(String, String)>,
    pub authorities: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with(SCHEME)
}

fn bucket_and_prefix(url: &str) -> anyhow::Result<(&str, &str)> {
    let rest = url.strip_prefix(SCHEME).context("invalid location of backups: write s3://bucket/prefix")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_matches('/');
    ensure!(!bucket.is_empty() && !bucket.contains('@'), "invalid location of backups: write s3://bucket/prefix");
    ensure!(!prefix.is_empty(), "{url} has no prefix: use a prefix for each server, {url}/NAME");
    Ok((bucket, prefix))
}

pub(crate) fn open(place: &Place) -> anyhow::Result<Store> {
    let (bucket, prefix) = bucket_and_prefix(&place.url)?;
    let key = place.key_file.as_deref().map(Key::read).transpose()?;
    let region = place.region.clone().or_else(|| environment::text("AWS_REGION"));
    let region = region.or_else(|| environment::text("AWS_DEFAULT_REGION")).unwrap_or_else(|| REGION.to_owned());
    let endpoint = place.endpoint.clone().or_else(|| environment::text("AWS_ENDPOINT_URL"));
    let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let endpoint = endpoint.trim_end_matches('/');
    let from_environment =
        || Some((environment::text("AWS_ACCESS_KEY_ID")?, environment::text("AWS_SECRET_ACCESS_KEY")?));
    let Some((id, secret)) = place.access_key.clone().or_else(from_environment) else {
        bail!(
            "there is no access key for {}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or for a server \
             [backup] access_key_id and secret_access_key",
            place.url
        );
    };
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    ensure!(!host.contains('/'), "an endpoint must not have a path: write https://host:port");
    let connector = Connector::new(endpoint, place.authorities.as_deref())?;
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(region)
        .with_endpoint(endpoint)
        .with_allow_http(endpoint.starts_with("http://"))
        .with_access_key_id(id)
        .with_secret_access_key(secret)
        .with_retry(retry)
        .with_http_connector(connector);
    if let Some(token) = environment::text("AWS_SESSION_TOKEN").filter(|_| place.access_key.is_none()) {
        builder = builder.with_token(token);
    }
    let objects = builder.build().with_context(|| format!("{} cannot be reached", place.url))?;
    Store::new(Arc::new(objects), prefix, key, place.url.clone())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_and_a_prefix() {
        for (url, expected) in [
            ("s3://bucket/server", Some(("bucket", "server"))),
            ("s3://bucket/a/b/", Some(("bucket", "a/b"))),
            ("s3://bucket", None),
            ("s3://bucket/", None),
            ("s3:///a", None),
            ("s3://key:secret@bucket/a", None),
            ("https://bucket/a", None),
        ] {
            assert_eq!(bucket_and_prefix(url).ok(), expected, "{url}");
        }
        assert!(is_url("s3://bucket/a") && !is_url("backups"));
    }

    #[test]
    fn an_endpoint_is_a_host() {
        let place = |endpoint: &str| Place {
            url: "s3://bucket/a".to_owned(),
            endpoint: Some(endpoint.to_owned()),
            access_key: Some(("id".to_owned(), "secret".to_owned())),
            ..Place::default()
        };
        for (endpoint, is_good) in [
            ("http://127.0.0.1:7070", true),
            ("https://s3.example/", true),
            ("s3.example", false),
            ("http://h/p", false),
        ] {
            assert_eq!(open(&place(endpoint)).is_ok(), is_good, "{endpoint}");
        }
        assert_eq!(
            open(&place("http://127.0.0.1:7070")).map(|store| store.shown().to_owned()).unwrap(),
            "s3://bucket/a"
        );
    }
}
