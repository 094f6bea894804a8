//! What the system counts: of this process, and of the whole machine.

use std::path::Path;

/// The processor time of the machine since it started, in ticks of all processors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    all: u64,
    /// What the host of a virtual machine gave to others while this machine wanted it.
    stolen: u64,
}

impl ProcessorTime {
    /// The time until now; nothing where the system does not say it.
    pub(crate) fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. Guests' time, behind them, is part
    /// of the user's.
    fn parse(text: &str) -> Self {
        let fields = text.lines().next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = ticks.map(|t| t.parse().unwrap_or(0)).collect();
        Self {
            all: ticks.iter().sum(),
            stolen: ticks.get(7).copied().unwrap_or(0),
        }
    }

    /// The share of the time since `before` that was stolen: 0 to 1.
    pub(crate) fn stolen_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

fn field(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// Bytes that this process wrote to devices.
pub(crate) fn bytes_written() -> u64 {
    field("/proc/self/io", "write_bytes:")
}

/// Completed writes of block devices; partitions and stacked devices are left out.
pub(crate) fn device_writes() -> u64 {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let writes = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let name = fields.next()?;
        let is_whole = Path::new("/sys/block").join(name).join("device").exists();
        fields.nth(4).filter(|_| is_whole)?.parse::<u64>().ok()
    };
    text.lines().filter_map(writes).sum()
}

/// The most memory that this process had, in bytes.
pub(crate) fn memory_max() -> u64 {
    field("/proc/self/status", "VmHWM:") * 1024
}

/// The processor time of this process.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = text.rsplit(')').next().unwrap_or_default();
    let ticks = |nth| {
        behind
            .split_whitespace()
            .nth(nth)
            .and_then(|n| n.parse().ok())
    };
    let [user, system]: [f64; 2] = [ticks(11), ticks(12)].map(|t: Option<f64>| t.unwrap_or(0.0));
    (user + system) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all() {
        let before = ProcessorTime::parse("cpu  100 0 50 800 10 1 2 37 5 0\ncpu0 1 2 3");
        let after = ProcessorTime::parse("cpu  190 0 80 860 10 1 2 57 5 0\n");
        assert!((after.stolen_since(before) - 0.1).abs() < 1e-9);
        assert!(before.stolen_since(after) < 1e-9, "time does not go back");
        assert_eq!(ProcessorTime::parse("").all, 0);
    }
}
