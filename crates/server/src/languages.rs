//! The view languages of this server: built-in ones and those of configured query servers.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use settee_design::Language;
use settee_js::{CoffeeScript, Evaluator, JavaScript, PoolSettings, WorkerCommand};
use settee_mango::MangoLanguage;
use settee_settings::query_server_config;
use settee_views::Languages;

use crate::config::Configuration;
use crate::query_servers::QueryServers;

/// Built-in languages take precedence over configured ones.
pub(crate) fn find(configuration: &Arc<Configuration>, data: &Path) -> anyhow::Result<Languages> {
    let built_in = built_in(configuration)?;
    let others = QueryServers::start(configuration, &data.join("query_servers"));
    Ok(Arc::new(move |name: &str| {
        built_in.iter().find(|language| language.name() == name).cloned().or_else(|| others.find(name))
    }))
}

/// JavaScript that the native evaluator cannot run is executed in processes of this same program.
fn built_in(configuration: &Arc<Configuration>) -> anyhow::Result<Vec<Arc<dyn Language>>> {
    let program = std::env::current_exe().context("the path of this program cannot be determined")?;
    #[cfg(feature = "wasm")]
    let wasm = {
        use settee_wasm::{CompilerCommand, Wasm};
        let (args, timeout_ms) = (vec!["wasm-compiler".to_owned()], CompilerCommand::TIMEOUT_MS);
        Wasm::new(CompilerCommand { program: program.clone(), args, timeout_ms })?
    };
    let worker = WorkerCommand { program, args: vec!["worker".to_owned()] };
    let javascript = JavaScript::new(worker, PoolSettings::default());
    javascript.set_evaluator(evaluator(configuration));
    let (watched, updated) = (Arc::downgrade(configuration), javascript.clone());
    configuration.on_change(move |change| {
        if let Some(configuration) = watched.upgrade().filter(|_| change.section == "query_server_config") {
            updated.set_evaluator(evaluator(&configuration));
        }
    });
    Ok(vec![
        Arc::new(CoffeeScript::new(javascript.clone())),
        Arc::new(javascript),
        Arc::new(MangoLanguage),
        #[cfg(feature = "wasm")]
        Arc::new(wasm),
    ])
}

fn evaluator(configuration: &Configuration) -> Evaluator {
    if query_server_config::NATIVE_EVALUATOR.of(configuration) { Evaluator::Native } else { Evaluator::Workers }
}
