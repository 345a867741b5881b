//! Transport with failing exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::peer::channel_body;
use crate::transport::{Body, BoxFuture, Transport, TransportError, full_body};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Before,
    After,
    Cut,
    Status(u16),
    Stall,
}

pub(crate) struct Faulty {
    inner: Arc<dyn Transport>,
    fault: Fault,
    first: u64,
    count: u64,
    exchanges: AtomicU64,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Transport>, fault: Fault, first: u64, count: u64) -> Arc<Self> {
        Arc::new(Self { inner, fault, first, count, exchanges: AtomicU64::new(0) })
    }

    pub(crate) fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::SeqCst)
    }
}

impl Transport for Faulty {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let number = self.exchanges.fetch_add(1, Ordering::SeqCst);
        let fails = (self.first..self.first + self.count).contains(&number);
        Box::pin(async move {
            if !fails {
                return self.inner.call(request).await;
            }
            let broken = || TransportError::Broken("injected".to_owned());
            match self.fault {
                Fault::Before => Err(broken()),
                Fault::Stall => std::future::pending().await,
                Fault::Status(status) => {
                    let body = "{\"error\":\"injected\",\"reason\":\"injected\"}";
                    Ok(Response::builder().status(status).body(full_body(body)).unwrap())
                }
                Fault::After => {
                    let response = self.inner.call(request).await?;
                    let _ = response.into_body().collect().await;
                    Err(broken())
                }
                Fault::Cut => {
                    let (head, mut body) = self.inner.call(request).await?.into_parts();
                    let first = match body.frame().await {
                        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                        _ => Bytes::new(),
                    };
                    let half = first.slice(..first.len() / 2);
                    let (sender, receiver) = mpsc::channel(2);
                    sender.try_send(Ok(half)).unwrap();
                    sender.try_send(Err(broken())).unwrap();
                    Ok(Response::from_parts(head, channel_body(receiver, u64::MAX)))
                }
            }
        })
    }
}
