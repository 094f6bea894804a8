//! The calls that wrappers pass on, and those that they must not pass on.

use std::io::IoSlice;

use io::posix::Posix;
use io::testing::{Faulty, What};
use io::{File, FileSystem, OpenHow, WriteSync};

/// Changes nothing.
#[derive(Debug)]
struct Same;

impl io::FileSystemWrapper for Same {
    fn inner(&self) -> &dyn FileSystem {
        &Posix
    }
}

/// Neither a vectored write, nor a queue, nor a held directory bypasses the wrapper.
#[test]
fn nothing_bypasses_a_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = Same.open(&path, OpenHow::CREATE_NEW).unwrap();
    assert!(file.descriptor().is_some());
    let short = Faulty::new(file, |_| Ok(3));
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    let taken = short.write_vectored_at(&slices, 0, WriteSync::None);
    assert_eq!((taken.unwrap(), short.calls(What::Write)), (3, 1));
    assert!(short.descriptor().is_none());
    assert_eq!(Same.metadata(&path).unwrap().len, 3);
    assert!(Posix.hold(dir.path()).unwrap().is_some());
    assert!(Same.hold(dir.path()).unwrap().is_none());
}
