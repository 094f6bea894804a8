//! The task of one webhook: sends batch after batch until the webhook is deleted or the server
//! stops.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use base::ErrorKind;
use base::sync::atomic::Ordering;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::registry::Hook;
use super::sign::signature;
use crate::fence::Event;
use crate::http::events::EventBody;
use crate::http::feed::{self, Feed};
use crate::http::problem::Problem;
use crate::http::{App, Stopping};
use crate::model::time::Time;

/// The most events in a delivery.
const BATCH: usize = 100;
/// How many events are read at a time.
const PAGE: usize = 256;
/// If no event matches, the cursor is stored once it has advanced by this many microseconds.
const PASSED: u64 = 60_000_000;
/// How long a delivery may go on when the server stops.
const GRACE: Duration = Duration::from_secs(1);
/// The pause after a failure of the store.
const AGAIN: Duration = Duration::from_secs(1);
/// The pause before a batch is made again because some of it was erased.
const VOID: Duration = Duration::from_millis(50);
const SIGNATURE: HeaderName = HeaderName::from_static("x-ironstone-signature");
const DELIVERY: HeaderName = HeaderName::from_static("x-ironstone-delivery");

/// The body of a delivery.
#[derive(Serialize)]
struct Body<'a> {
    fleet: &'a str,
    webhook: &'a str,
    events: Vec<EventBody<'a>>,
}

/// The events of one delivery.
struct Batch {
    events: Vec<Arc<Event>>,
    /// The id after which to go on.
    next: u64,
    /// The number of erasures in the fleet when the events were read.
    erased: u64,
}

/// The result of a delivery.
enum Outcome {
    Taken,
    /// The receiver wants no more deliveries.
    Gone,
    Failed(String),
    /// Some of its events were erased before it was sent.
    Erased,
    /// The webhook is deleted, or the server stops.
    Ended,
}

/// The webhook is deleted, or the server stops.
struct Ended;

struct Task {
    app: Arc<App>,
    hook: Arc<Hook>,
    feed: Arc<Feed>,
    news: watch::Receiver<u64>,
    ended: Stopping,
    stopping: Stopping,
}

/// Sends a webhook's events until it is deleted or the server stops.
pub(crate) async fn run(app: Arc<App>, hook: Arc<Hook>) {
    let feed = app.feeds.of(app.tracks.events(), hook.info.fleet);
    let mut task = Task {
        news: feed.news(),
        feed,
        ended: hook.ended(),
        stopping: app.stopping(),
        app,
        hook,
    };
    while task.turn().await.is_ok() {}
}

impl Task {
    async fn turn(&mut self) -> Result<(), Ended> {
        if self.hook.state().disabled.is_some() {
            return Err(Ended);
        }
        // Before the look, so that no event is missed in between.
        self.news.borrow_and_update();
        let batch = match self.batch().await {
            Ok(batch) => batch,
            Err(problem) => {
                problem.log("events of a webhook");
                return self.pause(sleep(AGAIN)).await;
            }
        };
        if batch.events.is_empty() {
            // Reset, because the waiting event may have been erased.
            {
                let mut state = self.hook.lock();
                (state.first_waiting, state.next_attempt) = (None, None);
            }
            self.pass(batch.next).await;
            let mut news = self.news.clone();
            return self.pause(async move { drop(news.changed().await) }).await;
        }
        let first = batch.events.first().map(|event| event.id);
        self.hook.lock().first_waiting = first;
        match self.deliver(&batch).await {
            Outcome::Taken => {
                self.app.webhooks.delivered.fetch_add(1, Ordering::Relaxed);
                self.taken(batch.next).await
            }
            Outcome::Gone => self.gone().await,
            // The next batch is made without them.
            Outcome::Erased => self.pause(sleep(VOID)).await,
            Outcome::Failed(why) => self.failed(why).await,
            Outcome::Ended => Err(Ended),
        }
    }

