//! `settee serve`: composes the crates, listens, and shuts down in order.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use settee_api::{Node, PeerClient};
use settee_database::Catalog;
use settee_edge::shutdown::Shutdown;
use settee_settings::{Applies, chttpd};
use settee_storage::{Engine, durable};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;
use crate::cluster::{self, Membership};
use crate::config::{Configuration, Options, Override};
use crate::control::Control;
use crate::environment;
use crate::log::Log;
use crate::maintenance::Maintenance;
use crate::operation::{Restart, operation};
use crate::startup_files::StartupFiles;
use crate::telemetry::Exporter;
use crate::{couchdb_image, listen, node, replication};
use settee_admin::backends::{self, Opener, Prepared};
use settee_admin::backup::BackupControl;
use settee_admin::backup::schedule::{self, Backups};
use settee_admin::descriptors::Descriptors;
use settee_admin::lock::DataLock;
use settee_admin::storage::Chosen;
use settee_admin::{storage, transfer, version};

/// Replications write their checkpoints within this time.
const REPLICATION_STOP: std::time::Duration = std::time::Duration::from_secs(2);

/// An idle thread for short reads and commits ends after this time, because the threads of a burst hold memory.
const THREAD_IDLE_TIME: std::time::Duration = std::time::Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    let restart = Restart::new(&shutdown)?;
    serve(args, &shutdown, &restart)?;
    restart.run_if_wanted()
}

fn serve(args: &ServeArgs, shutdown: &Shutdown, restart: &Restart) -> anyhow::Result<()> {
    let mut startup_files = StartupFiles::begin(&args.data)?;
    let data = args.data.canonicalize().context("the data directory cannot be found")?;
    // An earlier start may have created the directory and been killed before the sync.
    match data.parent().map_or(Ok(()), durable::sync_directory) {
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
            return Err(error).context("the directory above the data directory cannot be synced");
        }
        _ => {}
    }
    let lock = DataLock::take(&data)?;
    startup_files.open_without_corrections()?;
    version::check(&data)?;
    let prepared = match storage::chosen(&Configuration::open_without_corrections(options(args, &data)?)?)? {
        None => Some(backends::prepare(&data)?),
        Some(_) => None,
    };
    let configuration = Arc::new(Configuration::open(options(args, &data)?)?);
    let log = Log::start(&configuration, cluster::name(&configuration)?)?;
    let _flushed = FlushedLog(log.clone());
    // Values may be secret, so only names are logged.
    configuration.on_change(|change| {
        let label = if change.value.is_some() { "set" } else { "removed" };
        match settee_settings::applies(change.section, change.key) {
            Applies::AfterRestart => {
                tracing::warn!(
                    section = change.section,
                    key = change.key,
                    "a setting was {label}; restart the server to apply it"
                );
            }
            Applies::AtOnce | Applies::Nowhere => {
                tracing::info!(section = change.section, key = change.key, "a setting was {label}");
            }
        }
    });
    configuration.log_warnings();
    let address = address(&configuration)?;
    let couchdb_image = couchdb_image::notice(&data, args.settings.file().as_deref(), address.port());
    if let Some(notice) = &couchdb_image {
        tracing::warn!("{}", notice.replace('\n', " "));
    }
    let descriptors = Descriptors::claim()?;
    if let Err(error) = settee_admin::control::remove_checkpoints(&data) {
        tracing::warn!(error = format!("{error:#}"), "checkpoints of an earlier process were not removed");
    }
    // Administrators that servers share are read from their store.
    if prepared.is_some() {
        refuse_open_server(!configuration.section("admins").is_empty(), address)?;
    }
    let reserved = listen::Reserved::new(&configuration, address)?;
    node::create_spill(&data)?;
    // An engine changes its files when it is opened, so everything that may refuse the start is above.
    let (engine, data_location) = open_storage(&configuration, &data, descriptors, prepared)?;
    // The engine requires periodic maintenance from now on.
    let _ = engine.maintain();
    let catalog = catalog(&engine, &configuration)?;
    let authenticator = node::authenticator(&configuration, address);
    refuse_open_server(authenticator.has_admins(), address)?;
    let exporter = Exporter::start(&configuration)?.map(Arc::new);
    let backup_control = schedule::wants_backups(configuration.as_ref()).then(|| Arc::new(BackupControl::default()));
    let operation = operation(&configuration, &log, restart, exporter.clone(), backup_control.clone());
    let platform = node::platform(&configuration)?;
    let (node, maintenance) =
        node::make(&data, catalog, Arc::clone(&configuration), authenticator, operation, platform)?;
    let backups = Backups::begin(configuration.as_ref(), &data, &engine, backup_control)
        .context("the settings in [backup] cannot be applied")?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().thread_keep_alive(THREAD_IDLE_TIME).build().context("cannot start threads")?;
    let listening = Listening {
        reserved,
        data: &data,
        data_location: &data_location,
        descriptors,
        couchdb_image,
        startup_files: &startup_files,
    };
    runtime.block_on(listen(node, maintenance, &configuration, listening, shutdown.clone()))?;
    if let Some(exporter) = exporter {
        exporter.flush();
    }
    if let Some(backups) = backups {
        backups.stop();
    }
    // Commits without a sync, such as view indexes, must not be lost.
    engine.sync().context("the last writes were not synced")?;
    if engine.members().is_sole() {
        // A server that waits for the store starts immediately.
        engine.members().leave().context("the store was not released")?;
    }
    runtime.shutdown_background();
    drop(lock);
    Ok(())
}

