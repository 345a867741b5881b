//! Two databases that are edited, replicated and purged at random converge, and match a model that only collects paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use settee_model::Rev;

use super::{Random, audit, body, database, edit, replicated, saved, write};
use crate::{Database, Direction, Purge, Work};

/// Deletion flag, revision, history (newest first) and body.
type Leaf = (bool, Rev, Vec<Rev>, String);

/// All written paths by document, which every replica has in the end.
type Model = BTreeMap<String, BTreeSet<(bool, Vec<Rev>, String)>>;

#[test]
fn replicas_converge() {
    for _ in 0..60 {
        run(&mut Random::new());
    }
}

fn run(random: &mut Random) {
    let replicas = [database(), database()];
    let mut model = Model::new();
    for _ in 0..120 {
        let (here, there) = if random.one_in(2) { (0, 1) } else { (1, 0) };
        let id = format!("d{}", random.below(6));
        match random.below(12) {
            0..=7 => edit_somehow(random, &replicas[here], &id, &mut model),
            8..=10 => replicate(&replicas[here], &replicas[there]),
            _ => purge_everywhere(&replicas, &id, &mut model),
        }
    }
    replicate(&replicas[0], &replicas[1]);
    replicate(&replicas[1], &replicas[0]);
    for id in (0..6).map(|number| format!("d{number}")) {
        let ends: Vec<Vec<Leaf>> = replicas.iter().map(|replica| leaves(replica, &id)).collect();
        assert_eq!(ends[0], ends[1], "{id}");
        assert_eq!(ends[0], expected(&model, &id), "{id}");
    }
    replicas.iter().for_each(|replica| audit(&replica.read().unwrap()));
}

fn edit_somehow(random: &mut Random, replica: &Arc<Database>, id: &str, model: &mut Model) {
    let leaves = leaves(replica, id);
    let live: Vec<&Leaf> = leaves.iter().filter(|(deleted, ..)| !deleted).collect();
    let parent = (!live.is_empty()).then(|| live[random.below(live.len())].1.clone());
    let deleted = parent.is_some() && random.one_in(4);
    let text = format!("{{\"n\":{}}}", random.below(3));
    if let Some(rev) = saved(write(replica, vec![edit(id, parent.as_ref(), deleted, &text)]).remove(0)) {
        let history = self::leaves(replica, id).into_iter().find(|leaf| leaf.1 == rev).unwrap().2;
        model.entry(id.to_owned()).or_default().insert((deleted, history, text));
    }
}

fn replicate(source: &Arc<Database>, target: &Arc<Database>) {
    let view = source.read().unwrap();
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut changed = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        changed.push(change.id.to_owned());
    }
    for id in changed {
        let updates =
            leaves(source, &id).into_iter().map(|(deleted, _, path, text)| replicated(&id, &path, deleted, &text));
        assert!(write(target, updates.collect()).into_iter().all(|outcome| saved(outcome).is_some()));
    }
}

/// Purges are not replicated, so a document must be purged on every replica.
fn purge_everywhere(replicas: &[Arc<Database>], id: &str, model: &mut Model) {
    for replica in replicas {
        let revs = leaves(replica, id).into_iter().map(|leaf| leaf.1).collect();
        replica.update(Work::Purge(vec![Purge { id: id.to_owned(), revs }])).unwrap();
        assert!(leaves(replica, id).is_empty());
    }
    model.remove(id);
}

fn leaves(replica: &Arc<Database>, id: &str) -> Vec<Leaf> {
    let view = replica.read().unwrap();
    let Some(record) = view.record(id).unwrap() else { return Vec::new() };
    let leaf = |node: u32| {
        let stored = record.tree.node(node).value.unwrap();
        let history = record.tree.history(node).map(|ancestor| record.tree.node(ancestor).rev.clone()).collect();
        (stored.deleted, record.tree.node(node).rev.clone(), history, body(&view, stored).unwrap())
    };
    record.tree.leaves_by_rank(|stored| stored.deleted).into_iter().map(leaf).collect()
}

fn expected(model: &Model, id: &str) -> Vec<Leaf> {
    let none = BTreeSet::new();
    let paths = model.get(id).unwrap_or(&none);
    let is_inner = |rev: &Rev| paths.iter().any(|(_, other, _)| other[1..].contains(rev));
    let mut leaves: Vec<Leaf> = paths
        .iter()
        .filter(|(_, path, _)| !is_inner(&path[0]))
        .map(|(deleted, path, text)| (*deleted, path[0].clone(), path.clone(), text.clone()))
        .collect();
    leaves.sort_by(|one, other| (!other.0, &other.1).cmp(&(!one.0, &one.1)));
    leaves
}
