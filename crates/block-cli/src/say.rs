//! The messages of a process on stderr.
//!
//! Anybody who reaches a process's port can make it print messages. So the lines per second and the length of a
//! line are limited, and bytes that others have sent can forge no line and no colour.

use std::io::Write;
use std::sync::Arc;

use base::clock::Clock;
use base::sync::{Mutex, PoisonError};

/// The most lines per second. The next line that is printed tells how many were left out.
const LINES_MAX: u32 = 50;
/// The most characters of a line.
const LINE_CHARS_MAX: usize = 2000;
const SECOND: u64 = 1_000_000_000;

/// Prints a message on stderr. A closed stderr is ignored.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap_or_default();
}

/// Prints the messages of a process with this name, within the limits.
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
    /// The number of lines that were left out before this one; `None`: this one is left out too.
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

/// The text with characters escaped that a terminal would interpret.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(LINE_CHARS_MAX) {
        // Line separators and direction marks are not control characters.
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
