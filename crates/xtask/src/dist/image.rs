//! The container image: an OCI layout of one layer, made without a container engine, with the paths of CouchDB's image.

use anyhow::Result;

use crate::dist::contents::{Contents, VERSION};
use crate::dist::target::Target;
use crate::dist::text::{quoted, sha256};
use crate::dist::tree::{Owner, Tree, gzip};

/// User and group, as in CouchDB's image. The program starts as root to use volumes of any owner.
const USER: u64 = 5984;
/// The volume may contain files of a CouchDB.
const VOLUME: &str = "opt/couchdb/data";
const ENVIRONMENT: [&str; 4] = [
    "SETTEE_DATA=/opt/couchdb/data/settee",
    "SETTEE_CONFIG=/opt/couchdb/etc",
    "SETTEE_USER=5984:5984",
    "SETTEE_CHTTPD__BIND_ADDRESS=0.0.0.0",
];

pub(crate) fn name(target: Target) -> String {
    format!("settee-{VERSION}-image{}.tar", target.suffix())
}

pub(crate) fn make(contents: &Contents) -> Result<Vec<u8>> {
    layout(contents)?.tar(contents.release.time)
}

fn root(contents: &Contents) -> Tree {
    let mut tree = Tree::default();
    tree.program("usr/bin/settee", contents.program.as_slice());
    tree.file("etc/passwd", format!("root:x:0:0::/:/\nsettee:x:{USER}:{USER}::/{VOLUME}:/\n"));
    tree.file("etc/group", format!("root:x:0:\nsettee:x:{USER}:\n"));
    for folder in [VOLUME, "opt/couchdb/etc", "opt/couchdb/etc/default.d", "opt/couchdb/etc/local.d"] {
        tree.folder(folder, 0o755, Owner::User(USER));
    }
    tree.folder("tmp", 0o1777, Owner::Root);
    contents.legal(&mut tree, "usr/share/doc/settee");
    tree
}

fn layout(contents: &Contents) -> Result<Tree> {
    let plain = root(contents).tar(contents.release.time)?;
    let packed = gzip(&plain)?;
    let config = config(contents, &sha256(&plain)).into_bytes();
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":{},\"layers\":[{}]}}",
        descriptor("application/vnd.oci.image.config.v1+json", &config, ""),
        descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &packed, "")
    );
    let named = format!(
        ",\"platform\":{{\"architecture\":\"{}\",\"os\":\"linux\"}},\
         \"annotations\":{{\"io.containerd.image.name\":\"docker.io/library/settee:{VERSION}\",\
         \"org.opencontainers.image.ref.name\":\"{VERSION}\"}}",
        contents.target.debian()
    );
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[{}]}}",
        descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes(), &named)
    );
    let older = format!(
        "[{{\"Config\":\"{}\",\"RepoTags\":[\"settee:{VERSION}\",\"settee:latest\"],\"Layers\":[\"{}\"]}}]",
        place(&config),
        place(&packed)
    );
    let mut tree = Tree::default();
    tree.file("oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
    tree.file("index.json", index);
    tree.file("manifest.json", older);
    for blob in [packed, config, manifest.into_bytes()] {
        tree.file(&place(&blob), blob);
    }
    Ok(tree)
}

fn place(blob: &[u8]) -> String {
    format!("blobs/sha256/{}", sha256(blob))
}

fn descriptor(kind: &str, blob: &[u8], more: &str) -> String {
    format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{}\",\"size\":{}{more}}}", sha256(blob), blob.len())
}

/// Must equal packaging/Dockerfile.
fn config(contents: &Contents, layer: &str) -> String {
    let date = quoted(&contents.release.date);
    let environment: String = ENVIRONMENT.iter().map(|variable| format!(",{}", quoted(variable))).collect();
    let commit = quoted(&contents.release.commit);
    let architecture = contents.target.debian();
    format!(
        "{{\"created\":{date},\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{\
         \"User\":\"0:0\",\"ExposedPorts\":{{\"5984/tcp\":{{}}}},\"Env\":[\"PATH=/usr/bin\"{environment}],\
         \"Cmd\":[\"settee\",\"serve\"],\"WorkingDir\":\"/{VOLUME}\",\"Volumes\":{{\"/{VOLUME}\":{{}}}},\
         \"Healthcheck\":{{\"Test\":[\"CMD\",\"settee\",\"doctor\",\"--up\"],\"Interval\":30000000000,\"StartPeriod\":30000000000}},\
         \"Labels\":{{\"org.opencontainers.image.title\":\"Settee\",\"org.opencontainers.image.version\":\"{VERSION}\",\
         \"org.opencontainers.image.revision\":{commit},\"org.opencontainers.image.licenses\":\"Apache-2.0\"}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{layer}\"]}},\
         \"history\":[{{\"created\":{date},\"created_by\":\"cargo xtask dist\"}}]}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::samples;

    #[test]
    fn everything_that_is_named_is_there() -> Result<()> {
        let tree = layout(&samples::contents(Target::X86_64))?;
        let find = |path: &str| tree.files().find(|(found, _, _)| *found == path).map(|(_, _, content)| content);
        let mut open = vec!["index.json".to_owned()];
        let mut seen = 0;
        while let Some(path) = open.pop() {
            let content = find(&path).unwrap_or_else(|| panic!("{path} does not exist"));
            seen += 1;
            let Ok(text) = std::str::from_utf8(content) else { continue };
            for named in text.split("\"digest\":\"sha256:").skip(1) {
                open.push(format!("blobs/sha256/{}", &named[..64]));
            }
        }
        assert_eq!(seen, 4);
        for (path, _, content) in tree.files().filter(|(path, _, _)| path.starts_with("blobs/")) {
            assert_eq!(path, place(content));
        }
        Ok(())
    }

    #[test]
    fn the_image_is_that_of_the_dockerfile() {
        let dockerfile = include_str!("../../../../packaging/Dockerfile");
        let config = config(&samples::contents(Target::Arm64), "0");
        assert!(config.contains("\"architecture\":\"arm64\""), "{config}");
        for line in ["CMD [\"settee\", \"serve\"]", "--uid 5984", "VOLUME /opt/couchdb/data"] {
            assert!(dockerfile.contains(line), "the Dockerfile no longer contains {line}");
        }
        for variable in ENVIRONMENT {
            assert!(dockerfile.contains(variable), "the Dockerfile no longer contains {variable}");
            assert!(config.contains(&format!("\"{variable}\"")), "{config}");
        }
    }
}
