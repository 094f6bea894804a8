//! Tests of each option's rules, by the bytes of the replies.
#![expect(clippy::indexing_slicing, reason = "a test may panic")]

use super::*;
use crate::nbd::command::ExportId;

const NEW: u32 = 3;

fn export(name: &str) -> ExportInfo {
    ExportInfo {
        id: ExportId(4),
        name: name.to_owned(),
        description: "a volume".to_owned(),
        size: 1 << 30,
        read_only: false,
        fast_zero: true,
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut out = codec::IHAVEOPT.to_be_bytes().to_vec();
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
    out
}

fn named(name: &str) -> Vec<u8> {
    let mut out = (name.len() as u32).to_be_bytes().to_vec();
    out.extend_from_slice(name.as_bytes());
    out
}

fn go(name: &str, wants: &[u16]) -> Vec<u8> {
    let mut out = named(name);
    out.extend_from_slice(&(wants.len() as u16).to_be_bytes());
    for want in wants {
        out.extend_from_slice(&want.to_be_bytes());
    }
    out
}

fn meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut out = named(name);
    out.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        out.extend(named(query));
    }
    out
}

/// The replies in `bytes`: option, kind and data.
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut out = Vec::new();
    let be32 = |b: &[u8]| u32::from_be_bytes(b[..4].try_into().unwrap());
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], codec::OPTION_REPLY.to_be_bytes());
        let len = be32(&bytes[16..]) as usize;
        out.push((
            be32(&bytes[8..]),
            be32(&bytes[12..]),
            bytes[20..20 + len].to_vec(),
        ));
        bytes = &bytes[20 + len..];
    }
    out
}

fn started(flags: u32) -> Handshake {
    let mut h = Handshake::default();
    let (n, _) = h.step(&flags.to_be_bytes()).unwrap();
    assert_eq!(n, 4);
    h
}

fn step(h: &mut Handshake, number: u32, data: &[u8]) -> Step {
    let bytes = option(number, data);
    for len in 0..bytes.len().min(OPTION_LEN + 3) {
        if len < bytes.len() {
            assert_eq!(h.step(&bytes[..len]).unwrap(), (0, None), "{len}");
        }
    }
    let (n, step) = h.step(&bytes).unwrap();
    assert_eq!(n, bytes.len());
    step.unwrap()
}

/// The kind of the only reply to an option that needs no export.
fn kind(h: &mut Handshake, number: u32, data: &[u8]) -> u32 {
    let Step::Say(bytes) = step(h, number, data) else {
        panic!("not answered at once");
    };
    let replies = replies(&bytes);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, number);
    replies[0].1
}

#[test]
fn what_is_not_built_is_refused_and_the_client_goes_on() {
    let mut h = started(NEW);
    for (number, data, want) in [
        (Opt::StartTls as u32, &b""[..], OptReply::Unsup),
        (Opt::StartTls as u32, b"x", OptReply::Invalid),
        (Opt::ExtendedHeaders as u32, b"", OptReply::Unsup),
        (4, b"PEEK_EXPORT", OptReply::Unsup),
        (12, b"", OptReply::Unsup),
        (u32::MAX, b"any data", OptReply::Unsup),
        (Opt::List as u32, b"x", OptReply::Invalid),
        (Opt::StructuredReply as u32, b"x", OptReply::Invalid),
        (
            Opt::SetMetaContext as u32,
            &meta("v", &[]),
            OptReply::Invalid,
        ),
        (Opt::StructuredReply as u32, b"", OptReply::Ack),
        (Opt::StructuredReply as u32, b"", OptReply::Invalid),
        (Opt::Go as u32, b"\0\0\0\x05ab", OptReply::Invalid),
        (
            Opt::Info as u32,
            &go(&"x".repeat(4097), &[]),
            OptReply::TooBig,
        ),
    ] {
        assert_eq!(kind(&mut h, number, data), want as u32, "{number}");
    }
    let Step::End(bytes) = step(&mut h, Opt::Abort as u32, b"whatever") else {
        panic!("not the end");
    };
    assert_eq!(replies(&bytes)[0].1, OptReply::Ack as u32);
}