    /// Waits. Errors: the task is to end.
    async fn pause(&mut self, until: impl Future<Output = ()>) -> Result<(), Ended> {
        tokio::select! {
            () = until => Ok(()),
            () = self.ended.wait() => Err(Ended),
            () = self.stopping.wait() => Err(Ended),
        }
    }

    /// The next events that match.
    async fn batch(&self) -> Result<Batch, Problem> {
        let filter = self.hook.filter();
        let mut batch = Batch {
            events: Vec::new(),
            next: self.hook.state().cursor,
            erased: self.feed.erased(),
        };
        loop {
            let given = feed::page(&self.app, &self.feed, batch.next, PAGE).await?;
            let (count, before) = (given.events.len(), batch.next);
            batch.next = given.next;
            for event in given.events.into_iter().filter(|event| filter.has(event)) {
                let id = event.id;
                batch.events.push(event);
                if batch.events.len() == BATCH {
                    batch.next = id;
                    return Ok(batch);
                }
            }
            let is_end = count < PAGE || batch.next == before;
            // Events that match are sent without first reading through many that do not.
            if is_end || (count == PAGE && !batch.events.is_empty()) {
                return Ok(batch);
            }
            if self.ended.is_now() || self.stopping.is_now() {
                return Ok(batch);
            }
        }
    }

    /// Advances the cursor to an id: no event up to it matches.
    async fn pass(&self, next: u64) {
        let is_far = {
            let mut state = self.hook.lock();
            state.cursor = state.cursor.max(next);
            state.cursor - state.stored.min(state.cursor) > PASSED
        };
        // If storing fails, these events are skipped again after a restart.
        if is_far && let Err(problem) = self.store((next, None)).await {
            problem.log("a webhook's cursor");
        }
    }

    async fn deliver(&mut self, batch: &Batch) -> Outcome {
        let hook = Arc::clone(&self.hook);
        let may_be_private = match self.app.webhooks.hosts.check(&hook.target) {
            Ok(may) => may,
            Err(why) => return Outcome::Failed(why),
        };
        let message = match self.message(batch) {
            Ok(message) => message,
            Err(why) => return Outcome::Failed(why),
        };
        let (app, feed) = (Arc::clone(&self.app), Arc::clone(&self.feed));
        let time = app.config.webhooks.timeout;
        let is_failing = hook.state().failures > 0;
        let post = async {
            let hooks = &app.webhooks;
            // These semaphores are never closed.
            let _failing = if is_failing {
                hooks.failing.acquire().await.ok()
            } else {
                None
            };
            let _place = hooks.deliveries.acquire().await.ok();
            let is_so = || feed.are_so(batch.erased, batch.events.iter().map(|event| &**event));
            if !is_so() {
                return Ok(None);
            }
            let post = hooks
                .client
                .post(&hook.target, may_be_private, message, &is_so);
            let text = || format!("there was no answer within {time:?}");
            timeout(time, post).await.unwrap_or_else(|_| Err(text()))
        };
        tokio::pin!(post);
        let answer = tokio::select! {
            answer = &mut post => Some(answer),
            () = self.ended.wait() => None,
            () = self.stopping.wait() => timeout(GRACE, post).await.ok(),
        };
        match answer {
            None => Outcome::Ended,
            Some(Ok(None)) => Outcome::Erased,
            Some(Ok(Some(status))) if status.is_success() => Outcome::Taken,
            Some(Ok(Some(StatusCode::GONE))) => Outcome::Gone,
            Some(Ok(Some(status))) if status.is_redirection() => Outcome::Failed(format!(
                "it answered {status}, and redirects are not followed"
            )),
            Some(Ok(Some(status))) => Outcome::Failed(format!("it answered {status}")),
            Some(Err(why)) => Outcome::Failed(why),
        }
    }

