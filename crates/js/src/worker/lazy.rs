//! Documents for scripts: objects over JSON text whose members are parsed on first access. [`Documents`] registers the
//! object class with the engine and creates the objects. An object scans its text no further than requested, and caches
//! the result. Objects and arrays are frozen, as in CouchDB: assignments are ignored in sloppy functions and throw in
//! strict ones. Arrays are created completely on first access. A document that a function keeps beyond its call gets a
//! copy of its text ([`Documents::release`]).
#![expect(unsafe_code, reason = "implements an object class of the JavaScript engine")]

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::rc::Rc;

use rquickjs::qjs as c;
use settee_model::json;

use super::engine::Host;
use super::names::{Name, NameCache, hash};
use super::qjs::{Context, Ref, Thrown, Value};
use settee_native::text;

/// Objects with more members use a hash table.
const FEW_MEMBERS: usize = 16;

const SPARE_OBJECTS: usize = 64;

static EXOTIC: c::JSClassExoticMethods = c::JSClassExoticMethods {
    get_own_property: Some(get_own_property),
    get_own_property_names: Some(get_own_property_names),
    delete_property: Some(delete_property),
    define_own_property: None,
    has_property: None,
    get_property: None,
    set_property: None,
};

pub(super) struct Documents {
    class: c::JSClassID,
    names: RefCell<NameCache>,
    #[expect(clippy::vec_box, reason = "the engine holds the boxes' addresses")]
    spare: RefCell<Vec<Box<Lazy>>>,
    kept_bytes: Rc<Cell<u64>>,
}

pub(super) struct Source {
    text: Cell<*const [u8]>,
    /// The copy, once the text no longer belongs to the batch.
    kept: Cell<Option<Box<[u8]>>>,
    kept_bytes: Rc<Cell<u64>>,
}

impl Source {
    fn text(&self) -> &[u8] {
        // SAFETY: points into the batch during the call of a function, and into `kept` after `Documents::release`; it
        // changes only between calls, when no borrow of it is on the stack.
        unsafe { &*self.text.get() }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(copy) = self.kept.take() {
            self.kept_bytes.set(self.kept_bytes.get() - copy.len() as u64);
        }
    }
}

struct Lazy {
    source: Option<Rc<Source>>,
    start: u32,
    whole: bool,
    members: Vec<Member>,
    /// Indexes of members plus one, once all members are parsed and there are many.
    table: Vec<u32>,
}

struct Member {
    name: (u32, u32),
    name_escaped: bool,
    value: u32,
    /// The position after the value; 0 if unknown.
    end: u32,
    cached: c::JSValue,
}

impl Documents {
    pub(super) fn new(runtime: *mut c::JSRuntime) -> Option<Self> {
        let mut class = c::JS_INVALID_CLASS_ID;
        let definition = c::JSClassDef {
            class_name: c"Object".as_ptr(),
            finalizer: Some(finalize),
            gc_mark: None,
            call: None,
            exotic: (&raw const EXOTIC).cast_mut(),
        };
        // SAFETY: the runtime is alive; the definition is copied except for the callbacks, which are static.
        let failed = unsafe {
            c::JS_NewClassID(runtime, &raw mut class);
            c::JS_NewClass(runtime, class, &raw const definition)
        };
        (failed == 0).then(|| Self {
            class,
            names: RefCell::new(NameCache::default()),
            spare: RefCell::default(),
            kept_bytes: Rc::default(),
        })
    }

    pub(super) fn prepare(&self, context: Context) {
        const OBJECT_CLASS: c::JSClassID = 1;
        // SAFETY: the context is alive and has its base objects; JS_SetClassProto takes over the reference.
        unsafe {
            let prototype = c::JS_GetClassProto(context.raw(), OBJECT_CLASS);
            c::JS_SetClassProto(context.raw(), self.class, prototype);
        }
    }

    /// Must be called before the runtime is freed.
    pub(super) fn forget_names(&self, runtime: *mut c::JSRuntime) {
        self.names.borrow_mut().clear(runtime);
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_bytes.get()
    }

    pub(super) fn source(&self) -> Rc<Source> {
        let empty: &'static [u8] = &[];
        Rc::new(Source { text: Cell::new(empty), kept: Cell::new(None), kept_bytes: Rc::clone(&self.kept_bytes) })
    }

    /// `text` must start with a brace.
    ///
    /// # Safety
    ///
    /// `text` must stay valid until [`Documents::release`].
    pub(super) unsafe fn document(
        &self,
        context: Context,
        source: &Rc<Source>,
        text: *const [u8],
    ) -> Result<Value, Thrown> {
        source.text.set(text);
        self.object(context, source, 0)
    }

