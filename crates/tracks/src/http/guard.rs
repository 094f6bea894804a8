//! Middleware of each call: tokens, scopes and rates before it, counters after it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::App;
use super::devices;
use super::origin;
use super::problem::{Kind, Problem};
use super::tokens::{Scope, Token};

/// The caller. `None` if there are no tokens, so that everything is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Option<Arc<Token>>);

impl Caller {
    /// Whether the caller may see a fleet.
    pub(crate) fn has_fleet(&self, fleet: &str) -> bool {
        self.0.as_ref().is_none_or(|token| token.has_fleet(fleet))
    }

    /// Whether the caller may see all fleets.
    pub(crate) fn is_for_all_fleets(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|token| token.is_for_all_fleets())
    }

    /// The fleet, if the token is for a single one.
    pub(crate) fn only_fleet(&self) -> Option<&str> {
        self.0.as_ref().and_then(|token| token.only_fleet())
    }

    /// Errors: the token's rate is exceeded.
    pub(crate) fn check_rate(&self, now: u64) -> Result<(), Problem> {
        let token = self.0.as_ref();
        let Some((token, rate)) = token.and_then(|token| Some((token, token.rate.as_ref()?)))
        else {
            return Ok(());
        };
        rate.check(now).map_err(|seconds| {
            let detail = format!(
                "the token {:?} has sent as many reports as it may: send more in {seconds} s",
                token.name()
            );
            Problem::new(Kind::RateExceeded, detail).retry_after(seconds)
        })
    }

    /// Counts reports for the token's rate.
    pub(crate) fn take(&self, count: usize) {
        if let Some(rate) = self.0.as_ref().and_then(|token| token.rate.as_ref()) {
            rate.take(count);
        }
    }
}

/// A handler that only authorized callers reach.
pub(crate) fn guarded(
    app: &Arc<App>,
    scope: Option<Scope>,
    handler: MethodRouter<Arc<App>>,
) -> MethodRouter<Arc<App>> {
    handler.route_layer(from_fn_with_state((Arc::clone(app), scope), check))
}

async fn check(
    State((app, scope)): State<(Arc<App>, Option<Scope>)>,
    path: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    // Trackers report by `GET /osmand`.
    let changes = !request.method().is_safe() || is_of_devices(&request);
    let checked = origin::check(changes, request.headers(), app.is_local);
    let caller = match checked.and_then(|()| allowed(&app, scope, path, &request)) {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let token = caller.0.clone();
    request.extensions_mut().insert(caller);
    TOKEN.scope(token, next.run(request)).await
}

tokio::task_local! {
    /// The token of the task's call.
    static TOKEN: Option<Arc<Token>>;
}

/// The token of this task's call. `None` if there is no call or no token.
pub(crate) fn caller() -> Option<Arc<Token>> {
    TOKEN.try_with(Clone::clone).ok().flatten()
}

fn allowed(
    app: &App,
    scope: Option<Scope>,
    path: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    request: &Request,
) -> Result<Caller, Problem> {
    let (Some(tokens), Some(scope)) = (app.tokens.load_full(), scope) else {
        return Ok(Caller(None));
    };
    let header = request.headers().get(AUTHORIZATION);
    let text = header
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let bearer = text
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, token)| token.trim());
    // Devices send the token in other ways, too.
    let of_device = is_of_devices(request)
        .then(|| devices::token(request.headers(), request.uri()))
        .flatten()
        .filter(|_| bearer.is_empty());
    let found = tokens.find(of_device.as_deref().unwrap_or(bearer));
    let token = found.ok_or_else(|| {
        let detail = if header.is_none() && of_device.is_none() {
            "send the header `Authorization: Bearer TOKEN`"
        } else {
            "the token is not known here"
        };
        Problem::new(Kind::Unauthorized, detail)
    })?;
    if !token.has(scope) {
        let detail = format!("the token {:?} lacks the scope {scope:?}", token.name());
        return Err(Problem::new(Kind::Forbidden, detail.to_lowercase()));
    }
    let path = path.map_err(|e| Problem::parameter(format!("the path: {}", e.body_text())))?;
    let fleet = path.iter().find(|(name, _)| *name == "fleet");
    if let Some((_, fleet)) = fleet
        && !token.has_fleet(fleet)
    {
        let detail = format!(
            "the token {:?} is not for the fleet {fleet:.80?}",
            token.name()
        );
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    Ok(Caller(Some(token)))
}

/// Whether this is a call of phones and trackers.
fn is_of_devices(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>();
    path.is_some_and(|path| matches!(path.as_str(), "/owntracks" | "/osmand"))
}

/// User and password of `Basic` authorization.
pub(crate) fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, coded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let coded = coded.trim();
    let bytes = STANDARD
        .decode(coded)
        .or_else(|_| STANDARD_NO_PAD.decode(coded));
    let text = String::from_utf8(bytes.ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Counts all calls of a router.
pub(crate) fn counted(app: &Arc<App>, router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.layer(from_fn_with_state(Arc::clone(app), count))
}

/// Counts a call in progress, until this is dropped.
struct InFlight(Arc<App>);

impl InFlight {
    fn new(app: Arc<App>) -> Self {
        app.counts.requests_in_flight.fetch_add(1, Relaxed);
        Self(app)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counts.requests_in_flight.fetch_sub(1, Relaxed);
    }
}

async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let route = path.and_then(|path| {
        let mut all = super::PATHS.iter();
        all.find(|known| **known == path.as_str())
    });
    let route = route.copied().unwrap_or("none");
    let in_flight = InFlight::new(app);
    let response = next.run(request).await;
    in_flight
        .0
        .counts
        .request(route, response.status().as_u16());
    response
}
