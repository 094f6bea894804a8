//! Notices for the operator: lines of a log, rate-limited by kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};

/// The shortest time between two lines of one kind, nanoseconds.
const APART: u64 = 10_000_000_000;

/// Receives the lines. It must not block.
pub type Sink = dyn Fn(&str) + Send + Sync;

/// Rate-limits lines and passes them to a [`Sink`]. Clones share the sink and the limits.
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Inner>>);

struct Inner {
    sink: Box<Sink>,
    /// By kind: when a line was last written, and how many were suppressed since.
    last: Mutex<BTreeMap<&'static str, (u64, u64)>>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Notices {
    /// Notices that are passed to `sink`. The default ones are discarded.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let last = Mutex::new(BTreeMap::new());
        Self(Some(Arc::new(Inner {
            sink: Box::new(sink),
            last,
        })))
    }

    /// Writes a line, without a limit.
    pub(crate) fn say_each(&self, text: &str) {
        if let Some(inner) = &self.0 {
            (inner.sink)(text);
        }
    }

    /// Writes a line, unless one of this kind was written within ten seconds: then it is only
    /// counted, and the next line says how many were suppressed. `now` is in nanoseconds.
    pub fn say(&self, kind: &'static str, now: u64, text: &str) {
        let Some(inner) = &self.0 else {
            return;
        };
        let mut last = inner.last.lock().unwrap_or_else(PoisonError::into_inner);
        let more = match last.get_mut(kind) {
            Some((at, more)) if now < at.saturating_add(APART) => {
                *more += 1;
                return;
            }
            Some((_, more)) => *more,
            None => 0,
        };
        last.insert(kind, (now, 0));
        drop(last);
        match more {
            0 => (inner.sink)(text),
            _ => (inner.sink)(&format!("{text} (and {more} like it before)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_now_and_then() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let notices = Notices::new(move |line| to.lock().unwrap().push(line.to_owned()));
        for n in 0..100 {
            notices.say("a", n, "again");
        }
        notices.say("b", 100, "other");
        notices.say("a", APART, "again");
        Notices::default().say("a", 0, "to nobody");
        assert_eq!(
            *lines.lock().unwrap(),
            ["again", "other", "again (and 99 like it before)"]
        );
    }
}
