//! Failures and retries: each failed task is retried separately, after pauses that grow.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use base::{Error, Result};

/// The most failures that are listed; the others are only counted.
const SAID_MAX: usize = 8;

/// The failed tasks, with the times of their next tries in nanoseconds of one clock.
#[derive(Debug)]
pub(crate) struct Again<K> {
    first: Duration,
    most: Duration,
    all: BTreeMap<K, Failed>,
}

#[derive(Debug)]
struct Failed {
    due: u64,
    pause: Duration,
    why: String,
}

impl<K: Ord> Again<K> {
    /// The first pause is `first`; each next one is twice as long, up to `most`.
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        let all = BTreeMap::new();
        Self { first, most, all }
    }

    /// Whether it failed and its pause is not over.
    pub(crate) fn waits(&self, what: &K, now: u64) -> bool {
        self.all.get(what).is_some_and(|failed| failed.due > now)
    }

    /// Whether its last try failed.
    pub(crate) fn has(&self, what: &K) -> bool {
        self.all.contains_key(what)
    }

    /// Records a failure, also a repeated one.
    pub(crate) fn failed(&mut self, what: K, now: u64, why: String) {
        let before = self.all.get(&what).map(|failed| failed.pause);
        let pause = before.map_or(self.first, |pause| pause.saturating_mul(2).min(self.most));
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let due = now.saturating_add(nanos);
        self.all.insert(what, Failed { due, pause, why });
    }

    /// Records a success.
    pub(crate) fn done(&mut self, what: &K) {
        self.all.remove(what);
    }

    /// Forgets the tasks for which `holds` is false.
    pub(crate) fn retain(&mut self, mut holds: impl FnMut(&K) -> bool) {
        self.all.retain(|what, _| holds(what));
    }

    /// The time until the next retry. `None` if nothing failed.
    pub(crate) fn pause(&self, now: u64) -> Option<Duration> {
        let due = self.all.values().map(|failed| failed.due).min()?;
        Some(Duration::from_nanos(due.saturating_sub(now)))
    }

    /// The number of failed tasks.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The failures as text. `None` if there are none.
    pub(crate) fn said(&self) -> Option<String> {
        let mut said = Several::default();
        for failed in self.all.values() {
            said.add(failed.why.clone());
        }
        said.text()
    }
}

/// Texts, of which only the first few are kept.
#[derive(Debug, Default)]
pub(crate) struct Several {
    texts: Vec<String>,
    more: usize,
}

impl Several {
    pub(crate) fn add(&mut self, text: String) {
        if self.texts.len() < SAID_MAX {
            self.texts.push(text);
        } else {
            self.more += 1;
        }
    }

    /// All of them as one text; `None` if there are none.
    pub(crate) fn text(self) -> Option<String> {
        if self.texts.is_empty() {
            return None;
        }
        let text = self.texts.join("; ");
        Some(match self.more {
            0 => text,
            more => format!("{text}; and {more} more"),
        })
    }
}

/// Runs `work`, and turns a panic into an error. Errors: those of `work`; a panic, which is a bug,
/// but stops nothing else.
pub(crate) fn caught<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = text_of(&*panic);
        // Dropping the panic's value may panic again; that is ignored.
        drop(catch_unwind(AssertUnwindSafe(|| drop(panic))));
        Err(Error::broken(format!("{what} panicked: {text}")))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a text").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_for_each_thing_alone() {
        let mut again = Again::new(Duration::from_nanos(10), Duration::from_nanos(35));
        assert_eq!((again.pause(0), again.said()), (None, None));
        for (now, pause) in [(0, 10), (10, 20), (30, 35), (65, 35)] {
            assert!(!again.waits(&1, now));
            again.failed(1, now, "one".to_owned());
            assert!(again.waits(&1, now + pause - 1) && !again.waits(&1, now + pause));
            assert_eq!(again.pause(now), Some(Duration::from_nanos(pause)));
        }
        again.failed(2, 70, "two".to_owned());
        assert_eq!(again.pause(70), Some(Duration::from_nanos(10)));
        assert_eq!(again.said().unwrap(), "one; two");
        again.done(&1);
        assert!(!again.has(&1) && again.has(&2) && again.len() == 1);
        again.retain(|what| *what != 2);
        assert_eq!(again.pause(500), None);
        for n in 0..20 {
            again.failed(n, 0, n.to_string());
        }
        assert!(again.said().unwrap().ends_with("; 7; and 12 more"));
    }

    #[test]
    fn a_panic_is_an_error() {
        let done: Result<()> = caught("a part", || panic!("of {}", "this test"));
        let said = done.unwrap_err().to_string();
        assert!(said.contains("a part panicked: of this test"), "{said}");
        assert_eq!(caught("a part", || Ok(1)).unwrap(), 1);
    }
}
