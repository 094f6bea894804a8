//! A client that sends exactly what a test wants.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use block::nbd::codec::{self, Command, Opt};

/// The longest wait of a test for a byte.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    /// A connected client that has read the greeting.
    pub(crate) fn connect(uri: &str) -> Self {
        let mut stream = TcpStream::connect(uri.strip_prefix("nbd://").unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[..], codec::greet());
        Self { stream }
    }

    /// A client in the transmission phase, with simple replies.
    pub(crate) fn attached(uri: &str, name: &str) -> Self {
        let mut client = Self::connect(uri);
        client.stream.write_all(&3_u32.to_be_bytes()).unwrap();
        let len = (name.len() as u32).to_be_bytes();
        client.option(Opt::Go, &[&len[..], name.as_bytes(), &[0, 0]].concat());
        while client.option_reply() != 1 {}
        client
    }

    pub(crate) fn option(&mut self, option: Opt, data: &[u8]) {
        self.option_of(option as u32, data);
    }

    /// Sends an option of any number.
    pub(crate) fn option_of(&mut self, number: u32, data: &[u8]) {
        let bytes = [
            &codec::IHAVEOPT.to_be_bytes()[..],
            &number.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            data,
        ];
        self.stream.write_all(&bytes.concat()).unwrap();
    }

    /// The kind of the next reply to an option.
    pub(crate) fn option_reply(&mut self) -> u32 {
        self.option_answer().0
    }

    /// Kind and text of the next reply to an option.
    pub(crate) fn option_answer(&mut self) -> (u32, String) {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head).unwrap();
        let be32 = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; be32(16) as usize];
        self.stream.read_exact(&mut data).unwrap();
        (be32(12), String::from_utf8_lossy(&data).into_owned())
    }

    /// Errno, cookie and text of the next reply, which must be a structured error.
    pub(crate) fn refusal(&mut self) -> (u32, u64, String) {
        let mut head = [0; 26];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], codec::CHUNK.to_be_bytes());
        assert_eq!(head[4..8], [0, 1, 0x80, 1], "done, an error");
        let errno = u32::from_be_bytes(head[20..24].try_into().unwrap());
        let mut text = vec![0; u16::from_be_bytes([head[24], head[25]]).into()];
        self.stream.read_exact(&mut text).unwrap();
        let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
        (errno, cookie, String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) fn send(
        &mut self,
        command: Command,
        cookie: u64,
        offset: u64,
        len: u32,
        payload: &[u8],
    ) {
        self.stream
            .write_all(&request(command, cookie, offset, len, payload))
            .unwrap();
    }

    /// Errno and cookie of the next reply, without data.
    pub(crate) fn reply(&mut self) -> (u32, u64) {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], codec::SIMPLE_REPLY.to_be_bytes());
        let errno = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (errno, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    /// Whether the server has closed the connection, or does so while we wait.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(e) => e.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

pub(crate) fn request(
    command: Command,
    cookie: u64,
    offset: u64,
    len: u32,
    payload: &[u8],
) -> Vec<u8> {
    [
        &codec::REQUEST.to_be_bytes()[..],
        &[0, 0],
        &(command as u16).to_be_bytes(),
        &cookie.to_be_bytes(),
        &offset.to_be_bytes(),
        &len.to_be_bytes(),
        payload,
    ]
    .concat()
}
