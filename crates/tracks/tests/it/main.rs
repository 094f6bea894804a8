//! The tracking service from outside.
#![expect(clippy::unwrap_used, reason = "tests")]

mod check;
mod city;
mod dead_rows;
mod fences;
mod http;
mod import;
mod keep;
mod mqtt;
mod mqtt_failures;
mod one_place;
mod past;
mod queries;
mod replaced;
mod reports;
mod shapes;
mod world;
