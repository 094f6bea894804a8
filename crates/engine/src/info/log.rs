//! LOG: a record of the database's operations, for users and for tools that read RocksDB's LOG.
//!
//! ```text
//!   2026/11/21-20:24:51.272669 7 [WARN] message
//!   2026/11/21-20:24:51.272669 7 EVENT_LOG_v1 {"time_micros": 1795292691272669, "event": "…", …}
//!                      time, UTC | thread | level, if not INFO
//! ```
//!
//! Times are in UTC, which needs no time-zone tables and has no jumps; RocksDB writes local time. The thread is a
//! small number, the same for all lines of one thread of this process.
//!
//! The database does not need LOG, so a failure to write it never fails an operation: lines that could
//! not be written are counted ([`InfoLog::lost`]) and otherwise ignored.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::Clock;
use base::sync::{Mutex, PoisonError, ranked};
use io::{File, FileSystem, OpenHow, WriteSync};

use crate::locks;
use options::DbOptions;
pub(crate) use options::InfoLogLevel as Level;

/// The open LOG of a database.
#[derive(Debug)]
pub(crate) struct InfoLog {
    clock: Arc<dyn Clock>,
    level: Level,
    out: Mutex<Out>,
    lost: AtomicU64,
    /// `None` if nothing is ever written.
    place: Option<Place>,
}

/// When a new LOG file is begun, and how many files are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolling {
    /// The lowest level that is written.
    pub(crate) level: Level,
    /// How many files are kept, the current one included.
    pub(crate) keep: u64,
    /// The size in bytes at which a new file is begun; 0 means no limit.
    pub(crate) max_bytes: u64,
    /// The age in seconds at which a new file is begun; 0 means no limit.
    pub(crate) max_seconds: u64,
}

impl Rolling {
    /// The settings in the options of a database.
    pub(crate) fn of(options: &DbOptions) -> Self {
        Self {
            level: options.info_log_level,
            keep: options.keep_log_file_num,
            max_bytes: options.max_log_file_size,
            max_seconds: options.log_file_time_to_roll,
        }
    }
}

impl Default for Rolling {
    fn default() -> Self {
        Self::of(&DbOptions::default())
    }
}

/// Where the LOG file is.
#[derive(Debug)]
struct Place {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// The name of the LOG file.
    name: String,
    rolling: Rolling,
}

/// The name of the LOG file in a directory for several databases (`db_log_dir`). As in RocksDB it is made from the
/// path of the database's directory `dir`.
fn name_in_log_dir(dir: &Path) -> String {
    let path = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let path = path.to_string_lossy();
    let path = path.strip_prefix('/').unwrap_or(&path);
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let name = path.chars().map(|c| if kept(c) { c } else { '_' });
    name.chain("_LOG".chars()).collect()
}

impl Place {
    /// Begins a new file. An existing file is renamed to `LOG.old.<micros>`, and the oldest files beyond the limit
    /// are deleted. Adds the number of failed renames and deletions to `lost`. `None` if the file cannot be created.
    fn begin(&self, now: u64, lost: &AtomicU64) -> Option<Arc<dyn File>> {
        let count = |failed: bool| {
            if failed {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        };
        let fs = &*self.fs;
        let path = self.dir.join(&self.name);
        if fs.exists(&path).unwrap_or(false) {
            let old = self.unused_old_path(now);
            count(fs.rename(&path, &old).is_err());
        }
        for old in self.superfluous() {
            count(fs.remove(&self.dir.join(old)).is_err());
        }
        fs.open(&path, OpenHow::CREATE_TRUNCATE).ok()
    }

    /// `LOG.old.<micros>`, or a later number if that name is taken.
    fn unused_old_path(&self, micros: u64) -> PathBuf {
        let mut number = micros;
        loop {
            let path = self.dir.join(format!("{}.old.{number}", self.name));
            if number > micros + 1000 || !self.fs.exists(&path).unwrap_or(false) {
                return path;
            }
            number += 1;
        }
    }

    /// The old LOG files to delete, oldest first, so that with the new file at most `keep` files exist.
    fn superfluous(&self) -> Vec<String> {
        let number = |name: &str| {
            let number = name.strip_prefix(&self.name)?.strip_prefix(".old")?;
            number.strip_prefix('.').unwrap_or("0").parse::<u64>().ok()
        };
        let names = self.fs.list(&self.dir).unwrap_or_default();
        let names = names.iter().filter_map(|name| name.to_str());
        let mut old: Vec<_> = names
            .filter_map(|n| Some((number(n)?, n.to_owned())))
            .collect();
        old.sort();
        let keep_old = usize::try_from(self.rolling.keep.saturating_sub(1)).unwrap_or(usize::MAX);
        old.truncate(old.len().saturating_sub(keep_old));
        old.into_iter().map(|(_, name)| name).collect()
    }

    /// Whether it is time for a new file.
    fn is_due(&self, out: &Out, now: u64) -> bool {
        let Rolling {
            max_bytes,
            max_seconds,
            ..
        } = self.rolling;
        let age = now.saturating_sub(out.begun) / 1_000_000;
        (max_bytes > 0 && out.len >= max_bytes) || (max_seconds > 0 && age >= max_seconds)
    }
}

#[derive(Debug)]
struct Out {
    /// `None` if the file could not be created.
    file: Option<Arc<dyn File>>,
    len: u64,
    /// When the file was begun, in microseconds since 1970.
    begun: u64,
    /// Reused for each line.
    line: String,
}

impl Out {
    fn new(file: Option<Arc<dyn File>>, begun: u64) -> Self {
        Self {
            file,
            len: 0,
            begun,
            line: String::new(),
        }
    }
}

impl InfoLog {
    /// Begins a new LOG in `dir`. An existing LOG is renamed to `LOG.old.<micros>`, and the oldest files are
    /// deleted, so that with the new LOG at most `rolling.keep` files exist. Never fails: if the file cannot be
    /// created, every line is lost and counted.
    pub(crate) fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        clock: Arc<dyn Clock>,
        rolling: Rolling,
    ) -> Self {
        Self::begin(fs, dir, "LOG".to_owned(), clock, rolling)
    }

