//! [`Heap`]: the memory of the engine, with a limit, and a reserve for the error object: without one, scripts would
//! receive `null`, which is indistinguishable from a script's own `throw null`.
#![expect(unsafe_code, reason = "allocates memory for the JavaScript engine")]

use std::cell::Cell;
use std::ffi::c_void;

use rquickjs::qjs as c;

/// Size of the header before each block, which contains the block size.
const HEADER_BYTES: usize = 16;

/// Bytes beyond the limit, in blocks no larger than a page of the engine.
const RESERVE_BYTES: usize = 256 << 10;
const RESERVE_BLOCK_BYTES: usize = 8 << 10;

pub(super) struct Heap {
    limit: usize,
    used: Cell<usize>,
    exhausted: Cell<bool>,
}

impl Heap {
    pub(super) fn new(limit_bytes: u64) -> Self {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX).min(usize::MAX / 4);
        Self { limit, used: Cell::new(0), exhausted: Cell::new(false) }
    }

    /// The allocator takes the address of a heap, which must outlive the runtime.
    pub(super) fn functions() -> c::JSMallocFunctions {
        c::JSMallocFunctions {
            js_calloc: Some(calloc),
            js_malloc: Some(malloc),
            js_free: Some(free),
            js_realloc: Some(realloc),
            js_malloc_usable_size: Some(usable_size),
        }
    }

    pub(super) fn take_exhausted(&self) -> bool {
        self.exhausted.replace(false)
    }

    /// Accounts `new` bytes instead of `old` ones. Returns false above the limit.
    fn account(&self, old: usize, new: usize) -> bool {
        let used = self.used.get() - old;
        let Some(total) = used.checked_add(new) else {
            return false;
        };
        if total > self.limit && new > old {
            self.exhausted.set(true);
            if new > RESERVE_BLOCK_BYTES || total > self.limit + RESERVE_BYTES {
                return false;
            }
        }
        self.used.set(total);
        true
    }
}

/// # Safety
///
/// `opaque` must be the value with which the runtime was created.
unsafe fn heap<'a>(opaque: *mut c_void) -> &'a Heap {
    // SAFETY: the runtime was made with the address of a heap that outlives it.
    unsafe { &*opaque.cast::<Heap>() }
}

unsafe extern "C" fn malloc(opaque: *mut c_void, size: c::size_t) -> *mut c_void {
    // SAFETY: reallocating nothing is allocating.
    unsafe { realloc(opaque, std::ptr::null_mut(), size) }
}

unsafe extern "C" fn calloc(opaque: *mut c_void, count: c::size_t, size: c::size_t) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the block has at least `bytes` bytes.
    unsafe {
        let block = malloc(opaque, bytes);
        if !block.is_null() {
            block.cast::<u8>().write_bytes(0, bytes as usize);
        }
        block
    }
}

unsafe extern "C" fn realloc(opaque: *mut c_void, block: *mut c_void, size: c::size_t) -> *mut c_void {
    // SAFETY: `block` is null or came from here, so that its head with its size is before it.
    unsafe {
        let size = size as usize;
        let old = if block.is_null() { 0 } else { usable_size(block) as usize };
        let Some(bytes) = size.checked_add(HEADER_BYTES) else {
            return std::ptr::null_mut();
        };
        if !heap(opaque).account(old, size) {
            return std::ptr::null_mut();
        }
        let start = if block.is_null() { block } else { block.byte_sub(HEADER_BYTES) };
        let moved = libc::realloc(start, bytes);
        if moved.is_null() {
            heap(opaque).account(size, old);
            return moved;
        }
        moved.cast::<usize>().write(size);
        moved.byte_add(HEADER_BYTES)
    }
}

unsafe extern "C" fn free(opaque: *mut c_void, block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: `block` came from here and is not used any more.
    unsafe {
        heap(opaque).account(usable_size(block) as usize, 0);
        libc::free(block.byte_sub(HEADER_BYTES));
    }
}

unsafe extern "C" fn usable_size(block: *const c_void) -> c::size_t {
    // SAFETY: the engine asks only for blocks that came from here.
    unsafe { block.byte_sub(HEADER_BYTES).cast::<usize>().read() as c::size_t }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_remains_for_small_blocks() {
        let heap = Heap::new(1 << 20);
        assert!(heap.account(0, 1 << 20));
        assert!(!heap.take_exhausted());
        assert!(!heap.account(0, 1 << 20));
        assert!(heap.take_exhausted());
        assert!(!heap.take_exhausted());
        let small = (0..1000).take_while(|_| heap.account(0, 4096)).count();
        assert_eq!(small, RESERVE_BYTES / 4096);
        assert!(heap.take_exhausted());
        assert!(heap.account(1 << 20, 0));
        assert!(heap.account(0, 1 << 19));
        assert!(!heap.take_exhausted());
    }
}
