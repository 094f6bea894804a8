//! Reusable memory: for incoming payloads, and for blocks that stay.
//!
//! | module | what it has |
//! |---|---|
//! | [`buffers`] | buffers of large payloads |
//! | [`slab`] | place for payloads that come, small and large |
//! | [`pages`] | pages of blocks that stay |

pub mod buffers;
pub mod pages;
pub mod slab;