    /// Like [`InfoLog::open`], but in `log_dir`, which is created if it is missing. The file name is made from the
    /// path `dir`.
    pub(crate) fn open_in(
        log_dir: &Path,
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        clock: Arc<dyn Clock>,
        rolling: Rolling,
    ) -> Self {
        // If this fails, every line is lost and counted.
        drop(fs.create_dir(log_dir));
        Self::begin(fs, log_dir, name_in_log_dir(dir), clock, rolling)
    }

    fn begin(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        name: String,
        clock: Arc<dyn Clock>,
        rolling: Rolling,
    ) -> Self {
        let lost = AtomicU64::new(0);
        let place = Place {
            fs,
            dir: dir.to_path_buf(),
            name,
            rolling,
        };
        let begun = clock.wall_micros();
        let file = place.begin(begun, &lost);
        Self {
            clock,
            level: rolling.level,
            out: ranked(locks::INFO_LOG, Out::new(file, begun)),
            lost,
            place: Some(place),
        }
    }

    /// A log that drops every line, for databases that must not write.
    pub(crate) fn disabled(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            level: Level::Header,
            out: ranked(locks::INFO_LOG, Out::new(None, 0)),
            lost: AtomicU64::new(0),
            place: None,
        }
    }

    /// Writes a formatted message of level [`Level::Info`].
    pub(crate) fn info(&self, message: fmt::Arguments<'_>) {
        self.formatted(Level::Info, message);
    }

    /// Writes a formatted message of level [`Level::Warn`].
    pub(crate) fn warn(&self, message: fmt::Arguments<'_>) {
        self.formatted(Level::Warn, message);
    }

    /// Writes a formatted message of level [`Level::Error`].
    pub(crate) fn error(&self, message: fmt::Arguments<'_>) {
        self.formatted(Level::Error, message);
    }

    /// Writes a formatted message of level [`Level::Header`].
    pub(crate) fn header(&self, message: fmt::Arguments<'_>) {
        self.formatted(Level::Header, message);
    }

    fn formatted(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.is_on(level) {
            self.line(level, &message.to_string());
        }
    }

    /// Whether lines of this level are written. Lets callers skip the work of formatting the others.
    pub(crate) fn is_on(&self, level: Level) -> bool {
        level >= self.level
    }

    /// The number of lines that could not be written and of old files that could not be renamed or deleted.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes a line if its level is enabled. Line breaks in the message are kept.
    pub(crate) fn line(&self, level: Level, message: &str) {
        if self.is_on(level) {
            self.append(self.now(), level, format_args!("{message}"));
        }
    }

    /// Writes an event as one line of JSON.
    pub(crate) fn event(&self, event: &Event) {
        if !self.is_on(Level::Info) {
            return;
        }
        let now = self.now();
        self.append(
            now,
            Level::Info,
            format_args!("EVENT_LOG_v1 {{\"time_micros\": {now}, {}}}", event.members),
        );
    }

    /// Microseconds since 1970.
    fn now(&self) -> u64 {
        self.clock.wall_micros()
    }

    /// Seconds since 1970, for the text of a line.
    pub(crate) fn now_seconds(&self) -> u64 {
        self.now() / 1_000_000
    }

    /// Writes a line. Never fails: a file system that panics must not affect the caller.
    fn append(&self, micros: u64, level: Level, message: fmt::Arguments<'_>) {
        let written = AssertUnwindSafe(|| self.write(micros, level, message));
        if catch_unwind(written).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, micros: u64, level: Level, message: fmt::Arguments<'_>) {
        // A panic while the lock was held can at worst have truncated a line.
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = &self.place
            && out.file.is_some()
            && place.is_due(&out, micros)
        {
            *out = Out::new(place.begin(micros, &self.lost), micros);
        }
        let Out {
            file, len, line, ..
        } = &mut *out;
        let Some(file) = file else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        line.clear();
        let formatted = write!(
            line,
            "{} {} {}{message}",
            Utc(micros),
            thread_number(),
            label(level)
        );
        line.push('\n');
        let written = io::write_all_at(&**file, line.as_bytes(), *len, WriteSync::None);
        if formatted.is_err() || written.is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            *len += line.len() as u64;
        }
    }
}

