//! The durable log: synced records survive a crash, in the order in which they were appended.
//!
//! One crate frames, writes and recovers both logs of a database, the WAL and the MANIFEST, in
//! RocksDB's format (`docs/formats.md`, "WAL").
//!
//! ```text
//!   append ──> format ──> tail ──submit──> operating system ──sync──> device
//!              frames     bytes not yet    one write per group        DSYNC, or fdatasync
//!              records    written out
//!              appended ≥ ─────── submitted ≥ ─────────────── durable      (sync::Watermarks)
//!
//!   Reader <── physical <── file      recovery: four modes for a WAL, a strict one for a MANIFEST
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | [`mod@format`] | constants, record types, headers, framing |
//! | [`appender`] | [`Appender`]: append, then a [`Flight`] to the device; poisoned by the first failure |
//! | [`writer`] | [`Writer`]: an appender of RocksDB's records |
//! | [`aligned`] | [`Batches`]: an appender of batches that share no unit of the device |
//! | `tail` | bytes between append and submit, and the partial last unit of a direct file |
//! | [`fence`] | what was durable when: tells corruption from a torn tail |
//! | [`note`] | which log came before, and where it ended; the nonce of the log |
//! | [`secret`] | where the nonces of logs come from |
//! | [`chain`] | the logs of a recovery, linked by their notes |
//! | [`pool`] | zero-filled files made ahead |
//! | [`sync`] | [`Watermarks`], and [`Syncer`] to sync without holding the writer |
//! | [`names`] | [`Names`]: which logs have durable names |
//! | [`reader`] | [`Reader`]: logical records, recovery modes, how the log ended |
//! | [`physical`] | physical records, for the reader and for tools |
//! | `recover` | the four modes: what each makes of damage in a WAL |
//! | `strict` | tells a torn tail of a MANIFEST from damage |
//! | `inflate`, `deflate` | compressed WAL records: reading, writing |
//! | `pack` | which parts of a record are compressed, and which are stored raw so that they can be found |
//! | [`salvage`] | reads what is still readable in a damaged log; rewrites the log |
//! | [`trim`] | cuts a torn tail off |
//! | [`options`] | [`LogOptions`], [`ReaderOptions`], [`RecoveryMode`] |
//!
//! ```
//! use std::sync::Arc;
//! use io::{FileSystem, OpenHow, posix::Posix};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("000004.log");
//! let file = Posix.open(&path, OpenHow::CREATE_NEW)?;
//! let mut writer = log::Writer::new(file.clone(), log::LogOptions::default());
//! writer.append(b"one")?;
//! writer.append(b"two")?;
//! writer.sync()?;                       // both are on the device now
//!
//! let mut reader = log::Reader::new(file, 0, log::ReaderOptions::default());
//! let mut record = Vec::new();
//! while reader.read(&mut record)? {
//!     assert!(record == b"one" || record == b"two");
//! }
//! assert_eq!(reader.end(), &log::End::Clean { offset: 20 });
//! # Ok::<(), base::Error>(())
//! ```

pub mod aligned;
pub mod appender;
pub mod chain;
mod deflate;
pub mod fence;
pub mod format;
mod inflate;
mod locks;
#[cfg(loom)]
pub mod models;
pub mod names;
pub mod note;
pub mod options;
mod pack;
pub mod physical;
pub mod pool;
pub mod reader;
pub mod salvage;
pub mod secret;
mod statement;
mod strict;
pub mod sync;
mod tail;
pub mod trim;
pub mod writer;

pub use aligned::{Aligned, Batch, Batches};
pub use appender::{Appender, Flight, Framing};
pub use chain::Chain;
pub use fence::{Fence, Trust};
pub use names::Names;
pub use note::Note;
pub use options::{LogOptions, ReaderOptions, RecoveryMode, TailPolicy, WalSync};
pub use physical::{PhysicalRecord, PhysicalRecords};
pub use pool::{Next, Pool, PoolOptions, Taken};
pub use reader::{End, Reader};
pub use secret::Secrets;
pub use sync::{LogEnd, Lsn, Syncer, Watermarks};
pub use tail::{Chunk, Content};
pub use writer::{Rocks, Writer};
