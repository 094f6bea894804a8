//! The cluster file: the stores, groups and volumes of a cluster, and where they are.
//!
//! ```toml
//! cluster = "0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11"
//!
//! [[store]]
//! id = 1
//! dir = "store-1"              # seen from the folder of this file
//! address = "127.0.0.1:7101"
//! metrics = "127.0.0.1:7201"   # optional: HTTP, /metrics and /status
//!
//! [[group]]
//! id = 1
//! replicas = [1, 2, 3]         # stores
//!
//! [[volume]]
//! id = 1                       # for ever
//! name = "vol0"
//! size = "10G"
//! groups = [1]
//!
//! [nbd]
//! listen = "127.0.0.1:10809"
//! metrics = "127.0.0.1:7200"
//!
//! [storage]
//! capacity = "20G"             # of each store, for `chunk --make`
//! log = "1G"
//! apply_sync = "background"
//! read_mode = "lease"          # or "read_index", where clocks may stop or go back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Error, Result};
use block::client::map::{Map, Striping};
use block::client::run::Spec;
use block::group::members::Members;
use block::ids::{Group, Layer, Tree, Uuid};
use block::shard::core::Assignment;
use block::shard::layout::Make;
use block::shard::time::ReadMode;
use block::store::data::SLOT_BYTES;
use block::store::flush::{ApplySync, Policy};
use serde::{Deserialize, Serialize};

use crate::size::Size;

/// The most replicas of a group.
const REPLICAS_MAX: usize = 3;
/// Files of a store's log.
const LOG_FILES: u32 = 8;

/// A cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cluster {
    /// Its id for ever.
    #[serde(rename = "cluster")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) store: Vec<Store>,
    #[serde(default)]
    pub(crate) group: Vec<GroupEntry>,
    #[serde(default)]
    pub(crate) volume: Vec<Volume>,
    #[serde(default)]
    pub(crate) nbd: Nbd,
    #[serde(default)]
    pub(crate) storage: Storage,
    /// The folder of the file.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) id: u64,
    pub(crate) dir: PathBuf,
    pub(crate) address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupEntry {
    pub(crate) id: u32,
    pub(crate) replicas: Vec<u64>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Volume {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) size: Size,
    pub(crate) groups: Vec<u32>,
    #[serde(default = "stripe_unit")]
    pub(crate) stripe_unit: Size,
    #[serde(default = "stripe_count")]
    pub(crate) stripe_count: u32,
}

fn stripe_unit() -> Size {
    Size(u64::from(Striping::default().unit_bytes))
}

fn stripe_count() -> u32 {
    Striping::default().count
}

/// The NBD server's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nbd {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
}

/// The storage options of all stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Storage {
    pub(crate) capacity: Size,
    pub(crate) log: Size,
    pub(crate) apply_sync: String,
    pub(crate) read_mode: String,
    pub(crate) dirty_max: Size,
    pub(crate) checkpoint: Size,
    pub(crate) checkpoint_seconds: u64,
    /// The most writes of the log that may be on their way at once.
    pub(crate) log_depth: u32,
}

impl Default for Storage {
    fn default() -> Self {
        let policy = Policy::of(ApplySync::Background);
        Self {
            capacity: Size(20 << 30),
            log: Size(1 << 30),
            apply_sync: "background".to_owned(),
            read_mode: "lease".to_owned(),
            dirty_max: Size(policy.dirty_bytes_max),
            checkpoint: Size(policy.checkpoint_bytes),
            // The mode's default.
            checkpoint_seconds: 0,
            log_depth: 2,
        }
    }
}

