//! Limits of figures, and claims that are judged by them.

use crate::spread::Spread;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }

    pub(crate) fn text(self, unit: &str) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {bound}{unit}"),
            Self::AtMost(bound) => format!("≤ {bound}{unit}"),
        }
    }
}

/// A figure with a limit; the median over the rounds is judged.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    pub(crate) figure: Spread,
}

impl Claim {
    pub(crate) fn new(what: impl Into<String>, limit: Limit, figure: Spread) -> Self {
        let what = what.into();
        Self {
            what,
            limit,
            figure,
        }
    }

    /// A claim about a single figure.
    pub(crate) fn of(what: impl Into<String>, limit: Limit, figure: f64) -> Self {
        Self::new(what, limit, Spread::of([figure].into_iter()))
    }

    fn holds(&self) -> bool {
        self.limit.holds(self.figure.median)
    }

    fn figure(&self) -> String {
        if self.figure.low < self.figure.high {
            self.figure.text()
        } else {
            format!("{:.2}", self.figure.median)
        }
    }
}

/// A table of claims; empty if there are none.
pub(crate) fn table(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let line = |claim: &Claim| {
        format!(
            "| {} | {} | {} | {} |\n",
            claim.what,
            claim.limit.text(""),
            claim.figure(),
            if claim.holds() { "yes" } else { "NO" }
        )
    };
    let lines: String = claims.iter().map(line).collect();
    format!("\n| what | limit | figure | holds |\n|---|---|---:|---|\n{lines}")
}

/// Errors: the claims that do not hold.
pub(crate) fn check(claims: &[Claim]) -> Result<(), String> {
    let failed = claims.iter().filter(|claim| !claim.holds());
    let lines: Vec<String> = failed
        .map(|c| format!("{}: {} is not {}", c.what, c.figure(), c.limit.text("")))
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(format!("does not hold:\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_said() {
        let claims = [
            Claim::of("twice as fast", Limit::AtLeast(2.0), 2.0),
            Claim::new(
                "late",
                Limit::AtMost(1.0),
                Spread::of([0.5, 1.5, 1.25].into_iter()),
            ),
            Claim::of("not measured", Limit::AtMost(1.0), f64::NAN),
        ];
        let text = table(&claims);
        assert!(
            text.contains("| twice as fast | ≥ 2 | 2.00 | yes |"),
            "{text}"
        );
        assert!(
            text.contains("| late | ≤ 1 | 1.25 [0.50..1.50] | NO |"),
            "{text}"
        );
        let error = check(&claims).unwrap_err();
        assert!(
            error.contains("late: 1.25 [0.50..1.50] is not ≤ 1"),
            "{error}"
        );
        assert!(error.contains("not measured"), "{error}");
        assert_eq!(check(&claims[..1]), Ok(()));
        assert_eq!(table(&[]), "");
    }
}
