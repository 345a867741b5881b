//! The commands on a data directory or between servers, and the data directory that they share with the server: its
//! store, its files and their layout, its lock, and the control socket.

pub mod backends;
pub mod backup;
#[cfg(feature = "bucket")]
mod bucket;
mod bulk_get;
pub mod commands;
mod connector;
pub mod control;
pub mod descriptors;
pub mod doctor;
pub mod environment;
pub mod exchange;
pub mod export;
pub mod lock;
pub mod migrate;
pub mod names;
pub mod output;
mod regular;
mod remote_server;
mod salvage;
pub mod storage;
pub mod time;
pub mod transfer;
pub mod verify;
pub mod version;
