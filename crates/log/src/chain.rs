//! The logs that a recovery reads, and what each of them says about those before it.
//!
//! ```text
//!   log 4 ──────────┐  log 7 ───────────┐  log 9 ─────────
//!   0 ········· end │  note: 4 ended at │  note: 7 ended at ···
//!                   └─ this offset      └─ this offset; a fence: synced
//! ```
//!
//! The notes link the logs. A fence in a log proves that every log it is linked to was durable up
//! to its noted end, because a group is submitted with a fence only when they are.
#![deny(clippy::indexing_slicing)]

use std::sync::{Arc, OnceLock};

use base::Result;
use io::File;

use crate::fence;
use crate::note::{self, Note};

/// One log of a [`Chain`].
#[derive(Debug)]
struct Link {
    number: u64,
    file: Arc<dyn File>,
    note: Option<Note>,
    /// Whether it holds a fence; looked for when somebody asks.
    fenced: OnceLock<bool>,
}

/// A log to recover, in its place.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its number.
    pub number: u64,
    /// Its file; `None` where a later log names it and it is not there.
    pub file: Option<Arc<dyn File>>,
    /// Where it ends, if a later log says so.
    pub end: Option<u64>,
}

/// Logs in the order of their numbers.
#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
}

impl Chain {
    /// Reads the notes of these logs.
    pub fn read(logs: impl IntoIterator<Item = (u64, Arc<dyn File>)>) -> Result<Self> {
        let mut links = Vec::new();
        for (number, file) in logs {
            links.push(Link {
                number,
                note: note::read(&file, number)?,
                file,
                fenced: OnceLock::new(),
            });
        }
        links.sort_by_key(|l| l.number);
        Ok(Self { links })
    }

    /// The log whose note names log `number`.
    fn successor(&self, number: u64) -> Option<(&Link, Note)> {
        let named = |l: &Link| l.note.filter(|n| n.previous_log == number && number > 0);
        self.links.iter().find_map(|l| Some((l, named(l)?)))
    }

    /// What to recover, in order: the logs that are there, and those from number `first` on that
    /// a note names and that are missing although they were not empty.
    pub fn stages(&self, first: u64) -> Vec<Stage> {
        let end_of = |number| self.successor(number).map(|(_, n)| n.previous_end);
        let mut stages: Vec<Stage> = self
            .links
            .iter()
            .map(|l| Stage {
                number: l.number,
                file: Some(Arc::clone(&l.file)),
                end: end_of(l.number),
            })
            .collect();
        for note in self.links.iter().filter_map(|l| l.note) {
            let there = stages.iter().any(|s| s.number == note.previous_log);
            if !there && note.previous_log >= first.max(1) && note.previous_end > 0 {
                stages.push(Stage {
                    number: note.previous_log,
                    file: None,
                    end: Some(note.previous_end),
                });
            }
        }
        stages.sort_by_key(|s| s.number);
        stages
    }

    /// The log with a fence that proves that log `number` was durable up to its noted end.
    pub fn proof(&self, number: u64) -> Result<Option<u64>> {
        let mut named = number;
        while let Some((link, _)) = self.successor(named) {
            if link.is_fenced()? {
                return Ok(Some(link.number));
            }
            // Numbers only grow: a log never names a later one.
            named = link.number;
        }
        Ok(None)
    }
}

impl Link {
    fn is_fenced(&self) -> Result<bool> {
        if let Some(known) = self.fenced.get() {
            return Ok(*known);
        }
        let found = fence::strongest(&self.file, self.number, 0)?.is_some();
        Ok(*self.fenced.get_or_init(|| found))
    }
}