/// The label of a level before the message. Info and header have none, as in RocksDB.
fn label(level: Level) -> &'static str {
    match level {
        Level::Debug => "[DEBUG] ",
        Level::Info | Level::Header => "",
        Level::Warn => "[WARN] ",
        Level::Error => "[ERROR] ",
        Level::Fatal => "[FATAL] ",
    }
}

/// A small number for the calling thread, assigned when it writes its first line.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // The thread-local is not accessible while the thread ends.
    MINE.try_with(|n| *n).unwrap_or(0)
}

/// Microseconds since 1970, shown as `YYYY/MM/DD-HH:MM:SS.uuuuuu` in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Utc(pub(crate) u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (year, month, day) = date(seconds / 86_400);
        let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}/{month:02}/{day:02}-{h:02}:{m:02}:{s:02}.{micros:06}"
        )
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years begin in March, so that the leap day is the last day of a year. 400 years have 146,097 days.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// One event of LOG, as members of a JSON object in the order in which they were added.
/// ```text
/// "event": "flush_finished", "job": 3, "cf_name": "default"
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    members: String,
}

impl Event {
    /// An event with this name, which is RocksDB's name if RocksDB has the event.
    pub(crate) fn new(name: &str) -> Self {
        let members = String::with_capacity(256);
        Self { members }.text("event", name)
    }

    /// Adds a number.
    #[must_use]
    pub(crate) fn number(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        self.push(format_args!("{value}"));
        self
    }

    /// Adds a number that may be negative.
    #[must_use]
    pub(crate) fn signed(mut self, name: &str, value: i64) -> Self {
        self.name(name);
        self.push(format_args!("{value}"));
        self
    }

    /// Adds an object whose members `f` adds.
    #[must_use]
    pub(crate) fn object(mut self, name: &str, f: impl FnOnce(Self) -> Self) -> Self {
        self.name(name);
        let members = String::with_capacity(1024);
        let inner = f(Self { members });
        self.push(format_args!("{{{}}}", inner.members));
        self
    }

    /// Adds a fraction with six digits after the decimal point, or `null` if it is not finite.
    #[must_use]
    pub(crate) fn fraction(mut self, name: &str, value: f64) -> Self {
        self.name(name);
        if value.is_finite() {
            self.push(format_args!("{value:.6}"));
        } else {
            self.members.push_str("null");
        }
        self
    }

