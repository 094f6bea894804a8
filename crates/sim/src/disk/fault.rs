//! Faults: operations that fail because a test wants it.

use std::path::{Path, PathBuf};

use base::Result;

use super::{Act, os_error};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EIO. A write may have done a part of its work; a sync leaves the pages clean and unwritten, and so
    /// does one of a directory with the names.
    Eio,
    /// ENOSPC, for operations that need space; also for syncs, because space may be allocated late.
    NoSpace,
    /// A write takes half of the bytes, and reports that. For direct I/O it is a multiple of the alignment.
    /// Systems copy whole pages; this is worse, but at least eight bytes are taken if there are so many: a
    /// record's header, which must be written at once, is shorter.
    Short,
    /// EIO, for syncs and durable writes only.
    Sync,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::Eio, Self::NoSpace, Self::Short, Self::Sync];

    /// Whether the act can fail this way.
    fn fits(self, act: Act) -> bool {
        let sync = matches!(act, Act::Sync | Act::WriteDsync | Act::SyncDir);
        let write = matches!(act, Act::Write | Act::WriteDsync);
        match self {
            Self::Eio => true,
            Self::NoSpace => {
                sync || write
                    || matches!(
                        act,
                        Act::Create
                            | Act::Allocate
                            | Act::Zero
                            | Act::CreateDir
                            | Act::Rename
                            | Act::Link
                    )
            }
            Self::Short => write,
            Self::Sync => sync,
        }
    }

    /// The error of an operation that does nothing if it fails.
    pub(super) fn refuse(fault: Option<Self>, act: Act, path: &Path) -> Result<()> {
        match fault {
            None | Some(Self::Short) => Ok(()),
            Some(Self::NoSpace) => Err(os_error(act, path, ENOSPC)),
            Some(Self::Eio | Self::Sync) => Err(os_error(act, path, EIO)),
        }
    }
}

/// How often a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One operation fails; the next succeeds.
    Once,
    /// All operations from then on fail.
    Forever,
}

/// Selects operations.
pub(super) type Aim = Box<dyn Fn(Act, &Path) -> bool + Send>;

/// The pending faults.
#[derive(Default)]
pub(super) struct Faults {
    waiting: Vec<(u64, Fault, Repeat)>,
    aimed: Vec<(Aim, Fault, Repeat)>,
    hit: Option<(Act, PathBuf)>,
}

impl Faults {
    pub(super) fn add(&mut self, call: u64, fault: Fault, repeat: Repeat) {
        self.waiting.push((call, fault, repeat));
    }

    pub(super) fn aim(&mut self, which: Aim, fault: Fault, repeat: Repeat) {
        self.aimed.push((which, fault, repeat));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.aimed.clear();
        self.hit = None;
    }

    /// The first operation that failed, and its file.
    pub(super) fn hit(&self) -> Option<(Act, PathBuf)> {
        self.hit.clone()
    }

    /// The fault that hits operation number `call`.
    pub(super) fn meet(&mut self, call: u64, act: Act, path: &Path) -> Option<Fault> {
        let meets = |&(at, fault, repeat): &(u64, Fault, Repeat)| match repeat {
            Repeat::Once => call == at && fault.fits(act),
            Repeat::Forever => call >= at && fault.fits(act),
        };
        let counted = self.waiting.iter().find(|w| meets(w)).map(|w| w.1);
        let met = counted.or_else(|| self.meet_aimed(act, path));
        if met.is_some() && self.hit.is_none() {
            self.hit = Some((act, path.to_path_buf()));
        }
        met
    }

    fn meet_aimed(&mut self, act: Act, path: &Path) -> Option<Fault> {
        let at = self
            .aimed
            .iter()
            .position(|(which, fault, _)| fault.fits(act) && which(act, path))?;
        let (fault, repeat) = (self.aimed[at].1, self.aimed[at].2);
        if repeat == Repeat::Once {
            drop(self.aimed.remove(at));
        }
        Some(fault)
    }
}
