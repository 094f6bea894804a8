//! What a process says of what happens to it, on stderr.
//!
//! Whoever reaches its port can make it say something. So there are at most so many lines a second, each is of bounded
//! length, and what others have sent can forge no line and no colour.

use std::io::Write;
use std::sync::Arc;

use base::clock::Clock;
use base::sync::{Mutex, PoisonError};

/// The most lines of a second. How many were left out is said with the first line behind it.
const LINES_MAX: u32 = 50;
/// The most characters of a line.
const LINE_CHARS_MAX: usize = 2000;
const SECOND: u64 = 1_000_000_000;

/// Says something to whoever runs this, on stderr. It is no matter if nobody listens.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap_or_default();
}

/// Says what a process of this name meets.
pub(crate) fn limited(name: String, clock: Arc<dyn Clock>) -> Arc<dyn Fn(&str) + Send + Sync> {
    let limit = Mutex::new(Limit::default());
    Arc::new(move |text| {
        let now = clock.monotonic_nanos();
        let left_out = limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(now);
        match left_out {
            Some(0) => say(&format!("{name}: {}", plain(text))),
            Some(n) => say(&format!(
                "{name}: {n} more lines were left out\n{name}: {}",
                plain(text)
            )),
            None => {}
        }
    })
}

#[derive(Debug, Default)]
struct Limit {
    since: u64,
    lines: u32,
    left_out: u64,
}

impl Limit {
    /// How many lines were left out before this one; `None`: it is left out too.
    fn take(&mut self, now: u64) -> Option<u64> {
        if now.saturating_sub(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Without what a terminal would act on.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(LINE_CHARS_MAX) {
        // Line separators and marks of direction are no control characters.
        let is_mark = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || is_mark {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(LINE_CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_its_size_said() {
        let mut limit = Limit::default();
        let first = (0..1000).filter_map(|n| limit.take(SECOND + n));
        assert_eq!(first.collect::<Vec<_>>(), vec![0; LINES_MAX as usize]);
        let left_out = 1000 - u64::from(LINES_MAX);
        assert_eq!(limit.take(2 * SECOND), Some(left_out));
        assert_eq!(limit.take(2 * SECOND), Some(0));
    }

    #[test]
    fn what_others_send_forges_nothing() {
        assert_eq!(
            plain("a\nstore 2 is gone\u{1b}[31m"),
            "a\\nstore 2 is gone\\u{1b}[31m"
        );
        assert_eq!(plain("a\u{202e}b"), "a\\u{202e}b");
        let cut = plain(&"é".repeat(9999));
        assert!(cut.ends_with("é…") && cut.chars().count() == LINE_CHARS_MAX + 1);
    }
}
