//! Makes checksums right again, so that a changed input gets behind them.

use base::checksum::{crc32c, mask};
use log::format::RecordType;

/// Bytes of a block of a log.
const BLOCK: usize = 32 << 10;
/// Bytes of a footer.
const FOOTER: usize = table::footer::LEN;

/// How notes and fences begin, and how long each is.
const STATEMENTS: [(&[u8; 8], usize); 4] = [
    (b"ISbegin1", 36),
    (b"ISbegin2", 44),
    (b"ISfence1", 44),
    (b"ISfence2", 52),
];

/// Gives each note and each fence its checksum, and the number of the log that it is in.
fn statements(bytes: &mut [u8], number: u32) {
    for at in 0..bytes.len() {
        let rest = &mut bytes[at..];
        if rest[0] != b'I' {
            continue;
        }
        for (magic, len) in STATEMENTS {
            if rest.starts_with(magic) && rest.len() >= len {
                rest[8..16].copy_from_slice(&u64::from(number).to_le_bytes());
                let crc = mask(crc32c(&rest[..len - 4]));
                rest[len - 4..len].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
}

/// Gives each record of a log, as its header says where it is, its checksum, and recyclable ones the
/// log's number, if that is given. Bytes that are no whole record are left alone.
pub fn log(bytes: &mut [u8], number: Option<u32>) {
    if let Some(number) = number {
        statements(bytes, number);
    }
    for block in bytes.chunks_mut(BLOCK) {
        let mut at = 0;
        while let Some(header) = block.get(at..at + 7) {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = RecordType(header[6]);
            let end = at + kind.header_len() + length;
            if kind == RecordType::ZERO || end > block.len() {
                break;
            }
            if let Some(number) = number.filter(|_| kind.is_recyclable()) {
                block[at + 7..at + 11].copy_from_slice(&number.to_le_bytes());
            }
            let crc = mask(crc32c(&block[at + 6..end]));
            block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            at = end;
        }
    }
}

/// Lets the footer say that the table has no checksums: then none is compared.
pub fn table(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(FOOTER) {
        bytes[at] = 0;
    }
}
