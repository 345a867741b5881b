//! The view languages that this server offers.

use std::sync::Arc;

use anyhow::Context as _;
use settee_design::Language;
use settee_js::{JavaScript, PoolSettings, WorkerCommand};
use settee_mango::MangoLanguage;
use settee_wasm::Wasm;

/// All languages. User code of JavaScript runs in processes of this same program.
pub(crate) fn all() -> anyhow::Result<Vec<Arc<dyn Language>>> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let worker = WorkerCommand { program, args: vec!["worker".to_owned()] };
    Ok(vec![
        Arc::new(JavaScript::new(worker, PoolSettings::default())),
        Arc::new(MangoLanguage),
        Arc::new(Wasm::new()?),
    ])
}
