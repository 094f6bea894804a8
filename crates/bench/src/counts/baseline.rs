//! The stored counts, and how they have changed.
//!
//! ```text
//! # compiler TAB rustc 1.95.0 (…)
//! # machine TAB x86_64 sse4.2 …; glibc 2.36
//! name TAB instructions per operation
//! ```

use std::collections::BTreeMap;

/// Changes of up to this many per cent are ignored.
pub(crate) const BAND_PERCENT: f64 = 5.0;

/// The counts, and the environment for which they are valid.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Baseline {
    /// The version of rustc.
    pub(crate) compiler: String,
    /// Architecture, detected CPU features, the C library.
    pub(crate) machine: String,
    /// Instructions per operation, by kernel.
    pub(crate) counts: BTreeMap<String, f64>,
}

impl Baseline {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut out = Self::default();
        for line in text.lines() {
            let bad = || format!("a line of the baseline is not NAME, TAB, VALUE: {line}");
            match line.split_once('\t').ok_or_else(bad)? {
                ("# compiler", what) => what.clone_into(&mut out.compiler),
                ("# machine", what) => what.clone_into(&mut out.machine),
                (name, count) => {
                    let count: f64 = count.parse().map_err(|_| bad())?;
                    if !count.is_finite() || count <= 0.0 {
                        return Err(bad());
                    }
                    out.counts.insert(name.to_owned(), count);
                }
            }
        }
        Ok(out)
    }

    pub(crate) fn text(&self) -> String {
        let head = format!(
            "# compiler\t{}\n# machine\t{}\n",
            self.compiler, self.machine
        );
        let row = |(name, count): (&String, &f64)| format!("{name}\t{count:.1}\n");
        head + &self.counts.iter().map(row).collect::<String>()
    }
}

/// The change of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Same,
    Better,
    Worse,
    /// The baseline does not have it.
    New,
}

impl Change {
    pub(crate) fn of(stored: Option<f64>, now: f64) -> Self {
        match stored.map(|stored| percent(stored, now)) {
            None => Self::New,
            Some(p) if p > BAND_PERCENT => Self::Worse,
            Some(p) if p < -BAND_PERCENT => Self::Better,
            Some(_) => Self::Same,
        }
    }
}

fn percent(stored: f64, now: f64) -> f64 {
    (now - stored) / stored * 100.0
}

/// A change as text, without a sign if it is zero.
fn signed(percent: f64) -> String {
    if percent.abs() < 0.05 {
        return "0".to_owned();
    }
    format!("{percent:+.1} %")
}

/// A Markdown table of the counts beside the baseline.
pub(crate) fn table(stored: &Baseline, now: &Baseline) -> String {
    let mut out = String::from(
        "| kernel | instructions an operation | stored | change |\n|---|---:|---:|---:|\n",
    );
    for (name, &count) in &now.counts {
        let before = stored.counts.get(name).copied();
        let (value, change) = before.map_or_else(
            || (String::new(), String::new()),
            |b| (format!("{b:.1}"), signed(percent(b, count))),
        );
        let mark = match Change::of(before, count) {
            Change::Same => "",
            Change::Better => " better",
            Change::Worse => " WORSE",
            Change::New => "new",
        };
        out += &format!("| {name} | {count:.1} | {value} | {change}{mark} |\n");
    }
    out
}

