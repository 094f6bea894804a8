//! RocksDB's log framing: 32 KiB blocks of records that never straddle a block.
//!
//! ```text
//! legacy      crc:u32  length:u16  type:u8                  payload[length]
//! recyclable  crc:u32  length:u16  type:u8  log_number:u32  payload[length]
//! ```
//!
//! Little-endian; the crc is masked CRC-32C over everything after `length`. A logical record that
//! fits the rest of the block is one FULL record; otherwise it is split into FIRST, MIDDLE…, LAST.
//! If fewer bytes than a header are left in a block, they are zero. The checksum does not cover the
//! length field: that is why a reader cannot step over a damaged record.
//!
//! In a recyclable log each record carries the low 32 bits of the log's number, so that records
//! left over from an earlier log in the same file are not taken for content. Legacy and recyclable
//! records are never mixed in one file: RocksDB since 9.7 loops for ever on a recyclable record
//! after a legacy one.
#![deny(clippy::indexing_slicing)]

use std::fmt;

use base::checksum::{crc32c, mask, unmask};
use base::coding::u32_at;
use base::{Error, Result};
use io::AlignedBuf;

/// Bytes of a block.
pub const BLOCK: usize = 32 * 1024;
/// Bytes of a legacy header.
pub const LEGACY_HEADER: usize = 7;
/// Bytes of a recyclable header.
pub const RECYCLABLE_HEADER: usize = 11;
/// Offset in a header of the first byte that the checksum covers.
const CRC_FROM: usize = 6;

/// The type byte of a physical record. Any byte is a valid value, also one that no version knows:
/// it is read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordType(pub u8);

/// Which part of a logical record a physical one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Full,
    /// Its beginning.
    First,
    /// Neither its beginning nor its end.
    Middle,
    /// Its end.
    Last,
}

impl RecordType {
    /// Never written; what zero-filled space looks like.
    pub const ZERO: Self = Self(0);
    /// A whole logical record.
    pub const FULL: Self = Self(1);
    /// The beginning of one.
    pub const FIRST: Self = Self(2);
    /// A part from the middle.
    pub const MIDDLE: Self = Self(3);
    /// The end of one.
    pub const LAST: Self = Self(4);
    /// [`Self::FULL`] with a log number.
    pub const RECYCLABLE_FULL: Self = Self(5);
    /// [`Self::FIRST`] with a log number.
    pub const RECYCLABLE_FIRST: Self = Self(6);
    /// [`Self::MIDDLE`] with a log number.
    pub const RECYCLABLE_MIDDLE: Self = Self(7);
    /// [`Self::LAST`] with a log number.
    pub const RECYCLABLE_LAST: Self = Self(8);
    /// The records that follow are compressed.
    pub const SET_COMPRESSION: Self = Self(9);
    /// Sizes of user timestamps by column family.
    pub const TIMESTAMP_SIZES: Self = Self(10);
    /// [`Self::TIMESTAMP_SIZES`] with a log number.
    pub const RECYCLABLE_TIMESTAMP_SIZES: Self = Self(11);
    /// Facts about the log before this one.
    pub const PREDECESSOR: Self = Self(130);
    /// [`Self::PREDECESSOR`] with a log number.
    pub const RECYCLABLE_PREDECESSOR: Self = Self(131);

    /// True if the header is the longer one.
    pub fn is_recyclable(self) -> bool {
        matches!(self.0, 5..=8 | 11 | 131)
    }

    /// Bytes of the header.
    pub fn header_len(self) -> usize {
        if self.is_recyclable() {
            RECYCLABLE_HEADER
        } else {
            LEGACY_HEADER
        }
    }