#[test]
fn no_client_of_this_protocol() {
    let mut h = Handshake::default();
    assert!(h.step(&8_u32.to_be_bytes()).is_err());
    let mut h = started(NEW);
    assert!(h.step(b"GET / HTTP/1.1\r\n\r\n").is_err());
    // Neither fixed newstyle nor EXPORT_NAME: such a client would not understand a reply.
    let mut h = started(0);
    assert!(h.step(&option(Opt::List as u32, b"")).is_err());
    // An absurd length.
    let mut h = started(NEW);
    let mut head = option(Opt::Go as u32, b"");
    head[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(h.step(&head).is_err());
    let mut h = started(NEW);
    let name = vec![b'x'; 4097];
    let e = h.step(&option(Opt::ExportName as u32, &name)).unwrap_err();
    let e = e.to_string();
    assert!(
        e.contains("a name of 4097 bytes") && e.contains("ask for the list"),
        "{e}"
    );
}

#[test]
fn too_much_data_is_dropped_as_it_comes() {
    let mut h = started(NEW);
    let bytes = option(
        Opt::SetMetaContext as u32,
        &vec![1; OPTION_BYTES_MAX as usize + 1],
    );
    let mut at = 0;
    let said = loop {
        let end = bytes.len().min(at + 1000);
        let (n, step) = h.step(&bytes[at..end]).unwrap();
        at += n;
        if let Some(Step::Say(said)) = step {
            break said;
        }
    };
    assert_eq!(at, bytes.len());
    assert_eq!(replies(&said)[0].1, OptReply::TooBig as u32);
    assert_eq!(kind(&mut h, 99, b""), OptReply::Unsup as u32);
}

#[test]
fn options_are_bounded() {
    let mut h = started(NEW);
    for _ in 0..OPTIONS_MAX {
        assert_eq!(kind(&mut h, 99, b""), OptReply::Unsup as u32);
    }
    assert!(h.step(&option(99, b"")).is_err());
}

#[test]
fn export_name_has_its_zeros_unless_the_client_can_do_without() {
    for (flags, zeros) in [(0, 124), (1, 124), (3, 0)] {
        let mut h = started(flags);
        let asked = step(&mut h, Opt::ExportName as u32, b"vol");
        assert_eq!(asked, Step::Ask(Ask::Attach("vol".to_owned())));
        let (bytes, outcome) = h.answer(Ok(export("vol"))).unwrap();
        assert!(matches!(outcome, Outcome::Begin(e, _) if e.name == "vol"));
        assert_eq!(bytes.len(), 10 + zeros);
        assert_eq!(bytes[..8], (1_u64 << 30).to_be_bytes());
    }
    let mut h = started(NEW);
    step(&mut h, Opt::ExportName as u32, b"none");
    assert!(h.answer(Err(Error::not_found("no export none"))).is_err());
}

#[test]
fn names_are_listed() {
    let mut h = started(NEW);
    let asked = step(&mut h, Opt::List as u32, b"");
    assert_eq!(asked, Step::Ask(Ask::List));
    // No option is taken until the answer is there.
    assert_eq!(h.step(&option(99, b"")).unwrap(), (0, None));
    let names = ["a".to_owned(), "x".repeat(4097), "b".to_owned()];
    let replies = replies(&h.names(Ok(names.to_vec())));
    let kinds: Vec<u32> = replies.iter().map(|r| r.1).collect();
    let server = OptReply::Server as u32;
    assert_eq!(kinds, [server, server, OptReply::Ack as u32]);
    assert_eq!(replies[1].2, named("b"));
}

#[test]
fn info_says_what_is_asked_and_block_sizes_always() {
    let mut h = started(NEW);
    step(&mut h, Opt::Info as u32, &go("vol", &[]));
    let (bytes, outcome) = h.answer(Ok(export("vol"))).unwrap();
    assert!(matches!(outcome, Outcome::Stay));
    let told = replies(&bytes);
    assert_eq!(told.len(), 3);
    assert_eq!(told[0].2.len(), 12);
    let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0];
    assert_eq!(told[1].2, sizes);
    step(&mut h, Opt::Go as u32, &go("vol", &[1, 2, 3, 77]));
    let (bytes, outcome) = h.answer(Ok(export("vol"))).unwrap();
    assert!(matches!(outcome, Outcome::Begin(_, agreed) if agreed == Agreed::default()));
    let told = replies(&bytes);
    assert_eq!(told[2].2, b"\0\x01vol");
    assert_eq!(told[3].2, b"\0\x02a volume");
    assert_eq!(told[4].1, OptReply::Ack as u32);
}

