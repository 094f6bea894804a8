//! Errors as responses: RFC 9457, `application/problem+json`. A type never changes its meaning.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base::{Error, ErrorKind};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::tokens;
use crate::store::Stall;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InvalidParameter,
    InvalidBody,
    ReportsRefused,
    InvalidReceipt,
    Unauthorized,
    Forbidden,
    NoSuchPath,
    NoSuchFleet,
    NoSuchEntity,
    NoBackups,
    NoSuchFence,
    NoSuchWebhook,
    TooManyFleets,
    WebhookForbidden,
    MethodNotAllowed,
    SlowBody,
    ReceiptExpired,
    TooLarge,
    UnsupportedMediaType,
    RateExceeded,
    Storage,
    Internal,
    Busy,
    NoSpace,
    RefusesWrites,
    Stopping,
    QueryTimeout,
}

impl Kind {
    /// The last part of its type, its title, and its status.
    fn parts(self) -> (&'static str, &'static str, StatusCode) {
        use StatusCode as S;
        match self {
            Self::InvalidParameter => ("invalid-parameter", "A parameter is wrong", S::BAD_REQUEST),
            Self::InvalidBody => ("invalid-body", "The body is wrong", S::BAD_REQUEST),
            Self::ReportsRefused => (
                "reports-refused",
                "All reports were refused",
                S::BAD_REQUEST,
            ),
            Self::InvalidReceipt => ("invalid-receipt", "This is no receipt", S::BAD_REQUEST),
            Self::Unauthorized => ("unauthorized", "A valid token is missing", S::UNAUTHORIZED),
            Self::Forbidden => ("forbidden", "The token does not allow this", S::FORBIDDEN),
            Self::NoSuchPath => ("no-such-path", "There is no such path", S::NOT_FOUND),
            Self::NoSuchFleet => ("no-such-fleet", "There is no such fleet", S::NOT_FOUND),
            Self::NoSuchEntity => ("no-such-entity", "There is no such entity", S::NOT_FOUND),
            Self::NoBackups => ("no-backups", "There is no folder for backups", S::NOT_FOUND),
            Self::NoSuchFence => ("no-such-fence", "There is no such fence", S::NOT_FOUND),
            Self::NoSuchWebhook => ("no-such-webhook", "There is no such webhook", S::NOT_FOUND),
            Self::TooManyFleets => (
                "too-many-fleets",
                "There are as many fleets as there may be",
                S::FORBIDDEN,
            ),
            Self::WebhookForbidden => (
                "webhook-forbidden",
                "Webhooks may not go there",
                S::FORBIDDEN,
            ),
            Self::MethodNotAllowed => (
                "method-not-allowed",
                "The path has no such method",
                S::METHOD_NOT_ALLOWED,
            ),
            Self::SlowBody => ("slow-body", "The body came too slowly", S::REQUEST_TIMEOUT),
            Self::ReceiptExpired => (
                "receipt-expired",
                "The receipt is of an earlier start",
                S::GONE,
            ),
            Self::TooLarge => ("too-large", "The body is too large", S::PAYLOAD_TOO_LARGE),
            Self::UnsupportedMediaType => (
                "unsupported-media-type",
                "The body has another form",
                S::UNSUPPORTED_MEDIA_TYPE,
            ),
            Self::RateExceeded => (
                "rate-exceeded",
                "The token's rate is exceeded",
                S::TOO_MANY_REQUESTS,
            ),
            Self::Storage => ("storage", "The store failed", S::INTERNAL_SERVER_ERROR),
            Self::Internal => ("internal", "The server failed", S::INTERNAL_SERVER_ERROR),
            Self::Busy => ("busy", "The server is busy", S::SERVICE_UNAVAILABLE),
            Self::NoSpace => ("no-space", "The disk is full", S::SERVICE_UNAVAILABLE),
            Self::RefusesWrites => (
                "refuses-writes",
                "The store takes no writes",
                S::SERVICE_UNAVAILABLE,
            ),
            Self::Stopping => ("stopping", "The server stops", S::SERVICE_UNAVAILABLE),
            Self::QueryTimeout => (
                "query-timeout",
                "The query took too long",
                S::SERVICE_UNAVAILABLE,
            ),
        }
    }
}

/// An error as a response.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
    /// Further members of the answer.
    pub(crate) more: Map<String, Value>,
}

