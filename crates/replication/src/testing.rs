//! A naive model of a database server ([`Server`]), a wrapper that makes exchanges fail ([`Faulty`]) and one that
//! alters responses ([`Altering`]). The model shares no code with the real server.
#![expect(clippy::unwrap_used, reason = "tests")]

mod altering;
mod database;
mod faulty;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_model::json::Json;
use tokio::sync::watch;

use crate::endpoint::{Endpoint, User};
use crate::id::{Identity, ReplicationId};
use crate::peer::Peer;
use crate::session::{Control, Outcome, Progress, Services, Session, Statistics};
use crate::spec::Spec;
use crate::transport::Transport;
use crate::tuning::Tuning;

pub(crate) use altering::{Alteration, Altering, HARMFUL, HARMLESS, KINDS, in_pieces};
pub(crate) use database::{Database, Leaf, Sequences};
pub(crate) use faulty::{Fault, Faulty};
pub(crate) use server::{Missing, Server};

#[track_caller]
pub(crate) fn check_file(name: &str, text: &str) {
    settee_model::testing::check_file(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing"), name, text);
}

pub(crate) fn services() -> Services {
    let next = Arc::new(AtomicU64::new(1));
    Services {
        now_s: Arc::new(|| 1_795_184_917),
        new_uuid: Arc::new(move || format!("{:032x}", next.fetch_add(1, Ordering::Relaxed))),
        places: crate::session::Places::default(),
        counters: Arc::default(),
    }
}

pub(crate) fn identity() -> Identity {
    Identity { uuid: "0123456789abcdef0123456789abcdef".to_owned(), hostname: "here".to_owned(), port: 5984 }
}

/// `members` are those of a `_replicate` body after `source` and `target`, which are databases of this server.
pub(crate) fn spec(source: &str, target: &str, members: &str) -> Spec {
    let comma = if members.is_empty() { "" } else { "," };
    let text = format!("{{\"source\":\"{source}\",\"target\":\"{target}\"{comma}{members}}}");
    let json = Json::parse(text.as_bytes()).unwrap();
    Spec::parse(json.value(), &User::default(), &Tuning::default()).unwrap()
}

pub(crate) struct Sides {
    pub(crate) source: Arc<dyn Transport>,
    pub(crate) target: Arc<dyn Transport>,
}

impl Sides {
    pub(crate) fn peers(&self, spec: &Spec) -> (Peer, Peer) {
        let peer = |endpoint: &Endpoint, transport: &Arc<dyn Transport>| {
            Peer::new(endpoint.clone(), transport.clone(), &spec.tuning)
        };
        (peer(&spec.source, &self.source), peer(&spec.target, &self.target))
    }

    pub(crate) async fn begin(
        &self,
        spec: &Spec,
        services: &Services,
    ) -> (watch::Sender<Control>, tokio::task::JoinHandle<Outcome>, Arc<Progress>) {
        let (source, target) = self.peers(spec);
        let id = ReplicationId::compute(spec, &identity(), &source).await.unwrap();
        let progress = Arc::new(Progress::default());
        let session = Session::new(Arc::new(spec.clone()), id, source, target, services.clone(), progress.clone());
        let (control, controlled) = watch::channel(Control::Run);
        (control, tokio::spawn(session.run(controlled)), progress)
    }

    pub(crate) async fn run(&self, spec: &Spec, services: &Services) -> (Outcome, Statistics) {
        let (_control, outcome, progress) = self.begin(spec, services).await;
        let outcome = outcome.await.unwrap();
        (outcome, progress.statistics())
    }
}
