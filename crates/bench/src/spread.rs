//! Median, smallest and largest figure of several runs: every comparison reports them, because a
//! single figure of a shared machine says little.

use serde_json::{Value, json};

/// Median, smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The spread of no values is NaN.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(at(middle.wrapping_sub(1)), at(middle)),
            _ => at(middle),
        };
        Self {
            median,
            low: at(0),
            high: at(values.len().wrapping_sub(1)),
        }
    }

    /// Like [`Spread::of`]; `None` for no values.
    pub(crate) fn some(values: impl Iterator<Item = f64>) -> Option<Self> {
        Some(Self::of(values)).filter(|spread| spread.median.is_finite())
    }

    /// The relative spread: half of the range over the median.
    pub(crate) fn relative(self) -> f64 {
        (self.high - self.low) / 2.0 / self.median
    }

    pub(crate) fn text(self) -> String {
        format!("{:.2} [{:.2}..{:.2}]", self.median, self.low, self.high)
    }

    pub(crate) fn json(self) -> Value {
        json!({"median": self.median, "low": self.low, "high": self.high})
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "figures that are exact in binary")]
mod tests {
    use super::*;

    #[test]
    fn medians_and_odd_even() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((spread.median, spread.low, spread.high), (2.0, 1.0, 3.0));
        assert_eq!(spread.relative(), 0.5);
        assert_eq!(Spread::of([1.0, 2.0].into_iter()).median, 1.5);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
        assert_eq!(Spread::some(std::iter::empty()), None);
    }
}
