//! Fleets: their names, numbers and settings.
//!
//! ```text
//!   meta   "schema"          4 version, big-endian
//!          "fleet/" name     4 number, big-endian   then JSON: the settings
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, PoisonError, RwLock};
use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::model::key::{Fleet, behind};
use crate::model::name::Name;
use crate::model::report::Ahead;
use crate::store::{Batch, Family, Store, Told, View, damaged};

/// The version of the rows that this code writes and reads. Version 1, which no release had, had no
/// names in `latest`.
const SCHEMA: u32 = 2;
const SCHEMA_KEY: &[u8] = b"schema";
const FLEET_KEY: &[u8] = b"fleet/";
/// The most tags of a fleet: each has one bit of [`Here::tags`](crate::model::newest::Here::tags).
pub const TAGS_MAX: usize = 32;
/// The most bytes of a tag.
pub const TAG_BYTES_MAX: usize = 64;

/// The settings of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Reports from too far ahead get the time of their arrival, instead of being refused.
    pub clamp_times: bool,
    /// The tags that its reports may have, at most 32; the first is the lowest bit. A tag is never
    /// removed.
    pub tags: Vec<String>,
    /// Reports with a worse accuracy than this, metres, do not count for fences.
    pub fence_accuracy_max: u16,
    /// Reports that would need a higher speed than this, m/s, do not count for fences; 0 allows any
    /// speed.
    pub fence_speed_max: u16,
    /// Points older than this, days, are hidden at once and dropped later; 0 keeps all.
    pub keep_days: u32,
    /// Entities that are silent for this many days are in no search of an area until they report
    /// again; 0 keeps all.
    pub silent_days: u32,
    /// Points older than this, days, are thinned: those that follow from the others are dropped; 0
    /// keeps all.
    pub thin_days: u32,
    /// The tolerance of thinning, metres.
    pub thin_metres: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clamp_times: false,
            tags: Vec::new(),
            fence_accuracy_max: 100,
            fence_speed_max: 350,
            keep_days: 0,
            silent_days: 0,
            thin_days: 0,
            thin_metres: 10,
        }
    }
}

impl Settings {
    /// The treatment of reports from too far ahead.
    pub fn ahead(&self) -> Ahead {
        if self.clamp_times {
            Ahead::Clamp
        } else {
            Ahead::Refuse
        }
    }

    /// The bits of some tags. Errors: `NotFound` names a tag that the fleet does not have.
    pub fn bits(&self, tags: &[impl AsRef<str>]) -> Result<u32> {
        tags.iter().try_fold(0, |bits, tag| {
            let tag = tag.as_ref();
            let nth = self.tags.iter().position(|known| known == tag);
            let nth =
                nth.ok_or_else(|| Error::not_found(format!("the fleet has no tag {tag:?}")))?;
            Ok(bits | 1 << nth)
        })
    }

    /// These settings, with missing tags added. Errors: `InvalidArgument` if there would be too
    /// many.
    pub fn with_tags(&self, fleet: &Name, tags: &[String]) -> Result<Self> {
        let mut settings = self.clone();
        for tag in tags {
            if !settings.tags.contains(tag) {
                settings.tags.push(tag.clone());
            }
        }
        settings.check(fleet, &self.tags)?;
        Ok(settings)
    }

    /// Whether a fleet that has the tags `kept` can have these settings.
    fn check(&self, name: &Name, kept: &[String]) -> Result<()> {
        if !self.tags.starts_with(kept) {
            return Err(Error::invalid_argument(format!(
                "the tags of fleet {name} would change their meaning: it has {kept:?}"
            ))
            .hint("new tags come behind those that are there"));
        }
        if self.tags.len() > TAGS_MAX {
            return Err(Error::invalid_argument(format!(
                "fleet {name} would have {} tags, and has {TAGS_MAX} at most",
                self.tags.len()
            )));
        }
        Ok(())
    }

