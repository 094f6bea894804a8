//! Embeds the map: the list of the files that `cargo xtask web` has put into `web/dist`. Without
//! them the list is empty.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The suffix of the compressed copy that the bundler makes of every file.
const COMPRESSED: &str = ".gz";

fn main() -> Result<(), Box<dyn Error>> {
    // The folder always exists: a missing path would cause a rerun in each build.
    println!("cargo::rerun-if-changed=web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("web/dist");
    let mut files = Vec::new();
    for entry in fs::read_dir(&dist)? {
        let name = entry?.file_name().into_string();
        let name = name.map_err(|name| format!("{} is no name of a file", name.display()))?;
        if let Some(stem) = name.strip_suffix(COMPRESSED) {
            files.push((
                stem.to_owned(),
                dist.join(&name).into_os_string().into_string(),
            ));
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (name, path) in files {
        let path = path.map_err(|path| format!("{} is no text", path.display()))?;
        list.push_str(&format!("    ({name:?}, include_bytes!({path:?})),\n"));
    }
    list.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("map.rs"), list)?;
    Ok(())
}
