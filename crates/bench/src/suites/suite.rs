//! The suites: their benchmarks, sizes and pairs; and how each benchmark is run.
//!
//! Each benchmark has one definition for all suites; a suite chooses names and sizes.

use super::data::{Run, Settings};

/// Bytes of a key and of a value: db_bench's defaults.
pub(super) const KEY_SIZE: u64 = 16;
pub(super) const VALUE_SIZE: u64 = 100;

/// Options for both engines.
const COMMON: [&str; 6] = [
    "--threads=1",
    "--compression_type=none",
    "--bloom_bits=10",
    "--write_buffer_size=67108864",
    "--cache_size=1073741824",
    "--key_size=16",
];

/// A named choice of benchmarks and sizes.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) benchmarks: &'static [&'static str],
    pub(super) num: u64,
    pub(super) pairs: u32,
    pub(super) syncs: u64,
    pub(super) seconds: u32,
    /// Whether the other measurements of `cargo xtask` are included.
    pub(super) extras: bool,
}

pub(super) const QUICK: Suite = Suite {
    name: "quick",
    benchmarks: &[
        "fillseq",
        "fillrandom",
        "fillsync",
        "overwrite",
        "sustained",
        "readrandom",
        "readseq",
    ],
    num: 500_000,
    pairs: 5,
    syncs: 2000,
    seconds: 8,
    extras: false,
};

pub(super) const STANDARD: Suite = Suite {
    name: "standard",
    benchmarks: &[
        "fillseq",
        "fillrandom",
        "fillbatch",
        "fillsync",
        "overwrite",
        "sustained",
        "readrandom",
        "readmissing",
        "multireadrandom",
        "seekrandom",
        "readseq",
        "readreverse",
        "readwhilewriting",
    ],
    num: 2_000_000,
    pairs: 5,
    syncs: 10_000,
    seconds: 30,
    extras: false,
};

pub(super) const FULL: Suite = Suite {
    name: "full",
    num: 10_000_000,
    pairs: 7,
    syncs: 50_000,
    seconds: 120,
    extras: true,
    ..STANDARD
};

/// The database that a benchmark uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Database {
    /// A new one, which the run makes.
    New,
    /// One that is made before the first pair, with every key; readers share it.
    Read,
    /// Like `Read`, for writers: each run continues with the state that the one before left.
    Overwrite,
}

impl Database {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Read => "read",
            Self::Overwrite => "overwrite",
        }
    }
}

/// The benchmarks that prepare a database: each key once, in one sorted run.
pub(super) const PREPARATION: &str = "filluniquerandom,compact,waitforcompaction";

/// The definition of a benchmark.
#[derive(Clone, Copy)]
pub(super) struct Bench {
    pub(super) name: &'static str,
    /// A description of one operation.
    pub(super) about: &'static str,
    /// db_bench's name of the benchmark.
    pub(super) measured: &'static str,
    pub(super) database: Database,
    pub(super) writes: bool,
    /// Whether an operation takes long enough to be timed individually.
    pub(super) histogram: bool,
    /// The number of distinct keys afterwards, as a function of the number of keys.
    live: Option<fn(num: f64) -> f64>,
    flags: fn(&Settings) -> Vec<String>,
}

fn no_flags(_: &Settings) -> Vec<String> {
    Vec::new()
}

fn duration(settings: &Settings) -> Vec<String> {
    vec![format!("--duration={}", settings.seconds)]
}

/// A put of a random key.
const WRITE: Bench = Bench {
    name: "overwrite",
    about: "put a random key that is there",
    measured: "overwrite",
    database: Database::Overwrite,
    writes: true,
    histogram: true,
    live: Some(|num| num),
    flags: no_flags,
};

/// A get of a random key.
const READ: Bench = Bench {
    name: "readrandom",
    about: "get a random key that is there",
    measured: "readrandom",
    database: Database::Read,
    writes: false,
    histogram: true,
    live: None,
    flags: no_flags,
};

pub(super) const BENCHES: [Bench; 13] = [
    Bench {
        name: "fillseq",
        about: "put the keys in their order into a new database",
        measured: "fillseq",
        database: Database::New,
        ..WRITE
    },
    Bench {
        name: "fillrandom",
        about: "put random keys into a new database",
        measured: "fillrandom",
        database: Database::New,
        // The share of distinct keys among num draws with replacement.
        live: Some(|num| num * (1.0 - (-1.0f64).exp())),
        ..WRITE
    },
    Bench {
        name: "fillbatch",
        about: "put the keys in their order, 1,000 in a batch, into a new database",
        measured: "fillbatch",
        database: Database::New,
        ..WRITE
    },
    Bench {
        name: "fillsync",
        about: "put a random key durably into a new database",
        measured: "fillsync",
        database: Database::New,
        live: None,
        flags: |settings| vec![format!("--writes={}", settings.syncs)],
        ..WRITE
    },
    WRITE,
    Bench {
        name: "sustained",
        about: "put random keys that are there for a time, so that compaction must keep up",
        flags: |settings| {
            // Smaller memtables cause more flushes and compactions within the time.
            let mut flags = duration(settings);
            flags.push("--write_buffer_size=16777216".to_owned());
            flags.push("--max_bytes_for_level_base=67108864".to_owned());
            flags
        },
        ..WRITE
    },
    READ,
    Bench {
        name: "readmissing",
        about: "get a random key that is not there",
        measured: "readmissing",
        ..READ
    },
    Bench {
        name: "multireadrandom",
        about: "get a random key, 64 in a call",
        measured: "multireadrandom",
        flags: |_| vec!["--batch_size=64".to_owned()],
        ..READ
    },
    Bench {
        name: "seekrandom",
        about: "seek a random key and read the next ten",
        measured: "seekrandom",
        flags: |_| vec!["--seek_nexts=10".to_owned()],
        ..READ
    },
    Bench {
        name: "readseq",
        about: "read the next key and value of a scan",
        measured: "readseq",
        histogram: false,
        ..READ
    },
    Bench {
        name: "readreverse",
        about: "read the previous key and value of a scan",
        measured: "readreverse",
        histogram: false,
        ..READ
    },
    Bench {
        name: "readwhilewriting",
        about: "get a random key while another thread puts",
        measured: "readwhilewriting",
        database: Database::Overwrite,
        flags: duration,
        ..READ
    },
];