fn open_storage(
    configuration: &Configuration,
    data: &Path,
    descriptors: Descriptors,
    prepared: Option<Prepared>,
) -> anyhow::Result<(Arc<dyn Engine>, String)> {
    let Some(chosen) = storage::chosen(configuration)? else {
        let prepared = prepared.map_or_else(|| backends::prepare(data), Ok)?;
        let engine = match schedule::wants_log(configuration) {
            true => prepared.open_with_log(descriptors.engine)?,
            false => prepared.open(descriptors.engine)?,
        };
        transfer::refuse_unfinished(engine.as_ref())?;
        return Ok((engine, data.display().to_string()));
    };
    if schedule::wants_backups(configuration) {
        bail!(
            "[backup] url requests backups of the data directory, but the data is in another store: back it up with the \
             programs of that store"
        );
    }
    let mut id = [0; 16];
    environment::random(&mut id);
    let (engine, place) = match &chosen {
        Chosen::Postgres(options) => (backends::open_postgres(options, id)?, options.location()),
        Chosen::Bucket(url) => {
            let name = cluster::name(configuration)?;
            let mut secret = [0; 32];
            environment::random(&mut secret);
            let network = replication::node_network(configuration)?;
            let peers = PeerClient::new(network, environment::random_u64(), Box::new(environment::now_ms));
            let opener = Opener { data, name: &name, id, secret, peers: Arc::new(peers) };
            backends::open_bucket(configuration, url, opener)?
        }
    };
    transfer::refuse_unfinished(engine.as_ref())?;
    storage::note(data, &place)?;
    version::mark(data)?;
    Ok((engine, format!("{}; the configuration in {}", storage::in_words(&place), data.display())))
}

/// Puts settings into force that several servers on one store share.
fn catalog(engine: &Arc<dyn Engine>, configuration: &Configuration) -> anyhow::Result<Arc<Catalog>> {
    let catalog = node::catalog(Arc::clone(engine))?;
    if !engine.members().is_sole() {
        for notice in configuration.share(&catalog)? {
            tracing::warn!("{notice}");
        }
    } else {
        configuration.unshare(&catalog)?;
    }
    Ok(catalog)
}

fn options(args: &ServeArgs, data: &Path) -> anyhow::Result<Options> {
    environment::check_files()?;
    let mut overrides = environment::settings();
    overrides.extend(args.settings.given());
    for (option, section, key, value) in [
        ("--bind", "chttpd", "bind_address", args.bind.clone()),
        ("--port", "chttpd", "port", args.port.map(|port| port.to_string())),
        ("--socket", "chttpd", "unix_socket", args.socket.as_ref().map(|socket| socket.display().to_string())),
        ("--storage", "storage", "url", args.storage.clone()),
        ("--node-name", "cluster", "node", args.node_name.clone()),
    ] {
        let (section, key, source) = (section.to_owned(), key.to_owned(), option.to_owned());
        overrides.extend(value.map(|value| Override { section, key, value, source }));
    }
    Ok(Options {
        data_dir: data.to_owned(),
        file: args.settings.file(),
        preset: args.settings.preset()?,
        overrides,
        admin: environment::admin()?,
        entropy: node::entropy(),
    })
}

fn address(configuration: &Configuration) -> anyhow::Result<SocketAddr> {
    let bind = chttpd::BIND_ADDRESS.of(configuration);
    let ip = settee_settings::key::address(&bind)
        .with_context(|| format!("[chttpd] bind_address is not an IP address: {bind}"))?;
    let port = chttpd::PORT.of(configuration);
    Ok(SocketAddr::new(ip, u16::try_from(port).context("[chttpd] port is not a port number")?))
}

/// Refuses an address other than loopback without an administrator, because then every client has all permissions.
fn refuse_open_server(has_admins: bool, address: SocketAddr) -> anyhow::Result<()> {
    if has_admins || address.ip().is_loopback() {
        return Ok(());
    }
    bail!(
        "refusing to listen on {address} without an administrator, because every client would have all permissions.\n\
         Set COUCHDB_USER and COUCHDB_PASSWORD in the environment, or write `name = password` into the section \
         [admins] of local.ini, or listen on 127.0.0.1."
    )
}