    /// Ends the call for which a document was created: if objects of it are still alive, they get a copy of the text,
    /// and `source` is replaced.
    pub(super) fn release(&self, source: &mut Rc<Source>) {
        if Rc::strong_count(source) == 1 {
            return;
        }
        let copy: Box<[u8]> = source.text().into();
        self.kept_bytes.set(self.kept_bytes.get() + copy.len() as u64);
        source.text.set(&raw const *copy);
        source.kept.set(Some(copy));
        *source = self.source();
    }

    pub(super) fn text_of<'a>(&self, value: Ref<'a>) -> Option<&'a [u8]> {
        // SAFETY: the class makes sure that the opaque pointer is a `Lazy` of ours, which lives as long as the value.
        let lazy = unsafe { c::JS_GetOpaque(value.raw(), self.class).cast::<Lazy>().as_ref()? };
        lazy.source.as_ref()?.text().get(lazy.start as usize..)
    }

    fn object(&self, context: Context, source: &Rc<Source>, start: usize) -> Result<Value, Thrown> {
        // SAFETY: the class is registered and the context alive.
        let value = unsafe {
            let raw = c::JS_NewObjectClass(context.raw(), self.class);
            context.own(raw)?
        };
        let mut lazy = self.spare.borrow_mut().pop().unwrap_or_default();
        lazy.source = Some(Rc::clone(source));
        lazy.start = offset(start);
        // SAFETY: the object is of our class; it takes over the box, which `finalize` takes back.
        unsafe {
            c::JS_SetOpaque(value.borrow().raw(), Box::into_raw(lazy).cast());
            c::JS_PreventExtensions(context.raw(), value.borrow().raw());
        }
        Ok(value)
    }

    fn value(&self, context: Context, source: &Rc<Source>, at: usize) -> Result<(Value, Option<usize>), Thrown> {
        let text = source.text();
        let plain = |raw: c::JSValue, end: usize| {
            // SAFETY: no reference is counted in these.
            Ok((unsafe { context.own(raw)? }, Some(end)))
        };
        match text.get(at) {
            Some(b'{') => Ok((self.object(context, source, at)?, None)),
            Some(b'[') => {
                let (value, end) = self.array(context, source, at)?;
                Ok((value, Some(end)))
            }
            Some(b'"') => {
                let (end, escaped) = text::string_end(text, at);
                let inside = text.get(at + 1..end - 1).unwrap_or_default();
                Ok((string(context, inside, escaped)?, Some(end)))
            }
            Some(b't') => plain(c::JS_TRUE, at + 4),
            Some(b'f') => plain(c::JS_FALSE, at + 5),
            Some(b'n') => plain(c::JS_NULL, at + 4),
            _ => {
                let end = text::scalar_end(text, at);
                plain(number(text.get(at..end).unwrap_or_default()), end)
            }
        }
    }

    fn array(&self, context: Context, source: &Rc<Source>, open: usize) -> Result<(Value, usize), Thrown> {
        let text = source.text();
        let mut elements = Vec::new();
        let mut at = text::skip_space(text, open + 1);
        while !matches!(text.get(at), Some(b']') | None) {
            if text[at] == b',' {
                at = text::skip_space(text, at + 1);
            }
            let (value, end) = self.value(context, source, at)?;
            elements.push(value);
            let end = end.unwrap_or_else(|| text::skip_value(text, at));
            at = text::skip_space(text, end.max(at + 1));
        }
        let array = context.array(elements)?;
        // SAFETY: the array is alive.
        let frozen = unsafe { c::JS_FreezeObject(context.raw(), array.borrow().raw()) };
        if frozen < 0 { Err(Thrown) } else { Ok((array, at + 1)) }
    }
}

fn string(context: Context, inside: &[u8], escaped: bool) -> Result<Value, Thrown> {
    if !escaped {
        return context.string(inside);
    }
    let mut plain = Vec::with_capacity(inside.len());
    json::unescape(inside, &mut plain);
    context.string(&plain)
}

fn number(literal: &[u8]) -> c::JSValue {
    if literal.len() <= 9 && !literal.is_empty() && literal.iter().all(u8::is_ascii_digit) {
        let small = literal.iter().fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
        return c::JS_MKVAL(c::JS_TAG_INT, small);
    }
    c::JS_NewFloat64(text::number(literal))
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("documents are smaller than 4 GiB")
}

impl Default for Lazy {
    fn default() -> Self {
        Self { source: None, start: 0, whole: false, members: Vec::with_capacity(8), table: Vec::new() }
    }
}

