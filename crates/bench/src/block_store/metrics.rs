//! The counters of the stores of an Ironstone cluster, from their `/metrics`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The counters of all stores of a cluster at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// The text of each process that answered.
    texts: Vec<String>,
}

impl Counts {
    /// Reads the metrics of every process that has a `metrics` address in the cluster file. A
    /// process that does not answer is left out.
    pub(super) fn of(cluster: &str) -> Self {
        let texts = addresses(cluster).into_iter().filter_map(get).collect();
        Self { texts }
    }

    /// For each process that has a figure, the sum of its samples.
    pub(super) fn each(&self, name: &str) -> Vec<f64> {
        let of = |text: &String| {
            let samples: Vec<f64> = samples(text, name).collect();
            (!samples.is_empty()).then(|| samples.iter().sum())
        };
        self.texts.iter().filter_map(of).collect()
    }

    /// The sum of a figure over all processes; `None` if none has it.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let each = self.each(name);
        (!each.is_empty()).then(|| each.iter().sum())
    }

    /// The smallest increase of a counter among the stores since `earlier`; `None` if no store has
    /// it.
    pub(super) fn fewest_since(&self, earlier: &Self, name: &str) -> Option<f64> {
        let (now, then) = (self.each(name), earlier.each(name));
        (now.len() == then.len())
            .then(|| {
                now.iter()
                    .zip(then)
                    .map(|(now, then)| now - then)
                    .fold(f64::NAN, f64::min)
            })
            .filter(|fewest| fewest.is_finite())
    }

    /// The increase of a sum since `earlier`.
    pub(super) fn since(&self, earlier: &Self, name: &str) -> Option<f64> {
        Some(self.sum(name)? - earlier.sum(name)?)
    }
}

/// The values of the samples with a name, whatever their labels.
fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse().ok()
    })
}

/// The addresses in the lines `metrics = "127.0.0.1:7201"` of a cluster file.
fn addresses(cluster: &str) -> Vec<SocketAddr> {
    cluster
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("metrics = \"")?
                .split('"')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

fn get(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_cluster_file() {
        let cluster = "cluster = \"x\"\n[[store]]\nid = 1\nmetrics = \"127.0.0.1:7201\"\n\
            [nbd]\nlisten = \"127.0.0.1:10809\"\nmetrics = \"127.0.0.1:7200\"\nmetrics = \"odd\"\n";
        let found: Vec<u16> = addresses(cluster).iter().map(SocketAddr::port).collect();
        assert_eq!(found, [7201, 7200]);
    }

    #[test]
    fn samples_add_up() {
        let store = |dirty: u32| {
            format!(
                "# HELP a_dirty Bytes\na_dirty{{store=\"1\"}} {dirty}\na_dirty_total{{}} 9\n\
                 b{{kind=\"read\"}} 1\nb{{kind=\"write\"}} 2.5\n"
            )
        };
        let now = Counts {
            texts: vec![store(5), store(3), "c 1\n".to_owned()],
        };
        let then = Counts {
            texts: vec![store(1), store(1), "c 1\n".to_owned()],
        };
        assert_eq!(now.sum("a_dirty"), Some(8.0));
        assert_eq!(now.sum("b"), Some(7.0));
        assert_eq!(now.sum("d"), None);
        assert_eq!(now.since(&then, "a_dirty"), Some(6.0));
        assert_eq!(now.fewest_since(&then, "a_dirty"), Some(2.0));
        assert_eq!(now.fewest_since(&then, "d"), None);
    }
}