    /// True if a reader that does not know the type may step over the record.
    pub fn is_ignorable(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// Which part of a logical record it is; `None` for records about the log itself.
    pub fn fragment(self) -> Option<Fragment> {
        match self {
            Self::FULL | Self::RECYCLABLE_FULL => Some(Fragment::Full),
            Self::FIRST | Self::RECYCLABLE_FIRST => Some(Fragment::First),
            Self::MIDDLE | Self::RECYCLABLE_MIDDLE => Some(Fragment::Middle),
            Self::LAST | Self::RECYCLABLE_LAST => Some(Fragment::Last),
            _ => None,
        }
    }

    fn of(fragment: Fragment, recyclable: bool) -> Self {
        let legacy = match fragment {
            Fragment::Full => 1,
            Fragment::First => 2,
            Fragment::Middle => 3,
            Fragment::Last => 4,
        };
        Self(if recyclable { legacy + 4 } else { legacy })
    }
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "zero",
            1 => "full",
            2 => "first",
            3 => "middle",
            4 => "last",
            5 => "recyclable full",
            6 => "recyclable first",
            7 => "recyclable middle",
            8 => "recyclable last",
            9 => "set compression",
            10 => "timestamp sizes",
            11 => "recyclable timestamp sizes",
            130 => "predecessor",
            131 => "recyclable predecessor",
            n => return write!(f, "unknown ({n})"),
        })
    }
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The checksum, unmasked.
    pub crc: u32,
    /// Bytes of payload.
    pub length: u16,
    /// The type.
    pub kind: RecordType,
}

impl Header {
    /// Reads the seven bytes that every header has; `None` if there are fewer.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<LEGACY_HEADER>()?;
        let [c0, c1, c2, c3, l0, l1, kind] = *head;
        Some(Self {
            crc: unmask(u32::from_le_bytes([c0, c1, c2, c3])),
            length: u16::from_le_bytes([l0, l1]),
            kind: RecordType(kind),
        })
    }

    /// Bytes of header and payload together.
    pub fn record_len(self) -> usize {
        self.kind.header_len() + usize::from(self.length)
    }

    /// True if the record at the start of `bytes` has the checksum that its header states; false
    /// also if the record extends beyond `bytes`.
    pub fn crc_matches(self, bytes: &[u8]) -> bool {
        bytes
            .get(CRC_FROM..self.record_len())
            .is_some_and(|covered| crc32c(covered) == self.crc)
    }
}

/// The log number in a recyclable record at the start of `bytes`.
pub(crate) fn log_number_of(bytes: &[u8]) -> Option<u32> {
    u32_at(bytes, LEGACY_HEADER)
}

/// Cuts logical records into physical ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framer {
    /// `Some` makes recyclable records.
    pub(crate) log_number: Option<u32>,
    /// See [`crate::LogOptions::filler`].
    pub(crate) filler: Option<u8>,
    /// See [`crate::LogOptions::head_last`].
    pub(crate) sector: Option<u32>,
}

/// Bytes of the checksum with which a header begins.
pub(crate) const CRC: usize = 4;
/// The maximum number of bytes by which a record is lengthened.
const FILLER_MAX: usize = RECYCLABLE_HEADER;

impl Framer {
    pub(crate) fn header_len(self) -> usize {
        match self.log_number {
            None => LEGACY_HEADER,
            Some(_) => RECYCLABLE_HEADER,
        }
    }

    /// By how many bytes a record of `payload` bytes at `offset` must be lengthened so that the
    /// next one does not begin at a block boundary.
    fn spill(self, payload: usize, offset: u64) -> usize {
        let header = self.header_len();
        let mut room = BLOCK - (offset % BLOCK as u64) as usize;
        if room < header {
            room = BLOCK;
        }
        let mut left = payload;
        while left > room - header {
            left -= room - header;
            room = BLOCK;
        }
        let rest = room - header - left;
        if rest < header { rest + 1 } else { 0 }
    }

    /// Upper bound of the bytes that a record of `payload` bytes takes.
    fn bound(self, payload: usize) -> Option<usize> {
        let header = self.header_len();
        let fragments = (payload / (BLOCK - header) + 1) * 2;
        payload.checked_add(fragments.checked_mul(2 * header)?)
    }

