//! The rules for a MANIFEST: a torn tail is ignored, all other damage is Corruption.
//!
//! The length field of a record is not covered by its checksum. So if a reader treated every record
//! that extends beyond the end of the file as a torn tail, one flipped bit could make it drop the rest
//! of the MANIFEST, and with it the database. (RocksDB 7.8.3 opens an empty database for 10 of 1440
//! flips.) So a tail counts as torn only where a crash can have caused it:
//!
//! - **cut by the end of the file**: the header, or the body as long as the header says, is not
//!   there in full, and no other length makes the record whole (below);
//! - **zeros to the end of the file**, starting at a record's start or at a sector boundary inside
//!   a record: the device wrote only the sectors before;
//! - **a sector of zeros in the last record**, with later sectors written: a device may write the
//!   sectors of one write in any order. No valid record may begin behind;
//! - **length and type zero in the last record's header**: it is written last
//!   ([`LogOptions::head_last`](crate::LogOptions::head_last)). No valid record may begin behind.
//!
//! A record that is complete but has a wrong checksum is damage, even if it is the last one: it was
//! written in full, and a torn write would have left a cut or zeros.
//!
//! Even where a torn write is possible, a flipped bit may be the better explanation. The record counts
//! as damaged if flipping one bit of it makes it valid (true for a torn record with probability below
//! 2^-14), or, for a record cut by the end of the file, if the checksum matches a shorter payload
//! behind which the file continues like a log.
#![deny(clippy::indexing_slicing)]

use base::Result;
use base::checksum::{crc32c, mask};
use io::{AlignedBuf, File, buffer};

use crate::format::{BLOCK, CRC, Fragment, Header, LEGACY_HEADER, RecordType};
use crate::physical::Found;
use crate::reader::{Partial, Reader};

/// Smallest unit in bytes that a device writes.
const SECTOR: u64 = 512;

impl Reader {
    /// The next logical record under the strict rules.
    pub(crate) fn read_strict(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let mut partial = Partial::default();
        loop {
            match self.blocks.next()? {
                Found::Record {
                    offset,
                    kind,
                    payload,
                } => {
                    let fragment = self.strict_fragment(offset, kind, &partial)?;
                    if matches!(fragment, Fragment::Full | Fragment::First) {
                        out.clear();
                        partial = Partial::at(offset);
                    }
                    partial.bytes += payload.len() as u64;
                    out.extend_from_slice(self.blocks.bytes(payload));
                    if matches!(fragment, Fragment::Full | Fragment::Last) {
                        self.accept(partial.offset);
                        return Ok(true);
                    }
                }
                Found::End => {
                    self.finish(partial.open.then_some("the last record is cut off"))?;
                    return Ok(false);
                }
                other => {
                    let torn = self.judge(&other)?;
                    self.zeros = true;
                    let torn = torn.or(partial.open.then_some("the last record is cut off"));
                    self.finish(torn)?;
                    return Ok(false);
                }
            }
        }
    }

    /// The fragment type of a record. Errors: such a record is not allowed at this place.
    fn strict_fragment(
        &self,
        offset: u64,
        kind: RecordType,
        partial: &Partial,
    ) -> Result<Fragment> {
        let fragment = match kind {
            RecordType::FULL => Fragment::Full,
            RecordType::FIRST => Fragment::First,
            RecordType::MIDDLE => Fragment::Middle,
            RecordType::LAST => Fragment::Last,
            _ => {
                return Err(self.corruption(
                    offset,
                    &format!("a record of type {kind} does not belong in a MANIFEST"),
                ));
            }
        };
        let begins = matches!(fragment, Fragment::Full | Fragment::First);
        if begins && partial.has_bytes() {
            return Err(self.corruption(partial.offset, "partial record without end"));
        }
        if !begins && !partial.open {
            return Err(self.corruption(offset, "fragment without the start of its record"));
        }
        Ok(fragment)
    }

