//! db_bench's benchmarks on other engines written in Rust: fjall, redb, LMDB (through heed), surrealkv.
//!
//! Keys and their order are those of db_bench with the same seed, and so is the result line, so that
//! `cargo xtask bench --peers` reads both alike. Each put is a transaction of its own where an engine
//! has transactions; the gets of a benchmark share one. Without sync a put may be lost with the
//! machine, as far as an engine offers that.

mod engine;
mod fjall;
mod lmdb;
mod redb;
mod surrealkv;

use std::path::PathBuf;
use std::process::ExitCode;

use base::clock::SystemClock;
use base::rng::Rng;
use clap::Parser;
use engine::{Engine, Result};

/// Bytes of a key.
const KEY_SIZE: usize = 16;

/// The flags of db_bench that mean something here.
#[derive(Parser)]
#[command(rename_all = "snake_case")]
struct Flags {
    /// fjall, redb, lmdb or surrealkv
    #[arg(long)]
    engine: String,
    /// The directory of the database, which is removed first
    #[arg(long)]
    db: PathBuf,
    /// fillrandom, fillsync, readrandom, readseq, in their order
    #[arg(long, value_delimiter = ',')]
    benchmarks: Vec<String>,
    /// Number of keys
    #[arg(long, default_value_t = 100_000)]
    num: u64,
    /// Puts of fillsync
    #[arg(long, default_value_t = 1000)]
    writes: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Bytes of the cache, where an engine has one
    #[arg(long, default_value_t = 1 << 30)]
    cache_size: usize,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    let clock = SystemClock::shared();
    let mut engine: Option<Box<dyn Engine>> = None;
    // db_bench gives the thread of each benchmark the next seed.
    for (seed, name) in (flags.seed + 1..).zip(&flags.benchmarks) {
        if name.starts_with("fill") {
            drop(engine.take());
            engine = Some(open(flags, name == "fillsync")?);
        }
        let engine = engine.as_mut().ok_or("the first benchmark must fill")?;
        let mut rng = Rng::new(seed);
        let begun = clock.monotonic_nanos();
        let operations = match name.as_str() {
            "fillrandom" => fill(
                engine.as_mut(),
                flags,
                &mut rng,
                flags.num,
                flags.num,
                false,
            )?,
            "fillsync" => {
                let different = (flags.num / 1000).max(1);
                fill(
                    engine.as_mut(),
                    flags,
                    &mut rng,
                    different,
                    flags.writes,
                    true,
                )?
            }
            "readrandom" => read(engine.as_ref(), flags, &mut rng)?,
            "readseq" => engine.scan(flags.num)?,
            other => return Err(format!("unknown benchmark '{other}'").into()),
        };
        let seconds = (clock.monotonic_nanos() - begun) as f64 * 1e-9;
        let each = operations.max(1) as f64;
        println!(
            "{name:<12} : {:>11.3} micros/op {:.0} ops/sec {seconds:.3} seconds {operations} operations;",
            seconds * 1e6 / each,
            each / seconds
        );
    }
    Ok(())
}

/// An empty database, whose puts are to be durable if `sync`.
fn open(flags: &Flags, sync: bool) -> Result<Box<dyn Engine>> {
    if flags.db.exists() {
        std::fs::remove_dir_all(&flags.db)?;
    }
    std::fs::create_dir_all(&flags.db)?;
    let (dir, cache) = (flags.db.as_path(), flags.cache_size);
    Ok(match flags.engine.as_str() {
        "fjall" => Box::new(fjall::Fjall::open(dir, cache)?),
        "redb" => Box::new(redb::Redb::open(dir, cache)?),
        "lmdb" => Box::new(lmdb::Lmdb::open(dir, sync)?),
        "surrealkv" => Box::new(surrealkv::Surreal::open(dir, cache)?),
        other => return Err(format!("unknown engine '{other}'").into()),
    })
}

/// Key `number`: big-endian in 8 bytes, then the digit 0.
fn key(number: u64) -> [u8; KEY_SIZE] {
    let mut key = [b'0'; KEY_SIZE];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// Puts random keys, of which there are `different`.
fn fill(
    engine: &mut dyn Engine,
    flags: &Flags,
    rng: &mut Rng,
    different: u64,
    puts: u64,
    sync: bool,
) -> Result<u64> {
    // Half of each value repeats the other half, as with db_bench's compression_ratio.
    let mut values = Rng::new(301);
    let mut value = vec![0; flags.value_size];
    for _ in 0..puts {
        let half = flags.value_size / 2;
        values.fill(&mut value[..half]);
        value.copy_within(..half, half);
        engine.put(&key(rng.next_u64() % different), &value, sync)?;
    }
    Ok(puts)
}

/// Gets random keys.
fn read(engine: &dyn Engine, flags: &Flags, rng: &mut Rng) -> Result<u64> {
    let mut found = 0;
    engine.read(&mut |get| {
        for _ in 0..flags.num {
            found += u64::from(get(&key(rng.next_u64() % flags.num))?);
        }
        Ok(())
    })?;
    eprintln!("({found} of {} found)", flags.num);
    Ok(flags.num)
}