impl Lazy {
    fn find(&mut self, text: &[u8], name: &Name) -> Option<usize> {
        if !self.table.is_empty() {
            return self.find_hashed(text, name);
        }
        if let Some(at) = self.members.iter().position(|member| member.has_name(text, &name.text)) {
            return Some(at);
        }
        while self.scan(text) {
            if self.members.last()?.has_name(text, &name.text) {
                return Some(self.members.len() - 1);
            }
        }
        if self.members.len() > FEW_MEMBERS {
            self.build_table(text);
        }
        None
    }

    fn find_hashed(&self, text: &[u8], name: &Name) -> Option<usize> {
        let mask = self.table.len() - 1;
        let mut slot = name.hash & mask;
        loop {
            let index = (self.table[slot] as usize).checked_sub(1)?;
            if self.members[index].has_name(text, &name.text) {
                return Some(index);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn build_table(&mut self, text: &[u8]) {
        let slots = (self.members.len() * 2).next_power_of_two();
        self.table.resize(slots, 0);
        for (index, member) in self.members.iter().enumerate() {
            let mut slot = hash(&member.plain_name(text)) & (slots - 1);
            while self.table[slot] != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            self.table[slot] = offset(index + 1);
        }
    }

    fn scan(&mut self, text: &[u8]) -> bool {
        if self.whole {
            return false;
        }
        let mut at = match self.members.last_mut() {
            None => self.start as usize + 1,
            Some(last) => {
                if last.end == 0 {
                    last.end = offset(text::skip_value(text, last.value as usize));
                }
                last.end as usize
            }
        };
        at = text::skip_space(text, at);
        if text.get(at) == Some(&b',') {
            at = text::skip_space(text, at + 1);
        }
        if text.get(at) != Some(&b'"') {
            self.whole = true;
            return false;
        }
        let (name_end, name_escaped) = text::string_end(text, at);
        let colon = text::skip_space(text, name_end);
        let value = text::skip_space(text, colon + 1);
        self.members.push(Member {
            name: (offset(at + 1), offset(name_end - 1)),
            name_escaped,
            value: offset(value),
            end: 0,
            cached: c::JS_UNINITIALIZED,
        });
        true
    }

    /// The reference stays with the object.
    fn member_value(&mut self, host: &Host, context: Context, index: usize) -> Result<c::JSValue, Thrown> {
        let member = &self.members[index];
        let source = self.source.as_ref().ok_or(Thrown)?;
        // SAFETY: reads the tag.
        if unsafe { c::JS_VALUE_GET_TAG(member.cached) } != c::JS_TAG_UNINITIALIZED {
            return Ok(member.cached);
        }
        let (value, end) = host.documents.value(context, source, member.value as usize)?;
        let raw = value.into_raw();
        let member = &mut self.members[index];
        member.cached = raw;
        if let Some(end) = end {
            member.end = offset(end);
        }
        Ok(raw)
    }
}

impl Member {
    #[inline]
    fn has_name(&self, text: &[u8], name: &[u8]) -> bool {
        let (start, end) = (self.name.0 as usize, self.name.1 as usize);
        if self.name_escaped {
            return *self.plain_name(text) == *name;
        }
        end.wrapping_sub(start) == name.len() && text.get(start..end) == Some(name)
    }

    fn plain_name<'a>(&self, text: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        let inside = text.get(self.name.0 as usize..self.name.1 as usize).unwrap_or_default();
        if !self.name_escaped {
            return inside.into();
        }
        let mut plain = Vec::with_capacity(inside.len());
        json::unescape(inside, &mut plain);
        plain.into()
    }
}

/// Returns the object behind a value that the engine passes to the callbacks of the class.
///
/// # Safety
///
/// `value` must be alive, and no other reference to its [`Lazy`] may exist: the callbacks below never call into
/// scripts.
unsafe fn lazy_of<'a>(host: &Host, value: c::JSValue) -> Option<&'a mut Lazy> {
    // SAFETY: the class makes sure that the opaque pointer is a `Lazy` made by `Documents::object`.
    unsafe { c::JS_GetOpaque(value, host.documents.class).cast::<Lazy>().as_mut() }
}

unsafe extern "C" fn get_own_property(
    raw: *mut c::JSContext,
    descriptor: *mut c::JSPropertyDescriptor,
    object: c::JSValue,
    atom: c::JSAtom,
) -> c_int {
    // SAFETY: the engine passes a live context of ours, a live object of the class and a live atom.
    let (context, host) = unsafe { (Context::new(raw), Host::of(raw)) };
    // SAFETY: as above.
    let Some(lazy) = (unsafe { lazy_of(host, object) }) else {
        return 0;
    };
    let Ok(name) = host.documents.names.borrow_mut().look_up(context, atom) else {
        return -1;
    };
    if name.is_symbol {
        return 0;
    }
    let Some(source) = lazy.source.clone() else { return 0 };
    let Some(index) = lazy.find(source.text(), &name) else {
        return 0;
    };
    if descriptor.is_null() {
        return 1;
    }
    let Ok(value) = lazy.member_value(host, context, index) else {
        return -1;
    };
    // SAFETY: the engine gave a place for the descriptor, and takes over the new reference to the value.
    unsafe {
        descriptor.write(c::JSPropertyDescriptor {
            flags: c::JS_PROP_ENUMERABLE.cast_signed(),
            value: c::JS_DupValue(raw, value),
            getter: c::JS_UNDEFINED,
            setter: c::JS_UNDEFINED,
        });
    }
    1
}

unsafe extern "C" fn get_own_property_names(
    raw: *mut c::JSContext,
    table: *mut *mut c::JSPropertyEnum,
    length: *mut u32,
    object: c::JSValue,
) -> c_int {
    // SAFETY: the engine passes a live context of ours and a live object of the class.
    let (context, host) = unsafe { (Context::new(raw), Host::of(raw)) };
    // SAFETY: as above.
    let Some(lazy) = (unsafe { lazy_of(host, object) }) else {
        return -1;
    };
    let Some(source) = lazy.source.clone() else { return -1 };
    let text = source.text();
    while lazy.scan(text) {}
    let mut order: Vec<usize> = (0..lazy.members.len()).collect();
    let index_of = |at: &usize| text::array_index(&lazy.members[*at].plain_name(text));
    if order.iter().any(|at| index_of(at).is_some()) {
        // As in ordinary objects; the sort is stable, so other names keep their order.
        order.sort_by_key(|at| index_of(at).map_or((true, 0), |index| (false, index)));
    }
    let bytes = mem::size_of::<c::JSPropertyEnum>() * order.len().max(1);
    // SAFETY: allocates in the engine's heap, as the caller frees it there.
    let entries = unsafe { c::js_malloc(raw, bytes as _).cast::<c::JSPropertyEnum>() };
    if entries.is_null() {
        return -1;
    }
    for (filled, at) in order.iter().enumerate() {
        let atom = context.string(&lazy.members[*at].plain_name(text)).map(|name| {
            // SAFETY: the string is alive.
            unsafe { c::JS_ValueToAtom(raw, name.borrow().raw()) }
        });
        match atom {
            // SAFETY: `entries` has room for all members.
            Ok(atom) if atom != 0 => unsafe {
                entries.add(filled).write(c::JSPropertyEnum { is_enumerable: true, atom });
            },
            _ => {
                // SAFETY: the first `filled` entries were written and own their atoms.
                unsafe { c::JS_FreePropertyEnum(raw, entries, offset(filled)) };
                return -1;
            }
        }
    }
    // SAFETY: the engine gave places for the results.
    unsafe {
        table.write(entries);
        length.write(offset(order.len()));
    }
    0
}

/// Members cannot be deleted; deleting an absent member succeeds.
unsafe extern "C" fn delete_property(raw: *mut c::JSContext, object: c::JSValue, atom: c::JSAtom) -> c_int {
    // SAFETY: called by the engine, with the same promises.
    match unsafe { get_own_property(raw, ptr::null_mut(), object, atom) } {
        0 => 1,
        1 => 0,
        failed => failed,
    }
}

unsafe extern "C" fn finalize(runtime: *mut c::JSRuntime, object: c::JSValue) {
    let mut class = c::JS_INVALID_CLASS_ID;
    // SAFETY: the engine passes a dying object of the class, whose opaque pointer is null or a box of ours.
    let opaque: *mut c_void = unsafe { c::JS_GetAnyOpaque(object, &raw mut class) };
    if opaque.is_null() {
        return;
    }
    // SAFETY: takes back the box that `Documents::object` gave; the object is no longer used.
    let mut lazy = unsafe { Box::from_raw(opaque.cast::<Lazy>()) };
    for member in lazy.members.drain(..) {
        // SAFETY: the object owned a reference to each value it had made.
        unsafe { c::JS_FreeValueRT(runtime, member.cached) };
    }
    lazy.table.clear();
    lazy.source = None;
    lazy.whole = false;
    // SAFETY: the runtime's opaque pointer is the host, which outlives the runtime.
    if let Some(host) = unsafe { Host::of_runtime(runtime) }
        && lazy.members.capacity() <= 64
    {
        let mut spare = host.documents.spare.borrow_mut();
        if spare.len() < SPARE_OBJECTS {
            spare.push(lazy);
        }
    }
}
