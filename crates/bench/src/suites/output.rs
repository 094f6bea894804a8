//! Parses the output of db_bench, and the file of `--report_file`.

use super::data::{Latency, Level, Process, Rate, Run};

/// A run's figures from its output. `name` is db_bench's name of the benchmark: of several result
/// lines the last counts, because the others are warm-ups. `None` if there is no such line.
pub(super) fn run(output: &str, name: &str) -> Option<Run> {
    let lines: Vec<&str> = output.lines().collect();
    let is_result = |l: &&str| l.split_once(" : ").is_some_and(|(n, _)| n.trim() == name);
    let at = lines.iter().rposition(is_result)?;
    let (_, rest) = lines[at].split_once(" : ")?;
    let (micros, rest) = rest.split_once(" micros/op ")?;
    let (rate, rest) = rest.split_once(" ops/sec ")?;
    let (seconds, rest) = rest.split_once(" seconds ")?;
    let (operations, _) = rest.split_once(" operations")?;
    Some(Run {
        micros_per_op: micros.trim().parse().ok().filter(|m: &f64| *m > 0.0)?,
        ops_per_second: rate.trim().parse().ok()?,
        seconds: seconds.trim().parse().ok()?,
        operations: operations.trim().parse().ok()?,
        latency: latency(&lines[at + 1..]),
        process: process(output),
        final_levels: levels(output),
        ..Run::default()
    })
}

/// The number after `mark`.
fn after(text: &str, mark: &str) -> Option<f64> {
    let (_, rest) = text.split_once(mark)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The first histogram after a result line.
fn latency(lines: &[&str]) -> Option<Latency> {
    let mut lines = lines
        .iter()
        .take_while(|l| !l.contains(" micros/op "))
        .skip_while(|l| !l.starts_with("Min:"));
    let (max, line) = (after(lines.next()?, "Max:")?, lines.next()?);
    line.starts_with("Percentiles:").then_some(())?;
    Some(Latency {
        p50: after(line, "P50:")?,
        p99: after(line, "P99:")?,
        p99_9: after(line, "P99.9:")?,
        p99_99: after(line, "P99.99:")?,
        max,
    })
}

/// The output of `--process_stats`.
fn process(output: &str) -> Option<Process> {
    let (peak_memory_mib, _) = crate::driver::process_stats(output)?;
    let line = output.lines().rfind(|l| l.starts_with("Process: "))?;
    let (_, exact) = line.rsplit_once("; written ")?;
    Some(Process {
        peak_memory_mib,
        user_seconds: after(line, "; user ")?,
        system_seconds: after(line, " system ")?,
        written_bytes: exact.split(' ').next()?.parse().ok()?,
        read_bytes: after(exact, " read ")? as u64,
    })
}

/// The output of the benchmark `levelstats`, without empty levels at the end.
fn levels(output: &str) -> Vec<Level> {
    let mut found: Vec<Level> = output
        .lines()
        .skip_while(|l| *l != "Level Files Size(MB)")
        .skip(2)
        .map_while(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let (_, files, mib) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some(Level {
                files: files.ok()?,
                mib: mib.ok()?,
            })
        })
        .collect();
    while found.last().is_some_and(|level| level.files == 0) {
        found.pop();
    }
    found
}

