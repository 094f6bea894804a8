//! The course of a run from an engine's LOG: the files of each level over time, and when write
//! stalls began. Both engines write the same lines: events as JSON with an `lsm_state`, and a
//! warning for each stall that begins.

use super::data::Levels;

/// The most samples that are kept: more would not be visible.
const SAMPLES: usize = 120;

/// The most stalls that are kept.
const MARKS: usize = 500;

/// The course of a run, in seconds since the beginning of the LOG.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Course {
    pub(super) levels: Vec<Levels>,
    pub(super) stalls: Vec<f64>,
}

/// Reads a LOG.
pub(super) fn course(log: &str) -> Course {
    let mut found = Course::default();
    let Some((mut today, begun)) = log.lines().find_map(time) else {
        return found;
    };
    let (mut days, mut at) = (0.0, 0.0);
    for line in log.lines() {
        // Lines of a dump have no timestamp.
        if let Some((date, now)) = time(line) {
            days += f64::from(u8::from(date != today));
            today = date;
            at = round(days * 86_400.0 + now - begun);
        }
        if let Some(files) = lsm_state(line) {
            found.levels.push(Levels { at, files });
        } else if line.contains("Stopping writes because")
            || line.contains("Stalling writes because")
        {
            found.stalls.push(at);
        }
    }
    thin(&mut found.levels, SAMPLES);
    thin(&mut found.stalls, MARKS);
    found
}

/// Keeps about `most` samples, evenly spaced, and the last one.
fn thin<T>(samples: &mut Vec<T>, most: usize) {
    let step = samples.len().div_ceil(most).max(1);
    let last = samples.len().saturating_sub(1);
    let mut i = 0;
    samples.retain(|_| {
        let keep = i % step == 0 || i == last;
        i += 1;
        keep
    });
}

/// Rounds to thousandths.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// The date and the seconds of the day at the start of a line: `2026/11/23-00:06:47.905422`.
fn time(line: &str) -> Option<(&str, f64)> {
    let (date, clock) = line.get(..26)?.split_once('-')?;
    let mut parts = clock.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    Some((
        date,
        hours.ok()? * 3600.0 + minutes.ok()? * 60.0 + seconds.ok()?,
    ))
}

fn lsm_state(line: &str) -> Option<Vec<u64>> {
    let (_, rest) = line.split_once("\"lsm_state\": [")?;
    let (numbers, _) = rest.split_once(']')?;
    let numbers = numbers.split(',').map(|n| n.trim().parse().ok());
    let mut files: Vec<u64> = numbers.collect::<Option<_>>()?;
    let depth = files
        .iter()
        .rposition(|n| *n > 0)
        .map_or(0, |last| last + 1);
    files.truncate(depth);
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_stalls_of_both_engines_are_found() {
        let log = "2026/11/30-23:59:59.500000 1 Ironstone version: 0.1.0\n\
            2026/12/01-00:00:00.000000 3 EVENT_LOG_v1 {\"event\": \"flush_finished\", \"lsm_state\": [1, 0, 2], \"immutable_memtables\": 0}\n\
            2026/12/01-00:00:01.500000 7 [WARN] [default] Stopping writes because we have 2 immutable memtables\n\
            ** a dump **\n\
            2026/12/01-00:00:02.500000 1 (Original Log Time 2026/12/01-00:00:02.4) EVENT_LOG_v1 {\"lsm_state\": [0, 4, 0]}\n";
        let found = course(log);
        assert_eq!(found.stalls, [2.0]);
        assert_eq!(
            found.levels,
            [
                Levels {
                    at: 0.5,
                    files: vec![1, 0, 2]
                },
                Levels {
                    at: 3.0,
                    files: vec![0, 4]
                },
            ]
        );
        assert_eq!(course("no times\n"), Course::default());
        assert_eq!(course(""), Course::default());
    }

    #[test]
    fn many_samples_are_thinned() {
        let mut many: Vec<usize> = (0..1001).collect();
        thin(&mut many, 100);
        assert!(many.len() <= 101);
        assert_eq!((many[0], many.last()), (0, Some(&1000)));
        let mut few = vec![1, 2];
        thin(&mut few, 100);
        assert_eq!(few, [1, 2]);
    }
}
