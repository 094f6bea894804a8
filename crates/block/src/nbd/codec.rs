//! The encoding of NBD. All numbers are big-endian.
//!
//! ```text
//!   greeting       "NBDMAGIC" "IHAVEOPT" 16+2 flags            answer: 0+4 flags
//!   option         "IHAVEOPT" 8+4 option  12+4 bytes  16… data
//!   option reply   0+8 magic  8+4 option  12+4 kind  16+4 bytes  20… data
//!   request        0+4 magic  4+2 flags  6+2 command  8+8 cookie  16+8 offset  24+4 bytes  28… payload
//!   simple reply   0+4 magic  4+4 errno  8+8 cookie   16… data
//!   chunk          0+4 magic  4+2 flags  6+2 kind     8+8 cookie  16+4 bytes   20… data
//! ```
//!
//! Decoders return `None` for bytes that they cannot decode; they allocate nothing.

use base::coding::Decoder;
use base::{Error, ErrorKind};

/// The first word of a greeting.
pub const NBDMAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// The second word of a greeting, and the first of each option.
pub const IHAVEOPT: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// The first word of a reply to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// The first word of a request.
pub const REQUEST: u32 = 0x2560_9513;
/// The first word of a simple reply.
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
/// The first word of a chunk of a structured reply.
pub const CHUNK: u32 = 0x668e_33ef;

/// Flags of the greeting, and of the answer to it.
pub mod greeting {
    /// The server replies to each option.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No zeros after the reply to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 2;
}

/// Flags that describe an export's abilities.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF is supported.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers the acknowledged writes of all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag `FAST_ZERO` is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of requests.
pub mod flags {
    /// The write must be durable before it is acknowledged.
    pub const FUA: u16 = 1;
    /// `WRITE_ZEROES` must leave no hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// A read must be answered with one chunk.
    pub const DF: u16 = 1 << 2;
    /// `BLOCK_STATUS` asks for one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `WRITE_ZEROES` must fail if it is not faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The supported options; others are refused by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Opt {
    /// Begins transmission; the server cannot refuse with a reply.
    ExportName = 1,
    /// Ends the connection.
    Abort = 2,
    /// Names all exports.
    List = 3,
    /// Asks for TLS.
    StartTls = 5,
    /// Describes an export.
    Info = 6,
    /// Begins transmission.
    Go = 7,
    /// Asks for structured replies.
    StructuredReply = 8,
    /// Names meta contexts.
    ListMetaContext = 9,
    /// Chooses meta contexts.
    SetMetaContext = 10,
    /// Asks for extended headers, with lengths of 64 bits.
    ExtendedHeaders = 11,
}

impl Opt {
    /// The option of this number.
    pub fn of(number: u32) -> Option<Self> {
        use Opt::{
            Abort, ExportName, ExtendedHeaders, Go, Info, List, ListMetaContext, SetMetaContext,
            StartTls, StructuredReply,
        };
        [
            ExportName,
            Abort,
            List,
            StartTls,
            Info,
            Go,
            StructuredReply,
            ListMetaContext,
            SetMetaContext,
            ExtendedHeaders,
        ]
        .into_iter()
        .find(|&o| o as u32 == number)
    }
}

/// Kinds of replies to options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptReply {
    /// Done.
    Ack = 1,
    /// The name of an export.
    Server = 2,
    /// Information about an export.
    Info = 3,
    /// A meta context.
    MetaContext = 4,
    /// The option is not supported.
    Unsup = 0x8000_0001,
    /// The option is supported and not allowed.
    Policy = 0x8000_0002,
    /// The option's data is malformed.
    Invalid = 0x8000_0003,
    /// The server is not able to.
    Platform = 0x8000_0004,
    /// No such export.
    Unknown = 0x8000_0006,
    /// The server is being stopped.
    Shutdown = 0x8000_0007,
    /// Too much data.
    TooBig = 0x8000_0009,
}

impl OptReply {
    /// The reply for an export's refusal.
    pub fn refusing(e: &Error) -> Self {
        match e.kind() {
            ErrorKind::NotFound => Self::Unknown,
            ErrorKind::ShutdownInProgress => Self::Shutdown,
            ErrorKind::NotSupported => Self::Unsup,
            ErrorKind::InvalidArgument => Self::Invalid,
            ErrorKind::Busy | ErrorKind::Aborted => Self::Policy,
            _ => Self::Platform,
        }
    }
}

/// The information that INFO and GO may ask for.
pub mod info {
    /// Size and flags; always sent.
    pub const EXPORT: u16 = 0;
    /// The name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// The minimum, preferred and maximum size of a request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The supported commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// Reads.
    Read = 0,
    /// Writes; the only one with a payload.
    Write = 1,
    /// Ends the connection.
    Disc = 2,
    /// Makes durable what was acknowledged.
    Flush = 3,
    /// The bytes are not needed any more.
    Trim = 4,
    /// The bytes will be read soon.
    Cache = 5,
    /// Writes zeros.
    WriteZeroes = 6,
    /// Asks where holes are.
    BlockStatus = 7,
}

