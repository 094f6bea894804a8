//! The drop rules as a table: versions in, versions out.

use base::FileNumber;
use base::merge::{PutOperator, StringAppendOperator};
use base::sync::atomic::AtomicBool;
use keyspan::Span;
use keyspan::stripes::Tombstones;
use memtable::{Memtable, Settings};

use super::*;
use options::hooks::filter::CompactionFilter;

/// A flush or compaction of `entries`: "key@sequence kind value", kind one of `=` value,
/// `+` operand, `-` deletion, `!` single deletion.
#[derive(Default)]
struct Case {
    entries: &'static str,
    snapshots: &'static [u64],
    /// Keys in deeper levels; `None` is a flush.
    below: Option<&'static [&'static str]>,
    operator: Option<Arc<dyn MergeOperator>>,
    filter: Option<Arc<dyn CompactionFilter>>,
    lenient: bool,
    /// A range tombstone over all keys.
    tombstone: Option<u64>,
}

fn kind_of(sign: u8) -> ValueType {
    match sign {
        b'=' => ValueType::Value,
        b'+' => ValueType::Merge,
        b'-' => ValueType::Deletion,
        b'!' => ValueType::SingleDeletion,
        b'%' => ValueType::WideColumnEntity,
        _ => panic!("an entry of unknown kind"),
    }
}

impl Case {
    fn run(self) -> Result<String> {
        let c = Comparator::bytewise();
        let mem = Arc::new(Memtable::with(0, FileNumber(1), Settings::new(c.clone())));
        for entry in self.entries.split_whitespace() {
            let (user_key, rest) = entry.split_once('@').unwrap();
            let at = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
            let sequence = SequenceNumber(rest[..at].parse().unwrap());
            let (kind, mut value) = (kind_of(rest.as_bytes()[at]), rest[at + 1..].into());
            if kind == ValueType::WideColumnEntity {
                value = WideColumns::new([("c", value)]).unwrap().encode().unwrap();
            }
            mem.insert(user_key.as_bytes(), sequence, kind, &value);
        }
        let snapshots: Vec<_> = self.snapshots.iter().copied().map(SequenceNumber).collect();
        let hidden = self.tombstone.map(|n| {
            let span = Span::new(b"a", b"z", SequenceNumber(n));
            let tombstones = Tombstones::new(&c, &[span], &snapshots).unwrap();
            Hidden::by(Arc::new(tombstones), &snapshots)
        });
        let mut rules = match self.below {
            None => DropRules::keep_deletions(c, snapshots),
            Some(keys) => DropRules::drop_deletions(
                c,
                snapshots,
                Box::new(move |k| keys.iter().any(|b| b.as_bytes() == k)),
            ),
        };
        rules.merge_operator = self.operator;
        rules.hidden = hidden;
        rules.enforce_single_del_contracts = !self.lenient;
        let filter = self
            .filter
            .map(|filter| Filter::new(filter, 1, &Arc::<AtomicBool>::default()));
        let mut merge = Merge::new(Box::new(mem.iter()), rules.filter(filter));
        let mut out = Vec::new();
        merge.start()?;
        while merge.valid() {
            let p = key::parse(merge.key()).unwrap();
            let sign = match p.value_type {
                ValueType::Value => '=',
                ValueType::Merge => '+',
                ValueType::Deletion => '-',
                ValueType::SingleDeletion => '!',
                _ => '%',
            };
            let value = if sign == '%' {
                let columns = WideColumns::decode(merge.value()).unwrap();
                let shown =
                    |(n, v): (&[u8], &[u8])| format!("{}:{};", n.escape_ascii(), v.escape_ascii());
                columns.iter().map(shown).collect()
            } else {
                merge.value().escape_ascii().to_string()
            };
            let user_key = p.user_key.escape_ascii();
            out.push(format!("{user_key}@{}{sign}{value}", p.sequence));
            merge.next()?;
        }
        Ok(out.join(" "))
    }
}

const BOTTOM: Option<&[&str]> = Some(&[]);

fn append() -> Arc<dyn MergeOperator> {
    Arc::new(StringAppendOperator::new(","))
}

/// Runs entries through a compaction into the last level.
fn at_the_bottom(entries: &'static str, snapshots: &'static [u64]) -> String {
    let case = Case {
        entries,
        snapshots,
        below: BOTTOM,
        operator: Some(append()),
        ..Case::default()
    };
    case.run().unwrap()
}

