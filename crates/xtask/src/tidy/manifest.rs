//! [`dependencies`]: the dependencies in a `Cargo.toml`. Parses only the syntax that this workspace uses.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For the crate itself, or its build script.
    Normal,
    /// For tests, benchmarks and examples.
    Dev,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) line: usize,
}

pub(super) fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut section = Section::Other;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let number = index + 1;
        if let Some(header) = line.strip_prefix('[') {
            section = Section::of(header.split(']').next().unwrap_or_default());
            if let Section::One(kind, name) = &section {
                found.push(Dependency { name: name.clone(), kind: *kind, line: number });
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let renamed = match &section {
            Section::Other => continue,
            Section::Table(kind) => {
                let name = key.trim().split('.').next().unwrap_or_default().trim_matches('"').to_owned();
                found.push(Dependency { name, kind: *kind, line: number });
                value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1))
            }
            Section::One(..) if key.trim() == "package" => value.split('"').nth(1),
            Section::One(..) => None,
        };
        if let (Some(real), Some(last)) = (renamed, found.last_mut()) {
            real.clone_into(&mut last.name);
        }
    }
    found
}

enum Section {
    Table(Kind),
    One(Kind, String),
    Other,
}

impl Section {
    fn of(header: &str) -> Self {
        let tables =
            [("dev-dependencies", Kind::Dev), ("build-dependencies", Kind::Normal), ("dependencies", Kind::Normal)];
        for (table, kind) in tables {
            if header == table || (header.starts_with("target.") && header.ends_with(&format!(".{table}"))) {
                return Self::Table(kind);
            }
            let single = header.rsplit_once('.').filter(|(before, _)| {
                *before == table || (before.starts_with("target.") && before.ends_with(&format!(".{table}")))
            });
            if let Some((_, name)) = single {
                return Self::One(kind, name.trim_matches('"').to_owned());
            }
        }
        Self::Other
    }
}
