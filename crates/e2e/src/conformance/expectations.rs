//! Expected results: the areas that must pass, and the scenarios that are expected to fail ([`Expectations`]). The file
//! is a small part of TOML. A table is named after an area; `[inexact]` lists scenarios that hold, but not with whole
//! revision ids; `[later]` lists areas that are not replayed yet; `[nodes]` those that may fail with several nodes or a
//! bucket.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};

const INEXACT: &str = "inexact";
const LATER: &str = "later";
const NODES: &str = "nodes";

#[derive(Debug, Default)]
pub(super) struct Expectations {
    areas: Vec<(String, BTreeMap<String, String>)>,
    inexact: BTreeMap<String, String>,
    later: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    is_for_nodes: bool,
}

impl Expectations {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut found = Self::default();
        let mut table: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let context = || format!("line {}", index + 1);
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').context("a table lacks its `]`").with_context(context)?;
                found.open(name).with_context(context)?;
                table = Some(name.to_owned());
                continue;
            }
            let table = table.as_deref().context("an entry before the first table").with_context(context)?;
            let (name, reason) = entry(line).with_context(context)?;
            if found.table(table).insert(name.to_owned(), reason).is_some() {
                bail!("line {}: `{name}` is listed twice", index + 1);
            }
        }
        Ok(found)
    }

    fn open(&mut self, name: &str) -> Result<()> {
        if self.areas.iter().any(|(area, _)| area == name) {
            bail!("the table `{name}` occurs twice");
        }
        if ![INEXACT, LATER, NODES].contains(&name) {
            self.areas.push((name.to_owned(), BTreeMap::new()));
        }
        Ok(())
    }

    fn table(&mut self, name: &str) -> &mut BTreeMap<String, String> {
        match name {
            INEXACT => &mut self.inexact,
            LATER => &mut self.later,
            NODES => &mut self.nodes,
            area => {
                let known = self.areas.iter_mut().find(|(other, _)| other == area);
                &mut known.expect("`open` made a table for it").1
            }
        }
    }

    pub(super) fn areas(&self) -> Vec<&str> {
        self.areas.iter().map(|(area, _)| area.as_str()).collect()
    }

    pub(super) fn for_nodes(self, is_for_nodes: bool) -> Self {
        Self { is_for_nodes, ..self }
    }

    pub(super) fn known(&self, scenario: &str) -> Option<&str> {
        let nodes = Some(&self.nodes).filter(|_| self.is_for_nodes);
        let known = self.areas.iter().map(|(_, known)| known).chain(nodes).find_map(|known| known.get(scenario));
        known.map(String::as_str)
    }

    /// Returns true if a scenario may fail because requests go to several nodes.
    pub(super) fn is_of_nodes(&self, scenario: &str) -> bool {
        self.is_for_nodes && self.nodes.contains_key(scenario)
    }

    /// Returns the reason why a scenario cannot pass with whole revision ids, if it is listed.
    pub(super) fn inexact(&self, scenario: &str) -> Option<&str> {
        self.inexact.get(scenario).map(String::as_str)
    }

    pub(super) fn later(&self) -> impl Iterator<Item = (&str, &str)> {
        self.later.iter().map(|(area, reason)| (area.as_str(), reason.as_str()))
    }

    /// Describes inconsistencies between the file and the recorded scenarios (area and name).
    pub(super) fn problems(&self, scenarios: &BTreeSet<(String, String)>) -> Vec<String> {
        let mut problems = Vec::new();
        let recorded: BTreeSet<&str> = scenarios.iter().map(|(area, _)| area.as_str()).collect();
        for area in &recorded {
            let named = self.areas.iter().any(|(name, _)| name == area) || self.later.contains_key(*area);
            if !named {
                problems.push(format!("the area `{area}` is recorded: give it a table or a line in [{LATER}]"));
            }
        }
        for area in self.areas().into_iter().chain(self.later.keys().map(String::as_str)) {
            if !recorded.contains(area) {
                problems.push(format!("there is no recorded area `{area}`"));
            }
        }
        for (area, known) in &self.areas {
            for name in known.keys().filter(|name| !scenarios.contains(&(area.clone(), (*name).clone()))) {
                problems.push(format!("there is no scenario `{name}` in the area `{area}`"));
            }
        }
        for name in self.nodes.keys().filter(|name| scenarios.iter().all(|(_, scenario)| scenario != *name)) {
            problems.push(format!("there is no scenario `{name}`"));
        }
        for name in self.inexact.keys() {
            if scenarios.iter().all(|(_, scenario)| scenario != name) {
                problems.push(format!("there is no scenario `{name}`"));
            }
            if self.known(name).is_some() {
                problems.push(format!("`{name}` is listed as a failure: remove it from [{INEXACT}]"));
            }
        }
        problems
    }
}

fn entry(line: &str) -> Result<(&str, String)> {
    let (name, value) = line.split_once('=').context("must be `name = \"reason\"`")?;
    let value = value.trim();
    let reason = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let reason = reason.context("the reason must stand between double quotes")?.replace("\\\"", "\"");
    if reason.trim().is_empty() {
        bail!("the reason is missing");
    }
    Ok((name.trim().trim_matches('"'), reason))
}
