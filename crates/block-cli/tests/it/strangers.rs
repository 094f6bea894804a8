//! Whoever does not belong to a cluster, or is broken: told so, closed, and nothing else happens.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use block::ids::Uuid;
use block::wire::frame::{Frame, HEAD, Head, Lane, kind};
use block::wire::hello::{Hello, Role};

use crate::cluster::{Cluster, wait_for};

const CLUSTER: u128 = 0x0d1c_5c2e_9d3a_4f4b_8a64_0d6f_2f0c_7a11;

fn hello(role: Role, id: u64) -> Vec<u8> {
    hello_of(Uuid(CLUSTER.to_be_bytes()), role, id)
}

fn hello_of(cluster: Uuid, role: Role, id: u64) -> Vec<u8> {
    let frame = Hello::new(cluster, role, id).frame();
    frame.encode().unwrap().to_vec()
}

/// Sends bytes to a store, and hears it to its end.
fn ask(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is an end, too.
    drop(socket.read_to_end(&mut answer));
    answer
}

/// The text of the refusal among frames.
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

#[test]
fn strangers_are_told_why_and_the_store_lives() {
    let cluster = Cluster::start();
    let port = cluster.addresses[1];
    let other = Uuid([9; 16]);
    for (bytes, word) in [
        (hello_of(other, Role::Client, 1), "cluster 09090909"),
        (hello_of(other, Role::Chunk, 1), "cluster 09090909"),
        (hello(Role::Meta, 1), "Meta"),
        (hello(Role::Chunk, 77), "store 77"),
        (hello(Role::Chunk, 2), "the lower number dials"),
    ] {
        let answer = ask(port, &bytes);
        let text = refusal(&answer).unwrap_or_default();
        assert!(text.contains(word), "{word}: {text}");
        wait_for("the store says so", || {
            cluster.said("chunk-2").contains(word)
        });
    }
    let mut giant = Frame::new(kind::REQUEST, Lane::Foreground, vec![0; 64])
        .encode()
        .unwrap()
        .to_vec();
    giant[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut rot = hello(Role::Client, 5);
    rot[70] ^= 1;
    for (bytes, word) in [
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nAccept: a page that is long enough to be a head\r\n\r\n"
                .to_vec(),
            "magic",
        ),
        ([hello(Role::Client, 5), giant].concat(), "at most"),
        (rot, "crc"),
        (
            [
                hello(Role::Client, 5),
                Frame::new(kind::RAFT, Lane::Foreground, vec![1; 64])
                    .encode()
                    .unwrap()
                    .to_vec(),
            ]
            .concat(),
            "kind 32",
        ),
    ] {
        let begun = cluster.said("chunk-2").len();
        ask(port, &bytes);
        wait_for("the store says so", || {
            cluster.said("chunk-2")[begun..].contains(word)
        });
    }
    // It is as well as before.
    cluster.wait_until_well();
}
