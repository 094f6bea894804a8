//! Tests of the engine through its public API.

mod smoke;
mod writes;
