//! The write path. Read [`pipeline`] first.

pub(crate) mod apply;
pub(crate) mod debt;
pub(crate) mod pace;
pub(crate) mod pending;
pub(crate) mod pipeline;
pub(crate) mod resume;
pub(crate) mod rotate;
pub(crate) mod submit;
