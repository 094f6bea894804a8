//! Calls about webhooks.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base::ErrorKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::deliver;
use super::hosts::{Hosts, Target};
use super::registry::{Hook, Wanted};
use crate::fleets::Info;
use crate::http::events::KindBody;
use crate::http::ingest::no_such_fleet;
use crate::http::params::{Params, Path};
use crate::http::problem::{Kind, Problem, text};
use crate::http::time::seconds;
use crate::http::{App, answer_of, ask, body, json, tokens};
use crate::model::name::Name;

/// The most bytes of a webhook's body.
const BYTES_MAX: usize = 64 * 1024;
/// The most fences that a webhook may name.
const FENCES_MAX: usize = 256;
/// The allowed lengths of a secret, bytes.
const SECRET: std::ops::RangeInclusive<usize> = 16..=128;

/// A webhook that is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookBody {
    /// Where events go: http or https, to a host that the server allows.
    #[schema(example = "https://example.org/tracks")]
    url: String,
    /// Which events; all without it.
    events: Option<Vec<KindBody>>,
    /// Events of which fences; of all without it.
    fences: Option<Vec<String>>,
    /// The key of signatures, 16 to 128 bytes; without it one is made.
    #[schema(min_length = 16, max_length = 128)]
    secret: Option<String>,
}

/// A webhook that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookMade {
    /// Its name.
    name: String,
    /// Where events go.
    url: String,
    /// The key of its signatures, which no other answer has.
    secret: String,
    /// Events with greater ids are sent.
    after: u64,
}

/// Whether a webhook gets events.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WebhookState {
    /// It does.
    Active,
    /// The last delivery failed, and is tried again.
    Retrying,
    /// It does not, until it is put again.
    Disabled,
}

/// A delivery that failed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookFailure {
    /// When, seconds since 1970.
    time: f64,
    /// Why.
    error: String,
}

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookAnswer {
    /// Its name.
    name: String,
    /// Where events go.
    url: String,
    /// Which events; none: all.
    events: Vec<KindBody>,
    /// Of which fences; none: of all.
    fences: Vec<String>,
    state: WebhookState,
    /// Events up to this id were taken, or are not wanted.
    cursor: u64,
    /// How many deliveries have failed since one was taken.
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<WebhookFailure>,
    /// When it is tried again, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<f64>,
    /// When a delivery was taken last, since the server was started; seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_delivery: Option<f64>,
    /// Why it gets nothing any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
}

/// All webhooks of a fleet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookList {
    /// They.
    webhooks: Vec<WebhookAnswer>,
}

impl WebhookAnswer {
    fn new(hook: &Hook) -> Self {
        let state = hook.state();
        Self {
            name: hook.name.to_string(),
            url: hook.stored.url.clone(),
            events: hook.stored.events.clone(),
            fences: hook.stored.fences.clone(),
            state: match (&state.disabled, state.failures) {
                (Some(_), _) => WebhookState::Disabled,
                (None, 0) => WebhookState::Active,
                (None, _) => WebhookState::Retrying,
            },
            cursor: state.cursor,
            failures: state.failures,
            last_failure: state.last_failure.map(|(time, error)| WebhookFailure {
                time: seconds(time),
                error,
            }),
            next_attempt: state.next_attempt.map(seconds),
            last_delivery: state.last_delivery.map(seconds),
            disabled: state.disabled,
        }
    }
}

impl WebhookBody {
    /// Errors: the webhook is invalid, or not allowed.
    pub(super) fn wanted(self, hosts: &Hosts) -> Result<Wanted, Problem> {
        let target = Target::new(&self.url).map_err(|e| Problem::body(format!("url: {e}")))?;
        let may = hosts.check(&target);
        may.map_err(|e| Problem::new(Kind::WebhookForbidden, e))?;
        let mut events = self.events.unwrap_or_default();
        events.sort_unstable();
        events.dedup();
        let fences = self.fences.unwrap_or_default();
        if fences.len() > FENCES_MAX {
            let detail = format!("fences: {}, and {FENCES_MAX} at most", fences.len());
            return Err(Problem::body(detail));
        }
        for fence in &fences {
            Name::new(fence).map_err(|e| Problem::body(format!("fences: {}", text(&e))))?;
        }
        let secret = match self.secret {
            Some(secret) => {
                if !SECRET.contains(&secret.len()) || secret.contains(char::is_control) {
                    let detail = "secret: it has 16 to 128 bytes without control characters";
                    return Err(Problem::body(detail));
                }
                secret
            }
            None => format!("whsec_{}", tokens::hex(&tokens::random::<32>()?)),
        };
        Ok(Wanted {
            url: self.url,
            secret,
            events,
            fences,
        })
    }
}

fn no_such_webhook(info: &Info, name: &Name) -> Problem {
    let detail = format!(
        "the fleet {} has no webhook {name}: PUT makes it",
        info.name
    );
    Problem::new(Kind::NoSuchWebhook, detail)
}

