//! Options of a column family, without those of its tables. Names and defaults are RocksDB
//! 7.8.3's.

use base::options::OptionValue;
use base::{Error, Result};
use table::CompressionType;

/// How blocks are compressed: the nested `compression_opts={…}` of an OPTIONS file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// zlib's window as a power of two, negative for no header. Only zlib has it.
    pub window_bits: i32,
    /// The level that the algorithm is given; [`CompressionOptions::DEFAULT_LEVEL`] is the
    /// algorithm's own default.
    pub level: i32,
    /// zlib's strategy. Only zlib has it.
    pub strategy: i32,
    /// Bytes of dictionary a table gets; 0 is no dictionary.
    pub max_dict_bytes: u32,
    /// Bytes of sample data that a ZSTD dictionary is trained from; 0 uses the samples as they are.
    pub zstd_max_train_bytes: u32,
    /// Threads that compress the blocks of one table.
    pub parallel_threads: u32,
    /// In `bottommost_compression_opts`: whether the struct is used.
    pub enabled: bool,
    /// Bytes of data that may be held back while the dictionary is made; 0 is one table.
    pub max_dict_buffer_bytes: u64,
    /// Whether ZSTD's trainer makes the dictionary.
    pub use_zstd_dict_trainer: bool,
}

impl CompressionOptions {
    /// The level that stands for "the algorithm's default".
    pub const DEFAULT_LEVEL: i32 = 32767;

    /// The level, or `None` for the algorithm's default.
    pub fn chosen_level(&self) -> Option<i32> {
        (self.level != Self::DEFAULT_LEVEL).then_some(self.level)
    }

    /// Reads the members of `{a=1;b=2;}`; the second result lists members that RocksDB 7.8.3
    /// does not have. Errors: a shape or value that is none.
    pub fn parse_members(text: &str) -> Result<(Self, Vec<String>)> {
        let (mut out, mut unknown) = (Self::default(), Vec::new());
        for (name, value) in super::codec::members(text)? {
            let bad = || base::options::bad_value(name, value, "compression option");
            macro_rules! set {
                ($($field:ident),*) => {
                    match name {
                        $( stringify!($field) => {
                            out.$field = OptionValue::parse(value).ok_or_else(bad)?;
                        } )*
                        _ => unknown.push(name.to_owned()),
                    }
                };
            }
            set!(
                window_bits,
                level,
                strategy,
                max_dict_bytes,
                zstd_max_train_bytes,
                parallel_threads,
                enabled,
                max_dict_buffer_bytes,
                use_zstd_dict_trainer
            );
        }
        Ok((out, unknown))
    }

    /// What it asks for that Ironstone does not do yet, by member name.
    pub fn unsupported(&self) -> Option<&'static str> {
        let d = Self::default();
        [
            ("max_dict_bytes", self.max_dict_bytes != d.max_dict_bytes),
            ("parallel_threads", self.parallel_threads > 1),
            ("window_bits", self.window_bits != d.window_bits),
            ("strategy", self.strategy != d.strategy),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }

    /// The same with the members of [`CompressionOptions::unsupported`] at their defaults.
    #[must_use]
    pub fn supported_part(&self) -> Self {
        Self {
            level: self.level,
            enabled: self.enabled,
            ..Self::default()
        }
    }
}

impl Default for CompressionOptions {
    fn default() -> Self {
        Self {
            window_bits: -14,
            level: Self::DEFAULT_LEVEL,
            strategy: 0,
            max_dict_bytes: 0,
            zstd_max_train_bytes: 0,
            parallel_threads: 1,
            enabled: false,
            max_dict_buffer_bytes: 0,
            use_zstd_dict_trainer: true,
        }
    }
}

impl OptionValue for CompressionOptions {
    fn kind() -> String {
        "{level=…;…}".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        let (value, unknown) = Self::parse_members(text).ok()?;
        unknown.is_empty().then_some(value)
    }

    /// The members in the order in which RocksDB 7.8.3 writes them.
    fn print(&self) -> String {
        format!(
            "{{max_dict_buffer_bytes={};enabled={};max_dict_bytes={};parallel_threads={};\
             zstd_max_train_bytes={};level={};use_zstd_dict_trainer={};strategy={};\
             window_bits={};}}",
            self.max_dict_buffer_bytes,
            self.enabled,
            self.max_dict_bytes,
            self.parallel_threads,
            self.zstd_max_train_bytes,
            self.level,
            self.use_zstd_dict_trainer,
            self.strategy,
            self.window_bits,
        )
    }
}

