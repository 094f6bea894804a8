//! Numbers in the format in which RocksDB prints them.

/// Bytes in a GiB, the unit for levels.
pub(super) const GB: f64 = 1_073_741_824.0;
/// Bytes in a MiB.
pub(super) const MB: f64 = 1_048_576.0;

/// A count: whole below 10,000, then in thousands, millions, billions.
pub(super) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{}K", n / 1000),
        10_000_000..10_000_000_000 => format!("{}M", n / 1_000_000),
        _ => format!("{}G", n / 1_000_000_000),
    }
}

/// Bytes in the largest of KB, MB, GB and TB that gives at least 1; KB for smaller numbers.
pub(super) fn bytes(n: u64) -> String {
    let mut size = n as f64 / 1024.0;
    for unit in ["KB", "MB", "GB"] {
        if size < 1024.0 {
            return format!("{size:.2} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.2} TB")
}

/// A time as hours, minutes and seconds.
pub(super) fn time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (h, m) = (seconds / 3600, seconds / 60 % 60);
    let s = (micros % 60_000_000) as f64 / 1e6;
    format!("{h:02}:{m:02}:{s:.3}")
}

/// `bytes` per second in MiB. A time shorter than a millisecond counts as one millisecond.
pub(super) fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / MB / seconds.max(0.001)
}

/// Converts nanoseconds to seconds.
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Names and counts in the format of RocksDB's list of write stalls.
pub(super) fn pairs(pairs: impl Iterator<Item = (String, u64)>) -> String {
    let each: Vec<String> = pairs.map(|(name, n)| format!("{name}: {n}")).collect();
    format!("Write Stall (count): {}\n", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_can_read_it() {
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(10_000), "10K");
        assert_eq!(count(9_999_999), "9999K");
        assert_eq!(count(10_000_000), "10M");
        assert_eq!(count(10_000_000_000), "10G");
        assert_eq!(bytes(0), "0.00 KB");
        assert_eq!(bytes(58_194), "56.83 KB");
        assert_eq!(bytes(32 << 20), "32.00 MB");
        assert_eq!(bytes(3 << 40), "3.00 TB");
        assert_eq!(time(0), "00:00:0.000");
        assert_eq!(time(3_723_004_000), "01:02:3.004");
    }
}
