//! The benchmark `verify`: compares two databases key by key.

use base::{Error, Result};

use crate::engine::{Bounds, Cursor, Engine};

/// Compares all keys and values, first with gets and then with iterators. Errors: the first
/// difference.
pub(crate) fn databases(ours: &impl Engine, truth: &impl Engine) -> Result<()> {
    eprintln!("Verifying db >= truth_db with ::Get...");
    let mut expected = truth.cursor(Bounds::default())?;
    let mut value = Vec::new();
    expected.seek_to_first();
    while expected.valid() {
        if !ours.get_value(expected.key(), &mut value)? {
            return Err(difference("is not in the database", expected.key()));
        }
        if value != expected.value() {
            return Err(difference(
                "has another value in the database",
                expected.key(),
            ));
        }
        expected.next();
    }
    expected.status()?;
    eprintln!("Verifying db == truth_db...");
    let mut found = ours.cursor(Bounds::default())?;
    expected.seek_to_first();
    found.seek_to_first();
    while found.valid() {
        if !expected.valid() || expected.key() != found.key() {
            return Err(difference("is not in truth_db", found.key()));
        }
        if expected.value() != found.value() {
            return Err(difference("has another value in the database", found.key()));
        }
        expected.next();
        found.next();
    }
    found.status()?;
    expected.status()?;
    if expected.valid() {
        return Err(difference("is not found by iterating", expected.key()));
    }
    eprintln!("...Verified");
    Ok(())
}

fn difference(what: &str, key: &[u8]) -> Error {
    Error::corruption(format!("verify: key {} {what}", key.escape_ascii()))
}
