//! What a server serves: the side of the store, or of a test.

use std::os::fd::BorrowedFd;

use base::Result;

use super::codec::Errno;
use super::command::{ExportId, ExportInfo, Op, Reply};

/// Names something that the server asked for until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// How something ended.
#[derive(Debug)]
pub enum Completion {
    /// [`Exports::list`].
    Names(Result<Vec<String>>),
    /// [`Exports::describe`] and [`Exports::attach`]. The kind of an error says how clients are refused:
    /// `NotFound`, `Busy` and `NotSupported` have words of their own.
    Export(Result<ExportInfo>),
    /// [`Exports::submit`].
    Done(Result<Reply, Errno>),
}

/// Exports, asked by one thread, which nothing here may block.
///
/// Each thing asked for is completed exactly once, at any time later and in any order: by
/// [`Exports::completed`], under its token. That holds as well for what a connection asked for that has
/// died since.
///
/// A flush covers every write that was completed before the flush was submitted, through whatever
/// attachment: clients are told so.
pub trait Exports {
    /// Asks for the names of all.
    fn list(&mut self, token: Token);

    /// Asks what this export is. The id of the answer means nothing.
    fn describe(&mut self, token: Token, name: &str);

    /// Opens an export. Several connections may have the same, under equal ids or others.
    fn attach(&mut self, token: Token, name: &str);

    /// A connection is gone, and all that it had submitted is completed, unless the server was stopped and
    /// could not wait for it. Called once for each attachment.
    fn detach(&mut self, export: ExportId);

    /// Begins an operation. Work may wait for the next [`Exports::completed`], which is called after each
    /// batch of these.
    fn submit(&mut self, token: Token, export: ExportId, op: Op);

    /// Appends what has ended since the last call.
    fn completed(&mut self, out: &mut Vec<(Token, Completion)>);

    /// What is readable while [`Exports::completed`] has something, or should be called; `None` where
    /// everything is completed by the next call after it was submitted.
    fn event(&self) -> Option<BorrowedFd<'_>>;
}
