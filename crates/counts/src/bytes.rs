//! Kernels over plain bytes: checksums, batches, records of a log.

use std::hint::black_box;

use base::Result;
use base::checksum::crc32c;
use ironstone::WriteBatch;

use crate::{Kernel, inputs, measured};

pub(crate) const KERNELS: &[Kernel] = &[
    // The sizes of a log record and of a data block.
    Kernel::new("crc32c_100", 10_000, |n| crc(n, 100)),
    Kernel::new("crc32c_4096", 1_000, |n| crc(n, 4096)),
    Kernel::new("batch_put", 10_000, batch_put),
    Kernel::new("batch_read", 10_000, batch_read),
    Kernel::new("log_append", 10_000, log_append),
    Kernel::new("log_read", 10_000, log_read),
];

/// Records that are written to the log's file together.
const GROUP: u64 = 100;

fn crc(operations: u64, len: usize) -> Result<()> {
    let data = inputs::bytes(len);
    black_box(crc32c(&data)); // detects the processor's features
    measured(&mut || {
        for _ in 0..operations {
            black_box(crc32c(black_box(&data)));
        }
        Ok(())
    })
}

/// Puts, in batches of a hundred.
fn batch_put(operations: u64) -> Result<()> {
    let value = inputs::value();
    measured(&mut || {
        for group in 0..operations / GROUP {
            let mut batch = WriteBatch::new();
            for i in 0..GROUP {
                batch.put(inputs::user_key(group * GROUP + i), &value)?;
            }
            black_box(batch);
        }
        Ok(())
    })
}

/// Iterates over the records of one batch, as the write path does.
fn batch_read(operations: u64) -> Result<()> {
    let value = inputs::value();
    let mut batch = WriteBatch::new();
    for i in 0..operations {
        batch.put(inputs::user_key(i), &value)?;
    }
    measured(&mut || {
        for record in batch.records() {
            black_box(record?);
        }
        Ok(())
    })
}

/// Records of the size of a small put, handed to the file in groups.
fn log_append(operations: u64) -> Result<()> {
    let record = inputs::bytes(140);
    let file = inputs::zeros(operations * 160);
    let mut writer = log::Writer::new(file, log::LogOptions::default());
    writer.append(&record)?;
    writer.submit()?;
    measured(&mut || {
        for _ in 0..operations / GROUP {
            for _ in 0..GROUP {
                black_box(writer.append(black_box(&record))?);
            }
            writer.submit()?;
        }
        Ok(())
    })
}

fn log_read(operations: u64) -> Result<()> {
    let record = inputs::bytes(140);
    let file = inputs::file();
    let mut writer = log::Writer::new(file.clone(), log::LogOptions::default());
    for _ in 0..operations {
        writer.append(&record)?;
    }
    writer.submit()?;
    let mut reader = log::Reader::new(file, 0, log::ReaderOptions::default());
    let mut read = Vec::new();
    measured(&mut || {
        while reader.read(&mut read)? {
            black_box(&read);
        }
        Ok(())
    })
}
