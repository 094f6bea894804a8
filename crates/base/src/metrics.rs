//! Numbers in the text form that Prometheus collects (its exposition format, version 0.0.4).
//!
//! ```
//! use base::metrics::{Kind, Metrics};
//!
//! let mut m = Metrics::default();
//! m.family("rocksdb.num-files", Kind::Gauge, "Table files");
//! m.sample(&[("cf", "default")], 7);
//! assert!(m.text().ends_with("\nrocksdb_num_files{cf=\"default\"} 7\n"));
//! ```

use std::fmt::{Display, Write as _};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only rises, except at restarts.
    Counter,
    /// A current value that may rise and fall.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
    /// Cumulative counts by upper bound, a sum and a count.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

/// Builds the text, family by family.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    out: String,
    /// The name of the current family.
    name: String,
}

impl Metrics {
    /// Begins the family `name`; characters that Prometheus does not allow in a name become underscores.
    /// A full stop is appended to `help`.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.name = name.chars().map(allowed).collect();
        let (name, kind) = (&self.name, kind.name());
        line(
            &mut self.out,
            format_args!("# HELP {name} {help}.\n# TYPE {name} {kind}"),
        );
    }

    /// Adds a sample to the family. Values of labels may be any text.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Adds a sample of a summary or a histogram: `suffix` is `_sum`, `_count` or `_bucket`.
    pub fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let mut all = String::new();
        for (name, text) in labels {
            all.push_str(if all.is_empty() { "{" } else { "," });
            all.push_str(name);
            all.push_str("=\"");
            escape(text, &mut all);
            all.push('"');
        }
        if !all.is_empty() {
            all.push('}');
        }
        line(
            &mut self.out,
            format_args!("{}{suffix}{all} {value}", self.name),
        );
    }

    /// The text.
    pub fn text(self) -> String {
        self.out
    }
}

fn line(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a String takes all text");
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '_' {
        c
    } else {
        '_'
    }
}

/// Appends the value of a label, escaped for the quotes around it.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_end_where_they_should() {
        let mut m = Metrics::default();
        m.family("a.name", Kind::Summary, "What it is");
        m.sample(&[("one", "a\"b\\c\nd"), ("two", "2")], 0.5);
        m.sample_of("_count", &[], 3);
        let lines: Vec<_> = m.out.lines().skip(2).collect();
        let first = r#"a_name{one="a\"b\\c\nd",two="2"} 0.5"#;
        assert_eq!(lines, [first, "a_name_count 3"]);
    }
}
