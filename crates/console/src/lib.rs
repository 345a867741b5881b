//! The files of the web console, compressed: [`file()`]. The build script builds them from `console/` at the root.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    pub path: &'static str,
    pub content_type: &'static str,
    /// True if the path changes with the content, so that clients may cache the file indefinitely.
    pub is_immutable: bool,
    /// Compressed by gzip.
    pub gzip: &'static [u8],
}

/// Sorted by path.
pub static FILES: &[File] = &include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[must_use]
pub fn file(path: &str) -> Option<&'static File> {
    FILES.binary_search_by(|file| file.path.cmp(path)).ok().map(|at| &FILES[at])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Maximum compressed size of the files that a browser loads to show the first page.
    const FIRST_PAGE_BYTES: usize = 250_000;

    #[test]
    fn files_are_found_by_their_paths() {
        for each in FILES {
            assert_eq!(file(each.path), Some(each));
            assert_eq!(each.gzip[..2], [0x1f, 0x8b], "{}", each.path);
            assert_eq!(each.is_immutable, each.path.starts_with("assets/"), "{}", each.path);
        }
        assert_eq!(file("index.html").unwrap().content_type, "text/html; charset=utf-8");
        for path in ["", "index.htm", "assets", "../Cargo.toml", "zzz"] {
            assert_eq!(file(path), None, "{path}");
        }
    }

    #[test]
    fn the_first_page_is_small_without_the_editor() {
        let is_later = |path: &str| path.contains("codemirror") || path.contains("uPlot");
        assert!(FILES.iter().any(|file| file.path.contains("codemirror")), "the editor is a file of its own");
        let bytes: usize = FILES.iter().filter(|file| !is_later(file.path)).map(|file| file.gzip.len()).sum();
        assert!(bytes < FIRST_PAGE_BYTES, "{bytes}");
    }
}
