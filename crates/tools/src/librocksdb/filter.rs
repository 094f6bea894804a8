//! Compaction filters that RocksDB calls.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use super::{RocksOptions, api, bytes};

/// The decision about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The value is kept.
    Keep,
    /// The value is removed.
    Remove,
    /// The value is replaced by this one.
    Change(&'static [u8]),
}

/// Decides about a value, given the level, the key and the value. After a panic the value is kept.
pub type FilterFunction = fn(i32, &[u8], &[u8]) -> FilterVerdict;

impl RocksOptions {
    /// Filters the values that compactions write.
    pub fn compaction_filter(&mut self, function: FilterFunction) -> &mut Self {
        let api = &self.lib.api;
        // Databases keep a pointer to the filter, so it is never freed.
        let state = function as *mut c_void;
        // SAFETY: the functions have the types that RocksDB calls, and the state is a function that
        // stays; the options are live.
        unsafe {
            let filter = (api.compactionfilter_create)(state, nothing, call, name);
            (api.options_set_compaction_filter)(self.raw, filter);
        }
        self
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    c"test".as_ptr()
}

unsafe extern "C" fn call(
    state: *mut c_void,
    level: c_int,
    key: api::Bytes,
    key_len: usize,
    value: api::Bytes,
    value_len: usize,
    new_value: *mut *mut c_char,
    new_len: *mut usize,
    changed: *mut api::Bool,
) -> api::Bool {
    // SAFETY: the state is the function that `compaction_filter` was given.
    let function = unsafe { std::mem::transmute::<*mut c_void, FilterFunction>(state) };
    // SAFETY: RocksDB passes live bytes.
    let (key, value) = unsafe { (bytes(key, key_len), bytes(value, value_len)) };
    match catch_unwind(|| function(level, key, value)) {
        Ok(FilterVerdict::Remove) => 1,
        Ok(FilterVerdict::Change(to)) => {
            // SAFETY: RocksDB passes places for the results, and copies the value, which is static.
            unsafe {
                *new_value = to.as_ptr().cast_mut().cast();
                *new_len = to.len();
                *changed = 1;
            }
            0
        }
        _ => 0,
    }
}
