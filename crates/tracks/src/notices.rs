//! What is said to whoever runs the service: lines of a log, a few of each kind, however often something happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};

/// Lines of one kind are so far apart at least, nanoseconds.
const APART: u64 = 10_000_000_000;

/// Takes lines. It must not wait.
pub type Sink = dyn Fn(&str) + Send + Sync;

/// See the module. Clones say it to the same.
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Inner>>);

struct Inner {
    sink: Box<Sink>,
    /// When a line of each kind was said last, and how many were not said since.
    last: Mutex<BTreeMap<&'static str, (u64, u64)>>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Notices {
    /// They are given to `sink`. The default ones are given to nobody.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let last = Mutex::new(BTreeMap::new());
        Self(Some(Arc::new(Inner {
            sink: Box::new(sink),
            last,
        })))
    }

    /// Says something, however often.
    pub(crate) fn say_each(&self, text: &str) {
        if let Some(inner) = &self.0 {
            (inner.sink)(text);
        }
    }

    /// Says something, unless something of this kind was said within ten seconds: then the next line says how many
    /// there were.
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
