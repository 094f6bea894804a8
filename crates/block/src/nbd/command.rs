//! The requests that a client may make of an export, and the replies to them.
//!
//! `admit` is the only place that judges a request. It is pure: it takes the request as received, the
//! export and the negotiated options, and returns an operation that lies within the export, or a refusal.
//!
//! | refused | with |
//! |---|---|
//! | an unknown command or flag, or a flag that belongs to another command | `EINVAL` |
//! | reads and writes of more than 32 MiB | `EINVAL` |
//! | a change of a read-only export | `EPERM` |
//! | a write over the end, or whose offset and length overflow | `ENOSPC` |
//! | anything else over the end | `EINVAL` |
//! | `FAST_ZERO` where zeroing takes as long as writing | `ENOTSUP` |
//!
//! Requests without a payload may be longer than 32 MiB: clients trim and zero in steps of gigabytes.

use bytes::Bytes;

use super::codec::{self, Command, Errno, REQUEST_BYTES_MAX, flags, transmission};

/// Identifies an export while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportId(pub u64);

/// The information that a client gets about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// The server's id for it from now on.
    pub id: ExportId,
    /// The name by which clients ask for it.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether zeroing takes no longer than a few writes, whatever its length.
    pub fast_zero: bool,
}

impl ExportInfo {
    /// The transmission flags. A flush on one connection covers the acknowledged writes of all: see
    /// [`super::exports::Exports`].
    pub fn flags(&self, structured: bool) -> u16 {
        use transmission::{
            CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_CACHE, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH,
            SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
        };
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_CACHE | CAN_MULTI_CONN;
        let changes = if self.read_only {
            READ_ONLY
        } else {
            SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO
        };
        always | changes | if structured { SEND_DF } else { 0 }
    }
}

/// An operation on an export. It lies within the export. Reads and writes have 1 byte to 32 MiB, the others
/// 1 byte to 4 GiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Answered by [`Reply::Data`] or [`Reply::Pieces`].
    Read {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// The client wants a single chunk, so it cannot use pieces.
        df: bool,
    },
    /// Answered by [`Reply::Done`].
    Write {
        /// Offset in bytes.
        offset: u64,
        /// The content; its address is a multiple of 4096.
        bytes: Bytes,
        /// Must be durable before it is answered.
        fua: bool,
    },
    /// Answered by [`Reply::Done`] once everything that was answered before the flush arrived is durable.
    Flush,
    /// The bytes are not needed any more. Answered by [`Reply::Done`].
    Trim {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// Must be durable before it is answered.
        fua: bool,
    },
    /// The bytes are zero from now on. Answered by [`Reply::Done`].
    Zero {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// The space stays allocated.
        no_hole: bool,
        /// To be refused with `ENOTSUP` if zeros would have to be written out.
        fast: bool,
        /// Must be durable before it is answered.
        fua: bool,
    },
    /// The bytes will be read soon. Answered by [`Reply::Done`].
    Cache {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Asks where holes are. Answered by [`Reply::Status`].
    BlockStatus {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// One extent is enough.
        one: bool,
    },
}

