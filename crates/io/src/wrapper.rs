//! Files and file systems that wrap another one and change a few of its methods.
//!
//! A type that implements [`FileWrapper`] is a [`File`], and a type that implements
//! [`FileSystemWrapper`] is a [`FileSystem`]. It implements only the methods that it changes; the others
//! are passed to the inner value.
//!
//! Methods that are not listed here keep the trait's defaults, which call the wrapper's other methods:
//! [`File::write_vectored_at`] calls its [`File::write_at`], so that no write bypasses it. A wrapper has no
//! [`File::descriptor`], and no [`File::read_cached_at`] unless it implements that, so that no read bypasses
//! it. A new method of the traits must be added to the lists, even if it has a default, unless the default
//! calls methods in the lists.
//!
//! The methods have the same names as those of the wrapped traits. If both traits are imported, a call on a wrapper's
//! own type is ambiguous. So a module that makes such calls writes `impl io::FileWrapper for`, and imports `File`
//! alone.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use base::Result;

use crate::{Advice, File, FileLock, FileSystem, Metadata, OpenHow, Probe, SyncKind, WriteSync};

/// Declares a trait whose methods call those of the inner value, or have the given body. A type that
/// implements it also implements the wrapped trait.
macro_rules! wrapper {
    (
        $(#[$doc:meta])*
        $wrapper:ident of $wrapped:ident {
            $(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $out:ty)? $(= $body:expr)?;)*
        }
    ) => {
        $(#[$doc])*
        pub trait $wrapper: Send + Sync + Debug {
            /// The inner value.
            fn inner(&self) -> &dyn $wrapped;
            $(
                #[doc = concat!("[`", stringify!($wrapped), "::", stringify!($name), "`].")]
                fn $name(&self $(, $arg: $type)*) $(-> $out)? {
                    wrapper!(@body self.inner().$name($($arg),*) $(, $body)?)
                }
            )*
        }

        impl<T: $wrapper> $wrapped for T {
            $(
                #[inline]
                fn $name(&self $(, $arg: $type)*) $(-> $out)? {
                    $wrapper::$name(self $(, $arg)*)
                }
            )*
        }
    };
    (@body $this:ident.inner().$name:ident($($arg:ident),*)) => {
        $this.inner().$name($($arg),*)
    };
    (@body $this:ident.inner().$name:ident($($arg:ident),*), $body:expr) => {{
        $(let _ = $arg;)*
        $body
    }};
}

wrapper! {
    /// A file that wraps another one.
    FileWrapper of File {
        fn path(&self) -> &Path;
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
        fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> Result<bool> = Ok(false);
        fn read_alignment(&self) -> usize;
        fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize>;
        fn sync(&self, kind: SyncKind) -> Result<()>;
        fn start_writeback(&self, offset: u64, len: u64) -> Result<()>;
        fn write_back(&self, offset: u64, len: u64) -> Result<()>;
        fn truncate(&self, len: u64) -> Result<()>;
        fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()>;
        fn zero(&self, offset: u64, len: u64) -> Result<()>;
        fn len(&self) -> Result<u64>;
        fn advise(&self, advice: Advice);
    }
}

wrapper! {
    /// A file system that wraps another one. It holds no directories unless it implements `hold` itself, because
    /// the inner file system returns an unwrapped one.
    FileSystemWrapper of FileSystem {
        fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>>;
        fn metadata(&self, path: &Path) -> Result<Metadata>;
        fn list(&self, dir: &Path) -> Result<Vec<OsString>>;
        fn create_dir(&self, dir: &Path) -> Result<()>;
        fn rename(&self, from: &Path, to: &Path) -> Result<()>;
        fn remove(&self, path: &Path) -> Result<()>;
        fn remove_dir(&self, dir: &Path) -> Result<()>;
        fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
        fn sync_dir(&self, dir: &Path) -> Result<()>;
        fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;
        fn probe(&self, dir: &Path) -> Result<Probe>;
        fn same_file(&self, a: &Path, b: &Path) -> Result<bool>;
        fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> = Ok(None);
        fn check_held(&self) -> Result<()>;
        fn queue(&self) -> Option<Box<dyn crate::queue::Backend>>;
        fn failed_syncs(&self, dir: &Path) -> u64;
    }
}
