//! Lookups of several keys for which memory is asked for ahead: the cache must have enough.

use std::cmp::Ordering as Order;

use ironstone::{Comparator, UserComparator};

use super::*;

/// Bytewise, of keys that end as those of their family do.
struct OwnKeys {
    end: &'static str,
    others: Arc<AtomicBool>,
}

impl UserComparator for OwnKeys {
    fn name(&self) -> &str {
        self.end
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        if !a.ends_with(self.end.as_bytes()) || !b.ends_with(self.end.as_bytes()) {
            self.others.store(true, Ordering::Relaxed);
        }
        a.cmp(b)
    }
}

/// Two families, whose keys have different ends, over several levels: the same values as gets find, and no key is given to
/// the other family's comparator, also when the limit of sizes ends the call in the first one.
#[test]
fn each_family_gets_its_keys() {
    let others = Arc::new(AtomicBool::new(false));
    let mut o = options(64 << 20);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.cf.compression = ironstone::CompressionType::None;
    let ends = ["-default", "-second"];
    let descriptors: Vec<_> = ["default", "second"]
        .into_iter()
        .zip(ends)
        .map(|(name, end)| {
            let others = Arc::clone(&others);
            let mut cf = o.cf.clone();
            cf.comparator = Comparator::user(Arc::new(OwnKeys { end, others }));
            ColumnFamilyDescriptor::new(name, cf)
        })
        .collect();
    let db = Db::open_cf("/db", &o, &descriptors).unwrap();
    let families = ["default", "second"].map(|name| db.column_family(name).unwrap());
    let key = |n: u64, of: usize| format!("key{n:06}{}", ends[of]);
    let mut rng = Rng::new(1);
    for round in 0..4 {
        for (of, family) in families.iter().enumerate() {
            let cf = db.cf(family);
            for n in (0..2000).filter(|_| round == 0 || rng.one_in(3)) {
                cf.put(key(n, of), format!("{round}-{n}-{}", "v".repeat(4000)))
                    .unwrap();
            }
            if round < 3 {
                cf.flush().unwrap();
            }
            if round == 1 {
                cf.compact_range(None, None).unwrap();
            }
        }
    }
    for round in 0..40 {
        let count = 1 + rng.below(200) as usize;
        let wanted: Vec<_> = (0..count)
            .map(|_| {
                let of = rng.below(2) as usize;
                (&families[of], key(rng.below(2100), of))
            })
            .collect();
        let expected: Vec<_> = wanted
            .iter()
            .map(|(family, key)| db.cf(family).get(key).unwrap())
            .collect();
        let read = ReadOptions {
            value_size_soft_limit: if round % 4 == 3 { 50_000 } else { u64::MAX },
            ..ReadOptions::default()
        };
        let got = db.with(&read).multi_get_families(&wanted);
        for (got, expected) in got.into_iter().zip(expected) {
            match got {
                Ok(got) => assert_eq!(got, expected),
                Err(e) => assert!(round % 4 == 3 && e.kind() == ErrorKind::Aborted, "{e}"),
            }
        }
    }
    let cache = o.env.block_cache.as_ref().unwrap();
    assert!(cache.usage() > 4 << 20, "too little for asking: {cache:?}");
    assert!(
        !others.load(Ordering::Relaxed),
        "a key of the other family was compared"
    );
}
