//! Write stalls of the engine: why it slows writes down or stops them, so that rejected clients can
//! be told.

use std::collections::BTreeMap;

use base::sync::{Mutex, PoisonError};
use ironstone::EventListener;
use ironstone::listener::{WriteStallCondition, WriteStallInfo};

/// Why writes are slowed down or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Whether writes are stopped; otherwise they are slowed down.
    pub is_stopped: bool,
    /// The family that causes the stall.
    pub family: String,
    /// The engine's name of the cause.
    pub cause: &'static str,
    /// The option of the engine that ends the stall if it is increased.
    pub option: &'static str,
}

/// The stalls of all families, as last reported by the engine.
#[derive(Debug, Default)]
pub(super) struct Stalls(Mutex<BTreeMap<String, Stall>>);

impl Stalls {
    /// A stall that stops writes, or else one that slows them down, if the engine says that there
    /// is one now. The reports alone may be out of date: the engine makes them outside its lock, so
    /// that two of them may arrive in any order.
    pub(super) fn worst(&self, (is_stopped, is_delayed): (bool, bool)) -> Option<Stall> {
        if !is_stopped && !is_delayed {
            return None;
        }
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worst = all.values().max_by_key(|stall| stall.is_stopped).cloned();
        worst.map(|stall| Stall {
            is_stopped,
            ..stall
        })
    }
}

impl EventListener for Stalls {
    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cause = info
            .cause
            .filter(|_| info.cur != WriteStallCondition::Normal);
        let Some(cause) = cause else {
            all.remove(&info.cf_name);
            return;
        };
        let stall = Stall {
            is_stopped: info.cur == WriteStallCondition::Stopped,
            family: info.cf_name.clone(),
            cause: cause.name(),
            option: info.option,
        };
        all.insert(info.cf_name.clone(), stall);
    }
}

#[cfg(test)]
mod tests {
    use ironstone::listener::WriteStallCause;
    use ironstone::{FlushOptions, Options};

    use super::*;
    use crate::store::{Batch, Engine, Family, Store as _};

    #[test]
    fn what_the_engine_says_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 2;
        options.cf.max_bytes_for_level_base = 1 << 40;
        let engine = Engine::open_with(dir.path(), options).unwrap();
        let flush = FlushOptions {
            wait: true,
            allow_write_stall: true,
        };
        let family = engine.db().column_family(Family::Visits.name()).unwrap();
        // Compaction soon falls behind if flush follows flush.
        let found = (0..2000_u32).find_map(|n| {
            let mut batch = Batch::new(&engine);
            batch.put(Family::Visits, &n.to_be_bytes(), &[]).unwrap();
            batch.write(None).unwrap();
            engine.db().cf(&family).with(&flush).flush().unwrap();
            engine.stall()
        });
        let stall = found.unwrap();
        assert_eq!(
            (stall.family.as_str(), stall.cause),
            ("visits", "l0-file-count-limit")
        );
        assert_eq!(stall.option, "level0_slowdown_writes_trigger");
    }

    #[test]
    fn the_worst_is_said_until_it_is_over() {
        let stalls = Stalls::default();
        let tell = |family: &str, (cur, cause), is_stopped| {
            stalls.tell(family, cur, cause);
            let worst = stalls.worst((is_stopped, true));
            worst.map(|stall| (stall.family, stall.is_stopped))
        };
        let l0 = Some(WriteStallCause::L0FileCountLimit);
        let memory = Some(WriteStallCause::MemtableLimit);
        let stopped = (WriteStallCondition::Stopped, l0);
        let delayed = (WriteStallCondition::Delayed, memory);
        let over = (WriteStallCondition::Normal, None);
        let of = |family: &str, is_stopped| Some((family.to_owned(), is_stopped));
        assert_eq!(tell("a", stopped, true), of("a", true));
        assert_eq!(tell("b", delayed, true), of("a", true));
        assert_eq!(tell("a", over, false), of("b", false));
        assert_eq!(stalls.worst((false, true)).unwrap().cause, "memtable-limit");
        assert_eq!(tell("b", over, false), None);
    }

    /// Two reports in the wrong order leave no stall that is over.
    #[test]
    fn what_is_told_late_is_not_said_where_the_engine_says_no() {
        let stalls = Stalls::default();
        stalls.tell("a", WriteStallCondition::Normal, None);
        let cause = Some(WriteStallCause::L0FileCountLimit);
        stalls.tell("a", WriteStallCondition::Delayed, cause);
        assert_eq!(stalls.worst((false, false)), None);
        assert!(!stalls.worst((false, true)).unwrap().is_stopped);
        assert!(stalls.worst((true, false)).unwrap().is_stopped);
        // The engine itself is asked.
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path()).unwrap();
        engine
            .stalls
            .tell("visits", WriteStallCondition::Stopped, cause);
        assert_eq!(engine.stall(), None);
    }

    impl Stalls {
        fn tell(&self, family: &str, cur: WriteStallCondition, cause: Option<WriteStallCause>) {
            self.on_stall_conditions_changed(&WriteStallInfo {
                cf_name: family.to_owned(),
                cur,
                prev: WriteStallCondition::Normal,
                cause,
                option: "of_this_test",
            });
        }
    }
}
