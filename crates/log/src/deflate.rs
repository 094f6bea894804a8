//! Compresses WAL records as RocksDB does (`wal_compression = zstd`).
//!
//! ```text
//!   file     set-compression record, 11 bytes, at offset 0      masked crc | 4 | 9 | u32 7
//!            record, record, …                                  legacy or recyclable, as always
//!   payload  zstd frame [zstd frame …]                          together: the record's content
//! ```
//!
//! Each logical record is compressed on its own, so that a damaged record does not affect others.
//! Where its frames are split into fragments matters only to old releases of RocksDB
//! ([`Framer::frame_compressed`]). Measured with RocksDB 7.8.3 and 11.8.1: frames contain their
//! content's size and checksum, and the level is 3; and **a record may be several frames, one after
//! the other**, which both releases decompress to the concatenated content. That is how bytes that
//! must stay findable, or must have an exact length, are put into a compressed log:
//! [`Deflate::stored`] makes a frame with a single raw block, which holds the bytes unchanged. A sync
//! fence in such a frame is found by its magic as in any log, and a filler of no-ops lengthens a
//! record by its own length plus [`STORED_OVERHEAD`]. For RocksDB, a record that is not compressed at
//! all silently ends the log, in every recovery mode.
//!
//! Recyclable records may be compressed too; even then the set-compression record has the short
//! header, without a log number.
//!
//! [`Framer::frame_compressed`]: crate::format::Framer::frame_compressed
#![deny(clippy::indexing_slicing)]

use base::checksum::{crc32c, mask};
use base::{Error, ErrorKind, Result};
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

use crate::format::{LEGACY_HEADER, RecordType};
use crate::inflate::ZSTD;

/// RocksDB's level.
const LEVEL: i32 = 3;
/// Bytes of the set-compression record.
const START_LEN: usize = LEGACY_HEADER + 4;
/// Bytes by which a stored frame is longer than its content.
pub(crate) const STORED_OVERHEAD: usize = 9;
/// Maximum content of a stored frame in bytes: its size field is one byte.
pub(crate) const STORED_MAX: usize = 255;
/// Bytes by which a long stored frame is longer than its content.
pub(crate) const STORED_LONG_OVERHEAD: usize = 12;

/// Compresses one record after the other.
pub(crate) struct Deflate {
    encoder: Encoder<'static>,
    chunk: Vec<u8>,
}

impl std::fmt::Debug for Deflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflate").finish_non_exhaustive()
    }
}

fn failed(what: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::IoError, format!("zstd: {what}")).because(e)
}

impl Deflate {
    /// Errors: no memory.
    pub(crate) fn new() -> Result<Self> {
        let mut encoder = Encoder::new(LEVEL).map_err(|e| failed("no encoder", e))?;
        encoder
            .set_parameter(CParameter::ChecksumFlag(true))
            .map_err(|e| failed("no checksums", e))?;
        Ok(Self {
            encoder,
            chunk: vec![0; 32 << 10],
        })
    }

    /// The whole physical record, header included, with which a compressed log begins.
    pub(crate) fn start_record() -> [u8; START_LEN] {
        let kind = RecordType::SET_COMPRESSION.0;
        let [a, b, c, d] = ZSTD.to_le_bytes();
        let [e, f, g, h] = mask(crc32c(&[kind, a, b, c, d])).to_le_bytes();
        [e, f, g, h, 4, 0, kind, a, b, c, d]
    }

