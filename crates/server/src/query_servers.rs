//! [`QueryServers`]: the configured query servers, as in CouchDB 1.x (`[query_servers]`) and 3.x
//! (`COUCHDB_QUERY_SERVER_PYTHON`). Erlang is enabled in `[native_query_servers]`. Each lookup of a language reads the
//! configuration, so a change applies immediately.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use settee_design::Language;
use settee_process::{Log, QueryServer, ReduceLimit, Settings, erlang};
use settee_settings::{Key, couchdb, key::Number, native_query_servers, query_server_config};
use settee_storage::durable::{self, Readers};

use crate::config::Configuration;
use crate::environment;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct QueryServers {
    configuration: Arc<Configuration>,
    commands: BTreeMap<String, String>,
    directory: PathBuf,
    erlang: OnceLock<String>,
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    command: String,
    settings: Settings,
    server: QueryServer,
}

impl QueryServers {
    /// Starts the task that ends idle processes. Processes are started when their language is first used.
    pub(crate) fn start(configuration: &Arc<Configuration>, directory: &Path) -> Arc<Self> {
        let servers = Arc::new(Self {
            configuration: Arc::clone(configuration),
            commands: environment::query_servers(),
            directory: directory.to_owned(),
            erlang: OnceLock::new(),
            running: Mutex::default(),
        });
        let watched = Arc::downgrade(&servers);
        let watch = move || end_idle_processes(&watched);
        if let Err(error) = std::thread::Builder::new().name("query servers".to_owned()).spawn(watch) {
            tracing::warn!("idle query servers will not be stopped: {error}");
        }
        servers
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Language>> {
        let command = self.command(name);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(command) = command else {
            running.remove(name);
            return None;
        };
        let settings = self.settings();
        let current =
            running.get(name).filter(|current| (&current.command, &current.settings) == (&command, &settings));
        if let Some(current) = current {
            return Some(Arc::new(current.server.clone()));
        }
        // The command line may hold secrets.
        tracing::info!(language = name, "a query server is used for the first time, or its command has changed");
        let server = QueryServer::new(name, &command, settings.clone(), log());
        let found = Arc::new(server.clone());
        let replaced = running.insert(name.to_owned(), Running { command, settings, server });
        drop(running);
        drop(replaced);
        Some(found)
    }

    fn command(&self, name: &str) -> Option<String> {
        let configured = self.configuration.effective("query_servers", name);
        let configured = configured.map(|command| command.trim().to_owned()).filter(|command| !command.is_empty());
        configured.or_else(|| self.commands.get(name).cloned()).or_else(|| {
            let is_on = name == ERLANG && self.is_erlang_on();
            is_on.then(|| self.erlang_command()).flatten()
        })
    }

    fn is_erlang_on(&self) -> bool {
        let module = self.configuration.effective("native_query_servers", ERLANG);
        native_query_servers::ENABLE_ERLANG_QUERY_SERVER.of(self.configuration.as_ref())
            || module.is_some_and(|module| !module.is_empty())
            || environment::is_native_erlang_on()
    }

    fn erlang_command(&self) -> Option<String> {
        if let Some(command) = self.erlang.get() {
            return Some(command.clone());
        }
        let copy = self.directory.join("query_server.escript");
        // An identical file is not rewritten, because that would fail on a full disk.
        let is_there = fs::read(&copy).is_ok_and(|found| found == erlang::SCRIPT.as_bytes());
        let written =
            if is_there { Ok(()) } else { durable::write(&copy, Readers::Default, erlang::SCRIPT.as_bytes()) };
        match written {
            Ok(()) => Some(self.erlang.get_or_init(|| erlang::command(&copy)).clone()),
            Err(error) => {
                tracing::error!("the Erlang query server cannot be written to {}: {error}", self.directory.display());
                None
            }
        }
    }

    fn settings(&self) -> Settings {
        let configuration = self.configuration.as_ref();
        let count = |key: &Key<Number>| usize::try_from(key.of(configuration)).unwrap_or(usize::MAX);
        let reduce_limit = match query_server_config::REDUCE_LIMIT.of(configuration).as_str() {
            "false" => ReduceLimit::Off,
            "log" => ReduceLimit::Log,
            _ => ReduceLimit::On,
        };
        Settings {
            process_limit: count(&query_server_config::OS_PROCESS_LIMIT),
            idle_limit: count(&query_server_config::OS_PROCESS_SOFT_LIMIT),
            timeout_ms: couchdb::OS_PROCESS_TIMEOUT.of(configuration),
            memory_bytes: query_server_config::OS_PROCESS_MEMORY_LIMIT
                .find(configuration)
                .filter(|bytes| *bytes != u64::MAX),
            reduce_limit,
            project_documents: query_server_config::PROJECT_DOCUMENTS.of(configuration),
            environment: environment::for_query_servers(),
            ..Settings::default()
        }
    }
}

const ERLANG: &str = "erlang";

fn log() -> Log {
    Arc::new(|language, line| tracing::info!(language, "query server output: {line}"))
}

fn end_idle_processes(watched: &Weak<QueryServers>) {
    loop {
        std::thread::sleep(CHECK_INTERVAL);
        let Some(servers) = watched.upgrade() else {
            return;
        };
        let idle = query_server_config::OS_PROCESS_IDLE_LIMIT.of(servers.configuration.as_ref());
        let running = servers.running.lock().unwrap_or_else(PoisonError::into_inner);
        let languages: Vec<QueryServer> = running.values().map(|running| running.server.clone()).collect();
        drop(running);
        languages.iter().for_each(|server| server.end_idle(Duration::from_secs(idle)));
    }
}
