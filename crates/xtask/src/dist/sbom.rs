//! The bill of materials: the crates and the C and C++ libraries of the program and the packages of its console, as
//! CycloneDX 1.5.

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::text::quoted;

/// Libraries that crates contain as C or C++ sources, or that the linker adds, with their licenses.
const LINKED: [(&str, &str); 3] = [
    ("RocksDB (in librocksdb-sys)", "Apache-2.0"),
    ("glibc", "LGPL-2.1-or-later"),
    ("libstdc++", "GPL-3.0-only WITH GCC-exception-3.1"),
];

pub(crate) fn name(target: Target) -> String {
    format!("settee-{VERSION}{}.cdx.json", target.suffix())
}

pub(crate) fn make(contents: &Contents) -> String {
    let crates = contents.libraries.lines().filter_map(library);
    let linked = LINKED
        .into_iter()
        .map(|(name, license)| format!("{{\"type\":\"library\",\"name\":{},{}}}", quoted(name), licenses(license)));
    let console = contents.console_lock.split("\n    \"node_modules/").skip(1).filter_map(console_package);
    let components: Vec<String> = crates.chain(linked).chain(console).collect();
    format!(
        "{{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,\n\
         \"metadata\":{{\"timestamp\":{},\"component\":{{\"type\":\"application\",\"name\":\"settee\",\"version\":\"{VERSION}\",\
         \"purl\":\"pkg:generic/settee@{VERSION}\",{},\"properties\":[{{\"name\":\"commit\",\"value\":{}}}]}}}},\n\
         \"components\":[\n{}\n]}}\n",
        quoted(&contents.release.date),
        licenses("Apache-2.0"),
        quoted(&contents.release.commit),
        components.join(",\n")
    )
}

/// Older manifests separate alternatives by a slash.
fn licenses(license: &str) -> String {
    format!("\"licenses\":[{{\"expression\":{}}}]", quoted(&license.replace('/', " OR ")))
}

/// Parses a line of [`Contents::libraries`]; `None` for other lines.
fn library(line: &str) -> Option<String> {
    let (package, rest) = line.split_once(" | ")?;
    let (name, version) = package.split_once(" v")?;
    let version = version.split(' ').next()?;
    let license = rest.split(" | ").next().map(str::trim).filter(|license| !license.is_empty());
    Some(component("cargo", name, version, license.map(licenses)))
}

fn component(registry: &str, name: &str, version: &str, licenses: Option<String>) -> String {
    let licenses = licenses.map_or_else(String::new, |licenses| format!(",{licenses}"));
    let address = format!("pkg:{registry}/{}@{version}", name.replacen('@', "%40", 1));
    let [name, version, address] = [name, version, address.as_str()].map(quoted);
    format!("{{\"type\":\"library\",\"name\":{name},\"version\":{version},\"purl\":{address}{licenses}}}")
}

/// Parses one entry of `package-lock.json`, which npm writes with a member per line; `None` for development packages
/// and for packages within others.
fn console_package(entry: &str) -> Option<String> {
    let (name, rest) = entry.split_once("\": {\n")?;
    let members = rest.split("\n    }").next()?;
    let member = |wanted: &str| {
        members.lines().find_map(|line| line.trim().strip_prefix(&format!("\"{wanted}\": ")))?.split('"').nth(1)
    };
    let is_built_in = !["dev", "optional", "peer"].iter().any(|flag| members.contains(&format!("\"{flag}\": true")));
    let is_own = is_built_in && !name.contains("node_modules/");
    if !is_own {
        return None;
    }
    Some(component("npm", name, member("version")?, member("license").map(licenses)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn components_have_addresses_and_licenses() {
        let mut contents = samples::contents(Target::X86_64);
        contents.libraries =
            "The name and version of libraries\n\nanyhow v1.0.104 | MIT/Apache-2.0 | https://x\nplain v0.1.0 (proc-macro) |  | \n"
                .to_owned();
        contents.console_lock = "{\n  \"packages\": {\n    \"node_modules/@x/y\": {\n      \"version\": \"1.2.3\",\n      \
            \"license\": \"MIT\"\n    },\n    \"node_modules/z\": {\n      \"version\": \"2.0.0\",\n      \"dev\": true\n    }\n  }\n}\n"
            .to_owned();
        let text = make(&contents);
        for expected in [
            r#"{"type":"library","name":"anyhow","version":"1.0.104","purl":"pkg:cargo/anyhow@1.0.104","licenses":[{"expression":"MIT OR Apache-2.0"}]}"#,
            r#"{"type":"library","name":"plain","version":"0.1.0","purl":"pkg:cargo/plain@0.1.0"}"#,
            r#"{"type":"library","name":"@x/y","version":"1.2.3","purl":"pkg:npm/%40x/y@1.2.3","licenses":[{"expression":"MIT"}]}"#,
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(text.matches("\"type\":\"library\"").count(), 3 + LINKED.len(), "{text}");
    }
}