    /// Appends the record that `parts` make up together to `out`, whose next byte will lie at
    /// `offset` of the file. An error leaves `out` as it was.
    pub(crate) fn frame(self, parts: &[&[u8]], offset: u64, out: &mut AlignedBuf) -> Result<()> {
        let payload: usize = parts.iter().map(|p| p.len()).sum();
        if let Some(byte) = self.filler {
            let spill = self.spill(payload, offset);
            if spill > 0 {
                let filler = [byte; FILLER_MAX];
                let filler = filler.get(..spill).ok_or_else(|| {
                    Error::broken(format!("a record was to be lengthened by {spill} bytes"))
                })?;
                let longer: Vec<&[u8]> = parts.iter().copied().chain([filler]).collect();
                return self.cut(&longer, payload + spill, offset, out);
            }
        }
        self.cut(parts, payload, offset, out)
    }

    /// The inverse of [`Framer::frame`]: extracts the logical records from `bytes`, which lie at
    /// `offset` of the file. `None` if `bytes` are not a sequence of whole records.
    pub(crate) fn unframe(self, offset: u64, bytes: &[u8], out: &mut Vec<Vec<u8>>) -> Option<()> {
        let mut at = 0;
        let mut record = Vec::new();
        while at < bytes.len() {
            let room = BLOCK - ((offset + at as u64) % BLOCK as u64) as usize;
            if room < self.header_len() {
                at += room;
                continue;
            }
            let rest = bytes.get(at..)?;
            let header = Header::decode(rest).filter(|h| h.crc_matches(rest))?;
            if header.kind == RecordType::SET_COMPRESSION {
                at += header.record_len();
                continue;
            }
            record.extend_from_slice(rest.get(self.header_len()..header.record_len())?);
            if matches!(header.kind.fragment()?, Fragment::Full | Fragment::Last) {
                out.push(std::mem::take(&mut record));
            }
            at += header.record_len();
        }
        record.is_empty().then_some(())
    }

    /// Whether a header at `offset` crosses the end of a sector that is not a block's end too.
    fn straddles(self, offset: u64) -> bool {
        let room = BLOCK - (offset % BLOCK as u64) as usize;
        self.sector.map(u64::from).is_some_and(|sector| {
            room >= self.header_len() && sector - offset % sector < self.header_len() as u64
        })
    }

    fn cut(self, parts: &[&[u8]], payload: usize, offset: u64, out: &mut AlignedBuf) -> Result<()> {
        let start = out.len();
        self.cut_pieces(parts, payload, usize::MAX, offset, out)?;
        // A header that straddles two sectors cannot be written atomically: more fragments move the
        // next header.
        for pieces in 2..=3 {
            let end = offset + (out.len() - start) as u64;
            if payload < pieces || !self.straddles(end) {
                break;
            }
            out.resize(start)?;
            self.cut_pieces(parts, payload, payload.div_ceil(pieces), offset, out)?;
        }
        Ok(())
    }

    /// [`Framer::frame`] for a compressed record. A fragment also ends where RocksDB's writer begins
    /// the next piece of its output: after every [`Framer::piece`] bytes of payload. RocksDB before 8
    /// mistakes a fragment for the one before it if their payloads lie at the same place in their
    /// blocks; these cuts keep the two at different places.
    pub(crate) fn frame_compressed(
        self,
        payload: &[u8],
        offset: u64,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        self.cut_pieces(&[payload], payload.len(), self.piece(), offset, out)
    }

    /// The bytes of payload after which a compressed record is split, wherever that is in a block.
    pub(crate) fn piece(self) -> usize {
        BLOCK - self.header_len()
    }

    /// By how many bytes, at least `least`, a compressed record of `payload` bytes at `offset` must be
    /// lengthened so that the next one does not begin at a block boundary; 0 if it need not be.
    pub(crate) fn spill_compressed(self, payload: usize, offset: u64, least: usize) -> usize {
        let room_behind = |payload| BLOCK - self.end_in_block(payload, offset);
        if room_behind(payload) >= self.header_len() {
            return 0;
        }
        let enough = |n: &usize| room_behind(payload + n) >= self.header_len();
        (least..=least + 2 * RECYCLABLE_HEADER)
            .find(enough)
            .unwrap_or(least)
    }

