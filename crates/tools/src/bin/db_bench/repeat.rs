//! The combined results of repeated runs of one benchmark: `name[X3]`. The lines have RocksDB's
//! format.

/// The number of runs of a benchmark, from the brackets after its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    /// Number of warm-up runs.
    pub(crate) warmups: u32,
    pub(crate) runs: u32,
}

/// A benchmark's name and its number of runs: `readrandom[W1-X3]`. `None` if the brackets have
/// another form.
pub(crate) fn parse(text: &str) -> Option<(&str, Repeat)> {
    let mut repeat = Repeat {
        warmups: 0,
        runs: 1,
    };
    let Some((name, rest)) = text.split_once('[') else {
        return Some((text, repeat));
    };
    for argument in rest.strip_suffix(']')?.split('-').filter(|a| !a.is_empty()) {
        if let Some(runs) = argument.strip_prefix('X') {
            repeat.runs = runs.parse().ok().filter(|&n| n > 0)?;
        } else {
            repeat.warmups = argument.strip_prefix('W')?.parse().ok()?;
        }
    }
    Some((name, repeat))
}

/// Rates of runs: operations a second, and MiB a second if bytes were counted.
#[derive(Default)]
pub(crate) struct Rates {
    operations: Vec<f64>,
    megabytes: Vec<f64>,
}

impl Rates {
    pub(crate) fn add(&mut self, operations: f64, megabytes: Option<f64>) {
        self.operations.push(operations);
        self.megabytes.extend(megabytes);
    }

    fn with_bytes(&self) -> bool {
        self.megabytes.len() == self.operations.len()
    }

    /// The line after each run except the first: mean and half the width of the 95 % confidence
    /// interval, or the interval alone.
    pub(crate) fn so_far(&self, name: &str, interval_only: bool) -> String {
        let runs = self.operations.len();
        if runs < 2 {
            return String::new();
        }
        let (mean, half) = (mean(&self.operations), confidence(&self.operations));
        let (mean, half) = (mean as i64, half as i64);
        if interval_only {
            let bytes = self
                .bytes(|mean, half| format!("; ({:.1}, {:.1}) MB/sec", mean - half, mean + half));
            return format!(
                "{name} [CI95 {runs} runs] : ({}, {}) ops/sec{bytes}\n",
                mean - half,
                mean + half
            );
        }
        let bytes = self.bytes(|mean, half| format!("; {mean:6.1} (\u{b1} {half:.1}) MB/sec"));
        format!("{name} [AVG {runs} runs] : {mean} (\u{b1} {half}) ops/sec{bytes}\n")
    }

    /// The lines after the last of several runs: mean and median.
    pub(crate) fn summary(&self, name: &str) -> String {
        let runs = self.operations.len();
        if runs < 2 {
            return String::new();
        }
        let (mean, half) = (mean(&self.operations), confidence(&self.operations));
        let millis = if mean > 0.0 { 1000.0 / mean } else { 0.0 };
        let bytes = self.bytes(|mean, half| format!("; {mean:6.1} (\u{b1} {half:.1}) MB/sec"));
        let median_bytes = if self.with_bytes() {
            format!("; {:6.1} MB/sec", median(&self.megabytes))
        } else {
            String::new()
        };
        format!(
            "\n{name} [AVG    {runs} runs] : {} (\u{b1} {}) ops/sec; {millis:.3} ms/op{bytes}\n\
             {name} [MEDIAN {runs} runs] : {} ops/sec{median_bytes}\n",
            mean as i64,
            half as i64,
            median(&self.operations) as i64
        )
    }

    fn bytes(&self, text: impl FnOnce(f64, f64) -> String) -> String {
        if self.with_bytes() {
            text(mean(&self.megabytes), confidence(&self.megabytes))
        } else {
            String::new()
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the 95 % confidence interval of the mean, for normally distributed values.
fn confidence(values: &[f64]) -> f64 {
    const Z_95: f64 = 1.959_964; // the 97.5th percentile of the standard normal distribution
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (values.len() - 1) as f64).sqrt();
    Z_95 * deviation / (values.len() as f64).sqrt()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_say_how_often() {
        let often = |text| parse(text).map(|(name, r)| (name, r.warmups, r.runs));
        assert_eq!(often("readseq"), Some(("readseq", 0, 1)));
        assert_eq!(often("readseq[X5]"), Some(("readseq", 0, 5)));
        assert_eq!(often("readseq[W2-X5]"), Some(("readseq", 2, 5)));
        assert_eq!(often("readseq[X5-W2]"), Some(("readseq", 2, 5)));
        for bad in [
            "readseq[X5",
            "readseq[Y5]",
            "readseq[X]",
            "readseq[X0]",
            "a[W-1]",
        ] {
            assert_eq!(often(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_are_rocksdbs() {
        let mut rates = Rates::default();
        rates.add(100.0, Some(1.0));
        assert_eq!(rates.so_far("x", false) + &rates.summary("x"), "");
        rates.add(104.0, Some(1.2));
        // The deviation of two values is their distance over the root of 2.
        let half = (1.959_964 * 4.0 / 2.0) as i64;
        assert_eq!(
            rates.so_far("readseq", false),
            format!(
                "readseq [AVG 2 runs] : 102 (\u{b1} {half}) ops/sec;    1.1 (\u{b1} 0.2) MB/sec\n"
            )
        );
        assert_eq!(
            rates.so_far("readseq", true),
            "readseq [CI95 2 runs] : (99, 105) ops/sec; (0.9, 1.3) MB/sec\n"
        );
        assert_eq!(
            rates.summary("readseq"),
            "\nreadseq [AVG    2 runs] : 102 (\u{b1} 3) ops/sec; 9.804 ms/op;    1.1 (\u{b1} 0.2) MB/sec\n\
             readseq [MEDIAN 2 runs] : 102 ops/sec;    1.1 MB/sec\n"
        );
    }
}