/// Runs entries through a compaction above a level that has the keys `a` and `b`.
fn above_others(entries: &'static str, snapshots: &'static [u64]) -> String {
    let case = Case {
        entries,
        snapshots,
        below: Some(&["a", "b"]),
        operator: Some(append()),
        ..Case::default()
    };
    case.run().unwrap()
}

fn flushed(entries: &'static str, snapshots: &'static [u64]) -> String {
    let case = Case {
        entries,
        snapshots,
        operator: Some(append()),
        ..Case::default()
    };
    case.run().unwrap()
}

#[test]
fn without_snapshots_only_the_newest_version_survives() {
    assert_eq!(flushed("a@1=x a@3=y b@2=x b@4-", &[]), "a@3=y b@4-");
}

#[test]
fn a_snapshot_keeps_the_version_that_it_sees() {
    let e = "a@1=1 a@3=3 a@5=5 a@7=7";
    assert_eq!(flushed(e, &[3]), "a@7=7 a@3=3");
    assert_eq!(flushed(e, &[1, 5]), "a@7=7 a@5=5 a@1=1");
    assert_eq!(flushed(e, &[7]), "a@7=7");
}

#[test]
fn deletions_go_when_nothing_older_is_left() {
    let e = "a@1=1 a@3- b@4-";
    assert_eq!(at_the_bottom(e, &[]), "");
    assert_eq!(above_others("a@1=1 a@3- c@4-", &[]), "a@3-");
    // A snapshot at 2 still sees a@1, so the deletion above it must stay. No other version of b is visible.
    assert_eq!(at_the_bottom(e, &[2]), "a@3- a@1=1");
    assert_eq!(above_others(e, &[2]), "a@3- a@1=1 b@4-");
    // A snapshot at 3 sees only the deletion: no version of a is needed.
    assert_eq!(at_the_bottom(e, &[3]), "");
    assert_eq!(
        at_the_bottom("a@1=1 a@3- a@5- a@6=6", &[2, 4]),
        "a@6=6 a@3- a@1=1"
    );
}

#[test]
fn single_deletions_go_with_their_value() {
    assert_eq!(flushed("a@1=1 a@2! b@3=3", &[]), "b@3=3");
    assert_eq!(above_others("a@1=1 a@2! b@3!", &[]), "b@3!");
    assert_eq!(at_the_bottom("b@3!", &[]), "");
    assert_eq!(flushed("b@3!", &[]), "b@3!");
    // A snapshot that sees the value keeps both.
    assert_eq!(at_the_bottom("a@1=1 a@2!", &[1]), "a@2! a@1=1");
    // A snapshot that sees neither, or only the deletion, keeps nothing.
    assert_eq!(at_the_bottom("a@3=1 a@4!", &[2]), "");
    assert_eq!(above_others("a@3=1 a@4!", &[4]), "");
    // A newer version does not hide a single deletion whose value may be below.
    assert_eq!(above_others("a@3! a@4=4", &[]), "a@4=4 a@3!");
    assert_eq!(at_the_bottom("a@3! a@4=4", &[]), "a@4=4");
    assert_eq!(above_others("a@1=1 a@3! a@4=4", &[]), "a@4=4");
    assert_eq!(above_others("a@1=1 a@2! a@3=3 a@4!", &[]), "");
}

#[test]
fn single_deletions_of_other_things_are_noticed() {
    assert_eq!(above_others("a@1=1 a@2! a@3!", &[]), "");
    assert_eq!(above_others("a@2! a@3!", &[]), "a@2!");
    assert_eq!(flushed("a@1+1 a@2!", &[]), "");
    let mixed = |lenient| Case {
        entries: "a@1- a@2!",
        lenient,
        ..Case::default()
    };
    let e = mixed(false).run().unwrap_err();
    assert!(e.is_corruption(), "{e}");
    assert!(
        e.to_string()
            .contains("key a has a single deletion over a deletion")
    );
    assert!(
        e.to_string()
            .contains("enforce_single_del_contracts = false")
    );
    assert_eq!(mixed(true).run().unwrap(), "a@1-");
}