/// The verdict about `now`; with `all`, every kernel must be there. Errors: the changes that must
/// not stay.
pub(crate) fn judge(stored: &Baseline, now: &Baseline, all: bool) -> Result<String, String> {
    const RENEW: &str = "cargo xtask counts --bless";
    if stored.compiler != now.compiler {
        return Err(format!(
            "the baseline is of {}, this is {}: a new compiler changes counts. Renew them in the change \
             that brings it, with nothing else in it: {RENEW}",
            stored.compiler, now.compiler
        ));
    }
    if stored.machine != now.machine {
        return Ok(format!(
            "not compared: the baseline is of a machine with {}, this one has {}. To compare two states of \
             the code here: {RENEW} at the first, cargo xtask counts at the second",
            stored.machine, now.machine
        ));
    }
    let named = |wanted: Change| {
        let of = |(name, &count): (&String, &f64)| {
            let change = Change::of(stored.counts.get(name).copied(), count);
            (change == wanted).then(|| name.clone())
        };
        now.counts.iter().filter_map(of).collect::<Vec<_>>()
    };
    let gone = stored
        .counts
        .keys()
        .filter(|n| !now.counts.contains_key(*n));
    let gone: Vec<_> = gone.filter(|_| all).cloned().collect();
    let mut wrong = Vec::new();
    for (what, names) in [
        ("more instructions than stored", named(Change::Worse)),
        ("not in the baseline", named(Change::New)),
        ("in the baseline, and no kernel", gone),
    ] {
        if !names.is_empty() {
            wrong.push(format!("{what}: {}", names.join(", ")));
        }
    }
    if !wrong.is_empty() {
        return Err(format!(
            "{}. If that is meant, renew the baseline and say why in the commit: {RENEW}",
            wrong.join("; ")
        ));
    }
    let better = named(Change::Better);
    if better.is_empty() {
        return Ok(format!("all within {BAND_PERCENT} % of the baseline"));
    }
    Ok(format!(
        "fewer instructions than stored: {}. Renew the baseline, so that they stay so: {RENEW}",
        better.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(&str, f64)]) -> Baseline {
        Baseline {
            compiler: "rustc 1".to_owned(),
            machine: "x86_64 avx2; glibc 2".to_owned(),
            counts: counts.iter().map(|&(n, c)| (n.to_owned(), c)).collect(),
        }
    }

    #[test]
    fn text_comes_back() {
        let b = of(&[("a", 12.5), ("b", 1000.0)]);
        assert_eq!(Baseline::parse(&b.text()), Ok(b.clone()));
        for damaged in ["a 1\n", "a\tmany\n", "a\t0\n", "a\tNaN\n", "<<<<<<< HEAD\n"] {
            assert!(Baseline::parse(&(b.text() + damaged)).is_err(), "{damaged}");
        }
    }

    #[test]
    fn more_than_the_band_fails_less_is_told() {
        let stored = of(&[("a", 100.0), ("b", 100.0)]);
        let judged = |a, b| judge(&stored, &of(&[("a", a), ("b", b)]), true);
        assert!(judged(105.0, 95.0).unwrap().starts_with("all within"));
        assert!(judged(94.9, 100.0).unwrap().contains("stored: a."));
        let worse = judged(90.0, 105.1).unwrap_err();
        assert!(
            worse.starts_with("more instructions than stored: b."),
            "{worse}"
        );
        assert!(table(&stored, &of(&[("a", 110.0)])).contains("| 110.0 | 100.0 | +10.0 % WORSE |"));
    }

    #[test]
    fn every_kernel_has_its_line() {
        let stored = of(&[("a", 100.0), ("old", 100.0)]);
        let now = of(&[("a", 100.0), ("new", 7.0)]);
        let wrong = judge(&stored, &now, true).unwrap_err();
        assert!(wrong.contains("not in the baseline: new"), "{wrong}");
        assert!(wrong.contains("no kernel: old"), "{wrong}");
        assert!(judge(&stored, &of(&[("a", 100.0)]), false).is_ok());
    }

    #[test]
    fn only_like_is_compared_with_like() {
        let (stored, mut now) = (of(&[("a", 100.0)]), of(&[("a", 300.0)]));
        now.machine.push('1');
        assert!(
            judge(&stored, &now, true)
                .unwrap()
                .starts_with("not compared")
        );
        now.compiler.push('1');
        assert!(
            judge(&stored, &now, true)
                .unwrap_err()
                .contains("new compiler")
        );
    }
}
