//! The first message of each side: its identity, and the version and features of the protocol.
//!
//! ```text
//!   0+16 cluster   16+2 version   18+1 role   19+1 zero   20+4 zero   24+8 id
//!   32+8 features that the other side must know   40+8 features that it may know   48+16 the store, or zeros
//! ```
//!
//! Bytes behind these fields are for later releases: they are not read. A side that is refused gets the reason
//! as a text.

use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};

use super::frame::{Frame, Lane, kind};
use super::remedy;
use crate::ids::Uuid;

/// The protocol's version.
pub const VERSION: u16 = 1;
/// The oldest version that is supported.
pub const VERSION_MIN: u16 = 1;
/// The most bytes of a refusal's text.
const REFUSAL_BYTES_MAX: usize = 1024;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Catalog, placement, repair.
    Meta = 1,
    /// A process with stores.
    Chunk = 2,
    /// A client of stores.
    Client = 3,
    /// A tool of the administrator.
    Control = 4,
}

impl Role {
    fn of(byte: u8) -> Option<Self> {
        [Self::Meta, Self::Chunk, Self::Client, Self::Control]
            .into_iter()
            .find(|&role| role as u8 == byte)
    }
}

/// Feature bits. None is defined yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A peer that does not know all of these is refused.
    pub needed: u64,
    /// Features that are used if both sides know them.
    pub optional: u64,
}

/// The first message of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The cluster.
    pub cluster: Uuid,
    /// The version of the protocol.
    pub version: u16,
    /// The features of the protocol.
    pub features: Features,
    /// The role of the process.
    pub role: Role,
    /// Its id in the cluster.
    pub id: u64,
    /// The store's id, which was drawn when it was created; zeros: no store.
    pub store: Uuid,
}

/// The version and features that both sides use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The lower of both versions.
    pub version: u16,
    /// Features that both sides know.
    pub features: u64,
}

impl Hello {
    /// A hello of this release.
    pub fn new(cluster: Uuid, role: Role, id: u64) -> Self {
        Self {
            cluster,
            version: VERSION,
            features: Features::default(),
            role,
            id,
            store: Uuid::default(),
        }
    }

    /// The same for this store.
    #[must_use]
    pub fn of_store(self, store: Uuid) -> Self {
        Self { store, ..self }
    }

    /// The hello as a frame.
    pub fn frame(&self) -> Frame {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&self.cluster.0);
        put_u16(&mut out, self.version);
        out.extend_from_slice(&[self.role as u8, 0]);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.id);
        put_u64(&mut out, self.features.needed);
        put_u64(&mut out, self.features.optional);
        out.extend_from_slice(&self.store.0);
        Frame {
            sender: self.id,
            ..Frame::new(kind::HELLO, Lane::Heartbeat, out)
        }
    }

    /// Decodes a hello. Errors: Corruption; the peer's reason if it refuses the connection.
    pub fn of(frame: &Frame) -> Result<Self> {
        match frame.kind {
            kind::HELLO => Self::read(&frame.fields).ok_or_else(|| {
                Error::corruption("wire: a hello that cannot be read").hint(remedy::SAME_RELEASE)
            }),
            kind::REFUSAL => Err(refused(frame)),
            other => Err(Error::corruption(format!(
                "wire: a message of kind {other} before the hello"
            ))
            .hint(remedy::SAME_RELEASE)),
        }
    }

    fn read(fields: &[u8]) -> Option<Self> {
        let mut d = Decoder::new(fields);
        let cluster = Uuid(d.bytes(16)?.try_into().ok()?);
        let (version, role, _) = (d.u16()?, Role::of(d.u8()?)?, d.bytes(5)?);
        Some(Self {
            cluster,
            version,
            role,
            id: d.u64()?,
            features: Features {
                needed: d.u64()?,
                optional: d.u64()?,
            },
            store: Uuid(d.bytes(16)?.try_into().ok()?),
        })
    }

    /// What both sides use. Errors: the reason why they cannot talk.
    pub fn agree(&self, theirs: &Self) -> Result<Agreed> {
        if theirs.cluster != self.cluster {
            return Err(Error::invalid_argument(format!(
                "wire: a peer of cluster {} came to {} of cluster {}",
                theirs.cluster, self.id, self.cluster
            ))
            .hint(remedy::CLUSTER_FILE));
        }
        if theirs.version < VERSION_MIN {
            return Err(Error::not_supported(format!(
                "wire: peer {} speaks version {}: {VERSION_MIN} is the oldest that is spoken here",
                theirs.id, theirs.version
            ))
            .hint(remedy::SAME_RELEASE));
        }
        let known = self.features.needed | self.features.optional;
        let unknown = theirs.features.needed & !known;
        if unknown != 0 {
            return Err(Error::not_supported(format!(
                "wire: peer {} needs the features {unknown:#x}, which are not known here",
                theirs.id
            ))
            .hint(remedy::SAME_RELEASE));
        }
        Ok(Agreed {
            version: self.version.min(theirs.version),
            features: known & (theirs.features.needed | theirs.features.optional),
        })
    }
}

