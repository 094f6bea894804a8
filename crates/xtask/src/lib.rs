//! What the project's checks have in common with the crate `bench`, which measures: how programs are built, and where
//! RocksDB comes from.

pub mod cargo;
pub mod peers;

/// The root of the source tree that this was built from.
pub fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}
