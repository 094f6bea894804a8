//! Formats figures for people.

/// A figure, or a dash if there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// Three significant digits, with k, M or G: `1.23M`.
pub(crate) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 999.5e6 => (value / 1e9, "G"),
        v if v >= 999.5e3 => (value / 1e6, "M"),
        v if v >= 999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", digits(scaled))
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.0995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// A whole number.
pub(crate) fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// A figure at a tick of an axis, without trailing zeros after the decimal point.
pub(crate) fn tick(figure: String) -> String {
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let end = figure.find(|c| !number(c)).unwrap_or(figure.len());
    let (digits, unit) = figure.split_at(end);
    if !digits.contains('.') {
        return figure;
    }
    format!(
        "{}{unit}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

/// A time in microseconds, with a suitable unit: `20.4 ms`.
pub(crate) fn micros(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{} s", digits(v / 1e6)),
        v if v >= 999.5 => format!("{} ms", digits(v / 1e3)),
        v if v < 0.0995 && v > 0.0 => format!("{} ns", digits(v * 1e3)),
        v => format!("{} µs", digits(v)),
    }
}

/// A number of bytes, with a suitable unit.
pub(crate) fn bytes(value: f64) -> String {
    match value {
        v if v >= 1023.5 * 1048576.0 => format!("{} GiB", digits(v / f64::from(1 << 30))),
        v if v >= 1023.5 * 1024.0 => format!("{} MiB", digits(v / 1048576.0)),
        v if v >= 1023.5 => format!("{} KiB", digits(v / 1024.0)),
        v => format!("{} B", digits(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(short(1_234_567.0), "1.23M");
        assert_eq!(short(212_086.0), "212k");
        assert_eq!(short(999.9), "1.00k");
        assert_eq!(short(0.0), "0");
        assert_eq!(digits(0.05), "0.0500");
        assert_eq!(tick(short(1500.0)), "1.5k");
        assert_eq!(tick(micros(10.0)), "10 µs");
        assert_eq!(tick("100".to_owned()), "100");
        assert_eq!(digits(0.1234), "0.123");
        assert_eq!(digits(120.0), "120");
        assert_eq!(micros(0.058), "58.0 ns");
        assert_eq!(micros(20_352.94), "20.4 ms");
        assert_eq!(micros(0.74), "0.740 µs");
        assert_eq!(bytes(174_063_617.0), "166 MiB");
        assert_eq!(bytes(100.0), "100 B");
        assert_eq!(or_dash(None), "–");
    }
}
