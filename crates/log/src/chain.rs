//! The logs that a recovery reads, and what each of them states about earlier logs.
//!
//! ```text
//!   log 4 ──────────┐  log 7 ───────────┐  log 9 ─────────
//!   0 ········· end │  note: 4 ended at │  note: 7 ended at ···
//!                   └─ this offset      └─ this offset; a fence: synced
//! ```
//!
//! The notes link the logs. A fence in a log proves that every earlier log it is linked to was durable
//! up to its noted end, because a group is submitted with a fence only after those logs are durable.
//! A *mark* proves the same: an entry of the MANIFEST which states that a log was durable up to an
//! offset, written for example when a database is closed.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base::Result;
use io::File;

use crate::fence;
use crate::note::{self, Head, Note};
use crate::secret::Secrets;

/// One log of a [`Chain`].
#[derive(Debug)]
struct Link {
    number: u64,
    file: Arc<dyn File>,
    head: Head,
    /// Its nonce, from the MANIFEST.
    known: Option<u64>,
    /// Whether it holds a fence; determined on first use.
    fenced: OnceLock<bool>,
}

/// One log of a recovery.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its number.
    pub number: u64,
    /// Its file; `None` if a later log names it but it is missing.
    pub file: Option<Arc<dyn File>>,
    /// The offset where it ends, if a later log states it.
    pub end: Option<u64>,
}

/// Logs in the order of their numbers.
#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
    marks: BTreeMap<u64, u64>,
}

impl Chain {
    /// Reads the notes of these logs; `secrets` are those of the MANIFEST.
    pub fn read(
        logs: impl IntoIterator<Item = (u64, Arc<dyn File>)>,
        secrets: &Secrets,
    ) -> Result<Self> {
        let mut links = Vec::new();
        for (number, file) in logs {
            links.push(Link {
                number,
                head: note::head(&file, number)?,
                known: secrets.nonce_of(number),
                file,
                fenced: OnceLock::new(),
            });
        }
        links.sort_by_key(|l| l.number);
        Ok(Self {
            links,
            marks: BTreeMap::new(),
        })
    }

    /// Adds the marks of the MANIFEST: log numbers, each with the offset up to which it was durable.
    #[must_use]
    pub fn marked(mut self, marks: impl IntoIterator<Item = (u64, u64)>) -> Self {
        self.marks = marks.into_iter().collect();
        self
    }

    /// The offset up to which an existing log was durable, from the MANIFEST. `None` for a log that another
    /// program wrote, because its mark is the file's length.
    pub fn mark(&self, number: u64) -> Option<u64> {
        let link = self.links.iter().find(|l| l.number == number)?;
        let ours = link.head != Head::Without;
        self.marks.get(&number).copied().filter(|_| ours)
    }

    /// The nonce of a log, from the MANIFEST.
    pub fn nonce(&self, number: u64) -> Option<u64> {
        let link = self.links.iter().find(|l| l.number == number)?;
        link.known
    }

    /// The log whose note names log `number`.
    fn successor(&self, number: u64) -> Option<(&Link, Note)> {
        let named = |l: &Link| {
            l.head
                .note()
                .filter(|n| n.previous_log == number && number > 0)
        };
        self.links.iter().find_map(|l| Some((l, named(l)?)))
    }

    /// What to recover, in order: the logs that exist, and the missing logs from number `first` on that
    /// a note names and that were not empty.
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
        for note in self.links.iter().filter_map(|l| l.head.note()) {
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

    /// The number of a log whose fence or mark proves that log `number` was durable up to its noted end.
    pub fn proof(&self, number: u64) -> Result<Option<u64>> {
        let mut named = number;
        while let Some((link, _)) = self.successor(named) {
            if self.marks.contains_key(&link.number) || link.is_fenced()? {
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
        let trust = self.head.trust(self.known);
        let found = fence::strongest(&self.file, self.number, 0, trust)?.is_some();
        Ok(*self.fenced.get_or_init(|| found))
    }
}
