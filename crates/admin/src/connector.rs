//! [`Connector`]: HTTP connections to a store of objects, with the TLS and the timeouts of replications.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use settee_replication::{Connect as _, Endpoint, Transport, TransportError, Tuning, foreign_body, shared_body};

use crate::remote_server;

#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Transport>);

impl Connector {
    /// `authorities` is a file of certificates to trust instead of the public authorities.
    pub(crate) fn new(endpoint: &str, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let network = remote_server::network(authorities)?;
        let remote = remote_server::parse(endpoint).context("invalid endpoint: write https://host:port")?;
        ensure!(remote.path == "/", "an endpoint must not have a path: write https://host:port");
        Ok(Self(network.connect(&Endpoint::Remote(remote), &Tuning::default())?))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.call(request.map(foreign_body)).await.map_err(failed)?;
        Ok(response.map(|body| HttpResponseBody::new(shared_body(body, failed))))
    }
}

fn failed(error: TransportError) -> HttpError {
    let kind = match &error {
        TransportError::Timeout => HttpErrorKind::Timeout,
        TransportError::Refused(_) => HttpErrorKind::Connect,
        TransportError::Broken(_) => HttpErrorKind::Interrupted,
        TransportError::Tls(_) | TransportError::Unusable(_) => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
