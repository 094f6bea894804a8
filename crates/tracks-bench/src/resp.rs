//! The protocol of Redis, RESP2 (<https://redis.io/docs/latest/develop/reference/protocol-spec/>),
//! which Tile38 speaks, too.

use std::io::{BufRead, BufReader, Read, Write};

use base::{Error, Result};

/// An answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Text(String),
    Number,
    Many(usize),
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Talk<S> {
    /// The name of the server, for errors.
    server: &'static str,
    stream: BufReader<S>,
}

/// A system error, with the failed operation.
pub(crate) fn failed(server: &str, what: &str) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::aborted(format!("{server}: {what}: {e}"))
}

impl<S: Read + Write> Talk<S> {
    pub(crate) fn new(server: &'static str, stream: S) -> Self {
        let stream = BufReader::new(stream);
        Self { server, stream }
    }

    /// Sends a request without reading the answer.
    pub(crate) fn send(&mut self, words: &[&str]) -> Result<()> {
        let mut out = format!("*{}\r\n", words.len());
        for word in words {
            out += &format!("${}\r\n{word}\r\n", word.len());
        }
        let stream = self.stream.get_mut();
        let sent = stream.write_all(out.as_bytes());
        sent.map_err(failed(self.server, "send"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        read.map_err(failed(self.server, "read"))?;
        Ok(line.trim_end().to_owned())
    }

    /// Reads an answer. Errors: an error reply of the server.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        let (line, server) = (self.line()?, self.server);
        let rest = line.get(1..).unwrap_or_default();
        let number = || {
            let number = rest.parse();
            number.map_err(|_| Error::corruption(format!("{server}: {line:?} is no answer")))
        };
        match line.bytes().next() {
            Some(b'+') => Ok(Reply::Text(rest.to_owned())),
            Some(b':') => number().map(|_: i64| Reply::Number),
            Some(b'*') => number().map(|n: i64| Reply::Many(n.max(0) as usize)),
            Some(b'$') => {
                let mut bytes = vec![0; number()?.max(0) as usize + 2];
                let read = self.stream.read_exact(&mut bytes);
                read.map_err(failed(server, "read"))?;
                let text = String::from_utf8_lossy(&bytes);
                Ok(Reply::Text(text.trim_end().to_owned()))
            }
            _ => Err(Error::aborted(format!("{server}: {line}"))),
        }
    }

    /// Sends a request, and reads its answer.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        self.send(words)?;
        self.reply()
    }
}
