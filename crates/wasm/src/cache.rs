//! [`Modules`] caches compiled modules and the reasons of failed compilations, because a failure takes as long as a
//! success.

use std::collections::VecDeque;
use std::sync::Arc;

use settee_design::CompileError;
use sha2::{Digest as _, Sha256};
use wasmtime::Module;

const CODE_BYTES_MAX: usize = 96 << 20;
const MODULES_MAX: usize = 64;

pub(crate) type Name = [u8; 32];

pub(crate) fn name(text: &str) -> Name {
    Sha256::digest(text.as_bytes()).into()
}

#[derive(Default)]
pub(crate) struct Modules {
    known: VecDeque<Known>,
    code_bytes: usize,
}

struct Known {
    name: Name,
    code_bytes: usize,
    compiled: Result<Module, Arc<str>>,
}

impl Modules {
    pub(crate) fn find(&mut self, name: &Name) -> Option<Result<Module, CompileError>> {
        let place = self.known.iter().position(|known| known.name == *name)?;
        let known = self.known.remove(place)?;
        let compiled = known.compiled.clone().map_err(|reason| CompileError::Source(reason.as_ref().to_owned()));
        self.known.push_front(known);
        Some(compiled)
    }

    pub(crate) fn insert(&mut self, name: Name, code_bytes: usize, compiled: Result<Module, &str>) {
        if self.find(&name).is_some() {
            return;
        }
        self.known.push_front(Known { name, code_bytes, compiled: compiled.map_err(Into::into) });
        self.code_bytes += code_bytes;
        while self.known.len() > MODULES_MAX || self.code_bytes > CODE_BYTES_MAX && self.known.len() > 1 {
            self.code_bytes -= self.known.pop_back().map_or(0, |known| known.code_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_and_the_number_of_modules_are_bounded() {
        let mut modules = Modules::default();
        let name_of = |number: usize| name(&number.to_string());
        for number in 0..10 {
            modules.insert(name_of(number), 30 << 20, Err("bad"));
            assert!(modules.find(&name_of(0)).is_some(), "what is used stays");
            assert!(modules.code_bytes <= CODE_BYTES_MAX);
        }
        let kept = |modules: &mut Modules| (0..200).filter(|number| modules.find(&name_of(*number)).is_some()).count();
        assert_eq!(kept(&mut modules), 3);
        for number in 10..200 {
            modules.insert(name_of(number), 0, Err("bad"));
        }
        assert_eq!(kept(&mut modules), MODULES_MAX);
        modules.insert(name_of(1000), 200 << 20, Err("bad"));
        assert_eq!((kept(&mut modules), modules.known.len(), modules.code_bytes), (0, 1, 200 << 20));
        modules.insert(name_of(1000), 200 << 20, Err("bad"));
        assert_eq!(modules.code_bytes, 200 << 20);
        modules.insert(name_of(1), 5, Err("bad"));
        assert_eq!((modules.known.len(), modules.code_bytes), (1, 5));
    }
}
