//! All hostile calls are sent to one real server at once, while a neighbour makes simple calls:
//! each hostile call is answered with its error, the server's memory is bounded, and the neighbour
//! is answered in time.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::sync::atomic::{AtomicBool, Ordering};
use serde_json::{Value, json};

use super::hostile::{comb, flat_polygon, gzip, polygon, post_large};
use super::process::{binary, memory_of, serve, terminate};
use super::{Joined, T, agent, answer, line, thread, timed};

/// A call with headers and body; the allowed statuses, each with its type of problem, if any.
struct Call {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static str,
    /// A piece, and how often it is repeated.
    body: (Vec<u8>, usize),
    answers: &'static [(u16, &'static str)],
}

const REPORTS: &str = "/v1/fleets/f/reports";
const GZIP: &str = "content-encoding: gzip\r\n";

fn post(
    what: &'static str,
    path: &'static str,
    body: Vec<u8>,
    answers: &'static [(u16, &'static str)],
) -> Call {
    Call {
        what,
        method: "POST",
        path,
        headers: "",
        body: (body, 1),
        answers,
    }
}

fn get(what: &'static str, path: &'static str, answers: &'static [(u16, &'static str)]) -> Call {
    Call {
        what,
        method: "GET",
        path,
        headers: "",
        body: (Vec::new(), 1),
        answers,
    }
}

const REFUSED: &[(u16, &str)] = &[(400, "reports-refused")];
/// If other calls use the memory for bodies, that may be the answer.
const TOO_LARGE: &[(u16, &str)] = &[(413, "too-large"), (503, "busy")];
const BODY: &[(u16, &str)] = &[(400, "invalid-body")];
const PARAMETER: &[(u16, &str)] = &[(400, "invalid-parameter")];
/// A result, or a timeout, or that others ask too much.
const ANSWERED: &[(u16, &str)] = &[(200, ""), (503, "query-timeout"), (503, "busy")];

fn calls() -> Vec<Call> {
    let mut all = bad_bodies();
    all.extend(questions());
    all.extend(large_bodies());
    all
}

