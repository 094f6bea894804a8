//! The lines that describe the machine, the program and the settings of a benchmark.

use std::path::PathBuf;

use crate::flags::Flags;

/// To standard error, as RocksDB's db_bench: the engine, the date, the processor.
pub(crate) fn print_environment(engine: &str, wall_micros: u64) {
    eprintln!("{engine}");
    eprintln!("Date:       {}", ctime(wall_micros / 1_000_000));
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |name: &str| {
        let line = info
            .lines()
            .find(|l| l.split(':').next().map(str::trim) == Some(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let count = info.lines().filter(|l| l.starts_with("model name")).count();
    if let Some(model) = value("model name") {
        eprintln!("CPU:        {count} * {model}");
    }
    if let Some(cache) = value("cache size") {
        eprintln!("CPUCache:   {cache}");
    }
}

/// The block of settings that RocksDB's db_bench prints to standard output.
pub(crate) fn header(flags: &Flags) -> String {
    let compressed = f64::from(flags.value_size) * flags.compression_ratio;
    let raw = f64::from(flags.key_size + flags.value_size) * flags.num as f64 / 1048576.0;
    let file = (f64::from(flags.key_size) + compressed) * flags.num as f64 / 1048576.0;
    let compression = match flags.compression_type.as_str() {
        "none" => "NoCompression",
        "snappy" => "Snappy",
        "zlib" => "Zlib",
        "bzip2" => "BZip2",
        "lz4" => "LZ4",
        "lz4hc" => "LZ4HC",
        "zstd" => "ZSTD",
        other => other,
    };
    let memtable = match flags.memtablerep.split(':').next().unwrap_or_default() {
        "skip_list" => "SkipListFactory",
        "vector" => "VectorRepFactory",
        "prefix_hash" => "HashSkipListRepFactory",
        "hash_linkedlist" => "HashLinkListRepFactory",
        other => other,
    };
    format!(
        "Keys:       {} bytes each (+ 0 bytes user-defined timestamp)\n\
         Values:     {} bytes each ({} bytes after compression)\n\
         Entries:    {}\n\
         Prefix:    {} bytes\n\
         Keys per prefix:    {}\n\
         RawSize:    {raw:.1} MB (estimated)\n\
         FileSize:   {file:.1} MB (estimated)\n\
         Write rate: {} bytes/second\n\
         Read rate: {} ops/second\n\
         Compression: {compression}\n\
         Compression sampling rate: {}\n\
         Memtablerep: {}\n\
         Perf Level: {}\n\
         {}------------------------------------------------\n",
        flags.key_size,
        flags.value_size,
        (compressed + 0.5) as i64,
        flags.num,
        flags.prefix_size,
        flags.keys_per_prefix,
        flags.benchmark_write_rate_limit,
        flags.benchmark_read_rate_limit,
        flags.sample_for_compression,
        memtable,
        flags.perf_level,
        if cfg!(debug_assertions) {
            "WARNING: Optimization is disabled: benchmarks unnecessarily slow\n\
             WARNING: Assertions are enabled; benchmarks unnecessarily slow\n"
        } else {
            ""
        },
    )
}

/// How this program was built.
pub(crate) fn build_info() -> String {
    format!(
        "db_bench (Ironstone): {}\n  rocksdb_build_target: {} {}\n  rocksdb_build_mode: {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    )
}

/// The directory for tests: `TEST_TMPDIR`, or one of the user's.
pub(crate) fn test_directory() -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    std::env::var_os("TEST_TMPDIR").map_or_else(
        || {
            let user = std::fs::metadata("/proc/self").map_or(0, |m| m.uid());
            PathBuf::from(format!("/tmp/rocksdbtest-{user}"))
        },
        PathBuf::from,
    )
}

/// The memory of the process, for `--print_malloc_stats`. RocksDB prints jemalloc's statistics; the
/// system's allocator has none.
pub(crate) fn memory() -> String {
    const FIELDS: [&str; 6] = ["VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "VmData"];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default();
        FIELDS.contains(&name)
    });
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    format!("Malloc stats:\n{}\n", lines.join("\n"))
}

/// Year, month, day, of a number of days since 1970-01-01 (Gregorian, by 400-year cycles that
/// start in March, so that the leap day is a year's last).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

/// `2026/11/21-20:24:22`, UTC, of seconds since 1970.
pub(crate) fn time_text(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = clock_time(seconds);
    format!("{year:04}/{month:02}/{day:02}-{hour:02}:{minute:02}:{second:02}")
}

/// `Sat Nov 21 20:24:22 2026`, UTC, of seconds since 1970.
fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = clock_time(seconds);
    let weekday = DAYS[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

fn clock_time(seconds: u64) -> (u64, u64, u64) {
    (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// The resources that the process has used so far, for `--process_stats`; zeros if the system does
/// not report them.
pub(crate) fn process_stats() -> String {
    const TICKS_A_SECOND: f64 = 100.0;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0)
    };
    let peak_kib = field(&read("/proc/self/status"), "VmHWM:");
    let io = read("/proc/self/io");
    let written = field(&io, "write_bytes:").saturating_sub(field(&io, "cancelled_write_bytes:"));
    let read_bytes = field(&io, "read_bytes:");
    let stat = read("/proc/self/stat");
    // Behind the name in parentheses: fields 14 and 15 of proc_pid_stat(5), user and system time.
    let times = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let mut seconds = times
        .split(' ')
        .skip(11)
        .map(|t| t.parse::<u64>().unwrap_or(0) as f64 / TICKS_A_SECOND);
    let (user, system) = (seconds.next().unwrap_or(0.0), seconds.next().unwrap_or(0.0));
    format!(
        "Process: peak memory {} MiB; written {} MiB; CPU {:.1} seconds; user {user:.2} system \
         {system:.2} seconds; written {written} read {read_bytes} bytes\n",
        peak_kib / 1024,
        written >> 20,
        user + system
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_795_292_662), "Sat Nov 21 20:24:22 2026");
        assert_eq!(time_text(951_782_400), "2000/02/29-00:00:00");
    }

    #[test]
    fn the_header_is_rocksdbs() {
        let flags = Flags {
            num: 10000,
            ..Flags::default()
        };
        let text = header(&flags);
        assert!(text.contains("RawSize:    1.1 MB (estimated)\nFileSize:   0.6 MB (estimated)\n"));
        assert!(text.contains("Values:     100 bytes each (50 bytes after compression)\n"));
        assert!(text.contains("Compression: Snappy\n"));
        assert!(text.contains("Memtablerep: SkipListFactory\nPerf Level: 1\n"));
    }

    /// Regression test: the header always said perf level 1, no prefix, no limits and a skip list,
    /// regardless of the flags.
    #[test]
    fn the_header_tells_what_was_asked_for() {
        let text = header(&Flags {
            prefix_size: 3,
            keys_per_prefix: 5,
            benchmark_write_rate_limit: 77_777,
            benchmark_read_rate_limit: 88,
            sample_for_compression: 4,
            memtablerep: "vector".to_owned(),
            perf_level: 2,
            ..Flags::default()
        });
        for line in [
            "Prefix:    3 bytes\nKeys per prefix:    5\n",
            "Write rate: 77777 bytes/second\nRead rate: 88 ops/second\n",
            "Compression sampling rate: 4\nMemtablerep: VectorRepFactory\nPerf Level: 2\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