    /// The offset in its block where a compressed record ends, as [`Framer::cut_pieces`] splits it.
    fn end_in_block(self, payload: usize, offset: u64) -> usize {
        let (header, piece) = (self.header_len(), self.piece());
        let (mut left, mut piece_left) = (payload, piece);
        let mut at = (offset % BLOCK as u64) as usize;
        loop {
            if BLOCK - at < header {
                at = 0;
            }
            let n = left.min(BLOCK - at - header).min(piece_left);
            piece_left -= n;
            if piece_left == 0 {
                piece_left = piece;
            }
            at += header + n;
            left -= n;
            if left == 0 {
                return at;
            }
        }
    }

    /// Frames a record like [`Framer::cut`], but also ends a fragment after every `piece` bytes of payload.
    fn cut_pieces(
        self,
        parts: &[&[u8]],
        payload: usize,
        piece: usize,
        offset: u64,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        let mut left = payload;
        let Some(bound) = self.bound(left) else {
            return Err(Error::invalid_argument("log record too large"));
        };
        out.reserve(bound)?;
        let mut parts = Parts { parts, at: 0 };
        let mut in_block = (offset % BLOCK as u64) as usize;
        let mut first = true;
        let mut piece_left = piece;
        loop {
            let mut room = BLOCK - in_block;
            if room < self.header_len() {
                out.resize(out.len() + room)?;
                room = BLOCK;
                in_block = 0;
            }
            let n = left.min(room - self.header_len()).min(piece_left);
            piece_left -= n;
            if piece_left == 0 {
                piece_left = piece;
            }
            let fragment = match (first, n == left) {
                (true, true) => Fragment::Full,
                (true, false) => Fragment::First,
                (false, false) => Fragment::Middle,
                (false, true) => Fragment::Last,
            };
            self.emit(fragment, n, &mut parts, out)?;
            left -= n;
            if left == 0 && matches!(fragment, Fragment::Full | Fragment::Last) {
                return Ok(());
            }
            in_block += self.header_len() + n;
            first = false;
        }
    }

    /// Appends one physical record with the next `n` bytes.
    #[inline]
    fn emit(
        self,
        fragment: Fragment,
        n: usize,
        parts: &mut Parts<'_>,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        let start = out.len();
        let kind = RecordType::of(fragment, self.log_number.is_some());
        let [l0, l1, ..] = n.to_le_bytes();
        let head = [0, 0, 0, 0, l0, l1, kind.0];
        out.extend_from_slice(&head)?;
        if let Some(log_number) = self.log_number {
            out.extend_from_slice(&log_number.to_le_bytes())?;
        }
        parts.move_to(out, n)?;
        // Type, log number and payload lie side by side: one pass, no copy.
        let framed = out.get_mut(start..);
        let Some((head, covered)) = framed.and_then(<[u8]>::split_first_chunk_mut::<CRC_FROM>)
        else {
            return Err(Error::broken("a record that was framed is gone"));
        };
        let (place, _) = head.split_at_mut(CRC);
        place.copy_from_slice(&mask(crc32c(covered)).to_le_bytes());
        Ok(())
    }
}

/// A cursor over slices.
struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes of the first part that are used up.
    at: usize,
}

