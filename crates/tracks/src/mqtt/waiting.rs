//! Messages that wait for their acknowledgement, in the order of the broker.
//!
//! A report that fails may do so for itself: its entity's rows are damaged, or it meets a bug of ours that takes its
//! neighbours along. The first of them that failed is on trial then: it is tried again a few times, alone, so that
//! nothing else is what fails it. Where it fails each time, and the store takes other writes, it is given up: said,
//! counted, and acknowledged, as it would keep all others from coming. Where the store does not, it is the store's
//! failure: nothing is acknowledged, and the broker sends it again.

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

/// How long it is waited before each further try.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
];
/// Of so many entities it is known that a report was given up, for so long: their next one is not tried as often.
const GIVEN_UP_MAX: usize = 1000;
const GIVEN_UP: Duration = Duration::from_secs(600);
/// And while the service has no room.
const PAUSE_BUSY: Duration = Duration::from_millis(20);
/// The most characters of a topic that are said.
const SAID_MAX: usize = 200;

type Done = Pin<Box<dyn Future<Output = Result<Fate>> + Send>>;

/// A report, and how to try it again.
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
    /// `None`: it is not to be acknowledged.
    id: Option<u16>,
    /// `None`: it is no report.
    sent: Option<Box<Sent>>,
    progress: Progress,
}

impl Entry {
    /// Ready: it is known what became of it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Progress::OnItsWay(done) = &mut self.progress {
            self.progress = Progress::Known(ready!(done.as_mut().poll(cx)));
        }
        Poll::Ready(())
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Waiting {
    all: VecDeque<Entry>,
    /// The first is.
    is_on_trial: bool,
    /// Whose reports were given up, and when.
    given_up: VecDeque<(Name, Instant)>,
}

/// What may be sent to the broker, and whether the connection goes on.
pub(super) struct Settled {
    pub(super) acknowledgements: Vec<u8>,
    /// Errors: the store's.
    pub(super) result: Result<()>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether a report is on trial: no other may begin meanwhile.
    pub(super) fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    /// A message that has nothing to wait for.
    pub(super) fn push_done(&mut self, id: Option<u16>) {
        self.all.push_back(Entry {
            id,
            sent: None,
            progress: Progress::Known(Ok(Fate::Same)),
        });
    }

    /// A report that is on its way.
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

    /// Ready: the first may be settled. Pending also where there is none.
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

    /// Takes out the first, and all behind it that may be acknowledged with it.
    pub(super) fn settle(&mut self, intake: &Arc<Intake>) -> Settled {
        let mut acknowledgements = Vec::new();
        // Whoever waits for the first of the others asks again.
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

    /// The first has failed: it is put on trial, unless it was, or the store is what failed.
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

/// Whether an error may be of a report and not of the whole store: damaged rows, rows of a newer release, a bug, a panic,
/// which is answered as the end of the service is.
fn is_own(e: &Error) -> bool {
    let kinds = [
        ErrorKind::Corruption,
        ErrorKind::NotSupported,
        ErrorKind::Aborted,
        ErrorKind::ShutdownInProgress,
    ];
    kinds.contains(&e.kind())
}

/// Tries a report again, and gives it up in the end. Errors: the store's.
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

/// One more try. Errors: it could not be made.
async fn again(intake: &Arc<Intake>, sent: &Sent) -> Result<Result<Fate>> {
    loop {
        match intake.submit(Protocol::Mqtt, intake.fleet(), sent.report.clone()) {
            Ok(pending) => return Ok(intake.end(pending).await),
            Err(e) if e.kind() == ErrorKind::Busy => sleep(PAUSE_BUSY).await,
            Err(e) => return Err(e),
        }
    }
}