    /// The tags of some bits.
    pub fn names(&self, bits: u32) -> Vec<&str> {
        let has = |nth: &usize| bits >> nth & 1 == 1;
        let known = self.tags.iter().enumerate().take(TAGS_MAX);
        known
            .filter(|(nth, _)| has(nth))
            .map(|(_, tag)| tag.as_str())
            .collect()
    }
}

/// A fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its number: the prefix of its keys.
    pub fleet: Fleet,
    /// Its name.
    pub name: Name,
    /// Its settings.
    pub settings: Settings,
}

impl Info {
    /// Its row in `meta`.
    pub(crate) fn row(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = [FLEET_KEY, self.name.as_str().as_bytes()].concat();
        let mut value = self.fleet.prefix().to_vec();
        let json = serde_json::to_vec(&self.settings).map_err(|e| Error::broken(e.to_string()))?;
        value.extend(json);
        Ok((key, value))
    }
}

/// All fleets of a store. Reads are answered from memory.
#[derive(Debug)]
pub struct Fleets {
    all: RwLock<BTreeMap<Name, Arc<Info>>>,
    /// The names by number. A number is never given to another name.
    names: RwLock<BTreeMap<Fleet, Name>>,
    /// Fleets that share a number with another one, and the name of that one: their rows are mixed
    /// and cannot be told apart. Such fleets are refused; the others work.
    mixed: BTreeMap<Name, Name>,
    /// Whether any fleet has, or has had, a limit on what it keeps.
    is_any_kept: AtomicBool,
    /// The greatest number that any fleet may have. It never goes back, because the row of a fleet
    /// whose write failed may reappear after a crash. Locked while a fleet is changed.
    changes: Mutex<u32>,
}

impl Fleets {
    /// Reads all fleets; a store without a version is new, and gets one.
    ///
    /// Errors: `NotSupported` if another release wrote the store; Corruption; the store's.
    pub fn open(store: &dyn Store) -> Result<Self> {
        if !has_version(&*store.view())? {
            let mut batch = Batch::new(store);
            batch.put(Family::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes())?;
            batch.write(None)?;
        }
        let mut all = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        let mut mixed = BTreeMap::new();
        rows(&*store.view(), &mut |key, info| {
            let info = info.map_err(|e| damaged(Family::Meta, key, &e))?;
            if let Some(other) = numbers.insert(info.fleet, info.name.clone()) {
                mixed.insert(info.name.clone(), other.clone());
                mixed.insert(other, info.name.clone());
            }
            all.insert(info.name.clone(), Arc::new(info));
            Ok(())
        })?;
        all.retain(|name, _| !mixed.contains_key(name));
        let fleets = Self {
            mixed,
            is_any_kept: AtomicBool::new(false),
            all: RwLock::new(all),
            changes: Mutex::new(numbers.last_key_value().map_or(0, |(last, _)| last.0)),
            names: RwLock::new(numbers),
        };
        for info in fleets.all() {
            fleets.note(&info.settings);
        }
        Ok(fleets)
    }

    /// Errors: Corruption if the rows of a fleet are mixed with those of another one.
    pub fn refuse_mixed(&self, name: &Name) -> Result<()> {
        let Some(other) = self.mixed.get(name) else {
            return Ok(());
        };
        Err(Error::corruption(mixed(name, other))
            .hint("restore a backup from before, or report to a fleet of another name"))
    }

    /// Whether two fleets have this number.
    pub(crate) fn is_mixed(&self, fleet: Fleet) -> bool {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let name = names.get(&fleet);
        name.is_some_and(|name| self.mixed.contains_key(name))
    }