fn fleet(app: &App, path: &Path) -> Result<Arc<Info>, Problem> {
    app.tracks.fleet(&path.fleet()?).map_err(no_such_fleet)
}

/// Starts the task of a webhook.
pub(crate) fn start(app: &Arc<App>, hook: &Arc<Hook>) {
    let task = tokio::spawn(deliver::run(Arc::clone(app), Arc::clone(hook)));
    app.webhooks.started(task);
}

/// List the webhooks of a fleet.
#[utoipa::path(
    get,
    operation_id = "webhooks",
    path = "/v1/fleets/{fleet}/webhooks",
    tag = "webhooks",
    params(("fleet" = String, Path, description = "The fleet")),
    responses(
        (status = 200, description = "They", body = WebhookList),
        crate::http::openapi::Errors,
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let info = fleet(&app, &path)?;
    let all = app.webhooks.all();
    let all = all.iter().filter(|hook| hook.info.fleet == info.fleet);
    let webhooks = all.map(|hook| WebhookAnswer::new(hook)).collect();
    answer_of(&app, &WebhookList { webhooks })
}

/// Show a webhook.
///
/// How far it has come, why the last delivery failed, and when it is tried again.
#[utoipa::path(
    get,
    operation_id = "webhook",
    path = "/v1/fleets/{fleet}/webhooks/{webhook}",
    tag = "webhooks",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("webhook" = String, Path, description = "The webhook; a slash in its name is %2F"),
    ),
    responses(
        (status = 200, description = "The webhook", body = WebhookAnswer),
        crate::http::openapi::Errors,
    ),
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let (info, name) = (fleet(&app, &path)?, path.name("webhook")?);
    let hook = app.webhooks.get(info.fleet, &name);
    let hook = hook.ok_or_else(|| no_such_webhook(&info, &name))?;
    answer_of(&app, &WebhookAnswer::new(&hook))
}

/// Make a webhook, or another one in its place.
///
/// A new one gets events from now on; one that takes another's place goes on where that was. Events are sent by POST, as
/// JSON `{"fleet","webhook","events":[Event…]}`, 100 at most, in order, at least once. `X-Ironstone-Signature: t=UNIX,v1=HEX`
/// has the HMAC-SHA256 of UNIX, a full stop and the body. What is not answered with 2xx within 10 s is sent again, after 1 s
/// to 5 minutes, for ever; 410 ends it. Redirects are not followed.
#[utoipa::path(
    put,
    operation_id = "put_webhook",
    path = "/v1/fleets/{fleet}/webhooks/{webhook}",
    tag = "webhooks",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("webhook" = String, Path, description = "The webhook; a slash in its name is %2F"),
    ),
    request_body = WebhookBody,
    responses(
        (status = 200, description = "It is made, and that is durable", body = WebhookMade),
        crate::http::openapi::Errors,
        crate::http::openapi::BodyErrors,
    ),
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.end()?;
    let (info, name) = (fleet(&app, &path)?, path.name("webhook")?);
    let bytes = body::read(&app, &headers, body, BYTES_MAX).await?;
    let shared = Arc::clone(&app);
    let hook = ask::blocking(&app, move |app| {
        let body: WebhookBody = json::read(&bytes).map_err(Problem::body)?;
        let wanted = body.wanted(&app.webhooks.hosts)?;
        let now = app.tracks.events().given_out();
        let store = app.tracks.store();
        let hook = app.webhooks.put(&**store, (info, name), wanted, now)?;
        // Started here, because this is finished even if the caller goes away.
        start(&shared, &hook);
        store.wait_durable(store.last_number())?;
        Ok(hook)
    });
    let hook = hook.await?;
    let made = WebhookMade {
        name: hook.name.to_string(),
        url: hook.stored.url.clone(),
        secret: hook.stored.secret.clone(),
        after: hook.state().cursor,
    };
    answer_of(&app, &made)
}

/// Delete a webhook.
#[utoipa::path(
    delete,
    operation_id = "delete_webhook",
    path = "/v1/fleets/{fleet}/webhooks/{webhook}",
    tag = "webhooks",
    params(
        ("fleet" = String, Path, description = "The fleet"),
        ("webhook" = String, Path, description = "The webhook; a slash in its name is %2F"),
    ),
    responses(
        (status = 204, description = "It is gone, and that is durable"),
        crate::http::openapi::Errors,
    ),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    path: Path,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let (info, name) = (fleet(&app, &path)?, path.name("webhook")?);
    ask::blocking(&app, move |app| {
        let store = app.tracks.store();
        let deleted = app.webhooks.delete(&**store, info.fleet, &name);
        deleted.map_err(|e| match e.kind() {
            ErrorKind::NotFound => no_such_webhook(&info, &name),
            _ => e.into(),
        })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
