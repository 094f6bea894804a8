//! A server that speaks RESP, in a temporary folder.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::clock::Clock;
use base::{Error, Result};

use crate::resp::{Talk, failed};

/// How often it is tried whether the server accepts connections.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// A server process. Dropping it ends the process and removes the folder.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    child: Option<Child>,
    folder: PathBuf,
}

impl Server {
    /// Starts a program with the arguments that `arguments` adds for its folder, and connects.
    /// Errors: it ends, or accepts no connection within ten seconds.
    pub(crate) fn start<S: Read + Write>(
        (name, program): (&'static str, &Path),
        arguments: impl FnOnce(&mut Command, &Path),
        connect: impl Fn(&Path) -> std::io::Result<S>,
        clock: &dyn Clock,
    ) -> Result<(Self, Talk<S>)> {
        let folder = std::env::temp_dir().join(format!("tracks-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(failed(name, "its folder"))?;
        let mut server = Self {
            name,
            child: None,
            folder,
        };
        let mut command = Command::new(program);
        arguments(&mut command, &server.folder);
        command.stdout(Stdio::null());
        let child = command.spawn().map_err(failed(name, "start"))?;
        let child = server.child.insert(child);
        for _ in 0..TRIES {
            if let Ok(stream) = connect(&server.folder) {
                return Ok((server, Talk::new(name, stream)));
            }
            if let Some(status) = child.try_wait().map_err(failed(name, "start"))? {
                return Err(Error::aborted(format!("{name} has ended: {status}")));
            }
            clock.sleep(PAUSE);
        }
        Err(Error::aborted(format!("{name} takes no connection")))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let end = |child: &mut Child| child.kill().and_then(|()| child.wait().map(drop));
        let ended = self.child.as_mut().map_or(Ok(()), end);
        let removed = std::fs::remove_dir_all(&self.folder);
        if let Err(e) = ended.and(removed) {
            eprintln!("{}: {e}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use base::clock::SystemClock;

    use super::*;

    #[test]
    fn one_that_ends_is_said_and_leaves_no_folder() {
        let clock = SystemClock::shared();
        let (name, program) = ("false", Path::new("/bin/false"));
        let socket = |folder: &Path| UnixStream::connect(folder.join("socket"));
        let started = Server::start((name, program), |_, _| {}, socket, &*clock);
        let error = started.unwrap_err().to_string();
        assert!(error.contains("false has ended"), "{error}");
        let folder = std::env::temp_dir().join(format!("tracks-false-{}", std::process::id()));
        assert!(!folder.exists());
    }
}
