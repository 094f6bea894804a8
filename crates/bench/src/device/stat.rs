//! The counters of `/sys/block/<device>/stat`, and the cost of a put in device operations.
//!
//! The counters are subtle. An empty flush request (from `DSYNC` or `fdatasync` after a direct
//! write to a device with a volatile cache) counts as a write request **and** as a flush; a flush
//! that is part of a journal write counts only as a flush. So on a write-through device, which has
//! no flushes, requests are writes; on a write-back one, the number of writes is between requests
//! minus flushes, and requests. If the kernel traces requests, `trace` determines it.

use std::fs;

use super::trace::Trace;

/// Bytes of a sector in the kernel's counters, whatever the device's block size.
const SECTOR: f64 = 512.0;

/// Counters of a block device, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Field 5: write requests; empty flushes count, too.
    pub(crate) requests: u64,
    /// Field 7: sectors of 512 bytes written.
    pub(crate) sectors: u64,
    /// Field 16: flushes.
    pub(crate) flushes: u64,
    /// Writes with data, if they are traced.
    pub(crate) writes: Option<u64>,
}

/// Reads the counters of a device.
pub(crate) struct Counters {
    /// The name of the device: `loop0`.
    device: String,
    trace: Option<Trace>,
}

impl Counters {
    pub(crate) fn new(device: String, trace: Option<Trace>) -> Self {
        Self { device, trace }
    }

    /// The current counters.
    pub(crate) fn read(&self) -> Result<Stat, String> {
        let path = format!("/sys/block/{}/stat", self.device);
        let line = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let mut stat = Stat::parse(&line).map_err(|e| format!("{path}: {e}"))?;
        stat.writes = self.trace.as_ref().and_then(Trace::writes);
        Ok(stat)
    }
}

impl Stat {
    /// Parses the only line of a stat file.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |number: usize| {
            let text = fields.get(number - 1).ok_or_else(|| {
                format!(
                    "{} fields and no field {number} (flushes are counted since Linux 5.5)",
                    fields.len()
                )
            })?;
            text.parse()
                .map_err(|_| format!("field {number} is '{text}', not a number"))
        };
        Ok(Self {
            requests: field(5)?,
            sectors: field(7)?,
            flushes: field(16)?,
            writes: None,
        })
    }

    /// The increase since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            sectors: self.sectors.saturating_sub(earlier.sectors),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            writes: self
                .writes
                .zip(earlier.writes)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            sectors: self.sectors + other.sectors,
            flushes: self.flushes + other.flushes,
            writes: self.writes.zip(other.writes).map(|(a, b)| a + b),
        }
    }

    /// The increase since `earlier`, divided by `operations`.
    pub(crate) fn each_since(self, earlier: Self, operations: u64) -> Each {
        let done = self.since(earlier);
        let of = |count: u64| count as f64 / operations.max(1) as f64;
        Each {
            requests: of(done.requests),
            flushes: of(done.flushes),
            sectors: of(done.sectors),
            writes: done.writes.map(of),
        }
    }
}

/// The average cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Each {
    /// Write requests with data, and empty flushes.
    pub(crate) requests: f64,
    /// Flushes, empty ones or parts of a write.
    pub(crate) flushes: f64,
    /// Sectors of 512 bytes.
    pub(crate) sectors: f64,
    /// Writes with data, if they were traced.
    pub(crate) writes: Option<f64>,
}

impl Each {
    /// Bytes written.
    pub(crate) fn bytes(self) -> f64 {
        self.sectors * SECTOR
    }

    /// The fewest and the most writes with data that the counters allow; equal if writes were
    /// traced, or if no flush was counted.
    pub(crate) fn writes(self) -> (f64, f64) {
        let fewest = (self.requests - self.flushes).max(0.0);
        self.writes
            .map_or((fewest, self.requests), |exact| (exact, exact))
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are exact in binary")]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_that_the_kernel_documents() {
        let line = "     120        0     4804       11     2000        7    16000      501        \
                    0      300      512        3        0     8192        1     1000      250\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                requests: 2000,
                sectors: 16000,
                flushes: 1000,
                writes: None
            }
        );
        let each = stat.each_since(
            Stat {
                requests: 1000,
                sectors: 8000,
                flushes: 500,
                writes: None,
            },
            500,
        );
        assert_eq!(each.requests, 2.0);
        assert_eq!(each.flushes, 1.0);
        assert_eq!(each.bytes(), 8192.0);
        assert_eq!(each.writes(), (1.0, 2.0));
    }

    #[test]
    fn an_old_kernel_or_another_file_is_an_error() {
        let old = Stat::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap_err();
        assert!(old.contains("no field 16") && old.contains("5.5"), "{old}");
        assert!(Stat::parse("").is_err());
        let odd = Stat::parse("1 2 3 4 many 6 7 8 9 10 11 12 13 14 15 16 17").unwrap_err();
        assert_eq!(odd, "field 5 is 'many', not a number");
    }

    #[test]
    fn without_flushes_requests_are_writes() {
        let each = Each {
            requests: 3.0,
            flushes: 0.0,
            sectors: 24.0,
            writes: None,
        };
        assert_eq!(each.writes(), (3.0, 3.0));
        let carried = Each {
            requests: 1.0,
            flushes: 2.0,
            sectors: 8.0,
            writes: None,
        };
        assert_eq!(carried.writes(), (0.0, 1.0));
        let traced = Each {
            writes: Some(1.0),
            ..carried
        };
        assert_eq!(traced.writes(), (1.0, 1.0));
    }
}
