//! The rows of the table: the settings of each, under RocksDB's names, for both engines.

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Row {
    /// The point alone: one put, with the defaults.
    #[value(name = "0")]
    Point,
    /// The defaults.
    #[value(name = "1")]
    Defaults,
    /// The defaults of 2016.
    #[value(name = "1-2016")]
    Defaults2016,
    /// `PrepareForBulkLoad`.
    #[value(name = "2")]
    BulkLoad,
    /// `IncreaseParallelism(10)`, 4 flush threads, level 0 at 100, 200, 400.
    #[value(name = "3")]
    Parallel400,
    /// The same at 10, 100, 200.
    #[value(name = "4")]
    Parallel200,
    /// 10 flush and 10 compaction threads, slowdown at 100, stop at 200, 6 write buffers.
    #[value(name = "5")]
    Threads10,
    /// The defaults, each report as four calls.
    #[value(name = "6")]
    FourCalls,
}

/// Names and values.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

/// Background threads of RocksDB's environment: low and high.
pub(crate) type Threads = Option<(i32, i32)>;

impl Row {
    /// The settings of the database, and of a family.
    pub(crate) fn settings(self) -> (Settings, Settings) {
        match self {
            Self::Point | Self::Defaults | Self::FourCalls => (&[], &[]),
            Self::Defaults2016 => (
                &[
                    ("max_background_flushes", "1"),
                    ("max_background_compactions", "1"),
                ],
                &[
                    ("level0_file_num_compaction_trigger", "4"),
                    ("level0_slowdown_writes_trigger", "20"),
                    ("level0_stop_writes_trigger", "24"),
                ],
            ),
            Self::BulkLoad => (
                &[
                    ("max_background_flushes", "4"),
                    ("max_background_compactions", "2"),
                ],
                &[
                    ("level0_file_num_compaction_trigger", "1073741824"),
                    ("level0_slowdown_writes_trigger", "1073741824"),
                    ("level0_stop_writes_trigger", "1073741824"),
                    ("soft_pending_compaction_bytes_limit", "0"),
                    ("hard_pending_compaction_bytes_limit", "0"),
                    ("disable_auto_compactions", "true"),
                    ("max_compaction_bytes", "1152921504606846976"),
                    ("num_levels", "2"),
                    ("max_write_buffer_number", "6"),
                    ("min_write_buffer_number_to_merge", "1"),
                    ("target_file_size_base", "268435456"),
                ],
            ),
            Self::Parallel400 => (
                &[
                    ("max_background_jobs", "10"),
                    ("max_background_flushes", "4"),
                    ("max_background_compactions", "6"),
                ],
                &[
                    ("level0_file_num_compaction_trigger", "100"),
                    ("level0_slowdown_writes_trigger", "200"),
                    ("level0_stop_writes_trigger", "400"),
                ],
            ),
            Self::Parallel200 => (
                &[
                    ("max_background_jobs", "10"),
                    ("max_background_flushes", "4"),
                    ("max_background_compactions", "6"),
                ],
                &[
                    ("level0_file_num_compaction_trigger", "10"),
                    ("level0_slowdown_writes_trigger", "100"),
                    ("level0_stop_writes_trigger", "200"),
                ],
            ),
            Self::Threads10 => (
                &[
                    ("max_background_flushes", "10"),
                    ("max_background_compactions", "10"),
                ],
                &[
                    ("level0_slowdown_writes_trigger", "100"),
                    ("level0_stop_writes_trigger", "200"),
                    ("max_write_buffer_number", "6"),
                ],
            ),
        }
    }

    /// The threads of RocksDB's environment for this row.
    pub(crate) fn threads(self) -> Threads {
        match self {
            Self::Parallel400 | Self::Parallel200 => Some((10, 4)),
            Self::Threads10 => Some((10, 10)),
            Self::BulkLoad => Some((2, 4)),
            _ => None,
        }
    }
}

/// As text that both engines parse.
pub(crate) fn text(settings: Settings) -> String {
    let text = |(name, value): &(&str, &str)| format!("{name}={value};");
    let all: Vec<String> = settings.iter().map(text).collect();
    all.concat()
}
