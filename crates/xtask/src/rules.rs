//! `cargo xtask tidy`: checks the rules of the source tree, which are in the crate `tidy`.

use tidy::Tree;

pub(crate) fn run() -> Result<(), String> {
    let tree = Tree::load(&xtask::root())?;
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.iter().filter(|f| f.is_error).count() {
        0 => {
            println!("tidy: {} Rust files checked", tree.texts("", ".rs").count());
            Ok(())
        }
        n => Err(format!("tidy: {n} findings")),
    }
}
