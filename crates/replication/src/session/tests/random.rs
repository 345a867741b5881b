//! Three databases with random edits, random replications and random faults converge to the same content.

use std::sync::Arc;

use settee_model::testing::scaled;

use crate::session::Outcome;
use crate::testing::{Fault, Faulty, Leaf, Sequences, Server, Sides, Unsupported, services, spec};
use crate::transport::Transport;

const ROUNDS: u64 = 60;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn edit(server: &Server, random: &mut Random) {
    let name = NAMES[random.below(3) as usize];
    let id = format!("doc{}", random.below(6));
    let database = server.database(name);
    let leaves = database.leaves(&id);
    let parent = match random.below(leaves.len() as u64 + 1) {
        0 => None,
        place => leaves.get(place as usize - 1).copied(),
    };
    let mut history = parent.map(|parent| parent.history.clone()).unwrap_or_default();
    history.insert(0, format!("{}-{:08x}", history.len() + 1, random.below(1 << 32)));
    let mut leaf = parent.cloned().unwrap_or_else(|| Leaf::new(&[], ""));
    leaf.body = format!("{{\"n\":{}}}", random.below(1000));
    leaf.deleted = random.below(5) == 0;
    if leaf.deleted {
        leaf.attachments.clear();
    } else if random.below(3) == 0 {
        let bytes = vec![b'x'; random.below(50) as usize];
        leaf = leaf.with(&format!("att{}", random.below(3)), history.len() as u64, &bytes);
    }
    leaf.history = history;
    server.write(name, &id, leaf);
}

async fn replicate(server: &Arc<Server>, random: &mut Random, faults: bool) {
    let (from, to) = (random.below(3) as usize, random.below(2) as usize);
    let spec = spec(NAMES[from], NAMES[(from + 1 + to) % 3], "\"worker_batch_size\":2,\"retries_per_request\":1");
    let mut side = || -> Arc<dyn Transport> {
        let fault = match random.below(5) {
            0 => Fault::Before,
            1 => Fault::After,
            2 => Fault::Cut,
            _ => Fault::Status(500),
        };
        match faults && random.below(2) == 0 {
            true => Faulty::new(server.clone(), fault, random.below(20), random.below(5)),
            false => server.clone(),
        }
    };
    let sides = Sides { source: side(), target: side() };
    let (outcome, _) = sides.run(&spec, &services()).await;
    assert!(faults || matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
}

async fn check_round(seed: u64) {
    let mut random = Random(seed);
    let sequences = [Sequences::Numbers, Sequences::Strings, Sequences::Arrays][random.below(3) as usize];
    let missing = Unsupported { bulk_get: random.below(4) == 0, multipart: random.below(4) == 0 };
    let server = Server::new(sequences, missing);
    for name in NAMES {
        server.databases.lock().insert(name.to_owned(), Default::default());
    }
    for _ in 0..30 {
        match random.below(3) {
            0 => replicate(&server, &mut random, true).await,
            _ => edit(&server, &mut random),
        }
    }
    for (source, target) in [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b"), ("c", "b"), ("b", "a")] {
        let sides = Sides { source: server.clone(), target: server.clone() };
        let (outcome, _) = sides.run(&spec(source, target, ""), &services()).await;
        assert!(matches!(outcome, Outcome::Completed(_)), "seed {seed}: {outcome:?}");
    }
    let state = server.database("a").state();
    for name in ["b", "c"] {
        assert_eq!(server.database(name).state(), state, "seed {seed}: {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn databases_converge() {
    for round in 0..scaled(ROUNDS) {
        let seed = 0x5e77_ee00 + round * 7919;
        println!("seed {seed}");
        check_round(seed).await;
    }
}
