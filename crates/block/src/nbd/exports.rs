//! The interface between the server and its exports, which a store or a test implements.

use std::os::fd::BorrowedFd;

use base::Result;

use super::codec::Errno;
use super::command::{ExportId, ExportInfo, Op, Reply};

/// Identifies a question or request of the server until it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// The outcome of a question or request.
#[derive(Debug)]
pub enum Completion {
    /// Of [`Exports::list`].
    Names(Result<Vec<String>>),
    /// Of [`Exports::describe`] and [`Exports::attach`]. The error's kind decides how the client is
    /// refused: `NotFound`, `Busy` and `NotSupported` have replies of their own.
    Export(Result<ExportInfo>),
    /// Of [`Exports::submit`].
    Done(Result<Reply, Errno>),
}

/// A set of exports, called by one thread, which no method may block.
///
/// Each question and request is completed exactly once, at any later time and in any order:
/// [`Exports::completed`] returns it with its token. That holds also if its connection was closed
/// meanwhile.
///
/// A flush covers every write that was completed before the flush was submitted, through any attachment:
/// the server promises that to its clients.
pub trait Exports {
    /// Asks for the names of all exports.
    fn list(&mut self, token: Token);

    /// Asks for information about an export. The id in the reply has no meaning.
    fn describe(&mut self, token: Token, name: &str);

    /// Opens an export. Several connections may open the same one, under equal or different ids.
    fn attach(&mut self, token: Token, name: &str);

    /// A connection is closed, and all that it had submitted is completed, unless the server was stopped
    /// and could not wait for that. Called once for each attachment.
    fn detach(&mut self, export: ExportId);

    /// Begins an operation. The work may be put off until the next [`Exports::completed`], which is called
    /// after each batch of operations.
    fn submit(&mut self, token: Token, export: ExportId, op: Op);

    /// Appends the questions and requests that have completed since the last call.
    fn completed(&mut self, out: &mut Vec<(Token, Completion)>);

    /// A descriptor that is readable while [`Exports::completed`] has something, or should be called;
    /// `None` if everything completes by the next call after it was submitted.
    fn event(&self) -> Option<BorrowedFd<'_>>;
}