impl Command {
    /// The command of this number.
    pub fn of(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disc,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            _ => return None,
        })
    }
}

/// Error numbers of NBD, which are the same on every system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not allowed.
    Perm = 1,
    /// The bytes cannot be read or written.
    Io = 5,
    /// No memory.
    NoMemory = 12,
    /// The request is invalid.
    Invalid = 22,
    /// No space.
    NoSpace = 28,
    /// Too much data for one chunk.
    Overflow = 75,
    /// Not possible in the requested way.
    NotSupported = 95,
    /// The server is being stopped.
    Shutdown = 108,
}

impl From<&Error> for Errno {
    fn from(e: &Error) -> Self {
        match e.kind() {
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::InvalidArgument => Self::Invalid,
            ErrorKind::NotSupported => Self::NotSupported,
            ErrorKind::ShutdownInProgress => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

/// Kinds of chunks of structured replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Chunk {
    /// No content: the end of a reply.
    None = 0,
    /// Bytes that were read.
    OffsetData = 1,
    /// Zeros that were read.
    OffsetHole = 2,
    /// Extents of a meta context.
    BlockStatus = 5,
    /// An error.
    Error = 0x8001,
}

/// The flag of a reply's last chunk.
const DONE: u16 = 1;
/// An extent that is not allocated.
const STATE_HOLE: u32 = 1;
/// An extent that reads as zeros.
const STATE_ZERO: u32 = 2;

/// Bytes of a client's answer to the greeting.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes of an option before its data.
pub const OPTION_LEN: usize = 16;
/// Bytes of a request before its payload.
pub const REQUEST_LEN: usize = 28;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 4096;
/// The most bytes of a read, or of a write's payload.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The preferred size of requests.
pub const PREFERRED_BYTES: u32 = crate::ids::BLOCK as u32;

/// Decoding of numbers in network byte order.
trait BigEndian {
    fn be16(&mut self) -> Option<u16>;
    fn be32(&mut self) -> Option<u32>;
    fn be64(&mut self) -> Option<u64>;
}

impl BigEndian for Decoder<'_> {
    fn be16(&mut self) -> Option<u16> {
        self.u16().map(u16::swap_bytes)
    }

    fn be32(&mut self) -> Option<u32> {
        self.u32().map(u32::swap_bytes)
    }

    fn be64(&mut self) -> Option<u64> {
        self.u64().map(u64::swap_bytes)
    }
}

/// The server's greeting.
pub fn greet() -> Vec<u8> {
    let flags = greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES;
    [
        &NBDMAGIC.to_be_bytes()[..],
        &IHAVEOPT.to_be_bytes(),
        &flags.to_be_bytes(),
    ]
    .concat()
}

/// A client's answer to the greeting; `None`: bytes are missing.
pub fn client_flags(bytes: &[u8]) -> Option<u32> {
    Decoder::new(bytes).be32()
}

/// The head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// Must be [`IHAVEOPT`].
    pub magic: u64,
    /// The option's number, supported or not.
    pub option: u32,
    /// Bytes of data behind the head, as the client claims.
    pub bytes: u32,
}

impl OptionHead {
    /// Decodes a head; `None`: bytes are missing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut d = Decoder::new(bytes);
        Some(Self {
            magic: d.be64()?,
            option: d.be32()?,
            bytes: d.be32()?,
        })
    }
}

/// Appends a reply to an option.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: OptReply, data: &[&[u8]]) {
    let bytes: usize = data.iter().map(|d| d.len()).sum();
    out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(kind as u32).to_be_bytes());
    out.extend_from_slice(&(bytes as u32).to_be_bytes());
    for part in data {
        out.extend_from_slice(part);
    }
}

/// The reason why an option's data is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOption {
    /// It is malformed.
    Invalid,
    /// A name is longer than [`NAME_BYTES_MAX`].
    TooBig,
}

/// A name behind its length.
fn name<'a>(d: &mut Decoder<'a>) -> Result<&'a str, BadOption> {
    let bytes = d.be32().ok_or(BadOption::Invalid)? as usize;
    if bytes > NAME_BYTES_MAX {
        return Err(BadOption::TooBig);
    }
    plain(d.bytes(bytes).ok_or(BadOption::Invalid)?)
}

/// Checks that a name is text: UTF-8 without NUL.
pub fn plain(name: &[u8]) -> Result<&str, BadOption> {
    if name.len() > NAME_BYTES_MAX {
        return Err(BadOption::TooBig);
    }
    std::str::from_utf8(name)
        .ok()
        .filter(|n| !n.contains('\0'))
        .ok_or(BadOption::Invalid)
}

