//! Messages that wait for their acknowledgement, in the order of the broker.
//!
//! A report may fail for a reason of its own: the rows of its entity are damaged, or it meets a
//! bug, which makes the reports of the same round fail, too. Then the first failed report is put on
//! trial: it is tried again a few times, alone, so that no other report can be the cause. If it
//! fails each time while the store takes other writes, it is given up: it is written to the log,
//! counted and acknowledged, because it would keep all later messages waiting. If the store fails
//! as well, nothing is acknowledged, and the broker sends the report again.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use base::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use super::packet::acknowledge;
use crate::devices::{Fate, Intake, LeftOut, Protocol};
use crate::model::name::Name;
use crate::model::report::Report;

/// The pauses before each further try.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
];
/// How many given-up entities are remembered, and for how long: the next report of such an entity
/// is tried less often.
const GIVEN_UP_MAX: usize = 1000;
const GIVEN_UP: Duration = Duration::from_secs(600);
/// The pause before another try while the service has no room.
const PAUSE_BUSY: Duration = Duration::from_millis(20);
/// The most characters of a topic in a line of the log.
const SAID_MAX: usize = 200;

type Done = Pin<Box<dyn Future<Output = Result<Fate>> + Send>>;

/// A report, kept so that it can be tried again.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) topic: String,
    pub(super) report: (Report, LeftOut),
}

enum Progress {
    OnItsWay(Done),
    Known(Result<Fate>),
}

struct Entry {
    /// `None` if it need not be acknowledged.
    id: Option<u16>,
    /// `None` if the message is not a report.
    sent: Option<Box<Sent>>,
    progress: Progress,
}

impl Entry {
    /// Ready once the result is known.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Progress::OnItsWay(done) = &mut self.progress {
            self.progress = Progress::Known(ready!(done.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}

/// The messages of one connection; see the module.
#[derive(Default)]
pub(super) struct Waiting {
    all: VecDeque<Entry>,
    /// Whether the first message is on trial.
    is_on_trial: bool,
    /// The entities whose reports were given up, and when.
    given_up: VecDeque<(Name, Instant)>,
}

/// What to send to the broker, and whether the connection continues.
pub(super) struct Settled {
    pub(super) acknowledgements: Vec<u8>,
    /// Errors: the store's.
    pub(super) result: Result<()>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether a report is on trial: no other may be submitted meanwhile.
    pub(super) fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    /// Adds a message with nothing to wait for.
    pub(super) fn push_done(&mut self, id: Option<u16>) {
        self.all.push_back(Entry {
            id,
            sent: None,
            progress: Progress::Known(Ok(Fate::Same)),
        });
    }

    /// Adds a report in progress.
    pub(super) fn push(
        &mut self,
        id: Option<u16>,
        sent: Box<Sent>,
        done: impl Future<Output = Result<Fate>> + Send + 'static,
    ) {
        self.all.push_back(Entry {
            id,
            sent: Some(sent),
            progress: Progress::OnItsWay(Box::pin(done)),
        });
    }

    /// Ready once the first message can be settled. Pending if there is none.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_on_trial {
            let others = self.all.iter_mut().skip(1);
            let unknown = others.filter_map(|entry| entry.poll(cx).is_pending().then_some(()));
            if unknown.count() > 0 {
                return Poll::Pending;
            }
        }
        match self.all.front_mut() {
            Some(first) => first.poll(cx),
            None => Poll::Pending,
        }
    }

    /// Takes out the first message, and all that follow it and can be acknowledged, too.
    pub(super) fn settle(&mut self, intake: &Arc<Intake>) -> Settled {
        let mut acknowledgements = Vec::new();
        // No wake-up is needed: the caller polls again for the first of the remaining messages.
        let mut cx = Context::from_waker(Waker::noop());
        let result = loop {
            let Some(first) = self.all.front_mut() else {
                break Ok(());
            };
            if first.poll(&mut cx).is_pending() {
                break Ok(());
            }
            match &first.progress {
                Progress::Known(Err(e)) => {
                    let e = e.clone();
                    break self.failed(intake, e);
                }
                Progress::Known(Ok(Fate::Failed)) if self.is_on_trial => {
                    let name = first.sent.as_ref().map(|sent| sent.report.0.entity.clone());
                    self.given_up
                        .extend(name.map(|name| (name, Instant::now())));
                }
                _ => {}
            }
            let Some(first) = self.all.pop_front() else {
                break Ok(());
            };
            acknowledgements.extend(first.id.map(acknowledge).into_iter().flatten());
            self.is_on_trial = false;
        };
        Settled {
            acknowledgements,
            result,
        }
    }

    /// Handles the failure of the first message: puts it on trial, unless it was on trial or the
    /// store failed.
    fn failed(&mut self, intake: &Arc<Intake>, e: Error) -> Result<()> {
        let was_on_trial = std::mem::replace(&mut self.is_on_trial, false);
        let Some(first) = self.all.front_mut() else {
            return Err(e);
        };
        let Some(sent) = first.sent.clone().filter(|_| !was_on_trial && is_own(&e)) else {
            return Err(e);
        };
        while let Some((_, at)) = self.given_up.front()
            && (self.given_up.len() > GIVEN_UP_MAX || at.elapsed() > GIVEN_UP)
        {
            self.given_up.pop_front();
        }
        // All others wait for it meanwhile.
        let entity = &sent.report.0.entity;
        let is_known = self.given_up.iter().any(|(name, _)| name == entity);
        let pauses = if is_known { &PAUSES[..1] } else { &PAUSES };
        let trial = trial(Arc::clone(intake), sent, e, pauses);
        first.progress = Progress::OnItsWay(Box::pin(trial));
        self.is_on_trial = true;
        Ok(())
    }
}

/// Whether an error may concern only this report and not the whole store: damaged rows, rows of a
/// newer release, a bug, or a panic, for which the error is the same as when the service stops.
fn is_own(e: &Error) -> bool {
    let kinds = [
        ErrorKind::Corruption,
        ErrorKind::NotSupported,
        ErrorKind::Aborted,
        ErrorKind::ShutdownInProgress,
    ];
    kinds.contains(&e.kind())
}

/// Tries a report again, and finally gives it up. Errors: the store's.
async fn trial(
    intake: Arc<Intake>,
    sent: Box<Sent>,
    first: Error,
    pauses: &'static [Duration],
) -> Result<Fate> {
    let mut last = first;
    for pause in pauses {
        sleep(*pause).await;
        match again(&intake, &sent).await? {
            Err(e) if is_own(&e) => last = e,
            other => return other,
        }
    }
    intake.check_store().await?;
    let topic: String = sent.topic.chars().take(SAID_MAX).collect();
    let tries = pauses.len() + 1;
    intake.give_up(&format!(
        "MQTT topic {topic:?}: a report of {} is acknowledged and not stored, as it failed {tries} times: {last}",
        sent.report.0.entity
    ));
    Ok(Fate::Failed)
}

/// Tries a report once more. Errors: it could not be submitted.
async fn again(intake: &Arc<Intake>, sent: &Sent) -> Result<Result<Fate>> {
    loop {
        match intake.submit(Protocol::Mqtt, intake.fleet(), sent.report.clone()) {
            Ok(pending) => return Ok(intake.end(pending).await),
            Err(e) if e.kind() == ErrorKind::Busy => sleep(PAUSE_BUSY).await,
            Err(e) => return Err(e),
        }
    }
}
