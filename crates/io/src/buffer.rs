//! Memory whose address and length suit direct I/O.
