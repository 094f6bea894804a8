//! Tests of the engine through its public API.
#![expect(clippy::print_stdout, reason = "tests print what they counted")]
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod backups;
mod clock;
mod destroy;
mod entries;
mod families;
#[cfg(debug_assertions)]
mod locks;
mod names;
mod one_form;
mod operations;
mod pinned;
mod smoke;
mod snapshots;
mod writes;
mod zero;
