//! SST partitioners: where an application wants table files to end.
//!
//! The equivalent of RocksDB's `SstPartitionerFactory`. A partitioner is asked between two keys that would
//! go to the same file, and before a file is moved down a level unchanged.

use std::fmt::Debug;

/// Two adjacent keys that would go to the same file.
#[derive(Clone, Copy, Debug)]
pub struct PartitionerRequest<'a> {
    /// The user key that was written last.
    pub prev_user_key: &'a [u8],
    /// The user key that is written next.
    pub current_user_key: &'a [u8],
    /// Approximate size of the file so far, in bytes.
    pub current_output_file_size: u64,
}

/// The compaction that a partitioner is created for.
#[derive(Clone, Copy, Debug)]
pub struct PartitionerContext<'a> {
    /// Whether the compaction was requested by a call alone.
    pub is_manual_compaction: bool,
    /// The output level.
    pub output_level: usize,
    /// The first user key of the inputs.
    pub smallest_user_key: &'a [u8],
    /// The last user key of the inputs.
    pub largest_user_key: &'a [u8],
}

/// Decides for one compaction where files end.
pub trait SstPartitioner: Send {
    /// Whether the file must end between the two keys.
    fn should_partition(&mut self, request: &PartitionerRequest<'_>) -> bool;

    /// Whether a file with these first and last user keys may be moved without being split.
    fn can_do_trivial_move(&mut self, smallest: &[u8], largest: &[u8]) -> bool;
}

/// Makes a partitioner for each compaction.
pub trait SstPartitionerFactory: Debug + Send + Sync {
    /// The name, for LOG.
    fn name(&self) -> &str;

    /// The partitioner of one compaction; `None` if it needs none.
    fn create_partitioner(
        &self,
        context: &PartitionerContext<'_>,
    ) -> Option<Box<dyn SstPartitioner>>;
}

/// A file ends where the first bytes of the user keys change: RocksDB's
/// `SstPartitionerFixedPrefixFactory`.
///
/// ```
/// use std::sync::Arc;
/// let mut options = ironstone::Options::default();
/// let factory = ironstone::SstPartitionerFixedPrefix::new(4);
/// options.cf.sst_partitioner_factory = Some(Arc::new(factory));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SstPartitionerFixedPrefix {
    prefix_bytes: usize,
}

impl SstPartitionerFixedPrefix {
    /// Uses prefixes of `prefix_bytes` bytes; a shorter key is its own prefix.
    pub fn new(prefix_bytes: usize) -> Self {
        Self { prefix_bytes }
    }

    fn prefix<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(..self.prefix_bytes).unwrap_or(key)
    }
}

impl SstPartitionerFactory for SstPartitionerFixedPrefix {
    fn name(&self) -> &'static str {
        "SstPartitionerFixedPrefixFactory"
    }

    fn create_partitioner(&self, _: &PartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>> {
        Some(Box::new(*self))
    }
}

impl SstPartitioner for SstPartitionerFixedPrefix {
    fn should_partition(&mut self, r: &PartitionerRequest<'_>) -> bool {
        self.prefix(r.prev_user_key) != self.prefix(r.current_user_key)
    }

    fn can_do_trivial_move(&mut self, smallest: &[u8], largest: &[u8]) -> bool {
        self.prefix(smallest) == self.prefix(largest)
    }
}
