//! Binary modules of a design document, stored as attachments or in `views.lib`. A source is `attachment:NAME` or
//! `lib:NAME`, with an optional `#EXPORT`, or the module itself in base64. [`DesignDocument::embed_modules`] replaces
//! names by modules, because a source identifies an index.

use std::sync::Arc;

use settee_model::base64;
use settee_model::json::Value;

use crate::DesignDocument;

const LANGUAGES: [&str; 1] = ["wasm"];
const ATTACHMENT: &str = "attachment:";
const LIBRARY: &str = "lib:";

impl DesignDocument {
    /// Returns true if functions are modules.
    #[must_use]
    pub fn has_modules(&self) -> bool {
        LANGUAGES.contains(&&*self.language)
    }

    /// Returns true if `source` requires an attachment for compiling.
    #[must_use]
    pub fn awaits_attachment(&self, source: &str) -> bool {
        self.has_modules() && source.trim_start().starts_with(ATTACHMENT)
    }

    /// Replaces names by modules, which `attachment` reads. The name of a missing one is kept.
    pub fn embed_modules<E>(
        &mut self,
        mut attachment: impl FnMut(&str) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<(), E> {
        if !self.has_modules() {
            return Ok(());
        }
        let library = self.library.clone();
        for view in &mut self.views {
            let reduce = view.reduce.as_mut().filter(|reduce| !reduce.trim_start().starts_with('_'));
            for source in std::iter::once(&mut view.map).chain(reduce) {
                let (module, export) = source.trim().split_once('#').unwrap_or((source.trim(), ""));
                let embedded = if let Some(name) = module.strip_prefix(ATTACHMENT) {
                    attachment(name)?.map(|bytes| {
                        let mut text = Vec::with_capacity(bytes.len() / 3 * 4 + 4);
                        base64::encode(&bytes, &mut text);
                        String::from_utf8(text).expect("base64 is ASCII")
                    })
                } else {
                    module.strip_prefix(LIBRARY).and_then(|name| in_library(library.as_deref()?, name))
                };
                if let Some(embedded) = embedded {
                    let sharp = if export.is_empty() { "" } else { "#" };
                    *source = Arc::from(format!("{embedded}{sharp}{export}"));
                }
            }
        }
        Ok(())
    }
}

fn in_library(library: &str, name: &str) -> Option<String> {
    Some(Value::trusted(library.as_bytes()).get(name)?.as_str()?.into_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::convert::Infallible;

    use settee_model::json::Json;

    use super::*;

    #[test]
    fn modules_take_the_place_of_their_names() {
        let check = |language: &str, source: &str, expected: &str| {
            let text = format!(
                r#"{{"language":"{language}","views":{{"lib":{{"m":"AGFzbQ=="}},"v":{{"map":"{source}","reduce":"{source}"}},
                    "w":{{"map":"x","reduce":"_sum"}}}}}}"#
            );
            let mut design = DesignDocument::parse("_design/d", Json::parse(text.as_bytes()).unwrap().value()).unwrap();
            let read = |name: &str| Ok::<_, Infallible>((name == "a.wasm").then(|| b"\0asm".to_vec()));
            design.embed_modules(read).unwrap();
            let view = design.view("v").unwrap();
            assert_eq!((&*view.map, view.reduce.as_deref().unwrap()), (expected, expected), "{language} {source}");
            assert_eq!(design.view("w").unwrap().reduce.as_deref(), Some("_sum"));
        };
        check("wasm", "attachment:a.wasm", "AGFzbQ==");
        check("wasm", " attachment:a.wasm#by_month ", "AGFzbQ==#by_month");
        check("wasm", "lib:m#f", "AGFzbQ==#f");
        check("wasm", "lib:n#f", "lib:n#f");
        check("wasm", "attachment:b.wasm", "attachment:b.wasm");
        check("wasm", "AGFzbQ==#f", "AGFzbQ==#f");
        check("javascript", "lib:m", "lib:m");
    }
}
