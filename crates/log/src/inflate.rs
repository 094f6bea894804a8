//! Compressed WAL records.
//!
//! After a "set compression" record, each logical record is one or more zstd frames, one after the
//! other (`deflate` says why), split into fragments. The decoder is reset for each record and is fed
//! fragment by fragment. The output buffer grows with the output, so the size that a record claims
//! is never trusted.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// RocksDB's number for zstd, the only compression that it writes to a WAL.
pub(crate) const ZSTD: u32 = 7;

/// Maximum size of a logical record in bytes: a WriteBatch's lengths are 32 bits wide.
const RECORD_MAX: usize = u32::MAX as usize;

/// Decompresses one logical record after the other.
pub(crate) struct Inflate {
    decoder: Decoder<'static>,
    chunk: Vec<u8>,
    /// The last frame of the current record has ended.
    complete: bool,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").finish_non_exhaustive()
    }
}

impl Inflate {
    pub(crate) fn new() -> Result<Self, &'static str> {
        Ok(Self {
            decoder: Decoder::new().map_err(|_| "no memory for decompression")?,
            chunk: vec![0; 32 * 1024],
            complete: false,
        })
    }

    /// Starts a logical record.
    pub(crate) fn begin(&mut self) -> Result<(), &'static str> {
        self.complete = false;
        self.decoder
            .reinit()
            .map_err(|_| "decompression cannot be reset")
    }

    /// Decompresses the next fragment and appends the output to `out`.
    pub(crate) fn push(&mut self, fragment: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
        let mut input = InBuffer::around(fragment);
        loop {
            let mut output = OutBuffer::around(self.chunk.as_mut_slice());
            let hint = self
                .decoder
                .run(&mut input, &mut output)
                .map_err(|_| "compressed record cannot be decompressed")?;
            // Input behind a whole frame begins another one.
            self.complete = hint == 0;
            let produced = output.as_slice();
            let full = produced.len() == 32 * 1024;
            if out.len() + produced.len() > RECORD_MAX {
                return Err("compressed record is larger than a record can be");
            }
            out.try_reserve(produced.len())
                .map_err(|_| "no memory for a decompressed record")?;
            out.extend_from_slice(produced);
            let used_up = input.pos() == fragment.len();
            if used_up && !full {
                return Ok(());
            }
        }
    }

    /// Decompresses a whole logical record.
    pub(crate) fn all(&mut self, compressed: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        self.begin()?;
        self.push(compressed, &mut out)?;
        self.finish()?;
        Ok(out)
    }

    /// Errors: the record ends before its last frame does.
    pub(crate) fn finish(&self) -> Result<(), &'static str> {
        if self.complete {
            Ok(())
        } else {
            Err("compressed record is not complete")
        }
    }
}