#[test]
fn refusals_of_exports_are_told_by_kind() {
    let mut h = started(NEW);
    for (e, want) in [
        (Error::not_found("no such volume"), OptReply::Unknown),
        (Error::busy("attached elsewhere"), OptReply::Policy),
        (Error::not_supported("x"), OptReply::Unsup),
        (Error::corruption("x"), OptReply::Platform),
    ] {
        step(&mut h, Opt::Go as u32, &go("vol", &[]));
        let why = e.to_string();
        let (bytes, outcome) = h.answer(Err(e)).unwrap();
        assert!(matches!(outcome, Outcome::Stay));
        let told = replies(&bytes);
        assert_eq!((told[0].1, &told[0].2[..]), (want as u32, why.as_bytes()));
    }
    // A text of any length is cut between characters.
    step(&mut h, Opt::Go as u32, &go("vol", &[]));
    let e = Error::not_found("ä".repeat(5000));
    let (bytes, _) = h.answer(Err(e)).unwrap();
    let told = replies(&bytes);
    assert!(told[0].2.len() <= 4096 && std::str::from_utf8(&told[0].2).is_ok());
}

/// Chooses contexts, then begins; returns whether `base:allocation` is active.
fn chosen(set: &[(&str, &[&str])], name: &str) -> bool {
    let mut h = started(NEW);
    assert_eq!(
        kind(&mut h, Opt::StructuredReply as u32, b""),
        OptReply::Ack as u32
    );
    for (name, queries) in set {
        step(&mut h, Opt::SetMetaContext as u32, &meta(name, queries));
        let (bytes, _) = h.answer(Ok(export(name))).unwrap();
        let told = replies(&bytes);
        assert_eq!(told.last().unwrap().1, OptReply::Ack as u32);
        let has = queries.contains(&ALLOCATION);
        assert_eq!(told.len(), 1 + usize::from(has));
    }
    step(&mut h, Opt::Go as u32, &go(name, &[]));
    match h.answer(Ok(export(name))).unwrap().1 {
        Outcome::Begin(_, agreed) => agreed.allocation,
        Outcome::Stay => panic!("did not begin"),
    }
}

#[test]
fn the_last_choice_of_contexts_counts_for_its_export() {
    assert!(chosen(&[("vol", &["base:allocation"])], "vol"));
    assert!(!chosen(&[("vol", &["base:allocation"])], "other"));
    assert!(!chosen(
        &[("vol", &["base:allocation"]), ("vol", &[])],
        "vol"
    ));
    assert!(!chosen(&[("vol", &["base:"])], "vol"));
    assert!(!chosen(&[("vol", &["qemu:dirty-bitmap:x"])], "vol"));
}

#[test]
fn contexts_are_listed() {
    for (queries, has) in [
        (&[][..], true),
        (&["base:"][..], true),
        (&["base:allocation"][..], true),
        (&["qemu:"][..], false),
    ] {
        let mut h = started(NEW);
        kind(&mut h, Opt::StructuredReply as u32, b"");
        step(&mut h, Opt::ListMetaContext as u32, &meta("vol", queries));
        let (bytes, _) = h.answer(Ok(export("vol"))).unwrap();
        assert_eq!(replies(&bytes).len(), 1 + usize::from(has), "{queries:?}");
    }
}
