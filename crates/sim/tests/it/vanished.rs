//! Directories that vanish under an open database: removed, renamed, replaced, unmounted.
//!
//! A database was opened, its directory removed, and the database went on. Files for the next log were made
//! ahead in a new directory of the same path, logs went there, and synced writes were acknowledged that no
//! later open found. On a volume that is unmounted lazily they would have filled the disk below.

use std::path::{Path, PathBuf};
use std::process::Command;

use base::stats::{Statistics, Ticker};
use io::posix::Posix;
use io::{FileSystem, OpenHow};
use ironstone::WalIoMode;
use ironstone::{Db, Options, WriteOptions};
use sim::dirs::State;

const SYNC: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};
const NO_LOG: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: true,
    no_slowdown: false,
    low_pri: false,
};

/// A database in a directory of its own, with logs beside the other files or apart.
struct Place {
    top: PathBuf,
    options: Options,
    _temp: Option<tempfile::TempDir>,
}

impl Place {
    /// Direct logs need a file system on a device.
    fn new(mode: WalIoMode, apart: bool) -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self {
            options: Self::at(temp.path(), mode, apart).options,
            top: temp.path().to_path_buf(),
            _temp: Some(temp),
        }
    }

    fn at(top: &Path, mode: WalIoMode, apart: bool) -> Self {
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.wal_io_mode = mode;
        options.db.stats_dump_period_sec = 0;
        options.cf.write_buffer_size = 1 << 20;
        options.env.statistics = Some(std::sync::Arc::new(Statistics::new()));
        if apart {
            options.db.wal_dir = top.join("logs").to_str().unwrap().to_owned();
        }
        Self {
            top: top.to_path_buf(),
            options,
            _temp: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Opens it and writes until its log is of the kind that the mode asks for, if that is possible.
    fn open(&self) -> Db {
        let db = Db::open(self.path("db"), &self.options).unwrap();
        put(&db, "told").unwrap();
        let statistics = self.options.env.statistics.as_ref().unwrap();
        for _ in 0..1000 {
            if statistics.get(Ticker::WalPrecreateHit) > 0
                || self.options.db.wal_io_mode == WalIoMode::Buffered
            {
                break;
            }
            put(&db, "told").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        db
    }

    /// Every kind of log, in every place.
    fn each() -> impl Iterator<Item = (Self, &'static str)> {
        let modes = [WalIoMode::Buffered, WalIoMode::Direct];
        modes.into_iter().flat_map(|mode| {
            [(false, "db"), (true, "db"), (true, "logs")]
                .map(|(apart, goes)| (Self::new(mode, apart), goes))
        })
    }
}

fn put(db: &Db, key: &str) -> base::Result<()> {
    db.with(&SYNC).put(key, b"1")
}

/// Synced writes are refused, one after the other, and so are flushes and writes whose data would be lost.
fn refuses(db: &Db) {
    let e = put(db, "lost").unwrap_err();
    let text = e.to_string();
    assert!(text.contains("directory"), "{text}");
    for _ in 0..3 {
        put(db, "lost").unwrap_err();
    }
    db.put(b"lost", b"1").unwrap_err();
    db.flush_wal(true).unwrap_err();
    db.resume().unwrap_err();
    put(db, "lost").unwrap_err();
    assert!(db.get(b"told").unwrap().is_some(), "reads go on");
}

/// Removes a directory while files are being made in it.
fn remove(dir: &Path) {
    for _ in 0..100 {
        if std::fs::remove_dir_all(dir).is_ok() {
            return;
        }
    }
    panic!("{} cannot be removed", dir.display());
}

#[test]
fn a_removed_directory_fails_the_next_synced_write_and_is_not_made_again() {
    for (place, goes) in Place::each() {
        let db = place.open();
        remove(&place.path(goes));
        refuses(&db);
        // Gives the background work some time.
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(db.flush());
        drop(db.close());
        assert!(!place.path(goes).exists(), "{goes} is there again");
    }
}

/// Writes without a sync: they fail when the next file has to be made, and make no directory.
#[test]
fn unsynced_writes_make_no_directory_either() {
    for (place, goes) in Place::each() {
        let db = place.open();
        remove(&place.path(goes));
        let value = vec![7; 50_000];
        let refused = (0..500).any(|i: u32| db.put(i.to_be_bytes(), &value).is_err());
        assert!(refused || db.flush().is_err(), "{goes}");
        drop(db);
        assert!(!place.path(goes).exists(), "{goes} is there again");
    }
}

#[test]
fn a_renamed_directory_keeps_what_was_acknowledged_and_comes_back() {
    for (place, goes) in Place::each() {
        let db = place.open();
        let away = place.path("away");
        std::fs::rename(place.path(goes), &away).unwrap();
        refuses(&db);
        assert!(!place.path(goes).exists(), "{goes} is there again");
        std::fs::rename(&away, place.path(goes)).unwrap();
        db.resume().unwrap();
        put(&db, "back").unwrap();
        drop(db);
        let db = Db::open(place.path("db"), &place.options).unwrap();
        for key in ["told", "back"] {
            assert!(db.get(key).unwrap().is_some(), "{goes}: {key}");
        }
    }
}

/// A flush makes unlogged writes durable, so it must not succeed.
#[test]
fn a_flush_in_a_renamed_directory_fails() {
    let place = Place::new(WalIoMode::Buffered, false);
    let db = place.open();
    std::fs::rename(place.path("db"), place.path("away")).unwrap();
    db.with(&NO_LOG).put(b"lost", b"1").unwrap();
    let e = db.flush().unwrap_err();
    assert!(e.to_string().contains("directory"), "{e}");
    refuses(&db);
}

#[test]
fn the_database_that_took_the_place_is_left_alone() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let place = Place::new(mode, false);
        drop(place.open());
        std::fs::rename(place.path("db"), place.path("other")).unwrap();
        let other = State::of(&place.path("other")).unwrap();
        let db = place.open();
        std::fs::rename(place.path("db"), place.path("away")).unwrap();
        std::fs::rename(place.path("other"), place.path("db")).unwrap();
        refuses(&db);
        drop(db.flush());
        drop(db.compact_range(None, None));
        drop(db);
        assert_eq!(State::of(&place.path("db")).unwrap(), other, "{mode:?}");
        let db = Db::open(place.path("away"), &place.options).unwrap();
        assert!(db.get(b"told").unwrap().is_some());
    }
}

