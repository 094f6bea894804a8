//! The write path. Read [`pipeline`] first.

pub(crate) mod admit;
pub(crate) mod apply;
pub(crate) mod group;
pub(crate) mod order;
pub(crate) mod pending;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod rotate;
pub(crate) mod stall;
pub(crate) mod submit;
pub(crate) mod writes;