impl Bench {
    pub(super) fn of(name: &str) -> Result<Self, String> {
        let found = BENCHES.iter().find(|bench| bench.name == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
            format!("unknown benchmark '{name}'; there are {}", names.join(", "))
        })
    }

    /// The benchmarks that db_bench runs: the measured one, with the steps before and after it.
    pub(super) fn benchmarks(&self) -> String {
        let name = self.measured;
        let measured = match (self.writes, self.database) {
            // Pending compactions must not slow the next run, and count as written.
            (true, _) => format!("{name},waitforcompaction"),
            // The first scan fills the block cache.
            (false, Database::Read) => format!("readseq,{name}"),
            (false, _) => name.to_owned(),
        };
        measured + ",stats,levelstats"
    }

    /// The flags of this benchmark, in addition to the common ones.
    pub(super) fn flags(&self, settings: &Settings) -> Vec<String> {
        let mut flags = (self.flags)(settings);
        if self.histogram {
            flags.push("--histogram".to_owned());
        }
        flags
    }

    /// Whether a run has a given length.
    pub(super) fn is_timed(&self, settings: &Settings) -> bool {
        let flags = (self.flags)(settings);
        flags.iter().any(|flag| flag.starts_with("--duration="))
    }

    /// Fills in the figures that follow from a run's figures and from the benchmark's definition.
    pub(super) fn complete(&self, run: &mut Run, settings: &Settings) {
        let entry = (KEY_SIZE + VALUE_SIZE) as f64;
        if self.writes && run.operations > 0 {
            let put = run.operations as f64 * entry;
            run.write_amplification = run.process.map(|p| p.written_bytes as f64 / put);
        }
        let live = self.live.map(|live| live(settings.num as f64) * entry);
        run.space_amplification = live
            .zip(run.database_bytes)
            .map(|(live, bytes)| bytes as f64 / live);
    }
}

/// The flags of every run of a suite.
pub(super) fn common_flags(num: u64, more: &[String]) -> Vec<String> {
    let mut flags = COMMON.map(str::to_owned).to_vec();
    flags.push(format!("--num={num}"));
    flags.extend(more.iter().cloned());
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::data::{Process, tests};

    fn settings() -> Settings {
        tests::report(Vec::new()).settings
    }

    #[test]
    fn every_benchmark_of_a_suite_is_defined() {
        for suite in [QUICK, STANDARD, FULL] {
            for name in suite.benchmarks {
                assert_eq!(Bench::of(name).unwrap().name, *name);
            }
            assert!(suite.pairs >= 5, "{}", suite.name);
        }
        let error = Bench::of("fillfast").err().unwrap();
        assert!(
            error.contains("'fillfast'") && error.contains("readseq"),
            "{error}"
        );
    }

    #[test]
    fn runs_warm_up_and_settle() {
        let of = |name| Bench::of(name).unwrap();
        assert_eq!(
            of("readrandom").benchmarks(),
            "readseq,readrandom,stats,levelstats"
        );
        assert_eq!(
            of("overwrite").benchmarks(),
            "overwrite,waitforcompaction,stats,levelstats"
        );
        assert_eq!(of("readseq").flags(&settings()), Vec::<String>::new());
        assert!(of("sustained").is_timed(&settings()) && !of("overwrite").is_timed(&settings()));
        assert_eq!(
            of("fillsync").flags(&settings()),
            ["--writes=5", "--histogram"]
        );
    }

    #[test]
    fn amplifications_are_of_what_users_put() {
        let process = Process {
            peak_memory_mib: 1,
            user_seconds: 1.0,
            system_seconds: 1.0,
            written_bytes: 2320,
            read_bytes: 0,
        };
        let mut run = Run {
            operations: 10,
            process: Some(process),
            database_bytes: Some(1740),
            ..Run::default()
        };
        Bench::of("fillseq")
            .unwrap()
            .complete(&mut run, &settings());
        assert_eq!(run.write_amplification, Some(2.0));
        assert_eq!(run.space_amplification, Some(1.5));
        let mut read = Run {
            process: Some(process),
            ..Run::default()
        };
        Bench::of("readseq")
            .unwrap()
            .complete(&mut read, &settings());
        assert_eq!(
            (read.write_amplification, read.space_amplification),
            (None, None)
        );
    }
}
