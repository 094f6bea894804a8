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
    /// The benchmarks of a run. The last one that has a result is measured.
    pub(crate) run: &'static str,
    /// Flags of both, separated by spaces. `{n}` stands for the number, `{keys}` for as many as fit into 128 MiB
    /// if the number is the size of a value, `{db}` for the database's directory.
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
        let has_result = |name: &&str| !["flush", "waitforcompaction"].contains(name);
        self.run.rsplit(',').find(has_result).unwrap_or(self.run)
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
    values, "fill", [10, 65536, 1048576]: "" => "fillrandom,flush",
        "--value_size={n} --num={keys} --compression_type=lz4", Operation;
    // So many that compactions have to keep up.
    values, "fill", [10485760]: "" => "fillrandom,flush",
        "--value_size={n} --num=500 --compression_type=lz4", Operation;
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
    buffers, "puts", [64, 1024, 65536, 1048576]: "" => "fillrandom",
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
    caches, "churn", [64, 512]: "fillrandom,compact" => "readrandom",
        "--num=8000000 --cache_size={n}000000 --duration=20", Operation;
    // Snapshots, iterators, one after each ten puts; what they keep is given back at the end.
    snapshots, "puts", [1000, 10000]: "" => "fillrandom,flush,waitforcompaction",
        "--num=1000 --writes={n}0 --writes_per_snapshot=10", Operation;
    iterators, "puts", [1000, 10000]: "" => "fillrandom,flush,waitforcompaction",
        "--num=1000 --writes={n}0 --writes_per_iterator=10", Operation;
    // Merge operands of one key, and reading them.
    operands, "puts", [1000, 50000]: "" => "mergerandom",
        "--num=1 --writes={n} --merge_keys=1 --merge_operator=uint64add --value_size=8", Operation;
    operands, "reads", [1000, 50000]: "" => "mergerandom,readrandom",
        "--num=1 --writes={n} --merge_keys=1 --merge_operator=uint64add --value_size=8 --reads=100", Operation;
    // Deletions: of the first keys, which a scan passes; of a queue's head.
    deletions, "scan", [1000, 100000]: "fillseq,compact,deleteseq,flush" => "readseq",
        "--num=1000000 --deletes={n} --reads=100 --disable_auto_compactions", Operation;
    deletions, "queue", [10, 10000]: "" => "randomreplacekeys",
        "--numdistinct={n} --num=300000 --use_single_deletes=false", Operation;
    // Scans of ten keys with one prefix, without and with a filter of prefixes.
    prefixes, "scan", [10]: "fillrandom,compact" => "seekrandom",
        "--num=1000000 --prefix_size=8 --keys_per_prefix={n} --seek_nexts={n} --duration=3", Operation;
    prefixes, "scan-filtered", [10]: "fillrandom,compact" => "seekrandom",
        "--num=1000000 --prefix_size=8 --keys_per_prefix={n} --seek_nexts={n} --bloom_bits=10 --duration=3", Operation;
    // Compaction styles: 0 is level, 1 universal, 2 FIFO.
    styles, "overwrite", [0, 1, 2]: "" => "fillrandom,overwrite,flush,waitforcompaction",
        "--compaction_style={n} --num=1000000 --write_buffer_size=8388608", Operation;
    // Files that are ingested at once, and the copy of a database of so many keys.
    ingestion, "files", [10, 1000]: "" => "ingestexternalfile",
        "--ingest_external_file_batch_size={n} --num=100000", Process;
    backups, "create", [100000, 4000000]: "fillrandom,compact" => "backup",
        "--num={n} --backup_dir={db}.backup", Process;
    // The memory of indexes and filters, for so many keys.
    filters, "readrandom", [1000000, 10000000]: "fillseq,compact" => "readrandom",
        "--num={n} --bloom_bits=10 --cache_size=8388608 --value_size=20 --duration=3", Operation;
    // Seconds of mixed work.
    mixed, "seconds", [30]: "fillrandom" => "readrandomwriterandom",
        "--num=2000000 --duration={n} --cache_size=67108864", Operation;
};
