//! [`Network`]: messages between the engines of a test, with unreachable engines and lost answers.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use settee_storage::{Engine, PeerService};
use settee_storage_bucket::{Bucket, BucketEngine, Options, PeerCall, PeerError, Peers};

#[derive(Default)]
pub(crate) struct Network {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    engines: Vec<(String, Weak<BucketEngine>)>,
    /// Addresses that answer nothing.
    silent: HashSet<String>,
    /// Addresses whose answers are lost.
    lossy: HashSet<String>,
}

/// The access of one engine.
struct Access {
    network: Arc<Network>,
    own: String,
}

impl Network {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn open(self: &Arc<Self>, bucket: Bucket, options: &Options) -> Arc<BucketEngine> {
        let peers = Access { network: Arc::clone(self), own: options.address.clone() };
        let engine = Arc::new(BucketEngine::open(bucket, options, Some(Arc::new(peers))).unwrap());
        self.state.lock().engines.push((options.address.clone(), Arc::downgrade(&engine)));
        engine
    }

    /// Separates an engine from all others.
    pub(crate) fn set_silent(&self, address: &str, is_silent: bool) {
        let silent = &mut self.state.lock().silent;
        let _ = if is_silent { silent.insert(address.to_owned()) } else { silent.remove(address) };
    }

    pub(crate) fn set_lossy(&self, address: &str, is_lossy: bool) {
        let lossy = &mut self.state.lock().lossy;
        let _ = if is_lossy { lossy.insert(address.to_owned()) } else { lossy.remove(address) };
    }

    fn find(&self, address: &str) -> Option<(String, Arc<BucketEngine>)> {
        let engines = self.state.lock().engines.clone();
        let running = engines.into_iter().filter_map(|(own, engine)| Some((own, engine.upgrade()?)));
        let has_address = |(own, engine): &(String, Arc<BucketEngine>)| {
            let members = engine.members();
            own == address || members.live().iter().any(|node| node.id == members.this() && node.address == address)
        };
        running.into_iter().find(has_address)
    }
}

impl Peers for Access {
    fn call(&self, call: PeerCall) -> BoxFuture<'static, Result<bytes::Bytes, PeerError>> {
        let (network, own) = (Arc::clone(&self.network), self.own.clone());
        Box::pin(async move {
            let Some((address, engine)) = network.find(&call.address) else {
                return Err(PeerError::Refused("connection refused".to_owned()));
            };
            let failed = |text: &str| Err(PeerError::Failed(text.to_owned()));
            let is_cut = [&address, &own].iter().any(|one| network.state.lock().silent.contains(*one));
            if is_cut {
                tokio::time::sleep(call.timeout).await;
                return failed("no answer");
            }
            assert_eq!(engine.secret(), call.secret);
            let answered = tokio::task::spawn_blocking(move || engine.answer(&call.body));
            let Ok(Ok(answer)) = tokio::time::timeout(call.timeout, answered).await else { return failed("late") };
            if network.state.lock().lossy.contains(&address) {
                return failed("the answer was lost");
            }
            Ok(answer.into())
        })
    }
}
