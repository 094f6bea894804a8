//! `dump`: keys and values of a database, counted or printed; or one file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use files::FileKind;
use ironstone::{Histogram, ReadOptions};

use crate::cli::{self, Global};
use crate::cli_look::{Counting, Dump};
use crate::fail::{Failure, Outcome};
use crate::groups::Groups;
use crate::text::{parse_bound, push_pair};
use crate::ttl::{self, Times};
use crate::{manifest, open, sst, wal};

/// Prints keys and values, or a file.
pub(crate) fn dump(global: &Global, args: &Dump, out: &mut dyn Write) -> Outcome {
    let left = limit(args.counting.max_keys.as_deref())?;
    if let Some(path) = &args.path {
        if global.db.is_some() {
            return Err(Failure::message(
                "a database or a file is dumped: leave out --db or --path",
            ));
        }
        return file(global, path, out);
    }
    let times = Times::new(&args.ttl, &args.times)?;
    let buckets = Buckets::new(&times, args.bucket.as_deref())?;
    let mut walk = Walk {
        global,
        counting: &args.counting,
        times,
        buckets,
        groups: Groups::new(args.counting.count_delim.as_deref()),
        sizes: Histogram::new(),
        count: 0,
        line: Vec::new(),
    };
    walk.run(args, left, out)?;
    walk.finish(out)
}

/// The maximum number of keys; a negative number means no limit.
pub(crate) fn limit(text: Option<&str>) -> Outcome<u64> {
    match text {
        None | Some("") => Ok(u64::MAX),
        Some(text) => match text.parse::<i64>() {
            Ok(n) => Ok(u64::try_from(n).unwrap_or(u64::MAX)),
            Err(_) => Err(Failure::message(format!(
                "max_keys has an invalid value: {text}"
            ))),
        },
    }
}

/// Prints a file according to the type in its name.
fn file(global: &Global, path: &Path, out: &mut dyn Write) -> Outcome {
    let named = path.file_name().and_then(files::parse_name);
    let shown = path.display();
    match named {
        Some((FileKind::Table, _)) => sst::dump_as_ldb(path, global.hex, out),
        Some((FileKind::Wal, _)) => log(global, path, out),
        Some((FileKind::Manifest, _)) => {
            let args = cli::DumpManifest {
                file: Some(path.to_path_buf()),
                path: None,
                verbose: false,
            };
            manifest::dump(global, &args, out)
        }
        Some(_) => Err(Failure::message(format!(
            "File type not supported: {shown}"
        ))),
        None => Err(Failure::message(format!("Can't parse file type: {shown}"))),
    }
}

/// Prints a log with values.
pub(crate) fn log(global: &Global, path: &Path, out: &mut dyn Write) -> Outcome {
    let args = cli::DumpWal {
        file: Some(path.to_path_buf()),
        walfile: None,
        header: true,
        print_value: true,
        physical: false,
    };
    wal::dump(global, &args, true, out)
}

/// An iteration over the keys, and its counts.
struct Walk<'a> {
    global: &'a Global,
    counting: &'a Counting,
    times: Times,
    buckets: Buckets,
    groups: Option<Groups>,
    sizes: Histogram,
    count: u64,
    line: Vec<u8>,
}

impl Walk<'_> {
    fn run(&mut self, args: &Dump, mut left: u64, out: &mut dyn Write) -> Outcome {
        let hex = self.global.keys_hex();
        let from = parse_bound(args.range.from.as_deref(), hex)?;
        let options = ReadOptions {
            iterate_upper_bound: parse_bound(args.range.to.as_deref(), hex)?,
            ..ReadOptions::default()
        };
        let db = open::read_only(self.global)?;
        let family = open::family(&db, self.global)?;
        if self.counting.stats
            && let Some(stats) = db.cf(&family).property("rocksdb.stats")
        {
            writeln!(out, "{stats}")?;
        }
        if self.times.print && !self.counting.count_only && self.groups.is_none() {
            writeln!(out, "Dumping key-values {}", self.times.span())?;
        }
        let mut it = db.cf(&family).with(&options).iterator()?;
        match &from {
            Some(key) => it.seek(key),
            None => it.seek_to_first(),
        }
        while it.valid() && left > 0 {
            if let Some((value, time)) = self.times.take(it.value())? {
                left -= u64::from(left != u64::MAX);
                self.entry(it.key(), value, time, out)?;
            }
            it.next();
        }
        Ok(it.status()?)
    }

    fn entry(&mut self, key: &[u8], value: &[u8], time: i64, out: &mut dyn Write) -> Outcome {
        self.count += 1;
        self.buckets.add(time);
        if self.counting.count_only {
            self.sizes.add(value.len() as u64);
        }
        if let Some(groups) = &mut self.groups {
            let size = (key.len() + value.len()) as u64;
            return groups.add(groups.row(key, &[0]), size, out);
        }
        if self.counting.count_only {
            return Ok(());
        }
        self.line.clear();
        if self.times.print {
            self.line.extend_from_slice(ttl::human(time).as_bytes());
            self.line.push(b' ');
        }
        let key = (key, self.global.keys_hex());
        push_pair(&mut self.line, key, (value, self.global.values_hex()));
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }

    fn finish(&self, out: &mut dyn Write) -> Outcome {
        if self.buckets.several() {
            self.buckets.print(out)?;
        } else if let Some(groups) = &self.groups {
            groups.print(out)?;
        } else {
            writeln!(out, "Keys in range: {}", self.count)?;
        }
        if self.counting.count_only {
            writeln!(out, "Value size distribution: ")?;
            writeln!(out, "{}", self.sizes)?;
        }
        Ok(())
    }
}

/// Counts of values by the span of time in which they were written.
struct Buckets {
    times: Times,
    seconds: i64,
    counts: BTreeMap<i64, u64>,
}

impl Buckets {
    fn new(times: &Times, seconds: Option<&str>) -> Outcome<Self> {
        let whole = times.end - times.start;
        let asked = match seconds {
            None | Some("") => whole,
            Some(text) => text
                .parse::<i64>()
                .map_err(|_| Failure::message(format!("bucket has an invalid value: {text}")))?,
        };
        let fits = times.on && asked > 0 && asked < whole;
        Ok(Self {
            times: *times,
            seconds: if fits { asked } else { whole.max(1) },
            counts: BTreeMap::new(),
        })
    }

    /// Whether there is more than one span.
    fn several(&self) -> bool {
        self.times.on && self.seconds < self.times.end - self.times.start
    }

    fn add(&mut self, time: i64) {
        if self.several() {
            let span = (time - self.times.start) / self.seconds;
            *self.counts.entry(span).or_default() += 1;
        }
    }

    fn print(&self, out: &mut dyn Write) -> Outcome {
        let mut start = self.times.start;
        let mut span = 0;
        while start < self.times.end {
            let end = (start + self.seconds).min(self.times.end);
            let count = self.counts.get(&span).copied().unwrap_or(0);
            let (from, to) = (ttl::human(start), ttl::human(end));
            writeln!(out, "Keys in range {from} to {to} : {count}")?;
            (start, span) = (end, span + 1);
        }
        Ok(())
    }
}
