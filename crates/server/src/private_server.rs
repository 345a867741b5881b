//! [`PrivateServer`]: serves a data directory to this process alone, on a free port of the loopback address, with an
//! administrator whose random password never leaves this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use data_encoding::HEXLOWER;
use settee_admin::backup::one::Served;
use settee_edge::server::Listener;
use settee_edge::shutdown::Shutdown;
use tokio::net::TcpListener;

use crate::config::{Configuration, Options, Override};
use crate::log::Log;
use crate::operation::{Restart, operation};
use crate::{cluster, environment, node};
use settee_admin::descriptors::Descriptors;
use settee_admin::export::segment;
use settee_admin::lock::DataLock;
use settee_admin::{backends, version};

const USER: &str = "settee";

const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

const CONNECTIONS: u64 = 64;

pub(crate) struct PrivateServer {
    authority: String,
    password: String,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl PrivateServer {
    /// Ignores the settings stored in `data`.
    pub(crate) fn start(data: &Path) -> anyhow::Result<Self> {
        let mut password = [0; 16];
        environment::random(&mut password);
        let password = HEXLOWER.encode(&password);
        let (shutdown, data) = (Shutdown::new(), data.to_owned());
        let (sender, receiver) = mpsc::channel();
        let (secret, stop) = (password.clone(), shutdown.clone());
        let work = move || {
            let served = run(&data, &secret, &stop, |address| {
                let _ = sender.send(Ok(address));
            });
            if let Err(error) = served {
                let _ = sender.send(Err(error));
            }
        };
        let thread =
            std::thread::Builder::new().name("aside".to_owned()).spawn(work).context("cannot start a thread")?;
        let address = receiver.recv().map_err(|_| anyhow!("the data cannot be served"))??;
        Ok(Self { authority: address.to_string(), password, shutdown, thread: Some(thread) })
    }
}

impl Served for PrivateServer {
    fn url(&self, database: &str) -> String {
        let name = segment(database);
        format!("http://{USER}:{}@{}/{name}", self.password, self.authority)
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(data: &Path, password: &str, shutdown: &Shutdown, ready: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
    let _lock = DataLock::take(data)?;
    version::check(data)?;
    let given = |section: &str, key: &str, value: &str| Override {
        section: section.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
        source: "this command".to_owned(),
    };
    let overrides = vec![given("admins", USER, password), given("log", "level", "error")];
    let options = Options {
        data_dir: data.to_owned(),
        file: None,
        preset: Vec::new(),
        overrides,
        admin: None,
        entropy: node::entropy(),
    };
    let configuration = Arc::new(Configuration::open(options)?);
    let log = Log::start(&configuration, cluster::name(&configuration)?)?;
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let authenticator = node::authenticator(&configuration, plain);
    node::create_spill(data)?;
    let engine = backends::open(data, Descriptors::claim()?.engine)?;
    let operation = operation(&configuration, &log, &Restart::new(shutdown)?, None, None);
    let platform = node::platform(&configuration)?;
    let catalog = node::catalog(engine)?;
    let (node, _) = node::make(data, catalog, configuration, authenticator, operation, platform)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    let listener = runtime.block_on(TcpListener::bind(plain)).context("no port is available")?;
    ready(listener.local_addr().context("the port cannot be determined")?);
    runtime.block_on(settee_api::serve(node, vec![Listener::Tcp(listener)], CONNECTIONS, shutdown.clone()));
    // The caller may remove the data next, so no file in it may be open any more.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    log.flush();
    Ok(())
}
