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

/// A body that its call may give back.
#[derive(Debug)]
pub(crate) struct Lent {
    /// `None` once it has ended.
    body: Option<Incoming>,
    back: Arc<Mutex<Option<Incoming>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let left = self.body.take().filter(|body| !body.is_end_stream());
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
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let next = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(next, Some(Ok(_))) {
            this.body = None;
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// The rest of a request, once its call has returned.
#[derive(Debug)]
pub(crate) struct Rest {
    back: Arc<Mutex<Option<Incoming>>>,
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
            body: Some(body),
            back,
        });
        (request, rest)
    }

    fn take(&self) -> Option<Incoming> {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.take()
    }

    /// Reads the rest of the body, or says in the answer's headers that the connection ends. A body
    /// of more than `most` bytes is not read.
    pub(crate) async fn end(self, headers: &mut HeaderMap, most: usize) {
        let Some(body) = self.take() else {
            return;
        };
        let is_short = !self.expects && body.size_hint().lower() <= most as u64;
        let is_read = is_short && tokio::time::timeout(WAIT, read(body, most)).await == Ok(true);
        if !is_read {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body of at most `most` bytes. Returns whether it has ended.
async fn read(mut body: Incoming, most: usize) -> bool {
    let mut seen = 0;
    while seen <= most {
        match body.frame().await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
        }
    }
    false
}
