//! Tests that start a PostgreSQL, and proxies in front of several servers. `make test` skips modules of this name.

mod cluster;
mod proxies;
mod storage;
mod unresponsive;
