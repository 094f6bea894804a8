//! Memory whose address and length suit direct I/O.

/// A byte buffer whose address and capacity are multiples of an alignment.
#[derive(Debug)]
pub struct AlignedBuf;