    /// Classifies a place without a valid record: `Ok(Some(reason))` for a torn record, `Ok(None)` for
    /// nothing but zeros, Corruption for damage.
    fn judge(&self, found: &Found) -> Result<Option<&'static str>> {
        let judged = self.judge_in_order(found);
        let (
            Err(_),
            Found::Zeros { offset, .. }
            | Found::BadLength { offset, .. }
            | Found::BadCrc { offset, .. },
        ) = (&judged, found)
        else {
            return judged;
        };
        if lacks_sectors(&**self.blocks.file(), *offset)? {
            return Ok(Some("sectors of the last record are missing"));
        }
        judged
    }

    /// Like [`Reader::judge`], assuming a device that writes sectors in order.
    fn judge_in_order(&self, found: &Found) -> Result<Option<&'static str>> {
        let file = &**self.blocks.file();
        match *found {
            // Old records are recognized by their log number, which a MANIFEST's records do not have.
            Found::Record { .. } | Found::End | Found::OldRecord { .. } => Ok(None),
            Found::DirtyTrailer { offset } => {
                Err(self.corruption(offset, "bytes after the last record of a block"))
            }
            Found::ShortHeader { offset, .. } => {
                let zeros = zeros_from(file, offset)? <= offset;
                Ok((!zeros).then_some("truncated header"))
            }
            Found::Zeros { offset, .. } => {
                let zeros_from = zeros_from(file, offset)?;
                if zeros_from <= offset {
                    return Ok(None);
                }
                let image = image(file, offset)?;
                if zeros_from > offset + LEGACY_HEADER as u64 {
                    return Err(self.corruption(offset, "zeros followed by data"));
                }
                if one_bit_off(&image) {
                    return Err(self.corruption(offset, "damaged record header"));
                }
                Ok(Some("the last record is torn inside its header"))
            }
            Found::BadLength { offset, header, .. } => self.judge_length(file, offset, header),
            Found::BadCrc { offset, header, .. } => {
                let end = offset + (LEGACY_HEADER + usize::from(header.length)) as u64;
                let sector = zeros_from(file, offset)?.next_multiple_of(SECTOR);
                if offset < sector && sector < end {
                    let image = image(file, offset)?;
                    if can_be_torn(&image) && !one_bit_off(&image) {
                        return Ok(Some("the last record is torn"));
                    }
                }
                Err(self.corruption(offset, "checksum mismatch"))
            }
        }
    }

    /// Classifies a record that extends beyond the end of its block or of the file.
    fn judge_length(
        &self,
        file: &dyn File,
        offset: u64,
        header: Header,
    ) -> Result<Option<&'static str>> {
        let in_block = (offset % BLOCK as u64) as usize;
        if in_block + LEGACY_HEADER + usize::from(header.length) > BLOCK {
            return Err(self.corruption(offset, "the record's length does not fit its block"));
        }
        let image = image(file, offset)?;
        if !can_be_torn(&image) {
            return Err(self.corruption(offset, "bytes that are not a record"));
        }
        if one_bit_off(&image) || whole_at_shorter_length(&image) {
            return Err(self.corruption(
                offset,
                &format!(
                    "damaged record header: the length {} is not the one that was written",
                    header.length
                ),
            ));
        }
        Ok(Some("truncated record body"))
    }
}

/// The bytes from `offset` to the end of its block, or of the file.
fn image(file: &dyn File, offset: u64) -> Result<Vec<u8>> {
    let mut image = vec![0; BLOCK - (offset % BLOCK as u64) as usize];
    let n = file.read_at(&mut image, offset)?;
    image.truncate(n);
    Ok(image)
}

/// A bad place belongs to the last record only if at most this many bytes follow: no edit is larger.
const LAST_RECORD_MAX: u64 = 16 << 10;

/// True if the record at `offset` is the last one, and looks as if its header or some of its sectors
/// were never written: those bytes are zero, and no valid record begins behind.
fn lacks_sectors(file: &dyn File, offset: u64) -> Result<bool> {
    let len = file.len()?;
    if len.saturating_sub(offset) > LAST_RECORD_MAX {
        return Ok(false);
    }
    let mut bytes = vec![0; len.saturating_sub(offset) as usize];
    let n = file.read_at(&mut bytes, offset)?;
    bytes.truncate(n);
    let to_boundary = (SECTOR - offset % SECTOR) as usize;
    let (head, rest) = bytes.split_at(to_boundary.min(n));
    let zero = |piece: &[u8]| piece.iter().all(|&b| b == 0);
    // A group's first header is written last; its last bytes are length and type.
    let headless = bytes.get(CRC..LEGACY_HEADER).is_some_and(zero);
    let missing = headless || zero(head) || rest.chunks(SECTOR as usize).any(zero);
    Ok(missing && !one_bit_off(&image(file, offset)?) && !begins_a_record(&bytes, offset))
}

/// True if a valid record begins in `bytes`, which lie at `offset`, anywhere but at their first byte.
fn begins_a_record(bytes: &[u8], offset: u64) -> bool {
    (1..bytes.len()).any(|at| {
        let in_block = ((offset + at as u64) % BLOCK as u64) as usize;
        let rest = bytes.get(at..).unwrap_or_default();
        let rest = rest.get(..BLOCK - in_block).unwrap_or(rest);
        Header::decode(rest).is_some_and(|h| {
            matches!(h.kind, RecordType::FULL | RecordType::FIRST) && h.crc_matches(rest)
        })
    })
}

