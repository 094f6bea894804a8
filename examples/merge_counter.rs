//! A counter without reading: a merge operator adds what is written when somebody reads, or when tables are merged.
//!
//! ```text
//! cargo run --example merge_counter
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use ironstone::{Db, Options, associative_merge_operator};

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn main() -> ironstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-merge-counter-{}", std::process::id()));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    // The name is stored: the database opens with an operator of this name again.
    options.cf.merge_operator = Some(associative_merge_operator(
        "Sum",
        |_key, existing, operand| {
            let sum = existing
                .map_or(Some(0), number)?
                .checked_add(number(operand)?)?;
            Some(sum.to_le_bytes().to_vec())
        },
    ));
    let db = Db::open(&dir, &options)?;

    // Many threads count, and none waits for another's value.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..1000u64).try_for_each(|i| {
                        let page = format!("page/{}", i % 10);
                        db.merge(page, 1u64.to_le_bytes())
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| {
            t.join()
                .unwrap_or_else(|_| Err(ironstone::Error::aborted("a thread panicked")))
        })
    })?;

    for entry in db.prefix("page/")? {
        let (page, count) = entry?;
        println!(
            "{}: {}",
            page.escape_ascii(),
            number(&count).unwrap_or_default()
        );
        assert_eq!(number(&count), Some(400));
    }
    // What the operator cannot merge is an error of who reads it, and stays as it is.
    db.merge("page/0", "not a number")?;
    match db.get("page/0") {
        Err(e) => println!("then: {e}"),
        Ok(value) => println!("the operator merged that into {value:?}"),
    }
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