/// A part of the data of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes.
    Data(Bytes),
    /// This many zeros, which are stored nowhere.
    Hole(u32),
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Hole(len) => u64::from(*len),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A run of bytes in the same state, for [`Op::BlockStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Whether no space is allocated for them.
    pub hole: bool,
    /// Whether they read as zeros.
    pub zero: bool,
}

/// The reply to an operation that has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// The read bytes: as many as were requested.
    Data(Bytes),
    /// The read bytes in pieces, in order; their lengths add up to the requested length.
    Pieces(Vec<Piece>),
    /// The extents from the offset on, at least one byte of them; the session cuts them at the end of the
    /// requested range.
    Status(Vec<Extent>),
}

/// The options that client and server have negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Replies are structured.
    pub structured: bool,
    /// The client chose `base:allocation`.
    pub allocation: bool,
}

/// A request that passed the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// A complete operation.
    Op(Op),
    /// A write, whose payload follows.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// Must be durable before it is answered.
        fua: bool,
    },
    /// Nothing to do: the length is zero.
    Nothing,
    /// The end of the connection.
    Disconnect,
}

/// A refusal: the error number, and a text.
pub(super) type Refused = (Errno, &'static str);

/// Judges a request: see the module's documentation.
pub(super) fn admit(
    request: &codec::Request,
    export: &ExportInfo,
    agreed: Agreed,
) -> Result<Admitted, Refused> {
    let Some(command) = Command::of(request.command) else {
        return Err((
            Errno::Invalid,
            "unknown command: use those that the export's flags name",
        ));
    };
    if command == Command::Disc {
        return Ok(Admitted::Disconnect);
    }
    check_flags(request.flags, command, agreed)?;
    check_range(request, command, export)?;
    if request.flags & flags::FAST_ZERO != 0 && !export.fast_zero {
        return Err((
            Errno::NotSupported,
            "zeroing is not fast here: write zeros, or ask without the flag FAST_ZERO",
        ));
    }
    if request.len == 0 && command != Command::Flush {
        return Ok(Admitted::Nothing);
    }
    Ok(operation(request, command))
}

fn check_flags(given: u16, command: Command, agreed: Agreed) -> Result<(), Refused> {
    let own = match command {
        Command::Read if agreed.structured => flags::DF,
        Command::WriteZeroes => flags::NO_HOLE | flags::FAST_ZERO,
        Command::BlockStatus if !agreed.allocation => {
            return Err((
                Errno::Invalid,
                "no meta context was chosen: choose base:allocation before OPT_GO",
            ));
        }
        Command::BlockStatus => flags::REQ_ONE,
        _ => 0,
    };
    if given & !(own | flags::FUA) == 0 {
        Ok(())
    } else {
        Err((
            Errno::Invalid,
            "unknown flag: use those that the export's flags name",
        ))
    }
}

fn check_range(
    request: &codec::Request,
    command: Command,
    export: &ExportInfo,
) -> Result<(), Refused> {
    let &codec::Request { offset, len, .. } = request;
    let changes = matches!(
        command,
        Command::Write | Command::Trim | Command::WriteZeroes
    );
    let moves_bytes = matches!(command, Command::Read | Command::Write);
    if changes && export.read_only {
        return Err((
            Errno::Perm,
            "the export is read-only: attach one that is not",
        ));
    }
    if moves_bytes && len > REQUEST_BYTES_MAX {
        return Err((Errno::Invalid, "more than 32 MiB: ask for less at once"));
    }
    if command == Command::Flush && (offset, len) != (0, 0) {
        return Err((Errno::Invalid, "a flush has no offset and no length: say 0"));
    }
    if command == Command::BlockStatus && len == 0 {
        return Err((
            Errno::Invalid,
            "the status of no bytes: ask for one at least",
        ));
    }
    let end = offset.checked_add(u64::from(len));
    if end.is_some_and(|end| end <= export.size) {
        return Ok(());
    }
    let grows = matches!(command, Command::Write | Command::WriteZeroes);
    let errno = if grows {
        Errno::NoSpace
    } else {
        Errno::Invalid
    };
    Err((
        errno,
        "beyond the end of the export: ask for its size, and stay below",
    ))
}

fn operation(request: &codec::Request, command: Command) -> Admitted {
    let &codec::Request { offset, len, .. } = request;
    let has = |flag| request.flags & flag != 0;
    let fua = has(flags::FUA);
    Admitted::Op(match command {
        Command::Read => Op::Read {
            offset,
            len,
            df: has(flags::DF),
        },
        Command::Write => return Admitted::Write { offset, fua },
        Command::Disc => return Admitted::Disconnect,
        Command::Flush => Op::Flush,
        Command::Trim => Op::Trim { offset, len, fua },
        Command::Cache => Op::Cache { offset, len },
        Command::WriteZeroes => Op::Zero {
            offset,
            len,
            no_hole: has(flags::NO_HOLE),
            fast: has(flags::FAST_ZERO),
            fua,
        },
        Command::BlockStatus => Op::BlockStatus {
            offset,
            len,
            one: has(flags::REQ_ONE),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 100 << 20;
    const ALL: Agreed = Agreed {
        structured: true,
        allocation: true,
    };

    fn export() -> ExportInfo {
        ExportInfo {
            id: ExportId(1),
            name: "vol".to_owned(),
            description: String::new(),
            size: SIZE,
            read_only: false,
            fast_zero: false,
        }
    }

    fn request(command: Command, flags: u16, offset: u64, len: u32) -> codec::Request {
        codec::Request {
            magic: codec::REQUEST,
            flags,
            command: command as u16,
            cookie: 7,
            offset,
            len,
        }
    }

    fn errno(command: Command, flags: u16, offset: u64, len: u32) -> Option<Errno> {
        let request = request(command, flags, offset, len);
        admit(&request, &export(), ALL).err().map(|(e, _)| e)
    }

    #[test]
    fn ranges_beyond_the_end() {
        use Command::{BlockStatus, Cache, Read, Trim, Write, WriteZeroes};
        let beyond = [
            (SIZE - 1, 2),
            (SIZE, 1),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
            (u64::MAX - 4095, 4096),
            (SIZE + 1, 0),
        ];
        for (offset, len) in beyond {
            for command in [Read, Trim, Cache, BlockStatus] {
                assert_eq!(
                    errno(command, 0, offset, len),
                    Some(Errno::Invalid),
                    "{command:?} {offset} {len}"
                );
            }
            let grown = errno(WriteZeroes, 0, offset, len);
            assert_eq!(grown, Some(Errno::NoSpace), "{offset} {len}");
        }
        assert_eq!(errno(Write, 0, SIZE - 1, 2), Some(Errno::NoSpace));
        assert_eq!(errno(Write, 0, u64::MAX, 2), Some(Errno::NoSpace));
        for command in [Read, Write, Trim, Cache, WriteZeroes, BlockStatus] {
            assert_eq!(errno(command, 0, SIZE - 4096, 4096), None, "{command:?}");
        }
    }

    #[test]
    fn only_what_moves_bytes_is_bounded_by_32_mib() {
        use Command::{BlockStatus, Cache, Read, Trim, Write, WriteZeroes};
        for command in [Read, Write] {
            assert_eq!(errno(command, 0, 0, 32 << 20), None);
            let more = errno(command, 0, 0, (32 << 20) + 1);
            assert_eq!(more, Some(Errno::Invalid), "{command:?}");
        }
        for command in [Trim, Cache, WriteZeroes, BlockStatus] {
            assert_eq!(errno(command, 0, 0, 33 << 20), None, "{command:?}");
        }
    }

    #[test]
    fn each_flag_belongs_to_its_command() {
        use Command::{BlockStatus, Cache, Flush, Read, Trim, Write, WriteZeroes};
        let own = [
            (Read, flags::DF),
            (Write, 0),
            (Flush, 0),
            (Trim, 0),
            (Cache, 0),
            (WriteZeroes, flags::NO_HOLE),
            (BlockStatus, flags::REQ_ONE),
        ];
        for (command, own) in own {
            let len = if command == Flush { 0 } else { 512 };
            for bit in 0..16 {
                let flag = 1 << bit;
                let known = flag == flags::FUA || flag == own;
                let not_fast = command == WriteZeroes && flag == flags::FAST_ZERO;
                let want = match (known, not_fast) {
                    (true, _) => None,
                    (false, true) => Some(Errno::NotSupported),
                    (false, false) => Some(Errno::Invalid),
                };
                assert_eq!(errno(command, flag, 0, len), want, "{command:?} {flag:#x}");
            }
        }
    }

    #[test]
    fn what_was_not_agreed_is_refused() {
        let none = Agreed::default();
        let read = request(Command::Read, flags::DF, 0, 512);
        assert!(admit(&read, &export(), none).is_err());
        let status = request(Command::BlockStatus, 0, 0, 512);
        assert!(admit(&status, &export(), none).is_err());
        let structured = Agreed {
            structured: true,
            allocation: false,
        };
        assert!(admit(&status, &export(), structured).is_err());
    }

    #[test]
    fn a_read_only_export_is_not_changed() {
        let mut export = export();
        export.read_only = true;
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            let refused = admit(&request(command, 0, 0, 512), &export, ALL);
            assert_eq!(refused.unwrap_err().0, Errno::Perm, "{command:?}");
        }
        for command in [Command::Read, Command::Cache, Command::BlockStatus] {
            assert!(admit(&request(command, 0, 0, 512), &export, ALL).is_ok());
        }
        assert!(admit(&request(Command::Flush, 0, 0, 0), &export, ALL).is_ok());
        let flags = export.flags(true);
        assert_ne!(flags & transmission::READ_ONLY, 0);
        assert_eq!(flags & transmission::SEND_TRIM, 0);
        assert_eq!(export.flags(false) & transmission::SEND_DF, 0);
    }

    #[test]
    fn nothing_is_asked_by_no_bytes() {
        for command in [Command::Read, Command::Write, Command::Trim] {
            let admitted = admit(&request(command, 0, 0, 0), &export(), ALL);
            assert_eq!(admitted, Ok(Admitted::Nothing), "{command:?}");
        }
        assert_eq!(errno(Command::BlockStatus, 0, 0, 0), Some(Errno::Invalid));
        assert_eq!(errno(Command::Flush, 0, 1, 0), Some(Errno::Invalid));
    }

    #[test]
    fn unknown_commands_and_fast_zeroing() {
        let mut unknown = request(Command::Read, 0, 0, 1);
        unknown.command = 8;
        let refused = admit(&unknown, &export(), ALL);
        assert_eq!(refused.unwrap_err().0, Errno::Invalid);
        let mut fast = export();
        fast.fast_zero = true;
        let zero = request(Command::WriteZeroes, flags::FAST_ZERO | flags::FUA, 0, 9);
        let Ok(Admitted::Op(op)) = admit(&zero, &fast, ALL) else {
            panic!("not admitted");
        };
        let want = Op::Zero {
            offset: 0,
            len: 9,
            no_hole: false,
            fast: true,
            fua: true,
        };
        assert_eq!(op, want);
    }
}
