//! Tests of the engine. `make test` skips modules of this name.

mod batched_commits;
mod engine;
mod faults;
mod nodes;
mod promotion;
mod schema;
mod tls;
mod unresponsive;
mod write_failure;