    fn message(&self, batch: &Batch) -> Result<(HeaderMap, Bytes), String> {
        let hook = &self.hook;
        let body = Body {
            fleet: hook.info.name.as_str(),
            webhook: hook.name.as_str(),
            events: batch.events.iter().map(|e| EventBody::new(e)).collect(),
        };
        let body = serde_json::to_vec(&body).map_err(|e| e.to_string())?;
        let ids = batch.events.first().zip(batch.events.last());
        let ids = ids.map_or_else(String::new, |(a, b)| format!("{}-{}", a.id, b.id));
        let seconds = self.app.clock.wall_micros() / 1_000_000;
        let signature = signature(&hook.stored.secret, seconds, &body);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|e| e.to_string());
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let agent = concat!("ironstone-tracks/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        headers.insert(SIGNATURE, value(&signature)?);
        headers.insert(DELIVERY, value(&ids)?);
        Ok((headers, body.into()))
    }

    fn now(&self) -> Time {
        self.app.tracks.now()
    }

    /// Records that a batch was taken. The next one is sent only once this is durable.
    async fn taken(&mut self, next: u64) -> Result<(), Ended> {
        loop {
            let Err(problem) = self.store((next, None)).await else {
                let now = self.now();
                let mut state = self.hook.lock();
                state.failures = 0;
                state.next_attempt = None;
                state.first_waiting = None;
                state.last_delivery = Some(now);
                return Ok(());
            };
            problem.log("a webhook's cursor");
            self.pause(sleep(AGAIN)).await?;
        }
    }

    async fn gone(&mut self) -> Result<(), Ended> {
        let why = "it answered 410 Gone: PUT makes it go on where it was";
        let cursor = self.hook.state().cursor;
        while let Err(problem) = self.store((cursor, Some(why.to_owned()))).await {
            problem.log("a webhook that is gone");
            self.pause(sleep(AGAIN)).await?;
        }
        let now = self.now();
        let mut state = self.hook.lock();
        state.last_failure = Some((now, why.to_owned()));
        state.next_attempt = None;
        state.first_waiting = None;
        Err(Ended)
    }

    async fn failed(&mut self, why: String) -> Result<(), Ended> {
        self.app.webhooks.failed.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        let wait = {
            let mut state = self.hook.lock();
            let times = self.app.config.webhooks.retry;
            let wait = delay(state.failures, times, self.app.webhooks.random());
            state.failures = state.failures.saturating_add(1);
            state.last_failure = Some((now, why));
            let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
            state.next_attempt = Some(Time(now.0.saturating_add(micros)));
            wait
        };
        self.pause(sleep(wait)).await
    }

    /// Stores the cursor, and whether the webhook is disabled. Errors: the store's.
    async fn store(&self, to: (u64, Option<String>)) -> Result<(), Problem> {
        let (app, hook) = (Arc::clone(&self.app), Arc::clone(&self.hook));
        let place = Arc::clone(&app.webhooks.stores).acquire_owned().await;
        let place = place.map_err(Problem::internal)?;
        let done = tokio::task::spawn_blocking(move || {
            let done = app.webhooks.store(&**app.tracks.store(), &hook, to);
            drop(place);
            done
        });
        match done.await.map_err(Problem::internal)? {
            // The webhook was deleted or replaced meanwhile, which ends the task.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }
}

/// The pause before the next attempt: twice as long each time, and up to a quarter longer at
/// random, so that webhooks that failed together are not tried again together.
fn delay(failures: u32, (first, most): (Duration, Duration), random: f64) -> Duration {
    let twice = 2_u32.saturating_pow(failures);
    let wait = first.saturating_mul(twice).min(most.mul_f64(0.8));
    wait.mul_f64(1.0 + random / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit() {
        let times = (Duration::from_secs(1), Duration::from_secs(300));
        let millis = |failures, random| delay(failures, times, random).as_millis();
        assert_eq!(
            [0, 1, 2, 5].map(|n| millis(n, 0.0)),
            [1000, 2000, 4000, 32_000]
        );
        assert_eq!(millis(0, 0.5), 1125);
        for failures in [8, 31, 32, u32::MAX] {
            assert_eq!(millis(failures, 0.0), 240_000);
            assert!(millis(failures, 0.999_999) < 300_000);
        }
    }
}
