//! `query`: commands from standard input, one per line.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use ironstone::{ColumnFamily, Db};

use crate::cli::Global;
use crate::cli_look::Query;
use crate::fail::{Failure, Outcome};
use crate::text::{parse_field, push_field, push_pair, shown};
use crate::{lines, open, ttl};

/// The state for executing the lines.
struct Session<'a> {
    global: &'a Global,
    args: &'a Query,
    db: &'a Db,
    family: ColumnFamily,
}

/// Reads commands until the input ends or a command fails.
pub(crate) fn query(global: &Global, args: &Query, out: &mut dyn Write) -> Outcome {
    let db = match global.secondary() {
        Some(_) => open::read_only(global)?,
        None => open::writable(global, false)?,
    };
    let session = Session {
        global,
        args,
        db: &db,
        family: open::family(&db, global)?,
    };
    let result = session.run(out);
    drop(session);
    db.close()?;
    result
}

impl Session<'_> {
    fn run(&self, out: &mut dyn Write) -> Outcome {
        let mut input = std::io::stdin().lock();
        let (mut line, mut number) = (Vec::new(), 1);
        while lines::next(&mut input, number, &mut line)? {
            let result = self.command(&line, out);
            // Whoever is there waits for the answer.
            out.flush()?;
            result?;
            number += 1;
        }
        Ok(())
    }

    fn command(&self, line: &[u8], out: &mut dyn Write) -> Outcome {
        let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        match *words {
            [b"help"] => {
                writeln!(out, "get <key>\nput <key> <value>\ndelete <key>")?;
                Ok(())
            }
            [b"get", key] => self.get(&self.key(key)?, out),
            [b"put", key, value] => self.put(&self.key(key)?, value, out),
            [b"delete", key] => self.delete(&self.key(key)?, out),
            _ => {
                out.write_all(b"Unknown command ")?;
                out.write_all(line)?;
                Ok(writeln!(out)?)
            }
        }
    }

    fn key(&self, word: &[u8]) -> Outcome<Vec<u8>> {
        parse_field(OsStr::from_bytes(word), self.global.keys_hex())
    }

    fn shown(&self, key: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        push_field(&mut text, key, self.global.keys_hex());
        text
    }

    fn get(&self, key: &[u8], out: &mut dyn Write) -> Outcome {
        let Some(value) = self.db.cf(&self.family).get(key)? else {
            let key = self.shown(key);
            out.write_all(&[b"Not found ", &*key, b"\n"].concat())?;
            return Err(Failure::message(format!("no such key: {}", shown(&key))));
        };
        let value = if self.args.ttl.ttl {
            ttl::split(&value)?.0
        } else {
            value.as_slice()
        };
        let mut line = Vec::new();
        let key = (key, self.global.keys_hex());
        push_pair(&mut line, key, (value, self.global.values_hex()));
        line.push(b'\n');
        Ok(out.write_all(&line)?)
    }

    fn put(&self, key: &[u8], word: &[u8], out: &mut dyn Write) -> Outcome {
        let hex = self.global.values_hex();
        let value = parse_field(OsStr::from_bytes(word), hex)?;
        let mut line = b"Successfully put ".to_vec();
        line.extend_from_slice(&self.shown(key));
        line.push(b' ');
        push_field(&mut line, &value, hex);
        line.push(b'\n');
        let stored = ttl::stored(value, &self.args.ttl);
        self.db.cf(&self.family).put(key, stored)?;
        Ok(out.write_all(&line)?)
    }

    fn delete(&self, key: &[u8], out: &mut dyn Write) -> Outcome {
        self.db.cf(&self.family).delete(key)?;
        out.write_all(&[b"Successfully deleted ", &*self.shown(key), b"\n"].concat())?;
        Ok(())
    }
}
