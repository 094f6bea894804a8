//! Tests of `/metrics`: Prometheus can read it, it has what the documentation says, and its counters rise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::{Cluster, find, tool, wait_for};

/// The samples of a process, by name and labels.
type Samples = BTreeMap<String, f64>;

fn get(port: u16) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(20));
    socket.set_read_timeout(patience).unwrap();
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let head = head.to_lowercase();
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    body.to_owned()
}

/// The family of a sample: a histogram has three kinds of samples.
fn family_of<'a>(name: &'a str, kinds: &BTreeMap<String, String>) -> &'a str {
    let parts = ["_bucket", "_sum", "_count"];
    let base = parts.iter().find_map(|part| name.strip_suffix(part));
    let is_histogram = |b: &&str| kinds.get(*b).is_some_and(|kind| kind == "histogram");
    base.filter(is_histogram).unwrap_or(name)
}

fn is_name(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(is_fit) && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Parses the text as Prometheus does, and panics if it cannot. Each family occurs once, with HELP and TYPE
/// before its samples, which are adjacent; no series occurs twice; buckets of histograms rise to their count.
fn parse(text: &str) -> Samples {
    let (mut kinds, mut helps) = (BTreeMap::new(), BTreeSet::new());
    let (mut samples, mut current) = (Samples::new(), String::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(helps.insert(name.to_owned()), "twice: {line}");
            name.clone_into(&mut current);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name, current, "without HELP: {line}");
            let before = kinds.insert(name.to_owned(), kind.to_owned());
            assert!(before.is_none(), "twice: {line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(is_name(name), "{line}");
        let family = family_of(name, &kinds);
        assert!(family == current && kinds.contains_key(family), "{line}");
        let value: f64 = value.parse().unwrap();
        let before = samples.insert(series.to_owned(), value);
        assert!(before.is_none(), "twice: {line}");
    }
    assert!(helps.iter().all(|name| kinds.contains_key(name)));
    buckets_rise(text, &samples);
    samples
}

/// Buckets are in the order of their bounds.
fn buckets_rise(text: &str, samples: &Samples) {
    let mut last = (String::new(), f64::MIN, f64::MIN);
    for line in text.lines().filter(|l| l.contains("_bucket{")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (rest, bound) = series.split_once("le=\"").unwrap();
        let bound = bound.strip_suffix("\"}").unwrap();
        let at = match bound {
            "+Inf" => f64::INFINITY,
            _ => bound.parse().unwrap(),
        };
        let value: f64 = value.parse().unwrap();
        if rest == last.0 {
            assert!(at > last.1 && value >= last.2, "{line}");
        }
        if bound == "+Inf" {
            let rest = rest.replace("_bucket{", "_count{");
            let labels = rest.trim_end_matches(',');
            let count = format!("{labels}}}").replace("{}", "");
            assert_eq!(samples.get(&count), Some(&value), "{line}");
        }
        last = (rest.to_owned(), at, value);
    }
}

/// Counters never fall; gauges may.
fn none_fell(before: &Samples, after: &Samples) {
    for (series, value) in before {
        let name = series.split('{').next().unwrap();
        let is_counter = ["_total", "_bucket", "_sum", "_count"];
        if is_counter.iter().any(|end| name.ends_with(end)) {
            assert!(after[series] >= *value, "{series}");
        }
    }
}

/// The sum of a metric over all stores.
fn sum(stores: &[Samples], name: &str) -> f64 {
    let all = stores.iter().flatten();
    let is_it = |(series, _): &(&String, &f64)| {
        let mut parts = series.splitn(2, "store=\"");
        let (head, tail) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        let tail = tail.split_once('"').map_or("", |(_, tail)| tail);
        format!("{head}{}", tail.trim_start_matches(',')) == name
    };
    all.filter(is_it).map(|(_, value)| value).sum()
}

fn whole(samples: &Samples, name: &str) -> u64 {
    samples[name] as u64
}

#[test]
fn prometheus_reads_what_processes_count() {
    let Some(qemu_io) = find("qemu-io", "qemu-utils") else {
        return;
    };
    let cluster = Cluster::start();
    let look = || -> Vec<Samples> { cluster.metrics.iter().map(|p| parse(&get(*p))).collect() };
    let io = |command: &str| tool(&qemu_io, &["-f", "raw", "-c", command, &cluster.uri()]);
    io("write -P 1 0 1M");
    let before = look();
    io("write -P 2 0 8M");
    io("read -P 2 0 8M");
    let after = look();
    for (before, after) in before.iter().zip(&after) {
        none_fell(before, after);
        let same = before.keys().eq(after.keys());
        assert!(same, "series came or went");
    }
    let (nbd, stores) = after.split_last().unwrap();
    let (nbd_before, stores_before) = before.split_last().unwrap();
    let rose = |name: &str| nbd[name] - nbd_before[name];
    assert!(rose("ironstone_block_nbd_requests_total{kind=\"write\"}") >= 1.0);
    assert!(rose("ironstone_block_nbd_requests_total{kind=\"read\"}") >= 1.0);
    let bytes = f64::from(8 << 20);
    for kind in ["write", "read"] {
        let name = format!("ironstone_block_nbd_bytes_total{{kind=\"{kind}\"}}");
        assert!(rose(&name) >= bytes, "{kind}: {}", rose(&name));
        let name = format!("ironstone_block_nbd_request_seconds_count{{kind=\"{kind}\"}}");
        assert!(rose(&name) >= 1.0, "{kind}");
        let name = format!("ironstone_block_bytes_total{{kind=\"{kind}\"}}");
        let rose = sum(stores, &name) - sum(stores_before, &name);
        assert!(rose >= bytes, "{kind}: {rose}");
    }
    assert_eq!(whole(nbd, "ironstone_block_nbd_stores"), 3);
    assert_eq!(whole(nbd, "ironstone_block_nbd_failures_total"), 0);
    for part in ["queue", "log", "peers", "apply"] {
        let name = format!("ironstone_block_write_part_seconds_count{{part=\"{part}\"}}");
        assert!(sum(stores, &name) > sum(stores_before, &name), "{part}");
    }
    for (nth, (store, before)) in stores.iter().zip(stores_before).enumerate() {
        let of = |name: &str| format!("ironstone_block_{name}{{store=\"{}\"}}", nth + 1);
        for name in ["log_batches_total", "log_bytes_total"] {
            assert!(store[&of(name)] > before[&of(name)], "{name}");
        }
        // Nobody has set this machine's clock back.
        for name in ["wrong_clocks_total", "flusher_failures_total"] {
            assert_eq!(whole(store, &of(name)), 0, "{name}");
        }
        assert_eq!(whole(store, &of("peers")), 2);
        assert!(store[&of("free_slots")] <= store[&of("slots")]);
        let fill = store[&of("log_fill_ratio")];
        assert!((0.0..=1.0).contains(&fill), "{fill}");
        for name in ["refusals_total", "dropped_messages_total"] {
            assert!(store.contains_key(&of(name)), "{name}");
        }
        for name in ["dirty_bytes", "waiting_requests"] {
            assert!(store.contains_key(&of(name)), "{name}");
        }
    }
    // Less than a checkpoint's 4 MiB may stay in memory.
    wait_for("half of what was written is in checkpoints", || {
        let now = look();
        let (_, now) = now.split_last().unwrap();
        let has = |s: &Samples, name: &str| sum(std::slice::from_ref(s), name);
        now.iter().all(|s| {
            has(s, "ironstone_block_flusher_bytes_total{}") >= bytes / 2.0
                && has(s, "ironstone_block_checkpoints_total{}") > 0.0
                && has(s, "ironstone_block_free_slots{}") < has(s, "ironstone_block_slots{}")
        })
    });
}