/// Bodies that are nested, or of a wrong content.
fn bad_bodies() -> Vec<Call> {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let objects = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let with = |more: &str| format!(r#"{{"entity":"a","lat":1,"lon":2,{more}}}"#).into_bytes();
    vec![
        post(
            "arrays 10,000 deep",
            REPORTS,
            deep.clone().into_bytes(),
            REFUSED,
        ),
        post(
            "objects 10,000 deep",
            REPORTS,
            objects.clone().into_bytes(),
            REFUSED,
        ),
        post(
            "attributes 10,000 deep",
            REPORTS,
            with(&format!(r#""attributes":{{"a":{objects}}}"#)),
            REFUSED,
        ),
        post(
            "speed 10,000 deep",
            REPORTS,
            with(&format!(r#""speed":{deep}"#)),
            REFUSED,
        ),
        post(
            "millions of reports that are none",
            REPORTS,
            format!("[{},{}]", "[],".repeat(2_500_000), deep).into_bytes(),
            REFUSED,
        ),
        post("a line of 8 MiB", REPORTS, vec![b'x'; (8 << 20) - 1], BODY),
        post(
            "a polygon 10,000 deep",
            "/v1/fleets/f/within",
            deep.into_bytes(),
            BODY,
        ),
        post("infinity", REPORTS, with(r#""speed":1e400"#), REFUSED),
        post(
            "a name of 129 bytes",
            REPORTS,
            line(&"x".repeat(129), T, 1.0, 2.0).into_bytes(),
            REFUSED,
        ),
        post(
            "a comb",
            "/v1/fleets/f/within",
            polygon(&[comb(4_998)]).into_bytes(),
            ANSWERED,
        ),
        post(
            "a device's nonsense",
            "/owntracks?fleet=f&u=a&d=b",
            objects.into_bytes(),
            &[(200, "")],
        ),
    ]
}

/// Queries of the whole Earth, and without sense.
fn questions() -> Vec<Call> {
    vec![
        get(
            "20,000 km",
            "/v1/fleets/f/within?circle=1,2,20000000&limit=10000",
            ANSWERED,
        ),
        get(
            "20,000 km on the ellipsoid",
            "/v1/fleets/f/within?circle=1,2,20000000&geodesic=true",
            ANSWERED,
        ),
        get(
            "20,000 km ever",
            "/v1/fleets/f/within?circle=1,2,20000000&from=0",
            ANSWERED,
        ),
        get(
            "the Earth in small cells",
            "/v1/fleets/f/density?bbox=-180,-90,180,90&precision=8",
            ANSWERED,
        ),
        get(
            "all that are near",
            "/v1/fleets/f/nearby?lat=1&lon=2&k=10000",
            ANSWERED,
        ),
        get(
            "k of 10⁹",
            "/v1/fleets/f/nearby?lat=1&lon=2&k=1000000000",
            PARAMETER,
        ),
        get(
            "from behind to",
            "/v1/fleets/f/entities/e1/track?from=2&to=1",
            PARAMETER,
        ),
        get(
            "the year 1",
            "/v1/fleets/f/export?from=0001-01-01T00:00:00Z",
            PARAMETER,
        ),
        get(
            "an infinite radius",
            "/v1/fleets/f/within?circle=1,2,inf",
            PARAMETER,
        ),
    ]
}

/// Bodies over every limit, plain, compressed and without an end.
fn large_bodies() -> Vec<Call> {
    const WITHIN: &str = "/v1/fleets/f/within";
    let with = |headers: &'static str, call: Call| Call { headers, ..call };
    let packed = |call: Call| Call {
        headers: GZIP,
        body: (gzip(&call.body.0), 1),
        ..call
    };
    // A line without an end, whose client announces this length, or none.
    let endless = |what| Call {
        body: (vec![b'x'; 1 << 20], 1 << 10),
        ..post(what, REPORTS, Vec::new(), TOO_LARGE)
    };
    let polygon = |what| {
        let polygon = flat_polygon(1_000_000).into_bytes();
        post(what, WITHIN, polygon, TOO_LARGE)
    };
    let fence = |what| {
        let fence = format!("{{\"area\":{}}}", flat_polygon(1_000_000)).into_bytes();
        Call {
            method: "PUT",
            ..post(what, "/v1/fleets/f/fences/x", fence, TOO_LARGE)
        }
    };
    let empty = "[],".repeat(20 << 20).into_bytes();
    let mut all = vec![
        polygon("a polygon of a million"),
        fence("a fence of a million"),
        packed(polygon("a packed polygon of a million")),
        packed(post("empty positions", WITHIN, empty, TOO_LARGE)),
        packed(fence("a packed fence of a million")),
        endless("a line of 1 GiB"),
        with(
            "transfer-encoding: chunked\r\n",
            endless("a line of 1 GiB that is not announced"),
        ),
    ];
    for (what, plain) in [("gzip of spaces", b' '), ("gzip of brackets", b'[')] {
        let bomb = packed(post(what, REPORTS, vec![plain; 80 << 20], TOO_LARGE));
        assert!((80 << 20) / bomb.body.0.len() >= 1000);
        all.push(bomb);
    }
    all
}

/// Makes a call. Returns a description of anything unexpected.
fn wrong(address: SocketAddr, call: &Call) -> Option<String> {
    let Call {
        method,
        path,
        headers,
        body,
        ..
    } = call;
    let (status, text) = post_large(address, (method, path), headers, body.clone());
    let kind = match serde_json::from_str::<Value>(&text) {
        Ok(json) => json["type"]
            .as_str()
            .unwrap_or_default()
            .replace("/problems/", ""),
        Err(_) => String::new(),
    };
    let is_right =
        call.answers.contains(&(status, kind.as_str())) && (status == 200 || text.len() < 100_000);
    (!is_right).then(|| format!("{}: {status} {kind}: {text:.300}", call.what))
}

/// Makes calls and reports until it is told to stop. Returns the time of each call. The server may need no token.
pub(super) fn neighbour(
    address: SocketAddr,
    token: &str,
    is_over: &Arc<AtomicBool>,
) -> Joined<Vec<Duration>> {
    let (is_over, bearer) = (Arc::clone(is_over), format!("Bearer {token}"));
    thread(move || {
        let (agent, mut times) = (agent(), Vec::new());
        let url = |path: &str| format!("http://{address}/v1/fleets/n/{path}");
        for nth in 0_u32.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let report = line("n", T + f64::from(nth), 1.0, 2.0);
            let get = |path: &str| {
                let get = agent.get(url(path));
                answer(get.header("authorization", &bearer).call())
            };
            let calls: [&dyn Fn() -> super::Answer; 3] = [
                &|| {
                    let post = agent.post(url("reports"));
                    answer(post.header("authorization", &bearer).send(&report))
                },
                &|| get("entities/n"),
                &|| get("within?circle=1,2,100"),
            ];
            for call in calls {
                let (answer, time) = timed(call);
                assert_eq!(answer.status, 200, "{}", answer.text);
                times.push(time);
            }
        }
        times
    })
}

/// The most that all this may add to the server's memory: 256 MiB for all bodies (`--memory`),
/// where one that grows is there twice for a moment, and the parsed forms of bodies: 1 MiB of a
/// polygon becomes 9 MiB of numbers.
pub(super) const MEMORY_MAX: u64 = 400 << 20;
/// The longest that the neighbour may wait for one answer: tests share their cores, and many wait
/// for a sync.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);

#[test]
fn hostile_calls_at_once_are_refused_by_name_and_disturb_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let (mut process, address) = serve(dir.path());
    let mut lines = String::new();
    for n in 0..20_000_u32 {
        let (lat, lon) = (f64::from(n % 180) - 90.0, f64::from(n % 359) - 180.0);
        writeln!(lines, "{}", line(&format!("e{n}"), T, lat, lon)).unwrap();
    }
    let sent = answer(
        agent()
            .post(format!("http://{address}{REPORTS}"))
            .send(&lines),
    );
    assert_eq!(sent.json()["stored"], 20_000);
    let before = memory_of(&process, "VmRSS:");
    let is_over = Arc::new(AtomicBool::new(false));
    let neighbour = neighbour(address, "", &is_over);

    let calls = Arc::new(calls());
    // Each thread begins with another call, so that different ones coincide.
    let hostile: Vec<_> = (0..3)
        .map(|n| {
            let calls = Arc::clone(&calls);
            thread(move || {
                let from = n * calls.len() / 3;
                let all = calls.iter().cycle().skip(from).take(calls.len());
                all.filter_map(|call| wrong(address, call))
                    .collect::<Vec<String>>()
            })
        })
        .collect();
    let wrong: Vec<String> = hostile
        .into_iter()
        .flat_map(|all| all.join().unwrap())
        .collect();
    is_over.store(true, Ordering::SeqCst);
    let mut times = neighbour.join().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    times.sort();
    let (worst, median) = (times[times.len() - 1], times[times.len() / 2]);
    let most = memory_of(&process, "VmHWM:");
    eprintln!(
        "{} calls of the neighbour: median {median:?}, worst {worst:?}; memory {} MiB before, {} MiB at most",
        times.len(),
        before >> 20,
        most >> 20
    );
    assert!(worst < WAIT_MAX, "{worst:?}");
    assert!(
        most - before < MEMORY_MAX,
        "{} MiB more",
        (most - before) >> 20
    );

    // Nothing of it is stored, and the rows are consistent.
    assert_eq!(terminate(&mut process), Some(0));
    let checked = binary()
        .args(["check", "--json", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        (&found["wrong"], &found["entities"]),
        (&json!(0), &json!(20_001)),
        "{found}"
    );
}