    /// Adds a string.
    #[must_use]
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.quoted(value);
        self
    }

    /// Adds an array of numbers.
    #[must_use]
    pub(crate) fn numbers(mut self, name: &str, values: impl IntoIterator<Item = u64>) -> Self {
        self.name(name);
        self.members.push('[');
        for (i, value) in values.into_iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            self.push(format_args!("{comma}{value}"));
        }
        self.members.push(']');
        self
    }

    /// Adds files with their levels in RocksDB's form: a flat array of names and values.
    #[must_use]
    pub(crate) fn files<'a>(
        mut self,
        name: &str,
        files: impl IntoIterator<Item = (&'a Path, u64)>,
    ) -> Self {
        self.name(name);
        self.members.push('[');
        for (i, (path, level)) in files.into_iter().enumerate() {
            self.push(format_args!("{}\"file\", ", if i == 0 { "" } else { ", " }));
            self.quoted(&path.to_string_lossy());
            self.push(format_args!(", \"level\", {level}"));
        }
        self.members.push(']');
        self
    }

    fn name(&mut self, name: &str) {
        if !self.members.is_empty() {
            self.members.push_str(", ");
        }
        self.quoted(name);
        self.members.push_str(": ");
    }

    fn quoted(&mut self, text: &str) {
        self.members.push('"');
        for c in text.chars() {
            match c {
                '"' => self.members.push_str("\\\""),
                '\\' => self.members.push_str("\\\\"),
                '\n' => self.members.push_str("\\n"),
                c if u32::from(c) < 0x20 => self.push(format_args!("\\u{:04x}", u32::from(c))),
                c => self.members.push(c),
            }
        }
        self.members.push('"');
    }

    fn push(&mut self, what: fmt::Arguments<'_>) {
        let written = self.members.write_fmt(what);
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[derive(Debug)]
    struct Fixed(AtomicU64);

    impl Clock for Fixed {
        fn wall_micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn monotonic_nanos(&self) -> u64 {
            0
        }
    }

    fn fixed(micros: u64) -> Arc<dyn Clock> {
        Arc::new(Fixed(AtomicU64::new(micros)))
    }

    #[test]
    fn times_are_shown() {
        let cases = [
            (0, "1970/01/01-00:00:00.000000"),
            (951_782_399_999_999, "2000/02/28-23:59:59.999999"),
            (951_782_400_000_000, "2000/02/29-00:00:00.000000"),
            (951_868_800_000_000, "2000/03/01-00:00:00.000000"),
            (1_795_292_691_272_669, "2026/11/21-20:24:51.272669"),
            (4_107_542_399_000_000, "2100/02/28-23:59:59.000000"),
            (4_107_542_400_000_000, "2100/03/01-00:00:00.000000"),
        ];
        for (micros, want) in cases {
            assert_eq!(Utc(micros).to_string(), want);
        }
    }

    #[test]
    fn lines_and_events_are_written_and_filtered() {
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(io::posix::Posix);
        let clock = fixed(1_795_292_691_272_669);
        let log = InfoLog::open(fs, dir.path(), clock, Rolling::default());
        log.line(Level::Info, "hello 1");
        log.line(Level::Debug, "not shown");
        log.line(Level::Warn, "careful");
        let odd = "a\"b\\c\u{1}\n";
        log.event(
            &Event::new("test")
                .text("cf_name", odd)
                .numbers("files", [4, 5]),
        );
        let text = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let (time, rest) = lines[0].split_once(' ').unwrap();
        assert_eq!(time, "2026/11/21-20:24:51.272669");
        let (thread, message) = rest.split_once(' ').unwrap();
        assert!(thread.parse::<u64>().is_ok());
        assert_eq!(message, "hello 1");
        assert!(lines[1].ends_with(" [WARN] careful"), "{}", lines[1]);
        let want = "EVENT_LOG_v1 {\"time_micros\": 1795292691272669, \"event\": \"test\", \
                    \"cf_name\": \"a\\\"b\\\\c\\u0001\\n\", \"files\": [4, 5]}";
        assert!(lines[2].ends_with(want), "{}", lines[2]);
        assert_eq!((lines.len(), log.lost()), (3, 0));
    }

    #[test]
    fn old_logs_are_kept_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(io::posix::Posix);
        for i in 0..5 {
            let keep = Rolling {
                keep: 3,
                ..Rolling::default()
            };
            let log = InfoLog::open(fs.clone(), dir.path(), fixed(100 + i / 2), keep);
            log.line(Level::Info, &format!("run {i}"));
            assert_eq!(log.lost(), 0);
        }
        let names = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["LOG", "LOG.old.102", "LOG.old.103"]);
        let text = std::fs::read_to_string(dir.path().join("LOG.old.103")).unwrap();
        assert!(text.ends_with("run 3\n"), "{text}");
    }

    #[test]
    fn a_new_log_is_begun_by_size_and_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Fixed(AtomicU64::new(1_000_000)));
        let rolling = Rolling {
            max_bytes: 200,
            max_seconds: 10,
            ..Rolling::default()
        };
        let fs = Arc::new(io::posix::Posix);
        let log = InfoLog::open(fs, dir.path(), Arc::clone(&clock) as _, rolling);
        let logs = || std::fs::read_dir(dir.path()).unwrap().count();
        for i in 0..4 {
            log.line(Level::Info, &format!("{i}{}", "x".repeat(60)));
        }
        assert_eq!(logs(), 2);
        clock.0.store(11_000_001, Ordering::Relaxed);
        log.line(Level::Info, "later");
        assert_eq!((logs(), log.lost()), (3, 0));
        let text = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        assert!(
            text.ends_with("later\n") && text.lines().count() == 1,
            "{text}"
        );
    }

    #[test]
    fn trouble_is_counted_and_fails_nothing() {
        let fs = Arc::new(io::posix::Posix);
        let dir = Path::new("/nonexistent/directory");
        let log = InfoLog::open(fs, dir, fixed(1), Rolling::default());
        log.line(Level::Info, "lost");
        log.event(&Event::new("lost"));
        assert_eq!(log.lost(), 2);
    }
}
