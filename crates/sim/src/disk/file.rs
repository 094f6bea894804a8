//! An open file of a simulated disk.

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use io::{Advice, File, OpenHow, SyncKind, WriteSync};

use super::fault::Fault;
use super::{Act, Call, SimDisk};

/// The fewest bytes that a short write takes: see [`Fault::Short`].
const TAKEN_MIN: usize = 8;

/// An open file. It survives the removal of its name, as on Unix.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: SimDisk,
    path: Arc<Path>,
    inode: usize,
    how: OpenHow,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, path: Arc<Path>, inode: usize, how: OpenHow) -> Self {
        Self {
            disk,
            path,
            inode,
            how,
        }
    }

    fn sector(&self) -> u64 {
        u64::from(self.disk.core.config.sector)
    }

    fn unit(&self) -> usize {
        let align = self.disk.core.config.probe.direct_alignment;
        align.filter(|_| self.how.direct).unwrap_or(1) as usize
    }

    fn call(&self, act: Act, offset: u64, len: u64) -> Call<'_> {
        Call {
            act,
            path: &self.path,
            offset,
            len,
        }
    }

    fn check_aligned(&self, buf: &[u8], offset: u64) -> Result<()> {
        let unit = self.unit();
        let aligned = offset.is_multiple_of(unit as u64)
            && buf.len().is_multiple_of(unit)
            && (buf.as_ptr() as usize).is_multiple_of(unit);
        if aligned {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "direct I/O of {} bytes is not aligned to {unit}",
            buf.len()
        ))
        .file(&self.path)
        .offset(offset))
    }

    /// Like the kernel: `EINVAL` for writes that the device cannot do atomically.
    fn check_atomic(&self, len: usize, offset: u64) -> Result<()> {
        let allowed = self.disk.core.config.probe.atomic_write_unit;
        let fits = |(min, max)| (min as usize..=max as usize).contains(&len);
        let right = self.how.direct
            && allowed.is_some_and(fits)
            && len.is_power_of_two()
            && offset.is_multiple_of(len as u64);
        if right {
            return Ok(());
        }
        Err(
            Error::invalid_argument(format!("no atomic write of {len} bytes here"))
                .file(&self.path)
                .offset(offset),
        )
    }

    fn check_writable(&self) -> Result<()> {
        if self.how.write {
            return Ok(());
        }
        Err(Error::invalid_argument("the file is open for reading only").file(&self.path))
    }

    /// The number of bytes that a write takes if it is hit by `fault`.
    fn taken(&self, len: usize, fault: Option<Fault>) -> usize {
        match fault {
            Some(Fault::Short) => {
                let unit = self.unit();
                let half = len / 2 / unit * unit;
                half.max(TAKEN_MIN.min(len).next_multiple_of(unit))
            }
            _ => len,
        }
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.check_aligned(buf, offset)?;
        let call = self.call(Act::Read, offset, buf.len() as u64);
        self.disk.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::Read, &self.path)?;
                Ok(state.inodes[self.inode].read(buf, offset))
            },
            |_, _| {},
        )
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        if self.how.direct || !self.disk.core.queues.has_cached(offset) {
            return Ok(false);
        }
        Ok(self.read_at(buf, offset)? == buf.len())
    }

    fn read_alignment(&self) -> usize {
        self.unit()
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        self.check_writable()?;
        self.check_aligned(data, offset)?;
        if data.is_empty() {
            return Ok(0);
        }
        let act = match sync {
            WriteSync::None => Act::Write,
            WriteSync::Dsync | WriteSync::AtomicDsync => Act::WriteDsync,
        };
        let atomic = sync == WriteSync::AtomicDsync;
        if atomic {
            self.check_atomic(data.len(), offset)?;
        }
        if act == Act::WriteDsync && self.disk.core.config.overtaking {
            self.disk.linger();
        }
        let call = self.call(act, offset, data.len() as u64);
        let sector = self.sector();
        self.disk.act(
            &call,
            |state, fault| {
                let taken = if atomic {
                    data.len()
                } else {
                    self.taken(data.len(), fault)
                };
                let refused = Fault::refuse(fault, act, &self.path);
                let sequence = state.next_sequence();
                let inode = &mut state.inodes[self.inode];
                if refused.is_err() {
                    // The result of a failed write is undefined: here nothing, half, or all of it.
                    let mut half = data.len() * (sequence % 3) as usize / 2;
                    if atomic && half < data.len() {
                        half = 0;
                    }
                    if half > 0 && fault != Some(Fault::NoSpace) {
                        inode.write(sequence, &data[..half], offset);
                        if atomic {
                            inode.last_is_atomic();
                        }
                        inode.fail_sync();
                    }
                    refused?;
                }
                inode.write(sequence, &data[..taken], offset);
                if atomic {
                    inode.last_is_atomic();
                }
                Ok(taken)
            },
            |state, &taken| {
                if sync != WriteSync::None {
                    let sequence = state.next_sequence();
                    let range = offset..offset + taken as u64;
                    state.inodes[self.inode].commit(sequence, range, sector);
                }
            },
        )
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        let call = self.call(Act::Sync, 0, 0);
        let sector = self.sector();
        self.disk.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::Sync, &self.path)
                    .inspect_err(|_| state.inodes[self.inode].fail_sync())
            },
            |state, ()| {
                let sequence = state.next_sequence();
                state.inodes[self.inode].sync(sequence, sector);
            },
        )
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<()> {
        self.disk.lock_state().check_alive(Act::Sync, &self.path)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        let call = self.call(Act::Truncate, len, 0);
        self.disk.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::Truncate, &self.path)?;
                let sequence = state.next_sequence();
                state.inodes[self.inode].set_len(sequence, len);
                Ok(())
            },
            |_, ()| {},
        )
    }

    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.check_writable()?;
        let call = self.call(Act::Allocate, offset, len);
        self.disk.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::Allocate, &self.path)?;
                let sequence = state.next_sequence();
                let inode = &mut state.inodes[self.inode];
                if !keep_size && offset + len > inode.len() {
                    inode.set_len(sequence, offset + len);
                }
                Ok(())
            },
            |_, ()| {},
        )
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        let call = self.call(Act::Zero, offset, len);
        self.disk.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::Zero, &self.path)?;
                let sequence = state.next_sequence();
                state.inodes[self.inode].write(sequence, &vec![0; len as usize], offset);
                Ok(())
            },
            |_, ()| {},
        )
    }

    fn len(&self) -> Result<u64> {
        let state = self.disk.lock_state();
        state.check_alive(Act::Open, &self.path)?;
        Ok(state.inodes[self.inode].len())
    }

    fn advise(&self, _advice: Advice) {}
}
