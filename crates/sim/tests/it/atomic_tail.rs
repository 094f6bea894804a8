//! `wal_tail_policy = atomic`: what is written to devices that promise atomic writes, and the errors for
//! devices that do not.

use base::ErrorKind;
use base::options::OptionTable;
use io::FileSystem;
use ironstone::{Db, Options, WriteOptions};
use sim::disk::{Act, Config, SimDisk};

const DIR: &str = "/db";

fn options(disk: &SimDisk, settings: &[(&str, &str)]) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o.db.wal_tail_policy = ironstone::WalTailPolicy::Atomic;
    o.cf.write_buffer_size = 1 << 20;
    for (name, value) in settings {
        o.db.set(name, value).unwrap();
    }
    o.env.fs = disk.shared();
    o
}

#[test]
fn devices_without_atomic_writes_are_refused_by_what_they_lack() {
    let with = |change: &dyn Fn(&mut io::Probe)| {
        let mut config = Config::default().with_atomic_writes(4096);
        change(&mut config.probe);
        SimDisk::new(config)
    };
    let cases: [(SimDisk, &str); 5] = [
        (
            with(&|p| p.atomic_write_unit = None),
            "the device does no atomic writes",
        ),
        (
            with(&|p| p.atomic_write_unit = Some((8192, 16384))),
            "atomic writes of 8192 to 16384 bytes",
        ),
        (with(&|p| p.direct_alignment = None), "no direct I/O"),
        (with(&|p| p.copy_on_write = true), "copies on write"),
        (with(&|p| p.in_memory = true), "is in memory"),
    ];
    for (disk, why) in cases {
        let e = Db::open(DIR, &options(&disk, &[])).unwrap_err();
        let told = e.to_string();
        assert_eq!(e.kind(), ErrorKind::NotSupported, "{told}");
        for part in [
            "wal_tail_policy = atomic",
            why,
            DIR,
            "wal_tail_policy = pad",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(
            !disk
                .exists(&std::path::Path::new(DIR).join("CURRENT"))
                .unwrap()
        );
        // Without direct logs there is no promise to keep.
        for buffered in [("wal_io_mode", "buffered"), ("wal_pool_files", "0")] {
            Db::open(DIR, &options(&disk, &[buffered])).unwrap();
        }
    }
}

/// A group that stays in its unit is one atomic write; only what goes beyond the unit is a second write.
#[test]
fn a_group_in_one_unit_is_one_atomic_write() {
    for (max, unit) in [(512, 512), (4096, 4096), (65536, 4096)] {
        let disk = SimDisk::new(Config::default().with_atomic_writes(max));
        let options = options(&disk, &[("wal_io_mode", "direct")]);
        let db = Db::open(DIR, &options).unwrap();
        let cf = db.default_column_family();
        let synced = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        let durable = || {
            let all = disk.trace();
            let writes = all.iter().filter(|e| e.act == Act::WriteDsync);
            writes.map(|e| (e.offset, e.len)).collect::<Vec<_>>()
        };
        for i in 0..10_000 {
            if !durable().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            db.cf(&cf)
                .with(&synced)
                .put(format!("wait{i}"), "")
                .unwrap();
        }
        let before = durable().len();
        for i in 0..200 {
            db.cf(&cf)
                .with(&synced)
                .put(format!("key{i}"), "value")
                .unwrap();
        }
        let writes = durable().split_off(before);
        let (mut two, mut last) = (0, (0, 0));
        for &(offset, len) in &writes {
            assert!(offset.is_multiple_of(unit) && len.is_multiple_of(unit));
            if offset < last.0 {
                // The bytes behind the unit are durable before the unit is.
                assert_eq!((offset + unit, len), (last.0, unit), "unit {unit}");
                two += 1;
            }
            last = (offset, len);
        }
        assert_eq!(writes.len(), 200 + two, "unit {unit}");
        assert!(two > 0 && two < 80, "unit {unit}: {two}");
        drop(db);
        let db = Db::open(DIR, &self::options(&disk.kill_image(), &[])).unwrap();
        assert_eq!(db.get("key199").unwrap().as_deref(), Some(&b"value"[..]));
    }
}
