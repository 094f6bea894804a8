//! What is left of a request's body when its call has answered without reading all of it, such as a
//! call with a wrong token.
//!
//! The rest has to be read before the next request of the connection can be. If that would take
//! long, the answer says `Connection: close`. Without either, the connection would end after an
//! answer that promises more, and the client's next request would fail.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderMap, HeaderValue};
use base::sync::{Mutex, PoisonError};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// How long an answer waits for the rest of its request.
const WAIT: Duration = Duration::from_secs(1);

/// Up to this multiple of the largest body is read: if a connection ends while bytes are unread, its client may not receive the
/// answer.
const TOO_MUCH: usize = 4;

/// What a call leaves of its request's body.
#[derive(Debug, Default)]
enum Left {
    /// Nothing, or the call still has it.
    #[default]
    Nothing,
    /// A body, and whether some of it was asked for.
    Some(Incoming, bool),
    /// It broke off, so that nothing can be read behind it.
    Broken,
}

/// A body that its call may give back.
#[derive(Debug)]
pub(crate) struct Lent {
    body: Left,
    back: Arc<Mutex<Left>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let left = match std::mem::take(&mut self.body) {
            Left::Some(body, _) if body.is_end_stream() => Left::Nothing,
            left => left,
        };
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let Left::Some(body, is_asked_for) = &mut this.body else {
            return Poll::Ready(None);
        };
        *is_asked_for = true;
        let next = ready!(Pin::new(body).poll_frame(cx));
        match next {
            Some(Ok(_)) => {}
            Some(Err(_)) => this.body = Left::Broken,
            None => this.body = Left::Nothing,
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Left::Some(body, _) => body.is_end_stream(),
            Left::Nothing | Left::Broken => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Left::Some(body, _) => body.size_hint(),
            Left::Nothing | Left::Broken => SizeHint::with_exact(0),
        }
    }
}

/// The rest of a request, once its call has returned.
#[derive(Debug)]
pub(crate) struct Rest {
    back: Arc<Mutex<Left>>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    expects: bool,
}

impl Rest {
    /// A request whose body comes back.
    pub(crate) fn of(request: Request<Incoming>) -> (Request<Lent>, Self) {
        let back = Arc::default();
        let rest = Self {
            back: Arc::clone(&back),
            expects: request.headers().contains_key(EXPECT),
        };
        let request = request.map(|body| Lent {
            body: Left::Some(body, false),
            back,
        });
        (request, rest)
    }

    fn take(&self) -> Left {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *back)
    }

    /// Reads the rest of the body, or says in the answer's headers that the connection ends. `most` is how many bytes a body may
    /// have.
    pub(crate) async fn end(self, headers: &mut HeaderMap, most: usize) {
        let is_read = match self.take() {
            Left::Nothing => return,
            Left::Broken => false,
            Left::Some(_, false) if self.expects => false,
            Left::Some(body, _) => {
                let rest = read(body, most.saturating_mul(TOO_MUCH));
                tokio::time::timeout(WAIT, rest).await == Ok(true)
            }
        };
        if !is_read {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body of at most `most` bytes. Returns whether it has ended.
async fn read(mut body: Incoming, most: usize) -> bool {
    let mut seen: usize = 0;
    while seen <= most {
        match body.frame().await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => {
                seen = seen.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            }
        }
    }
    false
}
