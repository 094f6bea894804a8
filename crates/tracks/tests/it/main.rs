//! The tracking service from outside.

mod queries;
mod reports;
mod world;
