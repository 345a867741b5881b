//! Tests of [`Lease`]: tables of inputs, and the actions and states that follow.

use super::*;

const VACANT: Holder = Holder::Free { is_preferred: false };
const PREFERRED: Holder = Holder::Free { is_preferred: true };
const VALID: Holder = Holder::This { is_valid: true };
const EXPIRED: Holder = Holder::This { is_valid: false };

fn check(steps: &[(u64, Input, Option<Action>, State)]) {
    let mut lease = Lease::default();
    for (number, (now, input, action, state)) in steps.iter().enumerate() {
        let made = lease.step(*now, *input);
        assert_eq!((made, lease.state()), (*action, *state), "step {number}: {input:?} at {now}");
    }
}

fn acquired() -> Vec<(u64, Input, Option<Action>, State)> {
    let epoch = 7;
    vec![
        (0, Input::Observed(PREFERRED), Some(Action::Claim), State::Claiming),
        (1, Input::Claimed(Some(epoch)), Some(Action::Fence { epoch }), State::Fencing { epoch }),
        (2, Input::Fenced { epoch, is_done: true }, Some(Action::CatchUp { epoch }), State::CatchingUp { epoch }),
        (3, Input::CaughtUp { epoch, is_done: true }, None, State::Writer { epoch }),
        (4, Input::Observed(VALID), None, State::Writer { epoch }),
    ]
}

fn and_then(steps: &[(u64, Input, Option<Action>, State)]) {
    check(&[&acquired(), steps].concat());
}

#[test]
fn a_group_without_a_holder_is_claimed() {
    and_then(&[]);
    check(&[
        (100, Input::Observed(VACANT), None, State::Follower),
        (599, Input::Observed(VACANT), None, State::Follower),
        (600, Input::Observed(VACANT), Some(Action::Claim), State::Claiming),
        (601, Input::Claimed(None), None, State::Follower),
        (650, Input::Observed(VACANT), None, State::Follower),
        (701, Input::Observed(VACANT), Some(Action::Claim), State::Claiming),
    ]);
    check(&[
        (0, Input::Observed(VACANT), None, State::Follower),
        (300, Input::Observed(Holder::Live), None, State::Follower),
        (600, Input::Observed(VACANT), None, State::Follower),
        (700, Input::Observed(Holder::Expired), Some(Action::Claim), State::Claiming),
    ]);
    check(&[(0, Input::Observed(VALID), Some(Action::Claim), State::Claiming)]);
}

#[test]
fn a_live_holder_is_checked_while_it_is_suspected() {
    check(&[
        (0, Input::Observed(Holder::Live), None, State::Follower),
        (0, Input::Suspected, None, State::Follower),
        (1, Input::Observed(Holder::Live), Some(Action::Claim), State::Claiming),
        (2, Input::Claimed(None), None, State::Follower),
        (50, Input::Observed(Holder::Live), None, State::Follower),
        (102, Input::Observed(Holder::Live), Some(Action::Claim), State::Claiming),
        (103, Input::Claimed(None), None, State::Follower),
        (3000, Input::Observed(Holder::Live), None, State::Follower),
    ]);
}

#[test]
fn a_failed_step_is_repeated_after_a_pause() {
    let epoch = 7;
    check(&[
        (0, Input::Observed(PREFERRED), Some(Action::Claim), State::Claiming),
        (1, Input::Claimed(Some(epoch)), Some(Action::Fence { epoch }), State::Fencing { epoch }),
        (2, Input::Fenced { epoch, is_done: false }, None, State::Fencing { epoch }),
        (50, Input::Observed(VALID), None, State::Fencing { epoch }),
        (102, Input::Observed(EXPIRED), None, State::Fencing { epoch }),
        (102, Input::Observed(VALID), Some(Action::Fence { epoch }), State::Fencing { epoch }),
        (103, Input::Fenced { epoch: 6, is_done: true }, None, State::Fencing { epoch }),
        (104, Input::Fenced { epoch, is_done: true }, Some(Action::CatchUp { epoch }), State::CatchingUp { epoch }),
        (105, Input::CaughtUp { epoch, is_done: false }, None, State::CatchingUp { epoch }),
        (205, Input::Observed(VALID), Some(Action::CatchUp { epoch }), State::CatchingUp { epoch }),
        (206, Input::Observed(Holder::Live), Some(Action::Release { epoch }), State::Follower),
        (207, Input::CaughtUp { epoch, is_done: true }, None, State::Follower),
    ]);
}

#[test]
fn a_writer_is_deposed_by_late_heartbeats_and_by_rejected_commits() {
    let epoch = 7;
    let release = Some(Action::Release { epoch });
    and_then(&[
        (10, Input::Observed(EXPIRED), None, State::Deposed { epoch }),
        (11, Input::Observed(EXPIRED), None, State::Deposed { epoch }),
        (12, Input::Observed(VALID), Some(Action::CatchUp { epoch }), State::CatchingUp { epoch }),
        (13, Input::CaughtUp { epoch, is_done: true }, None, State::Writer { epoch }),
        (14, Input::Observed(EXPIRED), None, State::Deposed { epoch }),
        (15, Input::Observed(VACANT), release, State::Follower),
    ]);
    and_then(&[(10, Input::Observed(Holder::Live), release, State::Follower)]);
    and_then(&[
        (10, Input::Rejected { epoch: 6 }, None, State::Writer { epoch }),
        (11, Input::Rejected { epoch }, release, State::Follower),
        (12, Input::Rejected { epoch }, None, State::Follower),
    ]);
}

#[test]
fn a_stopped_node_releases_and_never_claims() {
    let release = Some(Action::Release { epoch: 7 });
    and_then(&[
        (10, Input::Stop, release, State::Stopped),
        (11, Input::Stop, None, State::Stopped),
        (12, Input::Observed(PREFERRED), None, State::Stopped),
    ]);
    check(&[
        (0, Input::Observed(PREFERRED), Some(Action::Claim), State::Claiming),
        (1, Input::Stop, None, State::Stopped),
        (2, Input::Claimed(Some(7)), release, State::Stopped),
    ]);
}

#[test]
fn a_group_is_given_to_its_preferred_node() {
    let epoch = 7;
    and_then(&[
        (10, Input::Given, Some(Action::Release { epoch }), State::Follower),
        (20, Input::Observed(VACANT), None, State::Follower),
        (1000, Input::Observed(VACANT), None, State::Follower),
        (1100, Input::Observed(Holder::Live), None, State::Follower),
        (4000, Input::Observed(VACANT), None, State::Follower),
        (4600, Input::Observed(VACANT), Some(Action::Claim), State::Claiming),
    ]);
    check(&[(0, Input::Given, None, State::Follower)]);
}
