//! The hot leaf functions, each by itself, and a whole put and get, for `cargo xtask counts` to count their instructions.
//!
//! ```text
//! counts             names and numbers of operations
//! counts features    what run-time dispatch finds: other counts come from another processor
//! counts NAME        runs one kernel
//! ```
//!
//! A kernel prepares its input, then does its operations in [`measured`]; Callgrind collects nothing
//! outside of that function. Each kernel runs in a process of its own, so that a new one changes
//! nothing for the others. Nothing here depends on time, addresses or the environment.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod bytes;
mod database;
mod inputs;
mod memory;
mod tables;

use std::process::ExitCode;

use base::Result;

/// A measured leaf function.
struct Kernel {
    name: &'static str,
    /// Number of operations in a run.
    operations: u64,
    run: fn(u64) -> Result<()>,
}

impl Kernel {
    const fn new(name: &'static str, operations: u64, run: fn(u64) -> Result<()>) -> Self {
        Self {
            name,
            operations,
            run,
        }
    }
}

/// Runs the counted work. Callgrind is given this function's name, so it must never be inlined into
/// another.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let done = work();
    // Keeps the call above from becoming a tail jump, at which Callgrind would stop collecting.
    std::hint::black_box(&done);
    done
}

fn kernels() -> impl Iterator<Item = &'static Kernel> {
    [
        bytes::KERNELS,
        memory::KERNELS,
        tables::KERNELS,
        database::KERNELS,
    ]
    .into_iter()
    .flatten()
}

fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        None => {
            for kernel in kernels() {
                println!("{}\t{}", kernel.name, kernel.operations);
            }
            Ok(())
        }
        Some("features") => {
            println!("{}", features());
            Ok(())
        }
        Some(name) => match kernels().find(|k| k.name == name) {
            Some(kernel) => (kernel.run)(kernel.operations).map_err(|e| e.to_string()),
            None => Err(format!("no kernel is called {name}")),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The architecture, and the processor extensions that our libraries test for.
fn features() -> String {
    let mut words = vec![std::env::consts::ARCH];
    #[cfg(target_arch = "x86_64")]
    for (name, there) in [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("pclmulqdq", std::is_x86_feature_detected!("pclmulqdq")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("bmi2", std::is_x86_feature_detected!("bmi2")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
    ] {
        if there {
            words.push(name);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs() {
        for kernel in kernels() {
            (kernel.run)(kernel.operations).unwrap();
            assert_eq!(kernel.operations % 100, 0, "{}", kernel.name);
        }
    }
}
