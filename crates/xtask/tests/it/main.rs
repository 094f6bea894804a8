//! `cargo xtask` as a program.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod bench_device;
mod bench_page;