    /// The fleet with this name. `None` if there is none, or if it is
    /// [refused](Self::refuse_mixed).
    pub fn get(&self, name: &Name) -> Option<Arc<Info>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned()
    }

    /// The fleet with this number. `None` if there is none.
    pub(crate) fn of(&self, fleet: Fleet) -> Option<Arc<Info>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let name = names.get(&fleet).cloned();
        drop(names);
        name.and_then(|name| self.get(&name))
    }

    /// All fleets, in the order of their names.
    pub fn all(&self) -> Vec<Arc<Info>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }

    /// Whether no fleet can have points that are too old, or entities that were silent for too
    /// long.
    pub(crate) fn keep_all(&self) -> bool {
        !self.is_any_kept.load(Ordering::Acquire)
    }

    /// Notes whether these settings limit what the fleet keeps.
    fn note(&self, settings: &Settings) {
        if settings.keep_days > 0 || settings.silent_days > 0 {
            self.is_any_kept.store(true, Ordering::Release);
        }
    }

    /// The fleet with this name, which is made if there is none.
    pub fn get_or_make(&self, store: &dyn Store, name: &Name) -> Result<Arc<Info>> {
        match self.get(name) {
            Some(info) => Ok(info),
            None => self.change(store, name, |_| Ok(())),
        }
    }

    /// Like [`Fleets::get_or_make`], but makes a fleet only if there are fewer than `most`. Errors:
    /// `NotSupported` if there are as many.
    pub fn get_or_make_of(&self, store: &dyn Store, name: &Name, most: usize) -> Result<Arc<Info>> {
        if let Some(info) = self.get(name) {
            return Ok(info);
        }
        self.change(store, name, |_| {
            // The lock keeps others from making one meanwhile. Another call may have made this very
            // fleet.
            let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
            if all.contains_key(name) || all.len() < most {
                return Ok(());
            }
            let count = all.len();
            let text = format!("there are {count} fleets, and {name} would be one more");
            Err(Error::not_supported(text)
                .hint("fleets_max, or `serve --max-fleets`, says how many there may be"))
        })
    }

    /// Adds missing tags to a fleet, and returns it. Errors: it would have more than 32; the
    /// store's.
    pub fn with_tags(&self, store: &dyn Store, name: &Name, tags: &[String]) -> Result<Arc<Info>> {
        self.change(store, name, |settings| {
            *settings = settings.with_tags(name, tags)?;
            Ok(())
        })
    }

    /// Changes a fleet's settings, or makes the fleet. Others see the change once it is written; it
    /// is durable before anything that is written later.
    ///
    /// Errors: those of `change`; `InvalidArgument` if there would be too many tags, or a tag is
    /// removed; the store's. On an error, nothing is changed.
    pub fn change(
        &self,
        store: &dyn Store,
        name: &Name,
        change: impl FnOnce(&mut Settings) -> Result<()>,
    ) -> Result<Arc<Info>> {
        let mut last = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut info = self.planned(name, change)?;
        if self.get(name).is_none() {
            let next = last.checked_add(1);
            let next = next.ok_or_else(|| Error::broken("there are no more numbers for fleets"))?;
            info.fleet = Fleet(next);
            // Kept even if the write fails.
            *last = next;
        }
        let (key, value) = info.row()?;
        let mut batch = Batch::new(store);
        batch.put(Family::Meta, &key, &value)?;
        batch.write(None)?;
        let info = Arc::new(info);
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(info.fleet, name.clone());
        drop(names);
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.clone(), Arc::clone(&info));
        drop(all);
        self.note(&info.settings);
        Ok(info)
    }

    /// The fleet as it would be with changed settings, or if it were made. Errors: as for
    /// [`Fleets::change`].
    pub(crate) fn planned(
        &self,
        name: &Name,
        change: impl FnOnce(&mut Settings) -> Result<()>,
    ) -> Result<Info> {
        self.refuse_mixed(name)?;
        let old = self.get(name);
        let mut settings = old
            .as_ref()
            .map_or_else(Settings::default, |i| i.settings.clone());
        change(&mut settings)?;
        let kept = old.as_ref().map_or(&[][..], |info| &info.settings.tags);
        settings.check(name, kept)?;
        // Fleets that are refused have their numbers too.
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let last = names.last_key_value().map_or(0, |(last, _)| last.0);
        Ok(Info {
            fleet: old.map_or(Fleet(last.saturating_add(1)), |info| info.fleet),
            name: name.clone(),
            settings,
        })
    }
}

