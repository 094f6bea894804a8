//! Commands that read and write keys. Their output is that of `ldb`, byte for byte.

use std::io::Write;

use ironstone::{ReadOptions, WriteBatch};

use crate::cli::{self, Global};
use crate::cli_writes::SingleDelete;
use crate::fail::{Failure, Outcome};
use crate::open;
use crate::text::{parse_bound, parse_field, push_field};
use crate::ttl::{self, Times};

/// Prints a key's value.
pub(crate) fn get(global: &Global, args: &cli::Get, out: &mut dyn Write) -> Outcome {
    let key = parse_field(&args.key, global.keys_hex())?;
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let Some(value) = db.cf(&family).get(key)? else {
        return Err(Failure::message(format!(
            "Get failed: NotFound: no such key in column family {}",
            family.name()
        )));
    };
    let value = if args.ttl.ttl {
        ttl::split(&value)?.0
    } else {
        value.as_slice()
    };
    let mut line = Vec::new();
    push_field(&mut line, value, global.values_hex());
    line.push(b'\n');
    Ok(out.write_all(&line)?)
}

/// Sets a key.
pub(crate) fn put(global: &Global, args: &cli::Put, out: &mut dyn Write) -> Outcome {
    let key = parse_field(&args.key, global.keys_hex())?;
    let value = ttl::stored(parse_field(&args.value, global.values_hex())?, &args.ttl);
    let db = open::writable(global, args.create.create_if_missing)?;
    let family = open::family(&db, global)?;
    db.cf(&family).put(key, value)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Removes a key.
pub(crate) fn delete(global: &Global, args: &cli::Delete, out: &mut dyn Write) -> Outcome {
    let key = parse_field(&args.key, global.keys_hex())?;
    let db = open::writable(global, false)?;
    let family = open::family(&db, global)?;
    db.cf(&family).delete(key)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Removes a key that was set once.
pub(crate) fn single_delete(global: &Global, args: &SingleDelete, out: &mut dyn Write) -> Outcome {
    let key = parse_field(&args.key, global.keys_hex())?;
    let db = open::writable(global, false)?;
    let family = open::family(&db, global)?;
    db.cf(&family).single_delete(key)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Removes the keys of a range.
pub(crate) fn deleterange(
    global: &Global,
    args: &cli::DeleteRange,
    out: &mut dyn Write,
) -> Outcome {
    let begin = parse_field(&args.begin, global.keys_hex())?;
    let end = parse_field(&args.end, global.keys_hex())?;
    let db = open::writable(global, false)?;
    let family = open::family(&db, global)?;
    db.cf(&family).delete_range(begin, end)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Sets several keys in one batch.
pub(crate) fn batchput(global: &Global, args: &cli::BatchPut, out: &mut dyn Write) -> Outcome {
    if args.pairs.len() < 2 {
        return Err(Failure::message(
            "At least one <key> <value> pair must be specified batchput.",
        ));
    }
    if !args.pairs.len().is_multiple_of(2) {
        return Err(Failure::message(
            "Equal number of <key>s and <value>s must be specified for batchput.",
        ));
    }
    let mut pairs = Vec::with_capacity(args.pairs.len() / 2);
    for pair in args.pairs.chunks_exact(2) {
        let key = parse_field(&pair[0], global.keys_hex())?;
        let value = parse_field(&pair[1], global.values_hex())?;
        pairs.push((key, ttl::stored(value, &args.ttl)));
    }
    let db = open::writable(global, args.create.create_if_missing)?;
    let family = open::family(&db, global)?;
    let mut batch = WriteBatch::new();
    for (key, value) in &pairs {
        batch.cf_id(family.id()).put(key, value)?;
    }
    db.write(&mut batch)?;
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

/// Prints keys and values in order.
pub(crate) fn scan(global: &Global, args: &cli::Scan, out: &mut dyn Write) -> Outcome {
    let hex = global.keys_hex();
    let from = parse_bound(args.range.from.as_deref(), hex)?;
    let options = ReadOptions {
        iterate_upper_bound: parse_bound(args.range.to.as_deref(), hex)?,
        ..ReadOptions::default()
    };
    let mut left = max_keys(args.max_keys.as_deref())?;
    let times = Times::new(&args.ttl, &args.times)?;
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let mut it = db.cf(&family).with(&options).iterator()?;
    match &from {
        Some(key) => it.seek(key),
        None => it.seek_to_first(),
    }
    if times.print {
        writeln!(out, "Scanning key-values {}", times.span())?;
    }
    let mut line = Vec::new();
    while it.valid() {
        let Some((value, time)) = times.take(it.value())? else {
            it.next();
            continue;
        };
        line.clear();
        if times.print {
            line.extend_from_slice(ttl::human(time).as_bytes());
            line.push(b' ');
        }
        push_field(&mut line, it.key(), hex);
        if !args.no_value {
            line.extend_from_slice(b" : ");
            push_field(&mut line, value, global.values_hex());
        }
        line.push(b'\n');
        out.write_all(&line)?;
        left = left.saturating_sub(1);
        if left == 0 {
            break;
        }
        it.next();
    }
    Ok(it.status()?)
}

/// The number of keys to print. As in `ldb`, a negative number means no limit, and 0 prints one
/// key.
fn max_keys(text: Option<&str>) -> Outcome<u64> {
    match text {
        None | Some("") => Ok(u64::MAX),
        Some(text) => match text.parse::<i64>() {
            Ok(n) if n < 0 => Ok(u64::MAX),
            Ok(n) => Ok(n as u64),
            Err(_) => Err(Failure::message(format!(
                "max_keys has an invalid value: {text}"
            ))),
        },
    }
}