/// Regression: a single deletion over a deletion breaks the contract of single deletions. With a range tombstone
/// between the two, the deletion was left out before it was examined, and no error was returned; the same
/// happened with a tombstone above both. RocksDB reports this, and drops a single deletion together with a value
/// that a tombstone hides.
#[test]
fn single_deletions_meet_what_range_tombstones_hide() {
    let case = |entries, tombstone, below, snapshots| Case {
        entries,
        tombstone: Some(tombstone),
        below,
        snapshots,
        ..Case::default()
    };
    for (entries, tombstone) in [("a@1- a@3!", 2), ("a@1- a@2!", 3), ("a@1! a@2- a@5!", 4)] {
        for below in [None, BOTTOM, Some(&["a"][..])] {
            let e = case(entries, tombstone, below, &[]).run().unwrap_err();
            assert!(e.is_corruption(), "{entries}: {e}");
        }
        // A snapshot between them keeps both.
        case(entries, tombstone, None, &[1, 2, 3, 4]).run().unwrap();
    }
    let survivors = |entries, tombstone, snapshots| {
        let above = Some(&["a", "c"][..]);
        case(entries, tombstone, above, snapshots).run().unwrap()
    };
    assert_eq!(survivors("a@1=1 a@3!", 2, &[]), "");
    assert_eq!(survivors("a@1=1 a@2!", 3, &[]), "");
    assert_eq!(survivors("a@1=1 a@3!", 2, &[1]), "a@3! a@1=1");
    // A single deletion over no version is dropped if it is hidden, and kept if it is not.
    assert_eq!(survivors("a@1! b@1=1 c@3!", 2, &[]), "c@3!");
    // Two single deletions, and a value for the older one.
    assert_eq!(survivors("a@1=1 a@2! a@4!", 3, &[]), "");
}

#[test]
fn operands_are_merged_as_far_as_snapshots_allow() {
    // Operands with their base.
    assert_eq!(flushed("a@1=1 a@2+2 a@3+3", &[]), "a@3=1,2,3");
    assert_eq!(flushed("a@1=0 a@2=1 a@3+3", &[]), "a@3=1,3");
    assert_eq!(flushed("a@1=1 a@2- a@3+3 a@4+4", &[]), "a@4=3,4");
    assert_eq!(flushed("a@1%x a@3+3", &[]), "a@3%:,3;c:x;");
    // Operands with one another.
    assert_eq!(flushed("a@2+2 a@3+3", &[]), "a@3+2,3");
    assert_eq!(above_others("a@2+2 a@3+3 b@4+4", &[]), "a@3+2,3 b@4+4");
    // Operands without a base, at the bottom.
    assert_eq!(at_the_bottom("a@2+2 a@3+3 b@4+4", &[]), "a@3=2,3 b@4=4");
    // Operands that different snapshots see are not merged.
    let e = "a@1=1 a@2+2 a@3+3 a@4+4 a@5+5";
    assert_eq!(at_the_bottom(e, &[3]), "a@5+4,5 a@3=1,2,3");
    assert_eq!(at_the_bottom(e, &[1, 4]), "a@5+5 a@4+2,3,4 a@1=1");
    assert_eq!(at_the_bottom("a@2+2 a@3+3", &[2]), "a@3+3 a@2=2");
    assert_eq!(at_the_bottom("a@2+2 a@3+3 a@4-", &[2]), "a@4- a@2=2");
    // A newer version hides all operands.
    assert_eq!(flushed("a@1=1 a@2+2 a@3=3 b@4=4", &[]), "a@3=3 b@4=4");
}

#[test]
fn operands_stay_without_operator_and_where_it_fails() {
    struct Never;
    impl MergeOperator for Never {
        fn name(&self) -> &'static str {
            "Never"
        }
        fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
            None
        }
    }
    let never: Arc<dyn MergeOperator> = Arc::new(Never);
    for operator in [None, Some(never)] {
        for below in [None, BOTTOM] {
            let case = Case {
                entries: "a@1=1 a@2+2 a@3+3 a@4=4 b@5=5 b@6+6 b@7+7 c@8+8 d@9-",
                snapshots: &[3],
                below,
                operator: operator.clone(),
                ..Case::default()
            };
            let rest = if below.is_some() { "" } else { " d@9-" };
            let want = format!("a@4=4 a@3+3 a@2+2 a@1=1 b@7+7 b@6+6 b@5=5 c@8+8{rest}");
            assert_eq!(case.run().unwrap(), want);
        }
    }
}

#[test]
fn an_operator_may_want_single_operands() {
    struct Short;
    impl MergeOperator for Short {
        fn name(&self) -> &'static str {
            "Short"
        }
        fn full_merge(&self, k: &[u8], v: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
            PutOperator.full_merge(k, v, ops)
        }
        fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
            Some(format!("{}", operands.len()).into_bytes())
        }
        fn allow_single_operand(&self) -> bool {
            true
        }
    }
    let case = Case {
        entries: "a@1+x b@2+x b@3+y",
        operator: Some(Arc::new(Short)),
        ..Case::default()
    };
    assert_eq!(case.run().unwrap(), "a@1+1 b@3+2");
}