    /// Appends the frame of the record that `parts` make up together to `out`. An error leaves
    /// `out` as it was.
    pub(crate) fn compress(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let result = self.frame(parts, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn frame(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<()> {
        let size: usize = parts.iter().map(|p| p.len()).sum();
        let reset = |e| failed("the encoder cannot be reset", e);
        self.encoder.reinit().map_err(reset)?;
        self.encoder
            .set_pledged_src_size(Some(size as u64))
            .map_err(reset)?;
        for part in parts {
            let mut input = InBuffer::around(part);
            while input.pos() < part.len() {
                let mut output = OutBuffer::around(self.chunk.as_mut_slice());
                self.encoder
                    .run(&mut input, &mut output)
                    .map_err(|e| failed("a record cannot be compressed", e))?;
                append(out, output.as_slice())?;
            }
        }
        loop {
            let mut output = OutBuffer::around(self.chunk.as_mut_slice());
            let left = self
                .encoder
                .finish(&mut output, true)
                .map_err(|e| failed("a record cannot be compressed", e))?;
            append(out, output.as_slice())?;
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Appends a frame that holds `content`, at most [`STORED_MAX`] bytes, uncompressed.
    ///
    /// # Panics
    /// If `content` is longer.
    pub(crate) fn stored(content: &[u8], out: &mut Vec<u8>) {
        // Magic; "single segment, the content's size in one byte"; the size; the header of a block
        // that is the last (1) and raw (type 0).
        let size = u8::try_from(content.len()).unwrap_or_else(|_| panic!("stored frame too long"));
        let [a, b, c, _] = (u32::from(size) << 3 | 1).to_le_bytes();
        out.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0x20, size, a, b, c]);
        out.extend_from_slice(content);
    }

    /// Like [`Deflate::stored`], for up to 128 KiB, a zstd block: the size field is four bytes.
    ///
    /// # Panics
    /// If `content` is longer.
    pub(crate) fn stored_long(content: &[u8], out: &mut Vec<u8>) {
        let size = content.len() as u32;
        assert!(content.len() <= 128 << 10, "stored frame too long");
        let [a, b, c, _] = (size << 3 | 1).to_le_bytes();
        out.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0]);
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&[a, b, c]);
        out.extend_from_slice(content);
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    out.try_reserve(bytes.len())
        .map_err(|e| failed("no memory for a compressed record", e))?;
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use io::posix::Posix;
    use io::{AlignedBuf, FileSystem, OpenHow};

    use super::*;
    use crate::fence::Fence;
    use crate::format::{BLOCK, Framer};
    use crate::{Reader, ReaderOptions, RecoveryMode};

    /// Bytes that do not compress.
    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let step = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..len).map(step).collect()
    }

    /// A batch that puts one key; the value's length is a two-byte varint or longer.
    fn batch(sequence: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = sequence.to_le_bytes().to_vec();
        out.extend([1, 0, 0, 0, 1]);
        base::coding::put_slice(&mut out, key);
        base::coding::put_slice(&mut out, value);
        out
    }

    const FENCE: Fence = Fence {
        log_number: 4,
        durable: 99,
        previous_log: 0,
        previous_end: 0,
        nonce: 5,
    };

    /// The batches of the log in tests/data, whose keys say what they are.
    fn batches() -> Vec<Vec<u8>> {
        vec![
            batch(1, b"small", b"value"),
            batch(2, b"text", &b"compressible ".repeat(20_000)),
            batch(3, b"noise", &noise(70_000, 3)),
            batch(4, b"fenced", b"with a stored frame behind it"),
            batch(5, b"filled", b"with a stored frame of no-ops"),
            batch(6, b"both", &noise(300, 4)),
            batch(7, b"last", b"value"),
        ]
    }

    /// The stored frames that are appended to record `i`.
    fn behind(i: usize) -> Vec<Vec<u8>> {
        let fence = [&[3, crate::fence::LEN as u8][..], &FENCE.encode()].concat();
        match i {
            3 => vec![fence],
            4 => vec![vec![0x0d; 3]],
            5 => vec![fence, vec![0x0d; 11], Vec::new()],
            _ => Vec::new(),
        }
    }

    fn log(recyclable: bool) -> Vec<u8> {
        let framer = Framer {
            log_number: recyclable.then_some(4),
            filler: None,
            sector: None,
        };
        let mut deflate = Deflate::new().unwrap();
        let mut out = AlignedBuf::new(1);
        out.extend_from_slice(&Deflate::start_record()).unwrap();
        for (i, record) in batches().iter().enumerate() {
            let (head, tail) = record.split_at(record.len() / 3);
            let mut payload = Vec::new();
            deflate.compress(&[head, &[], tail], &mut payload).unwrap();
            for stored in behind(i) {
                Deflate::stored(&stored, &mut payload);
            }
            let at = out.len() as u64;
            framer.frame_compressed(&payload, at, &mut out).unwrap();
        }
        out.to_vec()
    }

    #[test]
    fn the_reader_reads_what_was_compressed() {
        for recyclable in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let file = Posix
                .open(&dir.path().join("000004.log"), OpenHow::CREATE_NEW)
                .unwrap();
            let bytes = log(recyclable);
            assert!(
                bytes.len() > 2 * BLOCK && bytes.len() < 80_000,
                "{}",
                bytes.len()
            );
            io::write_all_at(&*file, &bytes, 0, io::WriteSync::None).unwrap();
            let options = ReaderOptions {
                mode: RecoveryMode::AbsoluteConsistency,
                fences: true,
            };
            let mut reader = Reader::new(Arc::clone(&file), 4, options);
            let mut record = Vec::new();
            for (i, expected) in batches().iter().enumerate() {
                assert!(reader.read(&mut record).unwrap());
                assert_eq!(record, [expected.clone(), behind(i).concat()].concat());
            }
            assert!(!reader.read(&mut record).unwrap());
            let found = crate::fence::strongest(&file, 4, 0, crate::Trust::Nonce(5)).unwrap();
            assert_eq!(found, Some(FENCE), "fences are found without decompression");
        }
    }

    #[test]
    fn frames_are_those_of_rocksdb() {
        // The first record of a log of RocksDB 7.8.3: sequence 1, one key.
        let mut frame = Vec::new();
        let mut deflate = Deflate::new().unwrap();
        for _ in 0..2 {
            frame.clear();
            deflate
                .compress(&[b"some ", b"content"], &mut frame)
                .unwrap();
        }
        // Magic; single segment with a checksum; 12 bytes.
        assert!(frame.starts_with(&[0x28, 0xb5, 0x2f, 0xfd, 0x24, 12]));
        assert_eq!(zstd::decode_all(&frame[..]).unwrap(), b"some content");
        let start: [u8; 11] = [0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let ours = Deflate::start_record();
        assert_eq!(ours[4..], [4, 0, 9, start[0], 0, 0, 0]);
    }

    #[test]
    fn stored_frames_have_the_length_that_is_said() {
        for n in [0, 1, 44, STORED_MAX] {
            let (content, mut frame) = (noise(n, 1), Vec::new());
            Deflate::stored(&content, &mut frame);
            assert_eq!(frame.len(), n + STORED_OVERHEAD);
            assert_eq!(zstd::decode_all(&frame[..]).unwrap(), content);
        }
        for n in [0, 12, 300, 70_000, 128 << 10] {
            let (content, mut frame) = (noise(n, 1), Vec::new());
            Deflate::stored_long(&content, &mut frame);
            assert_eq!(frame.len(), n + STORED_LONG_OVERHEAD);
            assert_eq!(zstd::decode_all(&frame[..]).unwrap(), content);
        }
    }

    /// Real RocksDB opens these logs (`crates/tools/tests/it/compressed_log.rs`).
    #[test]
    fn the_logs_for_rocksdb_are_what_is_written_today() {
        let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
        for (name, recyclable) in [
            ("compressed.log", false),
            ("compressed-recyclable.log", true),
        ] {
            let path = dir.join(name);
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                std::fs::write(&path, log(recyclable)).unwrap();
            }
            let golden = std::fs::read(&path).unwrap();
            assert!(
                golden == log(recyclable),
                "{name}: run with UPDATE_EXPECT=1"
            );
        }
    }
}
