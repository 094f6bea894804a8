//! A small NBD client: one connection, one request at a time, and whole blocks that repeat one
//! number.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use block::ids::BLOCK;
use block::nbd::codec::{IHAVEOPT, NBDMAGIC, OPTION_REPLY, REQUEST, SIMPLE_REPLY, greeting};

/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server returned this error number.
    Refused(u32),
    /// The connection is lost; the request may or may not take effect.
    Lost,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

/// A connection to an NBD server.
pub(super) struct Client {
    stream: UnixStream,
    cookie: u64,
}

impl Client {
    /// Connects to an export.
    pub(super) fn connect(socket: &Path, export: &str) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, cookie: 0 };
        let [magic, option] = [client.u64()?, client.u64()?];
        client.bytes::<2>()?;
        if (magic, option) != (NBDMAGIC, IHAVEOPT) {
            return Err(Failure::Lost);
        }
        let flags = greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES;
        let name_bytes = export.len() as u32;
        let hello = [
            &u32::from(flags).to_be_bytes()[..],
            &IHAVEOPT.to_be_bytes(),
            &OPTION_GO.to_be_bytes(),
            &(4 + name_bytes + 2).to_be_bytes(),
            &name_bytes.to_be_bytes(),
            export.as_bytes(),
            &0_u16.to_be_bytes(),
        ]
        .concat();
        client.stream.write_all(&hello)?;
        loop {
            let (magic, _, kind, len) =
                (client.u64()?, client.u32()?, client.u32()?, client.u32()?);
            io::copy(
                &mut (&mut client.stream).take(u64::from(len)),
                &mut io::sink(),
            )?;
            if magic != OPTION_REPLY || kind >> 31 != 0 {
                return Err(Failure::Lost);
            }
            if kind == REPLY_ACK {
                return Ok(client);
            }
        }
    }

    /// Fills the block at an offset with a number.
    pub(super) fn write(&mut self, offset: u64, value: u64) -> Result<(), Failure> {
        let payload = value.to_le_bytes().repeat(BLOCK / 8);
        self.ask(COMMAND_WRITE, offset, &payload)
    }

    /// The number in the block at an offset; `None` if it is not a single number.
    pub(super) fn read(&mut self, offset: u64) -> Result<Option<u64>, Failure> {
        self.ask(COMMAND_READ, offset, &[])?;
        let mut bytes = vec![0; BLOCK];
        self.stream.read_exact(&mut bytes)?;
        Ok(number(&bytes))
    }

    fn ask(&mut self, command: u16, offset: u64, payload: &[u8]) -> Result<(), Failure> {
        self.cookie += 1;
        let request = [
            &REQUEST.to_be_bytes()[..],
            &0_u16.to_be_bytes(),
            &command.to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &(BLOCK as u32).to_be_bytes(),
            payload,
        ]
        .concat();
        self.stream.write_all(&request)?;
        let (magic, errno, cookie) = (self.u32()?, self.u32()?, self.u64()?);
        if (magic, cookie) != (SIMPLE_REPLY, self.cookie) {
            return Err(Failure::Lost);
        }
        match errno {
            0 => Ok(()),
            errno => Err(Failure::Refused(errno)),
        }
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.bytes()?))
    }
}

/// The number that all words of a block have; `None` if they differ.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    let (first, _) = bytes.split_first_chunk::<8>()?;
    let all = bytes.chunks(8).all(|word| word == first);
    all.then_some(u64::from_le_bytes(*first))
}