/// Runs a command. An error if that is not possible, or it fails: the reason.
fn run(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    out.status
        .success()
        .then_some(())
        .ok_or(format!("{command:?}: {why}"))
}

/// A file system in a file, mounted as long as this value lives.
pub(crate) struct Volume {
    at: PathBuf,
}

impl Volume {
    /// An error if mounting is not possible: the reason.
    pub(crate) fn mount(image: &Path, at: &Path) -> Result<Self, String> {
        Posix
            .open(image, OpenHow::CREATE_NEW)
            .and_then(|file| file.truncate(64 << 20))
            .map_err(|e| e.to_string())?;
        std::fs::create_dir(at).map_err(|e| e.to_string())?;
        run(Command::new("mkfs.ext4").arg("-qF").arg(image))?;
        Self::mount_again(image, at)
    }

    /// Mounts a volume that was unmounted.
    pub(crate) fn mount_again(image: &Path, at: &Path) -> Result<Self, String> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(at))?;
        Ok(Self { at: at.into() })
    }

    fn unmount(&self, how: &[&str]) -> bool {
        let out = Command::new("umount").args(how).arg(&self.at).output();
        out.is_ok_and(|o| o.status.success())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        while self.unmount(&["-l"]) {}
    }
}

/// Waits until the system has released the volume.
pub(crate) fn until_unused(image: &Path) {
    for _ in 0..1000 {
        let devices = Command::new("losetup").arg("-j").arg(image).output();
        if devices.is_ok_and(|o| o.stdout.is_empty()) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the volume is still in use");
}

#[test]
#[expect(clippy::print_stdout, reason = "says what was not tested")]
fn a_volume_that_is_unmounted_lazily_fails_the_next_synced_write() {
    for (apart, goes) in [(false, "db"), (true, "logs")] {
        let temp = tempfile::tempdir().unwrap();
        let (image, at) = (temp.path().join("image"), temp.path().join("mounted"));
        let volume = match Volume::mount(&image, &at) {
            Ok(volume) => volume,
            Err(why) => {
                println!("skipped: no volume can be mounted here: {why}");
                return;
            }
        };
        let mut place = Place::at(&at, WalIoMode::Auto, false);
        if apart {
            place = Place::at(temp.path(), WalIoMode::Auto, false);
            place.options.db.wal_dir = at.join("logs").to_str().unwrap().to_owned();
        }
        let db = place.open();
        assert!(volume.unmount(&["-l"]));
        refuses(&db);
        drop(db);
        let below: Vec<_> = std::fs::read_dir(&at).unwrap().collect();
        assert!(below.is_empty(), "{goes}: written below the volume");
        until_unused(&image);
        let _volume = Volume::mount_again(&image, &at).unwrap();
        let db = Db::open(place.path("db"), &place.options).unwrap();
        assert!(db.get(b"told").unwrap().is_some(), "{goes}");
    }
}
