//! What a file system and a device can do.

/// Facts about the file system and device under a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of the file system: `ext4`, `xfs`, `btrfs`, `tmpfs`, …
    pub file_system: String,
    /// Alignment in bytes of offsets, lengths and buffers for direct I/O; `None` if direct I/O
    /// does not work here.
    pub direct_alignment: Option<u32>,
    /// Largest block in bytes that the device writes as a unit: its physical block size.
    pub physical_block: u32,
    /// Whether the device has a volatile write cache; `None` if unknown.
    pub volatile_cache: Option<bool>,
    /// Whether the device does FUA writes; `None` if unknown.
    pub fua: Option<bool>,
    /// True where overwriting a block allocates a new one (btrfs, zfs, …): pre-zeroing is no use.
    pub copy_on_write: bool,
    /// True where data lives in memory only (tmpfs): nothing survives a power cut.
    pub in_memory: bool,
}
