//! `cargo xtask` as a program.

mod bench_device;
