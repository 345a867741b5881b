//! The view languages that this server offers.

use std::sync::Arc;

use anyhow::Context as _;
use settee_design::Language;
use settee_js::{Evaluator, JavaScript, PoolSettings, WorkerCommand};
use settee_mango::MangoLanguage;

use crate::config::Configuration;

/// All languages. User code of JavaScript runs in processes of this same program, as far as it is not run natively.
pub(crate) fn all(configuration: &Arc<Configuration>) -> anyhow::Result<Vec<Arc<dyn Language>>> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let worker = WorkerCommand { program, args: vec!["worker".to_owned()] };
    let javascript = JavaScript::new(worker, PoolSettings::default());
    javascript.set_evaluator(evaluator(configuration));
    let (watched, updated) = (Arc::downgrade(configuration), javascript.clone());
    configuration.on_change(move |change| {
        if let Some(configuration) = watched.upgrade().filter(|_| change.section == "query_server_config") {
            updated.set_evaluator(evaluator(&configuration));
        }
    });
    Ok(vec![Arc::new(javascript), Arc::new(MangoLanguage)])
}

fn evaluator(configuration: &Configuration) -> Evaluator {
    match configuration.effective("query_server_config", "native_evaluator").as_deref() {
        Some("false") => Evaluator::Workers,
        _ => Evaluator::Native,
    }
}