/// The duration and the number of write stalls, from the benchmark `stats`.
pub(super) fn stalls(output: &str) -> Option<(f64, u64)> {
    let line = output
        .lines()
        .find_map(|l| l.strip_prefix("Cumulative stall: "))?;
    let mut parts = line.split(' ').next()?.split(':');
    let mut seconds = 0.0;
    for _ in 0..3 {
        seconds = seconds * 60.0 + parts.next()?.parse::<f64>().ok()?;
    }
    // Counters of a column family and of the database; total-stops and total-delays would count
    // them twice.
    let count = output
        .lines()
        .filter_map(|l| l.strip_prefix("Write Stall (count): "))
        .flat_map(|l| l.split(", "))
        .filter_map(|entry| entry.split_once(": "))
        .filter(|(cause, _)| !cause.starts_with("cf-l0") && !cause.starts_with("total-"))
        .filter(|(cause, _)| !cause.starts_with("interval"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum();
    Some((seconds, count))
}

/// The version that the engine reports: `Ironstone:  version 0.1.0` beside the results.
pub(super) fn version(said: &str) -> Option<String> {
    let line = said
        .lines()
        .find(|l| l.contains(": ") && l.contains(" version "))?;
    let (_, version) = line.rsplit_once(" version ")?;
    Some(version.trim().to_owned())
}

/// The lines of `--report_file`.
pub(super) fn rates(file: &str) -> Vec<Rate> {
    file.lines()
        .skip(1)
        .filter_map(|line| line.split_once(','))
        .filter_map(|(second, ops)| {
            Some(Rate {
                second: second.trim().parse().ok()?,
                ops: ops.trim().parse().ok()?,
            })
        })
        .collect()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are read as they stand")]
mod tests {
    use super::*;

    const OUTPUT: &str = "DB path: [x]\n\
        readseq      :       0.942 micros/op 1048657 ops/sec 0.010 seconds 10 operations;\n\
        readrandom   :       4.000 micros/op 250000 ops/sec 2.000 seconds 500000 operations;   27.6 MB/s (5 of 5 found)\n\
        Microseconds per read:\n\
        Count: 500000 Average: 3.9  StdDev: 1.00\n\
        Min: 1  Median: 3.5  Max: 90000\n\
        Percentiles: P50: 3.50 P75: 4.00 P99: 9.00 P99.9: 21.50 P99.99: 80.00\n\
        ------\n\
        Write Stall (count): cf-l0-file-count-limit-delays-with-ongoing-compaction: 9, l0-file-count-limit-delays: 1, memtable-limit-stops: 2, total-stops: 2, interval: 3 total count\n\
        Cumulative stall: 00:01:2.250 H:M:S, 0.5 percent\n\
        Write Stall (count): write-buffer-manager-limit-stops: 4\n\
        Level Files Size(MB)\n\
        --------------------\n\
        \u{20} 0        5       14\n\
        \u{20} 1        4        6\n\
        \u{20} 2        0        0\n\
        Process: peak memory 300 MiB; written 166 MiB; CPU 2.0 seconds; user 1.50 system 0.50 seconds; written 174063617 read 4096 bytes\n";

    #[test]
    fn every_figure_is_found() {
        let found = run(OUTPUT, "readrandom").unwrap();
        assert_eq!(
            (found.micros_per_op, found.ops_per_second, found.seconds),
            (4.0, 250000.0, 2.0)
        );
        assert_eq!(found.operations, 500_000);
        let latency = found.latency.unwrap();
        assert_eq!(latency.all(), [3.5, 9.0, 21.5, 80.0, 90000.0]);
        let process = found.process.unwrap();
        assert_eq!(process.peak_memory_mib, 300);
        assert_eq!(process.cpu_seconds(), 2.0);
        assert_eq!(
            (process.written_bytes, process.read_bytes),
            (174_063_617, 4096)
        );
        assert_eq!(found.final_levels.len(), 2);
        assert_eq!(found.final_levels[1], Level { files: 4, mib: 6 });
        assert_eq!(stalls(OUTPUT), Some((62.25, 7)));
    }

    #[test]
    fn what_is_missing_is_absent() {
        let found = run(OUTPUT, "readseq").unwrap();
        assert_eq!(found.latency, None, "another benchmark's histogram");
        assert!(run(OUTPUT, "fillseq").is_none());
        assert!(run("readseq : what", "readseq").is_none());
        let old = "a : 1.0 micros/op 1 ops/sec 1.0 seconds 1 operations;\n\
            Process: peak memory 300 MiB; written 166 MiB; CPU 2.0 seconds\n";
        let found = run(old, "a").unwrap();
        assert!(found.process.is_none() && found.final_levels.is_empty());
        assert_eq!(stalls(old), None);
    }

    #[test]
    fn versions_and_rates() {
        let said = "Ironstone:  version 0.1.0\nDate:       Mon\n";
        assert_eq!(version(said).as_deref(), Some("0.1.0"));
        assert_eq!(version("nothing"), None);
        let found = rates("secs_elapsed,interval_qps\n1,300000\n2,bad\n3,7\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], Rate { second: 3, ops: 7 });
    }
}