/// The message that refuses a peer.
pub fn refusal(why: &Error) -> Frame {
    let mut text = why.to_string();
    while text.len() > REFUSAL_BYTES_MAX {
        text.pop();
    }
    Frame::new(kind::REFUSAL, Lane::Heartbeat, text.into_bytes())
}

/// The text of a refusal, as an error.
pub(super) fn refused(frame: &Frame) -> Error {
    let text = frame.fields.get(..REFUSAL_BYTES_MAX);
    let text = String::from_utf8_lossy(text.unwrap_or(&frame.fields));
    Error::not_supported(format!("wire: refused by the peer: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello::new(Uuid([4; 16]), Role::Chunk, 9)
    }

    #[test]
    fn a_hello_is_read() {
        let mut want = hello();
        want.features = Features {
            needed: 5,
            optional: 8,
        };
        let mut frame = want.frame();
        assert_eq!(Hello::of(&frame).unwrap(), want);
        let mut longer = frame.fields.to_vec();
        longer.push(7);
        frame.fields = longer.into();
        assert_eq!(Hello::of(&frame).unwrap(), want, "of a later release");
        for cut in 0..48 {
            frame.fields = frame
                .fields
                .slice(..frame.fields.len().min(47 - cut.min(47)));
            let e = Hello::of(&frame).unwrap_err();
            says(&e, ["hello that cannot be read", "run the same release"]);
        }
        frame.kind = kind::RESPONSE;
        let e = Hello::of(&frame).unwrap_err();
        says(&e, ["kind 17 before the hello", "run the same release"]);
    }

    /// The error names the fault and the remedy.
    fn says(e: &Error, words: [&str; 2]) {
        let e = e.to_string();
        assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
    }

    #[test]
    fn strangers_are_refused_by_name() {
        let mut mine = hello();
        mine.features = Features {
            needed: 1,
            optional: 6,
        };
        let mut theirs = hello();
        theirs.features = Features {
            needed: 2,
            optional: 0x81,
        };
        let agreed = mine.agree(&theirs).unwrap();
        assert_eq!((agreed.version, agreed.features), (VERSION, 3));
        theirs.features.needed = 0x42;
        let e = mine.agree(&theirs).unwrap_err();
        says(&e, ["features 0x40", "run the same release"]);
        theirs.version = 0;
        let e = mine.agree(&theirs).unwrap_err();
        says(&e, ["peer 9 speaks version 0", "run the same release"]);
        theirs.cluster = Uuid([5; 16]);
        let e = mine.agree(&theirs).unwrap_err();
        says(&e, ["of cluster 05050505-", "which cluster file"]);
        let told = Hello::of(&refusal(&e)).unwrap_err();
        says(&told, ["of cluster 05050505-", "which cluster file"]);
    }
}