impl Cluster {
    /// Reads a cluster file. Errors name the file, the fault and the remedy.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::io("read", path, e)
                .hint("`ironstone-block dev` writes one, its --help shows how")
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Self::parse(&text, folder).map_err(|e| e.or_file(path))
    }

    pub(crate) fn parse(text: &str, folder: PathBuf) -> Result<Self> {
        let mut cluster: Self = toml::from_str(text).map_err(|e| {
            Error::invalid_argument(format!("not a cluster file: {e}"))
                .hint("`ironstone-block dev` writes one that is right: compare it")
        })?;
        cluster.folder = folder;
        cluster.check()?;
        Ok(cluster)
    }

    /// The file's text.
    pub(crate) fn text(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::broken(format!("a cluster that is no TOML: {e}")))
    }

    fn check(&self) -> Result<()> {
        self.uuid()?;
        let wrong = |what: String, hint: &str| Err(Error::invalid_argument(what).hint(hint));
        if self.store.is_empty() {
            return wrong(
                "there is no store".into(),
                "add a [[store]] with id, dir and address",
            );
        }
        let mut addresses = BTreeSet::new();
        let (mut dirs, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for store in &self.store {
            let id = store.id;
            if id == 0 {
                return wrong("store 0 cannot be".into(), "number stores from 1 on");
            }
            if !ids.insert(id) {
                return wrong(format!("store {id} is there twice"), "give each its own id");
            }
            if !dirs.insert(&store.dir) {
                let what = format!(
                    "store {id} has the directory {} of another",
                    store.dir.display()
                );
                return wrong(what, "give each its own dir");
            }
            if !addresses.insert(&store.address) {
                let what = format!("store {id} has the address {:?} of another", store.address);
                return wrong(what, "give each its own address");
            }
        }
        self.check_groups(&ids)?;
        self.check_volumes()?;
        self.policy()?;
        self.read_mode().map(|_| ())
    }

    fn check_groups(&self, stores: &BTreeSet<u64>) -> Result<()> {
        let wrong = |what: String, hint: &str| Err(Error::invalid_argument(what).hint(hint));
        let mut ids = BTreeSet::new();
        for group in &self.group {
            let (id, replicas) = (group.id, &group.replicas);
            if !ids.insert(id) {
                return wrong(format!("group {id} is there twice"), "give each its own id");
            }
            if replicas.is_empty() {
                let what = format!("group {id} has no stores");
                return wrong(
                    what,
                    "name the stores that have replicas of it: replicas = [1, 2, 3]",
                );
            }
            if replicas.len() > REPLICAS_MAX {
                let what = format!("group {id} has {} replicas", replicas.len());
                return wrong(what, "a group has 1 to 3: name fewer stores");
            }
            if let Some(unknown) = replicas.iter().find(|r| !stores.contains(r)) {
                let what =
                    format!("group {id} has a replica in store {unknown}, which is not there");
                return wrong(what, "add the [[store]], or name another");
            }
            let different: BTreeSet<_> = replicas.iter().collect();
            if different.len() < replicas.len() {
                let what = format!("group {id} names a store twice");
                return wrong(what, "each replica has a store of its own");
            }
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<()> {
        let wrong = |what: String, hint: &str| Err(Error::invalid_argument(what).hint(hint));
        let groups: BTreeSet<u32> = self.group.iter().map(|g| g.id).collect();
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for volume in &self.volume {
            let name = &volume.name;
            if name.is_empty() {
                return wrong("a volume has an empty name".into(), "give it a name");
            }
            if !names.insert(name) {
                return wrong(
                    format!("volume {name:?} is there twice"),
                    "give each its own name",
                );
            }
            if volume.id == 0 || !ids.insert(volume.id) {
                let what = format!("volume {name:?} has the id {}", volume.id);
                return wrong(what, "give each its own id, from 1 on, and never change it");
            }
            if volume.size.0 == 0 || !volume.size.0.is_multiple_of(4096) {
                let what = format!("volume {name:?} has a size of {}", volume.size);
                return wrong(what, "a volume has whole blocks of 4 KiB, at least one");
            }
            if volume.groups.is_empty() {
                let what = format!("volume {name:?} has no groups");
                return wrong(what, "name the groups that have its chunks: groups = [1]");
            }
            if let Some(unknown) = volume.groups.iter().find(|g| !groups.contains(g)) {
                let what = format!("volume {name:?} has group {unknown}, which is not there");
                return wrong(what, "add the [[group]], or name another");
            }
            map_of(volume).map_err(|e| {
                Error::invalid_argument(format!("volume {name:?}: {e}"))
                    .hint("leave stripe_unit and stripe_count out for 1M and 4")
            })?;
        }
        Ok(())
    }

    /// Its id for ever.
    pub(crate) fn uuid(&self) -> Result<Uuid> {
        let wrong = || {
            Error::invalid_argument(format!("cluster = {:?} is no uuid", self.name))
                .hint("make one with `uuidgen`, and never change it")
        };
        let digits: String = self.name.chars().filter(|&c| c != '-').collect();
        if digits.len() != 32 {
            return Err(wrong());
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
        Ok(Uuid(number.to_be_bytes()))
    }

    /// A store by its number. Errors: there is none.
    pub(crate) fn find(&self, id: u64) -> Result<&Store> {
        self.store.iter().find(|s| s.id == id).ok_or_else(|| {
            let all: Vec<String> = self.store.iter().map(|s| s.id.to_string()).collect();
            Error::invalid_argument(format!("there is no store {id}"))
                .hint(format!("the cluster file has {}", all.join(", ")))
        })
    }

    /// A store's directory on this machine.
    pub(crate) fn dir_of(&self, store: &Store) -> PathBuf {
        self.folder.join(&store.dir)
    }

    /// The addresses of all stores.
    pub(crate) fn addresses(&self) -> Result<BTreeMap<u64, SocketAddr>> {
        let all = self.store.iter();
        all.map(|s| Ok((s.id, address(&s.address)?))).collect()
    }

    /// The stores that have replicas of each group.
    pub(crate) fn replicas(&self) -> BTreeMap<Group, Vec<u64>> {
        let all = self.group.iter();
        all.map(|g| (Group(g.id), g.replicas.clone())).collect()
    }

    /// The groups of a store. Errors: too many chunks.
    pub(crate) fn assignments(&self, store: u64) -> Result<Vec<Assignment>> {
        let of = self.group.iter().filter(|g| g.replicas.contains(&store));
        of.map(|g| {
            let chunks = self.chunks_in(g.id)?;
            let too_many =
                || Error::invalid_argument(format!("group {} has {chunks} chunks", g.id));
            Ok(Assignment {
                group: Group(g.id),
                replica: store,
                members: Members::of(&g.replicas),
                chunks_max: u32::try_from(chunks).map_err(|_| too_many())?,
            })
        })
        .collect()
    }

    /// The volumes.
    pub(crate) fn specs(&self) -> Result<Vec<Spec>> {
        let all = self.volume.iter();
        all.map(|v| {
            Ok(Spec {
                name: v.name.clone(),
                description: format!("{} in {} groups", v.size, v.groups.len()),
                map: map_of(v)?,
            })
        })
        .collect()
    }

    /// The most chunks of all volumes that a store may hold.
    pub(crate) fn chunks_of(&self, store: u64) -> Result<u64> {
        let mine = self.group.iter().filter(|g| g.replicas.contains(&store));
        mine.map(|g| self.chunks_in(g.id)).sum()
    }

    /// Number of the volumes' chunks in a group.
    fn chunks_in(&self, group: u32) -> Result<u64> {
        let mut all = 0;
        for volume in &self.volume {
            let chunks = map_of(volume)?.chunks();
            let groups = volume.groups.len() as u64;
            for (nth, _) in (0..).zip(&volume.groups).filter(|(_, g)| **g == group) {
                all += (chunks + groups - 1 - nth) / groups;
            }
        }
        Ok(all)
    }

    /// When stores write back. Errors: invalid values.
    pub(crate) fn policy(&self) -> Result<Policy> {
        let storage = &self.storage;
        let mode: ApplySync = storage.apply_sync.parse()?;
        let usual = Policy::of(mode);
        let policy = Policy {
            apply_sync: mode,
            dirty_bytes_max: storage.dirty_max.0,
            checkpoint_bytes: storage.checkpoint.0,
            checkpoint_interval: match storage.checkpoint_seconds {
                0 => usual.checkpoint_interval,
                seconds => Duration::from_secs(seconds),
            },
        };
        policy.check()?;
        Ok(policy)
    }

    /// How leaders make sure that they still lead when they serve reads. Errors: there is no such mode.
    pub(crate) fn read_mode(&self) -> Result<ReadMode> {
        self.storage.read_mode.parse()
    }

    /// The parameters of a new store. Errors: invalid sizes.
    pub(crate) fn make(&self, store: Uuid) -> Result<Make> {
        let slots = self.storage.capacity.0 / SLOT_BYTES;
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        if slots == 0 {
            return Err(Error::invalid_argument(format!(
                "[storage] capacity = {:?} has no place for a chunk",
                self.storage.capacity.to_string()
            ))
            .hint("say at least 32M"));
        }
        let mib = 1 << 20;
        let file_bytes = self.storage.log.0 / u64::from(LOG_FILES) / mib * mib;
        Ok(Make {
            store,
            cluster: self.uuid()?,
            slots,
            log_files: LOG_FILES,
            log_file_bytes: file_bytes.max(4 << 20),
            allow_in_memory: false,
        })
    }
}

fn map_of(volume: &Volume) -> Result<Map> {
    let striping = Striping {
        unit_bytes: u32::try_from(volume.stripe_unit.0).unwrap_or(u32::MAX),
        count: volume.stripe_count,
    };
    let groups = volume.groups.iter().map(|&g| Group(g)).collect();
    let ids = (Tree(volume.id), Layer(volume.id));
    Map::new(volume.size.0, ids, striping, groups)
}

/// The address of a host and port. Errors: there is none.
pub(crate) fn address(text: &str) -> Result<SocketAddr> {
    let hint = "write a host and a port, as in 127.0.0.1:7101";
    let found = text
        .to_socket_addrs()
        .map_err(|e| Error::invalid_argument(format!("address {text:?}: {e}")).hint(hint))?;
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|a| !a.is_ipv4());
    let first = found.first().copied();
    first.ok_or_else(|| Error::invalid_argument(format!("address {text:?} is nowhere")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        cluster = "0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11"
        [[store]]
        id = 1
        dir = "a"
        address = "127.0.0.1:1"
        [[store]]
        id = 2
        dir = "b"
        address = "127.0.0.1:2"
        [[group]]
        id = 1
        replicas = [1, 2]
        [[volume]]
        id = 1
        name = "vol0"
        size = "1G"
        groups = [1]
    "#;

    fn parse(text: &str) -> Result<Cluster> {
        Cluster::parse(text, PathBuf::from("/c"))
    }

    #[test]
    fn a_cluster_file_is_read_and_written() {
        let cluster = parse(GOOD).unwrap();
        assert_eq!(cluster.uuid().unwrap().to_string(), cluster.name);
        assert_eq!(cluster.chunks_of(1).unwrap(), 64);
        assert_eq!(cluster.dir_of(&cluster.store[0]), Path::new("/c/a"));
        let again = parse(&cluster.text().unwrap()).unwrap();
        assert_eq!(again, cluster);
    }

    #[test]
    fn errors_name_the_thing_and_the_remedy() {
        for (from, to, words) in [
            ("id = 2\n", "id = 1\n", ["store 1 is there twice", "own id"]),
            ("dir = \"b\"", "dir = \"a\"", ["store 2", "own dir"]),
            ("1:2\"", "1:1\"", ["127.0.0.1:1", "own address"]),
            ("[1, 2]", "[1, 2, 3]", ["store 3", "[[store]]"]),
            ("[1, 2]", "[1, 2, 1, 2]", ["4 replicas", "1 to 3"]),
            ("[1, 2]", "[]", ["group 1 has no stores", "replicas ="]),
            ("[1, 2]", "[1, 1]", ["names a store twice", "of its own"]),
            ("groups = [1]", "groups = [7]", ["group 7", "[[group]]"]),
            ("groups = [1]", "groups = []", ["no groups", "groups ="]),
            ("\"1G\"", "0", ["size of 0", "at least one"]),
            ("\"1G\"", "\"1X\"", ["is no size", "10G"]),
            ("dir = \"a\"", "dirr = \"a\"", ["dirr", "dir"]),
            ("0d1c", "0d1", ["is no uuid", "uuidgen"]),
            (
                "groups = [1]",
                "groups = [1]\nstripe_unit = 5",
                ["vol0", "stripe"],
            ),
            (
                "groups = [1]",
                "groups = [1]\n[storage]\napply_sync = \"x\"",
                ["apply_sync", "not x"],
            ),
            (
                "groups = [1]",
                "groups = [1]\n[storage]\nread_mode = \"x\"",
                ["read_mode", "not x"],
            ),
            (
                "groups = [1]",
                "groups = [1]\n[[volume]]\nid = 2\nname = \"vol0\"\nsize = 4096\ngroups = [1]",
                ["\"vol0\" is there twice", "own name"],
            ),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            assert_ne!(bad, GOOD, "{from}");
            let e = parse(&bad).unwrap_err().to_string();
            assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
        }
        assert!(parse("cluster = \"0d1c5c2e-9d3a-4f4b-8a64-0d6f2f0c7a11\"").is_err());
    }
}