/// The smallest offset, at least `from`, from which the file holds only zeros; the file's length if
/// its last byte is not zero.
fn zeros_from(file: &dyn File, from: u64) -> Result<u64> {
    let mut buf = AlignedBuf::zeroed(8 * BLOCK, buffer::PAGE)?;
    let (mut at, mut zeros_from) = (from, from);
    loop {
        let n = file.read_at(&mut buf, at)?;
        let read = buf.get(..n).unwrap_or_default();
        if let Some(last) = read.iter().rposition(|&b| b != 0) {
            zeros_from = at + last as u64 + 1;
        }
        at += n as u64;
        if n < buf.len() {
            return Ok(zeros_from);
        }
    }
}

/// Update of the CRC register for one byte, for the reflected polynomial 0x82f63b78.
const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut c, mut bit) = (i as u32, 0);
        while bit < 8 {
            c = (c >> 1) ^ (0x82f6_3b78 * (c & 1));
            bit += 1;
        }
        #[expect(clippy::indexing_slicing, reason = "constant evaluation, and i < 256")]
        {
            table[i] = c;
        }
        i += 1;
    }
    table
};

fn crc_step(register: u32, byte: u8) -> u32 {
    let i = (register as u8 ^ byte) as usize;
    (register >> 8) ^ CRC_TABLE.get(i).copied().unwrap_or(0)
}

/// True if the header at the start of `image` is one that a writer writes, or if only its bytes
/// before the type were written.
fn can_be_torn(image: &[u8]) -> bool {
    Header::decode(image).is_some_and(|h| match h.kind {
        RecordType::ZERO => image.iter().skip(6).all(|&b| b == 0),
        kind => is_manifest_type(kind),
    })
}

fn is_manifest_type(kind: RecordType) -> bool {
    (RecordType::FULL..=RecordType::LAST).contains(&kind)
}

/// True if flipping one bit of the record at the start of `image` makes it valid.
fn one_bit_off(image: &[u8]) -> bool {
    let Some(header) = Header::decode(image) else {
        return false;
    };
    let crc_for = |length: usize| {
        image
            .get(6..LEGACY_HEADER + length)
            .map(|covered| (covered, crc32c(covered)))
    };
    // In the length.
    let length = usize::from(header.length);
    let flipped_length =
        (0..16).any(|bit| crc_for(length ^ (1 << bit)).is_some_and(|(_, crc)| crc == header.crc));
    let Some((covered, crc)) = crc_for(length) else {
        return flipped_length;
    };
    // In the stored checksum.
    let flipped_crc = (mask(crc) ^ mask(header.crc)).is_power_of_two();
    flipped_length || flipped_crc || one_payload_bit_off(covered.len(), crc ^ header.crc)
}

/// True if flipping some bit among `n` bytes changes their CRC by `difference`. A CRC is linear: the
/// change depends only on the flipped bit and on how many bytes follow it.
fn one_payload_bit_off(n: usize, difference: u32) -> bool {
    let mut effects: [u32; 8] = std::array::from_fn(|bit| crc_step(0, 1 << bit));
    for _ in 0..n {
        if effects.contains(&difference) {
            return true;
        }
        effects = effects.map(|e| crc_step(e, 0));
    }
    false
}

/// True if the record at the start of `image`, which is cut off at its stated length, is valid with
/// a shorter length and is then followed by the end, by zeros, or by another valid record.
fn whole_at_shorter_length(image: &[u8]) -> bool {
    let Some(header) = Header::decode(image) else {
        return false;
    };
    let mut register = !0;
    for (at, &byte) in image.iter().enumerate().skip(6) {
        register = crc_step(register, byte);
        let rest = image.get(at + 1..).unwrap_or_default();
        if !register == header.crc && goes_on_as_a_log(rest) {
            return true;
        }
    }
    false
}

fn goes_on_as_a_log(rest: &[u8]) -> bool {
    rest.iter().all(|&b| b == 0)
        || Header::decode(rest).is_some_and(|h| is_manifest_type(h.kind) && h.crc_matches(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_steps_as_the_library_does() {
        let data: Vec<u8> = (0..100).collect();
        let register = data.iter().fold(!0, |r, &b| crc_step(r, b));
        assert_eq!(!register, crc32c(&data));
    }

    #[test]
    fn every_flipped_payload_bit_is_recognized() {
        let data: Vec<u8> = (0..50u8).map(|i| i.wrapping_mul(77)).collect();
        let crc = crc32c(&data);
        for bit in 0..data.len() * 8 {
            let mut flipped = data.clone();
            *flipped.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
            assert!(one_payload_bit_off(data.len(), crc ^ crc32c(&flipped)));
        }
        assert!(!one_payload_bit_off(data.len(), 0x1234_5678));
    }
}
