//! The requirements for every [`Engine`], as functions that panic with a description of the violation. Engine crates
//! call [`run_all`] in their tests. Of durability, only kills of a process are tested here ([`kills_lose_nothing`]):
//! simulating another crash is specific to the engine.

mod attempts;
mod commits;
mod concurrency;
mod fixture;
mod leases;
mod members;
mod model;
mod scans;
mod shards;
mod steps;
mod users;

use std::hash::{BuildHasher, RandomState};

pub use attempts::{attempts_are_bounded, attempts_read_the_same_or_are_refused};
pub use commits::{
    a_wrong_version_is_a_conflict, batches_cover_all_keyspaces, commits_count_versions_and_keep_tokens,
    empty_batches_count, fresh_shards_are_empty, heads_stay_until_they_are_set, limits_are_kept,
    odd_keys_and_values_are_kept, round_trips_answer_all_requests, snapshots_are_repeatable,
    the_last_write_of_a_batch_wins,
};
pub use concurrency::{
    commits_to_different_shards_all_happen, commits_to_one_shard_lose_nothing, readers_see_whole_batches,
};
pub use fixture::{Generator, Open, OpenTwice};
pub use model::random_operations_agree_with_a_model;
pub use scans::{
    cursors_stay_at_the_end, multi_gets_keep_their_order, scans_answer_every_range, scans_keep_to_their_snapshot,
    seeks_go_anywhere_in_the_range,
};
pub use shards::{
    copied_shards_are_as_they_were, dropped_shards_are_gone, keyspaces_are_isolated, reclaiming_changes_nothing,
    shards_are_isolated, sizes_follow_the_data,
};
pub use steps::{commit_until_killed, kills_lose_nothing, numbered, step, steps, token};

pub use leases::{
    a_claim_is_of_one_commit, commits_under_an_earlier_claim_are_rejected, processes_see_the_holders_of_writer_leases,
};
pub use members::{
    claims_are_exclusive, claims_of_failed_nodes_are_taken_over, names_are_of_one_node, released_claims_are_free,
    the_holder_of_a_claim_is_notified_of_waiters,
};
pub use users::{
    commits_are_notified_before_catch_up_returns, commits_of_others_are_notified, one_of_two_commits_wins,
};

type Property = fn(Open<'_>);

const PROPERTIES: &[(&str, Property)] = &[
    ("fresh shards are empty", fresh_shards_are_empty),
    ("commits count versions and keep tokens", commits_count_versions_and_keep_tokens),
    ("a wrong version is a conflict", a_wrong_version_is_a_conflict),
    ("heads stay until they are set", heads_stay_until_they_are_set),
    ("round trips answer all requests", round_trips_answer_all_requests),
    ("limits are kept", limits_are_kept),
    ("the last write of a batch wins", the_last_write_of_a_batch_wins),
    ("empty batches count", empty_batches_count),
    ("batches cover all keyspaces", batches_cover_all_keyspaces),
    ("snapshots are repeatable", snapshots_are_repeatable),
    ("odd keys and values are kept", odd_keys_and_values_are_kept),
    ("scans answer every range", scans_answer_every_range),
    ("cursors stay at the end", cursors_stay_at_the_end),
    ("scans keep to their snapshot", scans_keep_to_their_snapshot),
    ("seeks go anywhere in the range", seeks_go_anywhere_in_the_range),
    ("multi-gets keep their order", multi_gets_keep_their_order),
    ("attempts read the same or are refused", attempts_read_the_same_or_are_refused),
    ("attempts are bounded", attempts_are_bounded),
    ("shards are isolated", shards_are_isolated),
    ("keyspaces are isolated", keyspaces_are_isolated),
    ("dropped shards are gone", dropped_shards_are_gone),
    ("copied shards are as they were", copied_shards_are_as_they_were),
    ("reclaiming changes nothing", reclaiming_changes_nothing),
    ("sizes follow the data", sizes_follow_the_data),
    ("commits to different shards all happen", commits_to_different_shards_all_happen),
    ("commits to one shard lose nothing", commits_to_one_shard_lose_nothing),
    ("readers see whole batches", readers_see_whole_batches),
];

type PropertyOfTwo = fn(OpenTwice<'_>);

const PROPERTIES_OF_TWO: &[(&str, PropertyOfTwo)] = &[
    ("commits of others are notified", commits_of_others_are_notified),
    ("commits are notified before catch_up returns", commits_are_notified_before_catch_up_returns),
    ("one of two commits wins", one_of_two_commits_wins),
    ("processes see the holders of writer leases", processes_see_the_holders_of_writer_leases),
    ("commits under an earlier claim are rejected", commits_under_an_earlier_claim_are_rejected),
    ("a claim is of one commit", a_claim_is_of_one_commit),
    ("names are of one node", names_are_of_one_node),
    ("claims are exclusive", claims_are_exclusive),
    ("the holder of a claim is notified of waiters", the_holder_of_a_claim_is_notified_of_waiters),
    ("released claims are free", released_claims_are_free),
    ("claims of failed nodes are taken over", claims_of_failed_nodes_are_taken_over),
];

/// Tests every property of a store that several processes use, each on a new store. Panics if one is violated.
pub fn run_all_of_two(open: OpenTwice<'_>) {
    for (name, property) in PROPERTIES_OF_TWO {
        println!("conformance: {name}");
        property(open);
    }
}

/// Tests every property, each on a new engine. Panics if one is violated.
pub fn run_all(open: Open<'_>) {
    for (name, property) in PROPERTIES {
        println!("conformance: {name}");
        property(open);
    }
    for seed in [1, 2, 3, RandomState::new().hash_one(0)] {
        println!("conformance: random operations agree with a model, seed {seed}");
        random_operations_agree_with_a_model(open, seed);
    }
}