/// An error (RFC 9457). Some errors have further members, which their call describes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// What went wrong, stable across releases.
    #[serde(rename = "type")]
    #[schema(example = "/problems/no-such-fleet")]
    kind: String,
    /// The same for people.
    #[schema(example = "There is no such fleet")]
    title: &'static str,
    /// The status of the answer.
    #[schema(example = 404)]
    status: u16,
    /// What is wrong this time, and what to do.
    detail: String,
    #[serde(flatten)]
    #[schema(ignore)]
    more: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            retry_after: None,
            more: Map::new(),
        }
    }

    pub(crate) fn parameter(detail: impl Into<String>) -> Self {
        Self::new(Kind::InvalidParameter, detail)
    }

    pub(crate) fn body(detail: impl Into<String>) -> Self {
        Self::new(Kind::InvalidBody, detail)
    }

    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds the cause of a write stall, if there is one.
    #[must_use]
    pub(crate) fn stalled(mut self, stall: Option<Stall>) -> Self {
        let Some(stall) = stall else {
            return self;
        };
        let (what, condition) = if stall.is_stopped {
            ("has stopped writes", "stopped")
        } else {
            ("slows writes down", "delayed")
        };
        let Stall {
            family,
            cause,
            option,
            ..
        } = stall;
        self.detail = format!(
            "{}; the engine {what} as {family} is at its {cause}, which a larger {option} moves",
            self.detail
        );
        let of = serde_json::json!({
            "condition": condition, "cause": cause, "family": family, "option": option,
        });
        self.more.insert("stall".to_owned(), of);
        self
    }

    /// The problem for a body that is too large, with the limit.
    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        let detail = format!("{what} has more than {limit} bytes, which is the limit");
        let mut problem = Self::new(Kind::TooLarge, detail);
        problem.more.insert("limit".to_owned(), limit.into());
        problem
    }

    /// The problem for a part of the server that has ended.
    pub(crate) fn internal(e: impl std::fmt::Display) -> Self {
        Self::new(Kind::Internal, format!("a part of the server ended: {e}"))
    }

    pub(crate) fn into_json(self) -> Vec<u8> {
        serde_json::to_vec(&self.hidden().body_of()).unwrap_or_default()
    }

    /// Details of a server error are logged, not sent: the client gets an id to ask about.
    fn hidden(mut self) -> Self {
        let (_, _, status) = self.kind.parts();
        if status != StatusCode::INTERNAL_SERVER_ERROR {
            return self;
        }
        let id = self.log("a call");
        self.detail =
            format!("the server's log says why, at {id}; what was asked for may be tried again");
        self.more.insert("id".to_owned(), id.into());
        self
    }

    /// Writes an error to stderr, and returns its id.
    pub(crate) fn log(&self, what: &str) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (slug, _, _) = self.kind.parts();
        let random = tokens::random::<4>().map_or_else(|_| "-".to_owned(), |r| tokens::hex(&r));
        let id = format!("{random}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let line = format!("error {id}: {what}: {slug}: {}", self.detail);
        // A failure to write is ignored.
        writeln!(std::io::stderr(), "{line}").unwrap_or_default();
        id
    }

    fn body_of(self) -> ProblemBody {
        let (slug, title, status) = self.kind.parts();
        ProblemBody {
            kind: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: self.detail,
            more: self.more,
        }
    }
}

/// An error's text without the name of its kind.
pub(crate) fn text(e: &Error) -> String {
    let text = e.to_string();
    let label = e.kind().label();
    let rest = text.strip_prefix(label).and_then(|t| t.strip_prefix(": "));
    rest.map_or_else(|| text.clone(), ToOwned::to_owned)
}

impl From<Error> for Problem {
    fn from(e: Error) -> Self {
        let (kind, retry_after) = match e.kind() {
            ErrorKind::InvalidArgument | ErrorKind::NotSupported | ErrorKind::NotFound => {
                (Kind::InvalidParameter, None)
            }
            ErrorKind::TimedOut => (Kind::QueryTimeout, None),
            ErrorKind::NoSpace => (Kind::NoSpace, Some(60)),
            ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::Incomplete => (Kind::Busy, Some(1)),
            ErrorKind::ShutdownInProgress => (Kind::Stopping, Some(5)),
            _ => (Kind::Storage, None),
        };
        let mut problem = Self::new(kind, text(&e));
        problem.retry_after = retry_after;
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, _, status) = self.kind.parts();
        let retry_after = self.retry_after;
        let is_unauthorized = self.kind == Kind::Unauthorized;
        let body = self.into_json();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, json);
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if is_unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