/// A filter that decides by the first byte of a value or operand.
struct ByValue;

impl CompactionFilter for ByValue {
    fn name(&self) -> &'static str {
        "ByValue"
    }

    fn filter(&self, level: usize, _: &[u8], value: FilterValue<'_>) -> FilterDecision {
        assert_eq!(level, 1);
        let text = match value {
            FilterValue::Value(v) | FilterValue::MergeOperand(v) => v,
            FilterValue::WideColumnEntity(columns) => columns.get(b"c").unwrap(),
        };
        match text.first() {
            Some(b'r') => FilterDecision::Remove,
            Some(b'c') => FilterDecision::ChangeValue(b"new".to_vec()),
            Some(b'e') => {
                let columns = WideColumns::new([("c", "new")]).unwrap();
                FilterDecision::ChangeWideColumnEntity(columns)
            }
            Some(b's') => FilterDecision::RemoveAndSkipUntil(text[1..].to_vec()),
            Some(b'p') => panic!("a bug in a filter"),
            _ => FilterDecision::Keep,
        }
    }
}

fn filtered(entries: &'static str, snapshots: &'static [u64], bottom: bool) -> Result<String> {
    let case = Case {
        entries,
        snapshots,
        below: Some(if bottom { &[] } else { &["a", "b", "c"] }),
        operator: Some(append()),
        filter: Some(Arc::new(ByValue)),
        ..Case::default()
    };
    case.run()
}

#[test]
fn a_filter_decides_about_the_newest_version() {
    let ok = |e, s, bottom| filtered(e, s, bottom).unwrap();
    assert_eq!(ok("a@1=k b@2=r c@3=c", &[], true), "a@1=k c@3=new");
    assert_eq!(ok("a@1=k b@2=r c@3=c", &[], false), "a@1=k b@2- c@3=new");
    assert_eq!(
        ok("a@1%k b@2%r c@3%e d@4=e", &[], true),
        "a@1%c:k; c@3%c:new; d@4%c:new;"
    );
    // The filter does not see older versions and deletions.
    assert_eq!(ok("a@1=r a@2=k b@3-", &[1], false), "a@2=k a@1=r b@3-");
    // Snapshots do not protect values from the filter.
    assert_eq!(ok("a@1=r", &[1], true), "");
    assert_eq!(ok("a@1=k a@2=r", &[1], true), "a@2- a@1=k");
    // Keys are skipped up to another key, which must come after the current key.
    assert_eq!(ok("a@1=sc b@2=k bb@3=k c@4=k", &[], false), "c@4=k");
    assert_eq!(ok("b@1=sb c@2=sa", &[], false), "b@1=sb c@2=sa");
    assert_eq!(ok("a@1=sz b@2=k", &[], false), "");
}

#[test]
fn a_filter_decides_about_operands() {
    let ok = |e, s, bottom| filtered(e, s, bottom).unwrap();
    assert_eq!(ok("a@1=k a@2+r a@3+x", &[], true), "a@3=k,x");
    assert_eq!(ok("a@1=k a@2+c a@3+x", &[], true), "a@3=k,new,x");
    // All operands are removed: the version under them is treated as the newest version.
    assert_eq!(ok("a@1=k a@2+r b@3=r b@4+r", &[], true), "a@1=k");
    // The filter is not called for an operand that a snapshot shows.
    assert_eq!(ok("a@1=k a@2+r a@3+r", &[2], true), "a@2=k,r");
    assert_eq!(ok("a@1=k a@2+sb a@3+x b@4=k", &[], true), "b@4=k");
    // The filter is called for the base under operands, unless the base is merged with them.
    assert_eq!(ok("a@1=c a@2+x a@3+y", &[1], true), "a@3+x,y a@1=new");
    assert_eq!(ok("a@1=c a@2+x a@3+y", &[], true), "a@3=c,x,y");
    assert_eq!(ok("a@1=c a@2=k a@3+y", &[1], true), "a@3=k,y a@1=c");
}

#[test]
fn a_filter_that_panics_is_named() {
    let e = filtered("a@1=k b@2=p", &[], true).unwrap_err().to_string();
    assert!(e.contains("compaction filter ByValue panicked"), "{e}");
}
