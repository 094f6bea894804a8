//! Tests of the encoding, with valid and invalid bytes.

use proptest::prelude::*;

use super::*;

fn named(name: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name].concat()
}

#[test]
fn an_info_request_is_exactly_as_long_as_it_says() {
    let data = [named(b"vol"), vec![0, 2, 0, 1, 0, 3]].concat();
    let request = InfoRequest::decode(&data).unwrap();
    assert_eq!(request.name, "vol");
    assert!(request.wants(info::NAME) && request.wants(info::BLOCK_SIZE));
    assert!(!request.wants(info::DESCRIPTION));
    for len in 0..data.len() {
        let short = InfoRequest::decode(data.get(..len).unwrap());
        assert_eq!(short, Err(BadOption::Invalid), "{len}");
    }
    let long = [&data[..], &[0]].concat();
    assert_eq!(InfoRequest::decode(&long), Err(BadOption::Invalid));
}

#[test]
fn names_are_text_of_4096_bytes_at_most() {
    let ask = |name: &[u8]| {
        let data = [named(name), vec![0, 0]].concat();
        InfoRequest::decode(&data).map(|r| r.name.len())
    };
    assert_eq!(ask(&[b'x'; 4096]), Ok(4096));
    assert_eq!(ask(&[b'x'; 4097]), Err(BadOption::TooBig));
    assert_eq!(ask(b"a\0b"), Err(BadOption::Invalid));
    assert_eq!(ask(b"a\xffb"), Err(BadOption::Invalid));
    // The length alone is refused: the bytes need not be there.
    let huge = u32::MAX.to_be_bytes();
    assert_eq!(InfoRequest::decode(&huge), Err(BadOption::TooBig));
}

#[test]
fn meta_queries_are_told_apart() {
    let ask = |queries: &[&[u8]]| {
        let mut data = named(b"");
        data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        for q in queries {
            data.extend(named(q));
        }
        MetaRequest::decode(&data).map(|r| (r.allocation, r.base))
    };
    assert_eq!(ask(&[]), Ok((false, false)));
    assert_eq!(ask(&[b"qemu:x", b"base:allocation"]), Ok((true, false)));
    assert_eq!(ask(&[b"base:"]), Ok((false, true)));
    let lying = [named(b""), vec![0xff; 4]].concat();
    assert_eq!(MetaRequest::decode(&lying), Err(BadOption::Invalid));
}

#[test]
fn heads_have_the_bytes_of_the_protocol() {
    let head = data_chunk(0x0102_0304_0506_0708, true, 0x10, 512);
    let want = [
        0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0,
        0, 0x10,
    ];
    assert_eq!(head.bytes(), want);
    let want = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(simple_reply(9, Errno::Invalid as u32).bytes(), want);
    assert_eq!(hole_chunk(1, false, 2, 3).bytes().len(), 32);
    assert_eq!(error_chunk(1, Errno::Io, 3).bytes().len(), 26);
    assert_eq!(status_chunk(1, 2).bytes().len(), 24);
    assert_eq!(&greet(), b"NBDMAGICIHAVEOPT\0\x03");
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(bytes: Vec<u8>) {
        let _info = InfoRequest::decode(&bytes);
        let _meta = MetaRequest::decode(&bytes);
        let _head = OptionHead::decode(&bytes);
        prop_assert_eq!(Request::decode(&bytes).is_some(), bytes.len() >= REQUEST_LEN);
    }
}
