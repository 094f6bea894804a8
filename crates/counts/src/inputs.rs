//! Inputs of the kernels: the same bytes in every run, and a file in memory.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base::rng::Rng;
use base::{Result, SequenceNumber, ValueType, key};
use io::{Advice, File, SyncKind, WriteSync};

/// Bytes of a value.
const VALUE_LEN: usize = 100;

/// User key number `i`: 16 bytes, in the order of the numbers.
pub(crate) fn user_key(i: u64) -> [u8; 16] {
    let mut key = *b"................";
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

/// Version 1 of that key.
pub(crate) fn internal_key(i: u64) -> Vec<u8> {
    key::encode(&user_key(i), SequenceNumber(1), ValueType::Value)
}

/// The internal key at which a reader that sees all sequence numbers seeks the key.
pub(crate) fn seek_key(i: u64) -> Vec<u8> {
    key::encode(&user_key(i), SequenceNumber::MAX, ValueType::FOR_SEEK)
}

/// The numbers from 0 up to `n`, in random order.
pub(crate) fn shuffled(n: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..n).collect();
    let mut rng = Rng::new(1);
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.below(i as u64 + 1) as usize);
    }
    numbers
}

/// Random bytes.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::new(2).fill(&mut out);
    out
}

/// A value like those of the other benchmarks.
pub(crate) fn value() -> Vec<u8> {
    bytes(VALUE_LEN)
}

/// A file in memory, so that only our own code is counted, not the system's.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Vec<u8>>);

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A file with as many zeros as the later writes need, so that it does not grow while they are counted.
    pub(crate) fn zeros(len: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![0; len as usize])))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl File for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|all| {
            let rest = all.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, data: &[u8], offset: u64, _sync: WriteSync) -> Result<usize> {
        let end = offset as usize + data.len();
        self.with(|all| {
            if all.len() < end {
                all.resize(end, 0);
            }
            all[offset as usize..end].copy_from_slice(data);
        });
        Ok(data.len())
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.with(|all| all.resize(len as usize, 0));
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64, _keep_size: bool) -> Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.write_at(&vec![0; len as usize], offset, WriteSync::None)
            .map(|_| ())
    }

    fn len(&self) -> Result<u64> {
        self.with(|all| Ok(all.len() as u64))
    }

    fn advise(&self, _advice: Advice) {}
}