/// The data of INFO and GO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// Numbers of the requested information, big-endian.
    wants: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Decodes the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, BadOption> {
        let mut d = Decoder::new(data);
        let name = name(&mut d)?;
        let count = d.be16().ok_or(BadOption::Invalid)?;
        if d.len() != usize::from(count) * 2 {
            return Err(BadOption::Invalid);
        }
        Ok(Self {
            name,
            wants: d.rest(),
        })
    }

    /// Whether this information is requested: see [`info`].
    pub fn wants(&self, what: u16) -> bool {
        self.wants.chunks(2).any(|w| w == what.to_be_bytes())
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// Number of queries.
    pub queries: u32,
    /// Whether one of them is [`ALLOCATION`].
    pub allocation: bool,
    /// Whether one of them is `base:`, which means the whole namespace.
    pub base: bool,
}

/// The only meta context that is supported.
pub const ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const ALLOCATION_ID: u32 = 1;

impl<'a> MetaRequest<'a> {
    /// Decodes the data.
    pub fn decode(data: &'a [u8]) -> Result<Self, BadOption> {
        let mut d = Decoder::new(data);
        let mut request = Self {
            name: name(&mut d)?,
            queries: d.be32().ok_or(BadOption::Invalid)?,
            allocation: false,
            base: false,
        };
        // Each query takes at least 4 bytes, so a wrong count ends the loop at the end of the bytes.
        for _ in 0..request.queries {
            let query = name(&mut d)?;
            request.allocation |= query == ALLOCATION;
            request.base |= query == "base:";
        }
        d.is_empty().then_some(request).ok_or(BadOption::Invalid)
    }
}

/// A request as it was received, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Must be [`REQUEST`].
    pub magic: u32,
    /// See [`flags`].
    pub flags: u16,
    /// See [`Command::of`].
    pub command: u16,
    /// The client's own id; two requests may have the same.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Request {
    /// Decodes a request; `None`: bytes are missing.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut d = Decoder::new(bytes.get(..REQUEST_LEN)?);
        Some(Self {
            magic: d.be32()?,
            flags: d.be16()?,
            command: d.be16()?,
            cookie: d.be64()?,
            offset: d.be64()?,
            len: d.be32()?,
        })
    }
}

/// The few bytes before a reply's data, without an allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Head {
    const MAX: usize = 32;

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        let at = usize::from(self.len);
        if let Some(room) = self.bytes.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len() as u8;
        } else {
            debug_assert!(false, "a head longer than {}", Self::MAX);
        }
        self
    }
}

/// A simple reply; an `errno` of 0 means success.
pub fn simple_reply(cookie: u64, errno: u32) -> Head {
    Head::default()
        .put(&SIMPLE_REPLY.to_be_bytes())
        .put(&errno.to_be_bytes())
        .put(&cookie.to_be_bytes())
}

/// The head of a chunk with `bytes` bytes of data.
fn chunk(cookie: u64, done: bool, kind: Chunk, bytes: u32) -> Head {
    Head::default()
        .put(&CHUNK.to_be_bytes())
        .put(&(if done { DONE } else { 0 }).to_be_bytes())
        .put(&(kind as u16).to_be_bytes())
        .put(&cookie.to_be_bytes())
        .put(&bytes.to_be_bytes())
}

/// The only chunk of a reply without data that reports success.
pub fn none_chunk(cookie: u64) -> Head {
    chunk(cookie, true, Chunk::None, 0)
}

/// The bytes before `len` bytes of read data.
pub fn data_chunk(cookie: u64, done: bool, offset: u64, len: u32) -> Head {
    chunk(cookie, done, Chunk::OffsetData, len + 8).put(&offset.to_be_bytes())
}

/// A chunk that stands for `len` read zeros.
pub fn hole_chunk(cookie: u64, done: bool, offset: u64, len: u32) -> Head {
    chunk(cookie, done, Chunk::OffsetHole, 12)
        .put(&offset.to_be_bytes())
        .put(&len.to_be_bytes())
}

/// The bytes before an error text of `text_bytes` bytes.
pub fn error_chunk(cookie: u64, errno: Errno, text_bytes: u16) -> Head {
    chunk(cookie, true, Chunk::Error, u32::from(text_bytes) + 6)
        .put(&(errno as u32).to_be_bytes())
        .put(&text_bytes.to_be_bytes())
}

/// The bytes before `extents` extents of `base:allocation`.
pub fn status_chunk(cookie: u64, extents: u32) -> Head {
    chunk(cookie, true, Chunk::BlockStatus, 4 + extents * 8).put(&ALLOCATION_ID.to_be_bytes())
}

/// Appends an extent of `base:allocation`.
pub fn put_extent(out: &mut Vec<u8>, len: u32, hole: bool, zero: bool) {
    let state = if hole { STATE_HOLE } else { 0 } | if zero { STATE_ZERO } else { 0 };
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&state.to_be_bytes());
}

#[cfg(test)]
mod tests;
