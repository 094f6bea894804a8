//! The shapes: what is unusual about each, and the command line of db_bench that makes it.

/// An unusual shape of a database or of its use.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What grows: `families`, `files`, `values` …, and how far.
    pub(crate) axis: &'static str,
    /// Where on the axis the shape is. Rows of one axis with the same `what` are a curve.
    pub(crate) n: u64,
    /// The name of the measured operations.
    pub(crate) what: &'static str,
    /// Benchmarks that make the database; empty for a shape that begins with an empty one.
    pub(crate) prepare: &'static str,
    /// The benchmarks of a run. The last one is measured.
    pub(crate) run: &'static str,
    /// Flags of both, separated by spaces. `{n}` stands for the number.
    pub(crate) flags: &'static str,
    /// What is compared.
    pub(crate) figure: Figure,
}

/// What the ratio of a shape compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The time of an operation.
    Operation,
    /// The time of the whole process: for opening, creating and closing.
    Process,
}

impl Shape {
    /// The name on the command line: `families-1000-puts`.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}-{}", self.axis, self.n, self.what)
    }

    /// The benchmark whose result counts.
    pub(crate) fn measured(&self) -> &'static str {
        self.run.rsplit(',').next().unwrap_or(self.run)
    }

    /// The flags of db_bench.
    pub(crate) fn flags(&self) -> impl Iterator<Item = String> {
        let n = self.n.to_string();
        let words = self.flags.split_whitespace();
        words.map(move |word| word.replace("{n}", &n))
    }
}

/// Several shapes that differ in `n` alone.
macro_rules! shapes {
    ($($axis:ident, $what:literal, [$($n:literal),+]: $prepare:literal => $run:literal, $flags:literal, $figure:ident;)+) => {
        &[$($(Shape {
            axis: stringify!($axis),
            n: $n,
            what: $what,
            prepare: $prepare,
            run: $run,
            flags: $flags,
            figure: Figure::$figure,
        },)+)+]
    };
}

/// All of them, from small to large on each axis.
pub(crate) const SHAPES: &[Shape] = shapes! {
    // Column families: puts, with and without a limit of the logs; their creation and the close.
    families, "puts", [1, 200, 1000, 5000]: "" => "fillrandom",
        "--num_column_families={n} --num=300000", Operation;
    families, "puts-limited-logs", [200, 1000]: "" => "fillrandom",
        "--num_column_families={n} --num=300000 --max_total_wal_size=67108864", Operation;
    families, "creation", [200, 1000, 5000]: "" => "fillrandom",
        "--num_column_families={n} --num=1", Process;
    // Table files: making an iterator, seeks, opening. Tables of 16 KiB, so that 100 keys are one.
    files, "newiterator", [10, 200, 2000]: "fillrandom,compact" => "newiterator",
        "--num={n}00 --target_file_size_base=16384 --duration=2", Operation;
    files, "newiterator-4-threads", [10, 2000]: "fillrandom,compact" => "newiterator",
        "--num={n}00 --target_file_size_base=16384 --duration=2 --threads=4", Operation;
    files, "seekrandom", [10, 200, 2000]: "fillrandom,compact" => "seekrandom",
        "--num={n}00 --target_file_size_base=16384 --duration=2", Operation;
    files, "open", [200, 2000]: "fillrandom,compact" => "readrandom",
        "--num={n}00 --target_file_size_base=16384 --reads=1", Process;
    // Values, in bytes; half of each compresses.
    values, "fill", [10, 65536, 1048576, 10485760]: "" => "fillrandom,flush",
        "--value_size={n} --num={keys} --compression_type=lz4", Operation;
    values, "read", [10, 65536, 1048576]: "fillseq,compact" => "readrandom",
        "--value_size={n} --num={keys} --duration=3 --compression_type=lz4 --cache_size=67108864", Operation;
    values, "seek", [10, 65536, 1048576]: "fillseq,compact" => "seekrandom",
        "--value_size={n} --num={keys} --duration=3 --compression_type=lz4 --cache_size=67108864", Operation;
    values, "seek-cached", [65536, 1048576]: "fillseq,compact" => "readseq,seekrandom",
        "--value_size={n} --num={keys} --duration=3 --compression_type=lz4 --cache_size=536870912", Operation;
    values, "scan", [10, 65536, 1048576]: "fillseq,compact" => "readseq",
        "--value_size={n} --num={keys} --compression_type=lz4 --cache_size=67108864", Operation;
    values, "scan-plain", [65536, 1048576]: "fillseq,compact" => "readseq",
        "--value_size={n} --num={keys} --compression_type=none --cache_size=67108864", Operation;
    // Records of a batch.
    batches, "puts", [1, 1000, 100000]: "" => "fillbatch",
        "--batch_size={n} --num=1000000", Operation;
    // Write buffers, in KiB.
    buffers, "puts", [64, 1024, 65536]: "" => "fillrandom",
        "--write_buffer_size={n}000 --num=500000", Operation;
    // Writers.
    writers, "puts", [1, 4, 64]: "" => "fillrandom",
        "--threads={n} --num=20000", Operation;
    // Range deletions of 100 keys, one for each so many puts.
    ranges, "puts", [10, 100]: "" => "fillrandom",
        "--writes_per_range_tombstone={n} --range_tombstone_width=100 --max_num_range_tombstones=3000 --num=300000", Operation;
    // Caches, in MiB, for a database of 120 MB.
    caches, "readrandom", [8, 64, 1024]: "fillrandom,compact" => "readrandom",
        "--num=1000000 --cache_size={n}000000 --duration=3", Operation;
};
