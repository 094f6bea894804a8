//! Blocks of a fixed size on disk that identify and check themselves: magic, checksum, content.
//!
//! ```text
//!   0+4 magic   4+4 CRC-32C of the rest   8… what it holds, zeros to the end
//! ```

use base::checksum::crc32c;
use base::coding::Decoder;
use base::{Error, Result};

/// Bytes of a block.
pub(crate) const LEN: usize = 4096;
/// Offset of the first byte that the crc covers.
pub(crate) const COVERED: usize = 8;

/// The block with the content `body`, which must fit.
pub(crate) fn seal(magic: [u8; 4], mut body: Vec<u8>) -> Vec<u8> {
    base::invariant!(body.len() <= LEN - COVERED);
    body.resize(LEN - COVERED, 0);
    [&magic[..], &crc32c(&body).to_le_bytes(), &body].concat()
}

/// The hint for files of a newer release. Versions are checked before anything in a store is changed.
pub(crate) const NEWER: &str =
    "a newer release wrote it: start that one; the store was not changed";

/// The error for a version that this release does not know.
pub(crate) fn unknown_version(what: &str, version: u32, known: u32) -> Error {
    let what = format!("{what} of version {version}: this release knows {known}");
    Error::not_supported(what).hint(NEWER)
}

/// The content of a block. Errors: Corruption; `what` names the block in the message.
pub(crate) fn open<'a>(bytes: &'a [u8], magic: [u8; 4], what: &str) -> Result<Decoder<'a>> {
    let bad = |why: &str| Err(Error::corruption(format!("{what}: {why}")));
    let Some((block, _)) = bytes.split_first_chunk::<LEN>() else {
        return bad("the file is shorter");
    };
    let mut d = Decoder::new(block);
    if d.bytes(magic.len()) != Some(&magic) {
        return bad("no magic");
    }
    let crc = d.u32();
    if crc != Some(crc32c(d.rest())) {
        return bad("checksum mismatch");
    }
    Ok(d)
}
