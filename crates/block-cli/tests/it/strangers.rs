//! Tests of peers that do not belong to a cluster, or are faulty: they are told so and disconnected, and
//! nothing else happens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use block::group::command::Origin;
use block::ids::{Attachment, Chunk, Epoch, Group, Layer, Tree, Uuid};
use block::wire::client::{Outcome, Piece, Reason, Request, Span, What, crcs_at};
use block::wire::frame::{Frame, HEAD, Head, Lane, kind};
use block::wire::hello::{Hello, Role};

use crate::cluster::{Cluster, wait_for};
use crate::wire::{CLUSTER, Wire, hello, hello_of};

/// Sends bytes to a store, and reads until its end; returns the output, and our address.
fn ask(port: u16, bytes: &[u8]) -> (Vec<u8>, String) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).unwrap();
    socket.write_all(bytes).unwrap();
    let from = socket.local_addr().unwrap().to_string();
    let mut answer = Vec::new();
    // A reset counts as the end.
    drop(socket.read_to_end(&mut answer));
    (answer, from)
}

/// The text of the refusal among the frames.
fn refusal(mut bytes: &[u8]) -> Option<String> {
    while let Ok(Some(head)) = Head::decode(bytes) {
        let frame = head.frame(bytes).unwrap()?;
        if frame.kind == kind::REFUSAL {
            return Some(String::from_utf8_lossy(&frame.fields).into_owned());
        }
        bytes = &bytes[HEAD + head.fields_bytes + head.payload_bytes..];
    }
    None
}

/// A store was lost with its disk, and created anew under its number: it voted, although it lacked what it had
/// acknowledged, so a leader could be elected that lacked it too.
#[test]
fn a_store_that_was_made_anew_is_not_listened_to() {
    let mut cluster = Cluster::start();
    cluster.kill("chunk-3");
    let store = cluster.dir.path().join("store-3");
    let away = cluster.dir.path().join("away");
    std::fs::rename(&store, &away).unwrap();
    cluster.start_store(3);
    let word = "made anew, it lacks what it has acknowledged";
    for name in ["chunk-1", "chunk-2", "chunk-3"] {
        wait_for("everybody says so", || cluster.said(name).contains(word));
    }
    wait_for("it is not well", || cluster.status()["well"] == false);
    // The others remember the old store after a restart.
    cluster.kill("chunk-1");
    let begun = cluster.said("chunk-1").len();
    cluster.start_store(1);
    wait_for("it says so again", || {
        cluster.said("chunk-1")[begun..].contains(word)
    });
    cluster.kill("chunk-3");
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&away, &store).unwrap();
    cluster.start_store(3);
    cluster.wait_until_well();
}

/// A client that asked for more than 32 MiB at once, and read every response, was disconnected: all responses
/// of a turn had to fit into its queue. And requests with the same id counted once.
#[test]
fn a_client_that_asks_for_much_at_once_gets_it() {
    let cluster = Cluster::start_with("log = \"256M\"\n");
    // The group may get another leader meanwhile.
    let served = (1..20).any(|epoch| {
        let leader = cluster.leader(1);
        asks_for_much(&cluster, leader, epoch).is_some()
    });
    assert!(served);
    for id in 1..=3 {
        assert!(!cluster.said(&format!("chunk-{id}")).contains("client 9"));
    }
}

/// `None` if the store is not the leader of the group, or no longer.
fn asks_for_much(cluster: &Cluster, leader: u64, epoch: u32) -> Option<()> {
    const MIB: u32 = 1 << 20;
    const READS: u64 = 96;
    let mut wire = Wire::connect(cluster.addresses[leader as usize - 1], 9);
    let request = |id: u64, seq: u64, what: What| Request {
        id,
        group: Group(1),
        tree: Tree(77),
        layer: Layer(1),
        origin: Origin {
            epoch: Epoch(epoch),
            attachment: Attachment(u64::from(epoch)),
            seq,
            lowest_open: seq.max(1),
        },
        what,
    };
    let span = |nth: u64| Span {
        chunk: Chunk(0),
        offset: nth as u32 % 8 * MIB,
        len: MIB,
    };
    let done = |outcome: Outcome| match outcome {
        Outcome::Done => Some(()),
        Outcome::Refused(Reason::NotLeader { .. } | Reason::Busy) => None,
        other => panic!("{other:?}"),
    };
    wire.send(&[request(1, 0, What::Attach)]);
    done(wire.answer().outcome)?;
    for nth in 0..8 {
        let payload = vec![nth as u8 + 1; MIB as usize];
        let what = What::Write {
            span: span(nth),
            crcs: crcs_at(0, &payload).collect(),
            payload: payload.into(),
        };
        wire.send(&[request(nth, nth + 1, what)]);
        done(wire.answer().outcome)?;
    }
    for is_one in [false, true] {
        let id = |nth| if is_one { 1000 } else { 1000 + nth };
        let reads = (0..READS).map(|nth| request(id(nth), 0, What::Read(span(nth))));
        wire.send(&reads.collect::<Vec<_>>());
        for _ in 0..READS {
            let Outcome::Data { pieces, .. } = wire.answer().outcome else {
                return None;
            };
            let bytes = pieces.iter().map(|p| match p {
                Piece::Data(bytes) => bytes.len(),
                Piece::Hole(_) => 0,
            });
            assert_eq!(bytes.sum::<usize>(), MIB as usize);
        }
    }
    Some(())
}

