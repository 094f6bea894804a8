//! `cargo xtask bench-quick`.

#[derive(clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<(), String> {
    Err("bench-quick is not supported yet".to_owned())
}
