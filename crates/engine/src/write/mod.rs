//! The write path. Read [`pipeline`] first.

pub(crate) mod admit;
pub(crate) mod apply;
pub(crate) mod group;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod wal;