const SAME_RELEASE: &str = "run the same release of ironstone-block";
const CLUSTER_FILE: &str = "check which cluster file";

/// A frame with some bytes of its head replaced.
fn with(frame: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Hellos of processes that do not belong to this cluster, and the words of the refusals.
fn strangers() -> Vec<(Vec<u8>, [&'static str; 2])> {
    let other = Uuid([9; 16]);
    let mut old = Hello::new(Uuid(CLUSTER.to_be_bytes()), Role::Client, 5);
    old.version = 0;
    let mut later = Hello::new(Uuid(CLUSTER.to_be_bytes()), Role::Client, 5);
    later.features.needed = 0x40;
    let of = |hello: Hello| hello.frame().encode().unwrap().to_vec();
    vec![
        (
            hello_of(other, Role::Client, 1),
            ["cluster 09090909", CLUSTER_FILE],
        ),
        (
            hello_of(other, Role::Chunk, 1),
            ["cluster 09090909", CLUSTER_FILE],
        ),
        (hello(Role::Meta, 1), ["a Meta has nothing", SAME_RELEASE]),
        (hello(Role::Chunk, 77), ["store 77", CLUSTER_FILE]),
        (
            hello(Role::Chunk, 2),
            ["the lower number dials", CLUSTER_FILE],
        ),
        (
            hello(Role::Chunk, 1),
            ["store 1 does not say which it is", SAME_RELEASE],
        ),
        (of(old), ["peer 5 speaks version 0", SAME_RELEASE]),
        (of(later), ["needs the features 0x40", SAME_RELEASE]),
    ]
}

/// Invalid or unknown frames, at the beginning and after a hello, and the words of the refusals.
fn broken_frames() -> Vec<(Vec<u8>, [&'static str; 2])> {
    let hello = hello(Role::Client, 5);
    let frame = |kind| Frame::new(kind, Lane::Foreground, vec![1; 64]);
    let request = frame(kind::REQUEST).encode().unwrap();
    let raft = frame(kind::RAFT).encode().unwrap();
    let behind = |frame: &[u8]| [&hello, frame].concat();
    let version = |n: u16| n.to_le_bytes();
    let damage = "check the network and the memory";
    let web =
        b"GET / HTTP/1.1\r\nHost: a\r\nAccept: a page that is long enough to be a head\r\n\r\n";
    let old = ["a frame of version 0: this release knows 1", SAME_RELEASE];
    vec![
        (web.to_vec(), ["magic of a frame", "check which address"]),
        (with(&hello, 8, &version(0)), old),
        (behind(&with(&request, 8, &version(0))), old),
        (
            with(&hello, 8, &version(2)),
            ["a frame of version 2: this release knows 1", SAME_RELEASE],
        ),
        (
            behind(&with(&request, 20, &[0xff; 4])),
            ["a frame of 64 + 4294967295 bytes: at most", SAME_RELEASE],
        ),
        (
            with(&hello, 16, &[0xff; 4]),
            ["a frame of 4294967295 + 0 bytes: at most", SAME_RELEASE],
        ),
        (with(&hello, 70, &[0x55]), ["has the crc", damage]),
        (
            behind(&with(&request, 70, &[0x55])),
            ["has the crc", damage],
        ),
        (behind(&request), ["a request that cannot be", SAME_RELEASE]),
        (behind(&raft), ["a message of kind 32", SAME_RELEASE]),
    ]
}

/// Peers are told the fault and the remedy, and the store prints both, with the peer's address.
#[test]
fn strangers_are_told_why_and_the_store_lives() {
    let cluster = Cluster::start();
    let port = cluster.addresses[1];
    for (bytes, words) in strangers().into_iter().chain(broken_frames()) {
        let (answer, from) = ask(port, &bytes);
        let text = refusal(&answer).unwrap_or_default();
        assert!(words.iter().all(|w| text.contains(w)), "{words:?}: {text}");
        wait_for(&format!("the store says {words:?} of {from}"), || {
            let said = cluster.said("chunk-2");
            let mut lines = said.lines().filter(|line| line.contains(&from));
            lines.any(|line| words.iter().all(|w| line.contains(w)))
        });
    }
    // The cluster is as healthy as before.
    cluster.wait_until_well();
}

/// The oldest option to choose a volume has no refusal: the server prints why it closes the connection.
#[test]
fn an_nbd_client_that_cannot_be_told_is_named() {
    let cluster = Cluster::start();
    let socket = cluster.dir.path().join("nbd");
    for (data, words) in [
        (
            vec![b'x'; 4097],
            ["a name of 4097 bytes", "ask for the list"],
        ),
        (b"vol9".to_vec(), ["vol9", "[[volume]]"]),
    ] {
        let mut client = UnixStream::connect(&socket).unwrap();
        let patience = Some(Duration::from_secs(10));
        client.set_read_timeout(patience).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        let option = [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT\0\0\0\x01",
            &(data.len() as u32).to_be_bytes(),
            &data,
        ];
        client.write_all(&option.concat()).unwrap();
        // A reset counts as the end.
        assert_eq!(client.read(&mut [0; 1]).unwrap_or_default(), 0);
        wait_for("the server says why", || {
            let said = cluster.said("nbd");
            let mut lines = said.lines();
            lines.any(|line| words.iter().all(|w| line.contains(w)))
        });
    }
    cluster.wait_until_well();
}