base::options! {
    /// Options of a column family.
    pub struct CfOptions ["CFOptions"] {
        /// Bytes of a memtable at which it is closed and flushed.
        write_buffer_size: u64 = 64 << 20, in 4096..=64 << 30, [Mutable];
        /// Memtables, the active one included, that may be in memory before writers wait.
        max_write_buffer_number: i32 = 2, in 2..=i32::MAX, [Mutable];
        /// Closed memtables that are merged into one table file, at least.
        min_write_buffer_number_to_merge: i32 = 1, in 1..=i32::MAX;
        /// Bytes in which a memtable asks for memory.
        arena_block_size: u64 = 1 << 20, in 4096..=1 << 32;
        /// Level 0 files at which a compaction starts.
        level0_file_num_compaction_trigger: i32 = 4, in 1..=i32::MAX, [Mutable];
        /// Level 0 files at which writers are slowed down.
        level0_slowdown_writes_trigger: i32 = 20, in 1..=i32::MAX, [Mutable];
        /// Level 0 files at which writers wait.
        level0_stop_writes_trigger: i32 = 36, in 1..=i32::MAX, [Mutable];
        /// Bytes that level 1 should hold.
        max_bytes_for_level_base: u64 = 256 << 20, in 1..=u64::MAX, [Mutable];
        /// How many times more bytes each deeper level should hold.
        max_bytes_for_level_multiplier: f64 = 10.0, in 1.0..=1000.0, [Mutable];
        /// Bytes of a table file in level 1.
        target_file_size_base: u64 = 64 << 20, in 1..=u64::MAX, [Mutable];
        /// How many times larger table files are in each deeper level.
        target_file_size_multiplier: i32 = 1, in 1..=i32::MAX, [Mutable];
        /// Levels.
        num_levels: i32 = 7, in 1..=64;
        /// How blocks of new table files are compressed. Files of any type are read.
        compression: CompressionType = CompressionType::Snappy, [Mutable];
        /// Level and other settings of the compression.
        compression_opts: CompressionOptions = CompressionOptions::default(), [Mutable];
        /// Merge operands of a key that the memtable may hold on one another before a write merges
        /// them with what they lie on; 0 is no limit. Only what is in memory is merged.
        max_successive_merges: u64 = 0, in 0..=u64::MAX, [Mutable];
        /// Whether compactions start only by call.
        disable_auto_compactions: bool = false, [Mutable];
        /// Bytes of one compaction's input above which it takes in no more files;
        /// 0 is 25 times `target_file_size_base`.
        max_compaction_bytes: u64 = 0, in 0..=u64::MAX, [Mutable];
    }
}

impl CfOptions {
    /// [`CfOptions::max_compaction_bytes`] with 0 replaced by what it stands for.
    pub fn compaction_bytes_max(&self) -> u64 {
        match self.max_compaction_bytes {
            0 => self.target_file_size_base.saturating_mul(25),
            n => n,
        }
    }

    /// The rules between options; [`base::options::OptionTable::validate`] checks each alone.
    /// Errors: `InvalidArgument` naming both options and their values.
    pub fn validate_together(&self) -> Result<()> {
        let at_most = |a: (&str, i32), b: (&str, i32), slack: i32| {
            if a.1 <= b.1.saturating_sub(slack) {
                return Ok(());
            }
            let plus = if slack == 0 { "" } else { " minus 1" };
            Err(Error::invalid_argument(format!(
                "option {} = {} must be at most {}{plus}, which is {}",
                a.0, a.1, b.0, b.1
            )))
        };
        let slowdown = (
            "level0_slowdown_writes_trigger",
            self.level0_slowdown_writes_trigger,
        );
        at_most(
            (
                "level0_file_num_compaction_trigger",
                self.level0_file_num_compaction_trigger,
            ),
            slowdown,
            0,
        )?;
        at_most(
            slowdown,
            (
                "level0_stop_writes_trigger",
                self.level0_stop_writes_trigger,
            ),
            0,
        )?;
        at_most(
            (
                "min_write_buffer_number_to_merge",
                self.min_write_buffer_number_to_merge,
            ),
            ("max_write_buffer_number", self.max_write_buffer_number),
            1,
        )?;
        if let Some(member) = self.compression_opts.unsupported() {
            return Err(Error::not_supported(format!(
                "option compression_opts: {member} other than its default"
            )));
        }
        Ok(())
    }
}
