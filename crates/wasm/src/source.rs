//! [`Source`] is the text of a function in a design document: `MODULE` or `MODULE#EXPORT`, where `MODULE` is base64.
//! [`settee_design::DesignDocument::embed_modules`] has already replaced references to modules.

use settee_design::CompileError;
use settee_model::base64;

/// Compiling ten million bytes takes about a second.
const MODULE_BYTES_MAX: usize = 8 << 20;

pub(crate) struct Source<'a> {
    pub(crate) module: &'a str,
    pub(crate) export: &'a str,
}

impl<'a> Source<'a> {
    pub(crate) fn parse(text: &'a str, default: &'a str) -> Self {
        let (module, export) = text.trim().split_once('#').unwrap_or((text.trim(), default));
        Self { module, export }
    }

    pub(crate) fn bytes(&self) -> Result<Vec<u8>, CompileError> {
        let refuse = |reason: String| Err(CompileError::Source(reason));
        if let Some(name) = self.module.strip_prefix("attachment:") {
            return refuse(format!(
                "the design document has no attachment `{name}` of at most {MODULE_BYTES_MAX} bytes"
            ));
        }
        if let Some(name) = self.module.strip_prefix("lib:") {
            return refuse(format!("`views.lib` has no member `{name}` that is a text"));
        }
        if self.module.len() / 4 * 3 > MODULE_BYTES_MAX {
            return refuse(format!("the module has more than {MODULE_BYTES_MAX} bytes"));
        }
        match base64::decode(self.module.as_bytes()) {
            Some(bytes) if bytes.starts_with(b"\0asm") => Ok(bytes),
            Some(_) => refuse("the text is base64, but no WebAssembly module".to_owned()),
            None => refuse(
                "a function is written as a module in base64, `attachment:NAME` or `lib:NAME`, and `#EXPORT` after it"
                    .to_owned(),
            ),
        }
    }
}
