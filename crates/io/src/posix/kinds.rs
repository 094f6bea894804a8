//! Kinds of file systems.

use rustix::fs::StatFs;

/// A kind of file system, identified by its `statfs` magic.
pub(super) struct Kind {
    magic: u64,
    pub(super) name: &'static str,
    pub(super) copy_on_write: bool,
    pub(super) in_memory: bool,
}

/// Magics from `linux/magic.h`; zfs and bcachefs from their own headers. overlayfs counts as copy
/// on write: the first write to a file of the lower layer copies all of it.
const KINDS: &[Kind] = &[
    kind(0xef53, "ext4", false, false),
    kind(0x5846_5342, "xfs", false, false),
    kind(0x9123_683e, "btrfs", true, false),
    kind(0x2fc1_2fc1, "zfs", true, false),
    kind(0xca45_1a4e, "bcachefs", true, false),
    kind(0x794c_7630, "overlayfs", true, false),
    kind(0x0102_1994, "tmpfs", false, true),
    kind(0x8584_58f6, "ramfs", false, true),
    kind(0xf2f5_2010, "f2fs", true, false),
    kind(0x6969, "nfs", false, false),
    kind(0x6573_5546, "fuse", false, false),
    kind(0xff53_4d42, "cifs", false, false),
    kind(0xfe53_4d42, "smb2", false, false),
    kind(0x0102_1997, "9p", false, false),
    kind(0x00c3_6400, "ceph", false, false),
    kind(0x2011_bab0, "exfat", false, false),
    kind(0x4d44, "vfat", false, false),
    kind(0x3153_464a, "jfs", false, false),
];

const fn kind(magic: u64, name: &'static str, copy_on_write: bool, in_memory: bool) -> Kind {
    Kind {
        magic,
        name,
        copy_on_write,
        in_memory,
    }
}

/// The magic of a file system, and its kind if that is known.
pub(super) fn of(statfs: &StatFs) -> (u64, Option<&'static Kind>) {
    let magic = statfs.f_type as u64 & 0xffff_ffff;
    (magic, KINDS.iter().find(|k| k.magic == magic))
}