impl Parts<'_> {
    #[inline]
    fn move_to(&mut self, out: &mut AlignedBuf, mut n: usize) -> Result<()> {
        while n > 0 {
            let available = self.parts.split_first();
            let available = available.and_then(|(part, rest)| Some((part.get(self.at..)?, rest)));
            let Some((available, rest)) = available else {
                return Err(Error::broken("the parts of a record have other lengths"));
            };
            let piece = available.get(..n).unwrap_or(available);
            out.extend_from_slice(piece)?;
            n -= piece.len();
            if piece.len() == available.len() {
                self.parts = rest;
                self.at = 0;
            } else {
                self.at += piece.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;

    fn framed(recyclable: bool, records: &[&[u8]]) -> Vec<u8> {
        let framer = Framer {
            log_number: recyclable.then_some(4),
            filler: None,
            sector: None,
        };
        let mut out = AlignedBuf::new(1);
        for r in records {
            framer.frame(&[r], out.len() as u64, &mut out).unwrap();
        }
        out.to_vec()
    }

    fn kinds(bytes: &[u8]) -> Vec<(usize, u8, u16)> {
        let (mut at, mut out) = (0, Vec::new());
        while at < bytes.len() {
            if BLOCK - at % BLOCK < LEGACY_HEADER {
                at = at.next_multiple_of(BLOCK);
                continue;
            }
            let h = Header::decode(&bytes[at..]).unwrap();
            assert!(h.crc_matches(&bytes[at..]));
            out.push((at, h.kind.0, h.length));
            at += h.record_len();
        }
        out
    }

    #[test]
    fn fragments_at_block_boundaries() {
        // Exactly one block, one byte more, and a header that just fits.
        let a = vec![1; BLOCK - 7];
        assert_eq!(kinds(&framed(false, &[&a])), [(0, 1, 32761)]);
        let a = vec![1; BLOCK - 6];
        assert_eq!(kinds(&framed(false, &[&a])), [(0, 2, 32761), (BLOCK, 4, 1)]);
        let a = vec![1; BLOCK - 14];
        assert_eq!(
            kinds(&framed(false, &[&a, b"xy"])),
            [(0, 1, 32754), (BLOCK - 7, 2, 0), (BLOCK, 4, 2)]
        );
        // An empty record fits where a header does.
        assert_eq!(
            kinds(&framed(false, &[&a, b""])),
            [(0, 1, 32754), (BLOCK - 7, 1, 0)]
        );
        // Six bytes left: zeros.
        let a = vec![1; BLOCK - 13];
        let f = framed(false, &[&a, b"xy"]);
        assert_eq!(&f[BLOCK - 6..BLOCK], &[0; 6]);
        assert_eq!(kinds(&f), [(0, 1, 32755), (BLOCK, 1, 2)]);
        // A recyclable header does not fit into ten bytes.
        let a = vec![1; BLOCK - 21];
        let f = framed(true, &[&a, b"xy"]);
        assert_eq!(&f[BLOCK - 10..BLOCK], &[0; 10]);
        assert_eq!(f[BLOCK + 6], 5);
    }

    #[test]
    fn with_a_filler_no_record_begins_at_a_block_boundary() {
        for log_number in [None, Some(4)] {
            let framer = Framer {
                log_number,
                filler: Some(0x0d),
                sector: None,
            };
            for size in (BLOCK - 60..BLOCK + 60).chain(2 * BLOCK - 60..2 * BLOCK + 60) {
                let mut out = AlignedBuf::new(1);
                let record = vec![1; size];
                framer.frame(&[&record], 0, &mut out).unwrap();
                let next = BLOCK - out.len() % BLOCK;
                assert!(
                    next < BLOCK && next >= framer.header_len(),
                    "{size}: {next}"
                );
                let payload: usize = kinds(&out).iter().map(|(_, _, n)| usize::from(*n)).sum();
                assert!(payload - size <= FILLER_MAX, "{size}");
            }
        }
    }

    #[test]
    fn parts_make_the_record_that_their_concatenation_makes() {
        let all: Vec<u8> = (0..70_000u32).map(|i| i as u8).collect();
        let mut whole = AlignedBuf::new(1);
        let mut cut = AlignedBuf::new(1);
        let framer = Framer {
            log_number: None,
            filler: None,
            sector: None,
        };
        framer.frame(&[&all], 100, &mut whole).unwrap();
        let parts = [&all[..1], &[], &all[1..40_000], &all[40_000..]];
        framer.frame(&parts, 100, &mut cut).unwrap();
        assert_eq!(&whole[..], &cut[..]);
    }
}