/// Whether there is a version of the rows; a new store has none.
///
/// Errors: `NotSupported` if another release wrote the store; Corruption; the store's.
pub(crate) fn has_version(view: &dyn View) -> Result<bool> {
    let Some(bytes) = view.get(Family::Meta, SCHEMA_KEY)? else {
        return Ok(false);
    };
    let found = bytes
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| Error::corruption("meta: a version of the rows that is none"))?;
    if found == SCHEMA {
        return Ok(true);
    }
    let hint = if found > SCHEMA {
        "a newer release wrote it: start that one"
    } else {
        "an older build wrote it: its `export` and this `import` carry the points over, but neither fences nor webhooks"
    };
    let what = format!("rows of version {found}: this release knows {SCHEMA}");
    Err(Error::not_supported(what).hint(hint))
}

/// Writes a row that each store has once more, to find out whether the store takes writes. `told`
/// is as in [`Store::write`]. Errors: as there.
pub(crate) fn write_again(store: &dyn Store, told: Told) -> Result<()> {
    let mut batch = Batch::new(store);
    batch.put(Family::Meta, SCHEMA_KEY, &SCHEMA.to_be_bytes())?;
    batch.write(Some(told)).map(drop)
}

/// The message about two fleets with the same number.
pub(crate) fn mixed(name: &Name, other: &Name) -> String {
    format!("fleet {name} has the number of fleet {other}: their rows are mixed")
}

/// Receives the key of a fleet's row, and its content.
type Each<'a> = &'a mut dyn FnMut(&[u8], Result<Info>) -> Result<()>;

/// Calls `each` with the rows of fleets, in the order of their names. Errors: the store's; those of
/// `each`.
pub(crate) fn rows(view: &dyn View, each: Each<'_>) -> Result<()> {
    let end = behind(FLEET_KEY);
    let mut rows = view.rows(Family::Meta, FLEET_KEY, end.as_deref())?;
    rows.seek(FLEET_KEY);
    while let Some((key, value)) = rows.row() {
        each(key, decode(key, value))?;
        rows.next();
    }
    rows.status()
}

fn decode(key: &[u8], value: &[u8]) -> Result<Info> {
    let parts = key.strip_prefix(FLEET_KEY).zip(value.split_first_chunk());
    let (name, (number, json)) = parts.ok_or_else(|| Error::corruption("it is too short"))?;
    let name = str::from_utf8(name).map_err(|e| Error::corruption(e.to_string()))?;
    Ok(Info {
        fleet: Fleet(u32::from_be_bytes(*number)),
        name: Name::new(name)?,
        settings: serde_json::from_slice(json).map_err(|e| Error::corruption(e.to_string()))?,
    })
}

