//! Tests of Ironstone against real RocksDB, against models, and with damaged files.

#[cfg(test)]
mod async_reads;
#[cfg(test)]
mod atomic_tail;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod checkpoint;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod compressed;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod cursors;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod drop_rules;
#[cfg(test)]
mod entities;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod filters;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod ingest;
#[cfg(test)]
mod iterators;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod mapped;
#[cfg(test)]
mod memtables;
#[cfg(test)]
mod merge;
#[cfg(test)]
mod model;
#[cfg(test)]
mod observe;
#[cfg(test)]
mod older_logs;
#[cfg(test)]
mod open_files;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod option_values;
#[cfg(test)]
mod pitfalls;
#[cfg(test)]
mod range_del;
#[cfg(test)]
mod rate_limits;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod rot;
#[cfg(test)]
mod secondary;
#[cfg(test)]
mod set_options;
#[cfg(test)]
mod stalls;
#[cfg(test)]
mod statistics;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod tracked;
#[cfg(test)]
mod tracks;
#[cfg(test)]
mod tracks_ready;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod vanished;
#[cfg(test)]
mod wal_bad_input;
#[cfg(test)]
mod write_path;
#[cfg(test)]
mod written;
