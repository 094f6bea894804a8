//! The calls of the file system: the process sees changed names at once; they become durable with
//! [`FileSystem::sync_dir`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use io::queue::Backend;
use io::{Create, File, FileLock, FileSystem, Metadata, OpenHow, Probe};

use super::fault::Fault;
use super::file::SimFile;
use super::{Act, Call, SimDisk, names, not_found, os_error};

impl FileSystem for SimDisk {
    fn queue(&self) -> Option<Box<dyn Backend>> {
        Some(self.core.queues.make())
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        let path: Arc<Path> = Arc::from(path);
        if how.direct && self.core.config.probe.direct_alignment.is_none() {
            return Err(Error::not_supported("direct I/O on this simulated disk").file(&path));
        }
        let exists = self.lock_state().names.get(&path).is_some();
        let act = match how.create {
            Create::Never => Act::Open,
            Create::IfMissing | Create::Truncate if exists => Act::Open,
            _ => Act::Create,
        };
        let call = Call {
            act,
            path: &path,
            offset: 0,
            len: 0,
        };
        let inode = self.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, act, &path)?;
                match state.names.get(&path) {
                    Some(_) if how.create == Create::New => Err(os_error(act, &path, 17)),
                    Some(names::Node::Dir) => Err(os_error(act, &path, 21)),
                    Some(names::Node::File(inode)) => Ok(inode),
                    None if act == Act::Create => state.add_file(&path),
                    None => Err(not_found(act, &path)),
                }
            },
            |_, _| {},
        )?;
        let file = SimFile::new(self.clone(), path, inode, how);
        if how.create == Create::Truncate && exists {
            file.truncate(0)?;
        }
        Ok(Arc::new(file))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let state = self.lock_state();
        state.check_alive(Act::Open, path)?;
        match state.names.get(path) {
            None => Err(not_found(Act::Open, path)),
            Some(names::Node::Dir) => Ok(Metadata {
                len: 0,
                is_dir: true,
                modified_micros: state.micros,
            }),
            Some(names::Node::File(inode)) => Ok(Metadata {
                len: state.inodes[inode].len(),
                is_dir: false,
                modified_micros: state.micros,
            }),
        }
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let path: Arc<Path> = Arc::from(dir);
        let call = Call {
            act: Act::List,
            path: &path,
            offset: 0,
            len: 0,
        };
        self.act(
            &call,
            |state, fault| {
                Fault::refuse(fault, Act::List, dir)?;
                state.names.list(dir)
            },
            |_, _| {},
        )
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        match self.lock_state().names.get(dir) {
            None => {}
            Some(names::Node::Dir) => return Ok(()),
            Some(names::Node::File(_)) => return Err(os_error(Act::CreateDir, dir, 17)),
        }
        self.name_act(Act::CreateDir, dir, |state, _| {
            state.names.check_parent(Act::CreateDir, dir)?;
            let sequence = state.next_sequence();
            state.names.add_dir(sequence, dir);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_act(Act::Rename, to, |state, _| {
            state.names.check_parent(Act::Rename, to)?;
            let inode = match state.names.get(from) {
                Some(names::Node::File(inode)) => inode,
                Some(names::Node::Dir) if state.names.get(to).is_none() => {
                    let sequence = state.next_sequence();
                    state.names.rename_dir(sequence, from, to);
                    return Ok(());
                }
                Some(names::Node::Dir) => return Err(os_error(Act::Rename, to, 17)),
                None => return Err(not_found(Act::Rename, from)),
            };
            let sequence = state.next_sequence();
            let changes = [(from, None), (to, Some(inode))];
            state.names.change(sequence, &changes, to);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.name_act(Act::Remove, path, |state, _| match state.names.get(path) {
            Some(names::Node::File(_)) => {
                let sequence = state.next_sequence();
                state.names.change(sequence, &[(path, None)], path);
                Ok(())
            }
            _ => Err(not_found(Act::Remove, path)),
        })
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.name_act(Act::Remove, dir, |state, _| {
            if !state.names.list(dir)?.is_empty() {
                return Err(os_error(Act::Remove, dir, 39));
            }
            let sequence = state.next_sequence();
            state.names.change(sequence, &[(dir, None)], dir);
            Ok(())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.name_act(Act::Link, to, |state, _| {
            let Some(names::Node::File(inode)) = state.names.get(from) else {
                return Err(not_found(Act::Link, from));
            };
            if state.names.get(to).is_some() {
                return Err(os_error(Act::Link, to, 17));
            }
            state.names.check_parent(Act::Link, to)?;
            let sequence = state.next_sequence();
            state.names.change(sequence, &[(to, Some(inode))], to);
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        // The parent of a relative name.
        let here = dir == Path::new(".");
        let dir = if here { Path::new("") } else { dir };
        let path: Arc<Path> = Arc::from(dir);
        let call = Call {
            act: Act::SyncDir,
            path: &path,
            offset: 0,
            len: 0,
        };
        self.act(
            &call,
            |state, fault| {
                state.names.list(dir)?;
                Fault::refuse(fault, Act::SyncDir, dir).inspect_err(|_| state.names.lose(dir))
            },
            |state, ()| state.names.sync(dir),
        )
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        if self.lock_state().locked.iter().any(|p| p == path) {
            return Err(Error::busy("locked by this process").file(path));
        }
        let how = OpenHow {
            write: true,
            create: Create::IfMissing,
            direct: false,
        };
        self.open(path, how)?;
        self.lock_state().locked.push(path.to_path_buf());
        Ok(Box::new(Held {
            disk: self.clone(),
            path: path.to_path_buf(),
        }))
    }

    fn probe(&self, _dir: &Path) -> Result<Probe> {
        Ok(self.core.config.probe.clone())
    }
}

/// A held lock.
#[derive(Debug)]
struct Held {
    disk: SimDisk,
    path: PathBuf,
}

impl FileLock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.lock_state().locked.retain(|p| *p != self.path);
    }
}