/// Errors: `InvalidArgument` if there are too many tags, or one is invalid.
pub(crate) fn check_tags(tags: &[String]) -> Result<()> {
    if tags.len() > TAGS_MAX {
        let count = tags.len();
        let text = format!("{count} tags, and {TAGS_MAX} at most");
        return Err(Error::invalid_argument(text));
    }
    let is_bad = |tag: &&String| {
        tag.is_empty() || tag.len() > TAG_BYTES_MAX || tag.contains(char::is_control)
    };
    let bad = tags.iter().find(is_bad);
    bad.map_or(Ok(()), |tag| {
        Err(Error::invalid_argument(format!(
            "{tag:.40?} is no tag: it has 1 to {TAG_BYTES_MAX} bytes without control characters"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Engine;
    use crate::store::faulty::{Act, Faulty};

    #[test]
    fn fleets_are_there_again_and_keep_their_tags() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b/c"].map(|name| Name::new(name).unwrap());
        let tag = |text: &str| vec![text.to_owned()];
        {
            let store = Engine::open(dir.path()).unwrap();
            let fleets = Fleets::open(&store).unwrap();
            assert!(fleets.get(&a).is_none());
            let made = fleets.get_or_make(&store, &a).unwrap();
            assert_eq!(made.fleet, Fleet(1));
            assert_eq!(fleets.get_or_make(&store, &a).unwrap(), made);
            fleets.with_tags(&store, &b, &tag("taxi")).unwrap();
            let both = fleets.with_tags(&store, &b, &tag("free")).unwrap();
            assert_eq!(both.settings.bits(&["free"]).unwrap(), 2);
            assert_eq!(both.settings.names(3), ["taxi", "free"]);
            let e = both.settings.bits(&["bus"]).unwrap_err().to_string();
            assert!(e.contains("\"bus\""), "{e}");
            let all: Vec<String> = (0..31).map(|n| n.to_string()).collect();
            let e = fleets.with_tags(&store, &b, &all).unwrap_err().to_string();
            assert!(e.contains("33 tags"), "{e}");
            let clear = |settings: &mut Settings| {
                settings.tags.clear();
                Ok(())
            };
            let e = fleets.change(&store, &b, clear).unwrap_err().to_string();
            assert!(e.contains("change their meaning"), "{e}");
        }
        let store = Engine::open(dir.path()).unwrap();
        let fleets = Fleets::open(&store).unwrap();
        let names: Vec<String> = fleets.all().iter().map(|i| i.name.to_string()).collect();
        assert_eq!(names, ["a", "b/c"]);
        assert_eq!(fleets.get(&b).unwrap().fleet, Fleet(2));
        assert_eq!(fleets.get(&b).unwrap().settings.tags, ["taxi", "free"]);
        for (version, what) in [(SCHEMA + 1, "start that one"), (SCHEMA - 1, "`import`")] {
            let mut batch = Batch::new(&store);
            batch
                .put(Family::Meta, SCHEMA_KEY, &version.to_be_bytes())
                .unwrap();
            batch.write(None).unwrap();
            let e = Fleets::open(&store).unwrap_err().to_string();
            let said = format!("version {version}");
            assert!(e.contains(&said) && e.contains(what), "{e}");
        }
    }

    /// The row of a fleet whose write failed may reappear after a crash: its number must not be
    /// given to another fleet.
    #[test]
    fn no_number_is_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let fails = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&fails);
        let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| match act {
            Act::Write if its.load(Ordering::Relaxed) => Err(Error::aborted("of this test")),
            _ => Ok(()),
        });
        let names = ["a", "b", "c"].map(|name| Name::new(name).unwrap());
        let fleets = Fleets::open(&*store).unwrap();
        let make = |name| Ok::<_, Error>(fleets.get_or_make(&*store, name)?.fleet);
        assert_eq!(make(&names[0]).unwrap(), Fleet(1));
        fails.store(true, Ordering::Relaxed);
        make(&names[1]).unwrap_err();
        fails.store(false, Ordering::Relaxed);
        assert_eq!(make(&names[2]).unwrap(), Fleet(3));
        assert_eq!(make(&names[1]).unwrap(), Fleet(4));
        assert_eq!(make(&names[0]).unwrap(), Fleet(1));
        // If two fleets have the same number all the same, this is reported.
        let twin = Info {
            fleet: Fleet(3),
            name: Name::new("twin").unwrap(),
            settings: Settings::default(),
        };
        let (key, value) = twin.row().unwrap();
        let mut batch = Batch::new(&*store);
        batch.put(Family::Meta, &key, &value).unwrap();
        batch.write(None).unwrap();
        // The other fleets still work.
        let fleets = Fleets::open(&*store).unwrap();
        for (name, other) in [(&names[2], "twin"), (&twin.name, "c")] {
            let change = fleets.change(&*store, name, |_| Ok(()));
            let make = fleets.get_or_make_of(&*store, name, 100);
            for e in [change.unwrap_err(), make.unwrap_err()] {
                assert!(e.is_corruption());
                let text = format!("the number of fleet {other}");
                assert!(e.to_string().contains(&text), "{e}");
            }
            assert!(fleets.get(name).is_none());
        }
        let make = |name| fleets.get_or_make(&*store, name).unwrap().fleet;
        assert_eq!((make(&names[0]), make(&names[1])), (Fleet(1), Fleet(4)));
        assert_eq!(make(&Name::new("new").unwrap()), Fleet(5));
    }
}