/// After a restart the output may be closed.
fn print_greeting(addresses: &[String], data_location: &str, administrators: &[String], notices: &[String]) {
    let version = env!("CARGO_PKG_VERSION");
    let rule = match administrators {
        [] => format!(
            "There is no administrator: every user of this machine has all permissions. To create one:\n  \
             curl -X PUT {}_node/_local/_config/admins/NAME -d '\"PASSWORD\"'\n\
             or start with COUCHDB_USER and COUCHDB_PASSWORD in the environment\n",
            addresses.first().map_or("http://127.0.0.1:5984/", String::as_str),
        ),
        [name] => format!("The administrator is {name}\n"),
        names => format!("Administrators are {}\n", names.join(", ")),
    };
    let addresses = addresses.join(" and ");
    let notices: String = notices.iter().map(|notice| format!("{notice}\n")).collect();
    let text = format!(
        "Settee {version} listens at {addresses}\nThe data is in {data_location}\n{rule}{notices}Stop with Ctrl-C.\n"
    );
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Flushes the log also after an error.
struct FlushedLog(Log);

impl Drop for FlushedLog {
    fn drop(&mut self) {
        self.0.flush();
    }
}

struct Listening<'a> {
    reserved: listen::Reserved,
    data: &'a Path,
    data_location: &'a str,
    descriptors: Descriptors,
    couchdb_image: Option<String>,
    startup_files: &'a StartupFiles,
}

async fn listen(
    node: Arc<Node>,
    maintenance: Maintenance,
    configuration: &Arc<Configuration>,
    listening: Listening<'_>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Listening { reserved, data, data_location, descriptors, couchdb_image, startup_files } = listening;
    let opened = reserved.open()?;
    let refusal = node.engine().check().err();
    if refusal.is_none()
        && let Err(error) = node.make_users_database().await
    {
        // Users of a damaged database cannot log in. All other requests are served.
        match node.engine().damage() {
            Some(_) => tracing::error!(reason = %error.reason, "the database of users cannot be read"),
            None => anyhow::bail!("{}", error.reason),
        }
    }
    let control = Control::start(data, opened.addresses.join(" and "), Arc::clone(&node), Arc::clone(node.engine()));
    if let Err(error) = &control {
        tracing::warn!(error = format!("{error:#}"), "`settee backup` and `settee doctor` will not reach this server");
    }
    let wanted = settee_edge::server::connections_max(&**configuration);
    let connections = descriptors.connections(wanted);
    let mut notices = vec![format!("Requests may take {} MiB of memory", node.request_memory_bytes() >> 20)];
    if connections < wanted {
        notices.push(format!("Accepts {connections} concurrent connections, not {wanted}: {descriptors}"));
    }
    if let Some(refusal) = refusal {
        notices.push(format!("Writes are rejected until space is available: {refusal}"));
    }
    let membership = Membership::begin(node.engine(), node.name(), configuration, opened.plain).await?;
    notices.extend(membership.notice());
    notices.extend(couchdb_image);
    let administrators: Vec<String> = configuration.section("admins").into_iter().map(|(name, _)| name).collect();
    let end_by = |kind| signal(kind).context("signals cannot be received");
    let (mut interrupt, mut terminate) = (end_by(SignalKind::interrupt())?, end_by(SignalKind::terminate())?);
    startup_files.keep();
    print_greeting(&opened.addresses, data_location, &administrators, &notices);
    let background = maintenance.start(Arc::clone(&node));
    let watching = opened.certificates.map(|certificates| tokio::spawn(certificates.watch()));
    let replication = replication::start(&node, configuration, opened.plain.port(), &shutdown).await?;
    let (stop, restarted, stopping) = (shutdown.clone(), shutdown.clone(), Arc::clone(&node));
    let replication = tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = restarted.begun() => {}
        }
        tracing::info!("stopping: feeds end, open requests finish");
        // Replications end first, so that they do not take the end of their feeds for an error.
        if tokio::time::timeout(REPLICATION_STOP, replication.stop()).await.is_err() {
            tracing::warn!("replications did not end in time; they resume from their last checkpoints");
        }
        // Requests are accepted until another node is the writer.
        stopping.stop_writing().await;
        stop.begin();
    });
    settee_api::serve(node, opened.listeners, connections, shutdown).await;
    replication.await.context("ending the replications panicked")?;
    // The last requests were forwarded to other members.
    membership.end().await;
    if let Some(watching) = watching {
        watching.abort();
    }
    drop(opened.socket);
    drop(control);
    background.stop().await;
    Ok(())
}
