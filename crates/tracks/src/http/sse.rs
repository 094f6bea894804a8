//! Server-sent events: messages as text, and a response body that is produced while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Asks proxies not to buffer the response.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Messages that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Messages(Vec<u8>);

impl Messages {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the time, ms, after which a client reconnects.
    pub(crate) fn retry(&mut self, millis: u64) {
        self.0
            .extend_from_slice(format!("retry: {millis}\n").as_bytes());
    }

    /// Adds a message. Compact JSON has no line breaks, so that its data is one line.
    pub(crate) fn add(&mut self, event: &str, id: Option<u64>, data: &impl Serialize) {
        let mut text = format!("event: {event}\n");
        if let Some(id) = id {
            text.push_str(&format!("id: {id}\n"));
        }
        text.push_str("data: ");
        self.0.extend_from_slice(text.as_bytes());
        // Never fails: messages consist of numbers and strings.
        serde_json::to_writer(&mut self.0, data).unwrap_or_default();
        self.0.extend_from_slice(b"\n\n");
    }

    /// Adds a comment that keeps the connection alive.
    pub(crate) fn alive(&mut self) {
        self.0.extend_from_slice(b": \n\n");
    }

    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.0).into()
    }
}

/// A body whose parts come from a channel. It ends when the sender is gone.
struct Parts(Receiver<Bytes>);

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A response, and the sender of its parts; at most one part waits.
pub(crate) fn answer() -> (Response, Sender<Bytes>) {
    let (sender, receiver) = channel(1);
    let mut response = Response::new(Body::new(Parts(receiver)));
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(CONTENT_TYPE, fixed("text/event-stream"));
    headers.insert(CACHE_CONTROL, fixed("no-store"));
    headers.insert(NO_BUFFERING, fixed("no"));
    (response, sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines() {
        let mut messages = Messages::default();
        messages.retry(2000);
        messages.add("enter", Some(7), &serde_json::json!({ "entity": "a\nb" }));
        messages.add("gone", None, &serde_json::json!({}));
        messages.alive();
        let text = "retry: 2000\nevent: enter\nid: 7\ndata: {\"entity\":\"a\\nb\"}\n\n\
                    event: gone\ndata: {}\n\n: \n\n";
        assert_eq!(messages.take(), text);
        assert!(messages.is_empty());
    }
}
