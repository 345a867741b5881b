//! [`NameCache`]: the text of property names, which the engine identifies by numbers.
#![expect(unsafe_code, reason = "counts references to the engine's names")]

use std::rc::Rc;

use rquickjs::qjs as c;

use super::qjs::{Context, Thrown};

const NAME_SLOTS: usize = 1024;

#[derive(Default)]
pub(super) struct NameCache {
    entries: Vec<Option<Rc<Name>>>,
}

pub(super) struct Name {
    /// A held reference, so that the number is not reused for another name.
    atom: c::JSAtom,
    /// Symbols never name members of documents.
    pub(super) is_symbol: bool,
    pub(super) text: Box<[u8]>,
    pub(super) hash: usize,
}

impl NameCache {
    /// Must be called before the runtime is freed.
    pub(super) fn clear(&mut self, runtime: *mut c::JSRuntime) {
        for name in self.entries.drain(..).flatten() {
            // SAFETY: the cache owned a reference to the atom, in this runtime.
            unsafe { c::JS_FreeAtomRT(runtime, name.atom) }
        }
    }

    pub(super) fn look_up(&mut self, context: Context, atom: c::JSAtom) -> Result<Rc<Name>, Thrown> {
        if self.entries.is_empty() {
            self.entries.resize(NAME_SLOTS, None);
        }
        let slot = &mut self.entries[atom as usize % NAME_SLOTS];
        if let Some(name) = slot.as_ref().filter(|name| name.atom == atom) {
            return Ok(Rc::clone(name));
        }
        let value = context.atom_to_value(atom)?;
        let is_symbol = !value.borrow().is_string();
        let text: Box<[u8]> = if is_symbol { Box::default() } else { context.text(value.borrow())?.bytes().into() };
        let hash = hash(&text);
        // SAFETY: the atom is alive, the caller holds it; the cache then holds a reference of its own.
        let atom = unsafe { c::JS_DupAtom(context.raw(), atom) };
        let name = Rc::new(Name { atom, is_symbol, text, hash });
        if let Some(old) = slot.replace(Rc::clone(&name)) {
            // SAFETY: the cache owned a reference to it.
            unsafe { c::JS_FreeAtom(context.raw(), old.atom) }
        }
        Ok(name)
    }
}

pub(super) fn hash(name: &[u8]) -> usize {
    let mut state = name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = (state.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    (state >> 32) as usize
}
