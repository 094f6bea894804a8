//! The list of benchmarks that `--help` shows.

/// The names of all benchmarks, with one line of help for each.
pub(crate) const BENCHMARKS: &[(&str, &str)] = &[
    ("fillseq", "put num keys in their order into a new database"),
    ("fillrandom", "put num random keys into a new database"),
    (
        "filluniquerandom",
        "put each of num keys once, in random order, into a new database",
    ),
    (
        "fillanddeleteuniquerandom",
        "filluniquerandom in sets of entries, some of which are deleted again",
    ),
    (
        "fillseqdeterministic",
        "fill each level, the last one with num keys in their order, into a new database",
    ),
    (
        "filluniquerandomdeterministic",
        "the same, the last one with num keys in random order",
    ),
    (
        "fillsync",
        "put random keys durably, num/1000 of them different, into a new database",
    ),
    (
        "fillbatch",
        "put num keys in their order, in batches of 1000, into a new database",
    ),
    (
        "fill100K",
        "put values of 100,000 bytes, num/1000 random keys, into a new database",
    ),
    (
        "fillseekseq",
        "put num keys in their order, then seek each: the seeks count",
    ),
    ("overwrite", "put num random keys"),
    (
        "requests",
        "batches of three puts and a delete over num_column_families, into a new database",
    ),
    ("readseq", "read keys and values forwards"),
    ("readtocache", "readseq with one thread, over all keys"),
    (
        "readtorowcache",
        "get all keys, so that their rows are in the row cache",
    ),
    ("readreverse", "read keys and values backwards"),
    ("readrandom", "get random keys"),
    (
        "readrandomfast",
        "get random keys, with as little around it as can be",
    ),
    ("readrandomsmall", "get random keys, reads/1000 of them"),
    ("readmissing", "get random keys that are not there"),
    ("multireadrandom", "get batch_size random keys at once"),
    (
        "multiscan",
        "read multiscan_size ranges of seek_nexts keys with one call",
    ),
    (
        "multiscanrandom",
        "read up to 64 random ranges with one call",
    ),
    (
        "readrandomentity",
        "get random keys with all their columns (ironstone)",
    ),
    (
        "multireadentity",
        "get batch_size random keys with all their columns at once (ironstone)",
    ),
    (
        "readrandomoperands",
        "get the merge operands of random keys (ironstone)",
    ),
    (
        "getmergeoperands",
        "merge lists of numbers, and find one in all of them and in each (ironstone)",
    ),
    (
        "multireadwhilewriting",
        "multireadrandom while one more thread writes",
    ),
    (
        "readwhilewriting",
        "get random keys while one more thread writes",
    ),
    (
        "readwhilemerging",
        "get random keys while one more thread merges",
    ),
    (
        "readwhilescanning",
        "get random keys while one more thread reads all",
    ),
    (
        "readrandomwriterandom",
        "get and put random keys, readwritepercent gets of 100",
    ),
    (
        "readrandommergerandom",
        "get and merge random keys, mergereadpercent merges of 100",
    ),
    (
        "randomwithverify",
        "put, get and delete triples of keys, which are always equal",
    ),
    ("updaterandom", "get and put random keys in turns"),
    (
        "xorupdaterandom",
        "get a random key, change its value, put it",
    ),
    (
        "appendrandom",
        "get a random key, append to its value, put it",
    ),
    ("mergerandom", "merge into random keys"),
    (
        "randomreplacekeys",
        "delete keys and put their successors, normally distributed",
    ),
    ("newiterator", "make iterators"),
    (
        "newiteratorwhilewriting",
        "make iterators while one more thread writes",
    ),
    (
        "seekrandom",
        "seek random keys, and read seek_nexts keys from each",
    ),
    (
        "seekrandomwhilewriting",
        "seekrandom while one more thread writes",
    ),
    (
        "seekrandomwhilemerging",
        "seekrandom while one more thread merges",
    ),
    (
        "approximatesizerandom",
        "estimate the size between random keys",
    ),
    (
        "approximatememtablestats",
        "estimate how many of batch_size keys the memtables have (ironstone)",
    ),
    (
        "mixgraph",
        "gets, puts and scans as a social graph has them",
    ),
    (
        "timeseries",
        "one thread writes series of entries, the others read or delete them",
    ),
    ("deleteseq", "delete keys in their order"),
    ("deleterandom", "delete random keys"),
    ("compact", "compact the whole database"),
    (
        "compactall",
        "compact the whole database, without a result line",
    ),
    ("compact0", "compact level 0 into the next level with data"),
    (
        "compact1",
        "compact the first level behind level 0 into the next",
    ),
    ("flush", "write the memtables to files"),
    (
        "waitforcompaction",
        "wait until no flush or compaction runs or is due",
    ),
    (
        "verifychecksum",
        "read all blocks and compare their checksums",
    ),
    (
        "verifyfilechecksums",
        "compare the checksums of whole files",
    ),
    (
        "verify",
        "compare all keys and values with those of truth_db",
    ),
    (
        "ingestexternalfile",
        "write tables and ingest them, ingest_external_file_num_batches times",
    ),
    ("backup", "back the database up to backup_dir"),
    (
        "restore",
        "restore the newest backup in backup_dir to restore_dir",
    ),
    ("stats", "show the property rocksdb.stats"),
    ("levelstats", "show the files of each level"),
    ("sstables", "show all files"),
    ("memstats", "show what memtables hold"),
    (
        "block_cache_entry_stats",
        "show what the block cache holds, by kind",
    ),
    ("crc32c", "checksums of block_size bytes"),
    ("xxhash", "the same by XXH32"),
    ("xxhash64", "the same by XXH64"),
    ("xxh3", "the same by XXH3"),
    ("compress", "compress block_size bytes by compression_type"),
    (
        "compressreject",
        "compress block_size bytes with too little room for them",
    ),
    ("uncompress", "uncompress them"),
    ("acquireload", "load a pointer, 1000 times an operation"),
];
