//! `idump`: every stored version of the keys of a database.

use std::io::Write;

use crate::cli::Global;
use crate::cli_look::Idump;
use crate::dump::limit;
use crate::fail::Outcome;
use crate::groups::Groups;
use crate::open;
use crate::sst::print_entry;
use crate::text::parse_bound;

/// Prints the versions, or counts them.
pub(crate) fn dump(global: &Global, args: &Idump, out: &mut dyn Write) -> Outcome {
    let counting = &args.counting;
    // As in `ldb`, 0 prints one.
    let mut left = limit(counting.max_keys.as_deref())?.max(1);
    let from = parse_bound(args.range.from.as_deref(), args.input_key_hex)?;
    let to = parse_bound(args.range.to.as_deref(), args.input_key_hex)?;
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    if counting.stats
        && let Some(stats) = db.cf(&family).property("rocksdb.stats")
    {
        writeln!(out, "{stats}")?;
    }
    let mut groups = Groups::new(counting.count_delim.as_deref());
    let (mut count, mut result) = (0u64, Ok(()));
    db.cf(&family)
        .visit_key_versions(from.as_deref(), to.as_deref(), &mut |key, value| {
            count += 1;
            left -= 1;
            result = if let Some(groups) = &mut groups {
                // `ldb` takes the internal key for a text, which ends at a byte of 0 or 1.
                let part = until_end(key).len() + until_end(value).len();
                groups.add(groups.row(key, &[0, 1]), part as u64, out)
            } else if counting.count_only {
                Ok(())
            } else {
                let hex = (global.keys_hex(), global.values_hex());
                print_entry(key, value, hex, out)
            };
            result.is_ok() && left > 0
        })?;
    result?;
    match groups {
        Some(groups) => groups.print(out),
        None => Ok(writeln!(out, "Internal keys in range: {count}")?),
    }
}

/// The bytes before the first one that is 0 or 1.
fn until_end(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b <= 1).next().unwrap_or_default()
}
