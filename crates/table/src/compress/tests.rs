//! Round trips through every codec, and payloads that no codec wrote.

use super::*;
use base::options::OptionValue;
use base::rng::Rng;
use proptest::prelude::*;

const CODECS: [CompressionType; 6] = [
    CompressionType::Snappy,
    CompressionType::Zlib,
    CompressionType::BZip2,
    CompressionType::Lz4,
    CompressionType::Lz4hc,
    CompressionType::Zstd,
];

/// Text-like bytes: compressible, and sharing much with other seeds' bytes.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        out.extend_from_slice(format!("field{}=value{};", rng.below(40), rng.below(90)).as_bytes());
    }
    out.truncate(len);
    out
}

fn pack(kind: CompressionType, level: i32, dict: &[u8], input: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let settings = CompressionSettings {
        level,
        ..CompressionSettings::default()
    };
    let kept = compress(kind, &settings, dict, input, &mut out).unwrap();
    assert!(out.starts_with(b"before"));
    let payload = out.split_off(6);
    assert_eq!(kept, !payload.is_empty());
    kept.then_some(payload)
}

#[test]
fn a_payload_is_given_up_where_it_does_not_fit() {
    let (input, settings) = (text(3, 4096), CompressionSettings::default());
    for kind in CODECS {
        let payload = pack(kind, DEFAULT_LEVEL, &[], &input).unwrap();
        let within = |room: usize| {
            let mut out = b"before".to_vec();
            let kept = compress_within(kind, &settings, &[], &input, room, &mut out).unwrap();
            assert!(out.starts_with(b"before") && kept == (out.len() > 6));
            (kept, out.split_off(6))
        };
        assert_eq!(
            within(payload.len() + 100),
            (true, payload.clone()),
            "{kind:?}"
        );
        for room in [0, 1, 5, payload.len() / 2, payload.len() - 1] {
            assert_eq!(within(room), (false, Vec::new()), "{kind:?} {room}");
        }
    }
}

#[test]
fn round_trips_at_levels_with_and_without_dictionary() {
    let dict = text(1, 100_000);
    for kind in CODECS {
        for level in [DEFAULT_LEVEL, i32::MIN, -5, -1, 0, 1, 3, 9, 12, 22, 1000] {
            for len in [300, 4096, 70_000, 300_000] {
                for dict in [&[][..], &dict[..16 << 10], &dict[..]] {
                    if kind == CompressionType::Zstd && level >= 12 && len > 4096 {
                        continue;
                    }
                    let input = text(2, len);
                    let Some(payload) = pack(kind, level, dict, &input) else {
                        let weak = level < 0 || (kind == CompressionType::Zlib && level == 0);
                        assert!(weak, "{kind:?} {level} {len} {}", dict.len());
                        continue;
                    };
                    assert!(payload.len() < len - len / 8);
                    let back = decompress(kind, &payload, 5, dict).unwrap();
                    assert!(back == input, "{kind:?} {level} {len} {}", dict.len());
                }
            }
        }
    }
}

#[test]
fn a_dictionary_helps_and_is_needed() {
    // No byte sequence of `hex` repeats, so that only the dictionary can help with it.
    let mut random = [0; 400];
    Rng::new(1).fill(&mut random);
    let hex: String = random.iter().map(|b| char::from(b'a' + b % 16)).collect();
    let dict = [&text(1, 15_000), hex.as_bytes()].concat();
    let input = [hex.as_bytes(), &text(2, 600)].concat();
    for kind in CODECS.into_iter().filter(|k| k.takes_dictionary()) {
        let with = pack(kind, DEFAULT_LEVEL, &dict, &input).unwrap();
        let without = pack(kind, DEFAULT_LEVEL, &[], &input).unwrap();
        assert!(
            with.len() < without.len(),
            "{kind:?} {} {}",
            with.len(),
            without.len()
        );
        match decompress(kind, &with, 5, &[]) {
            Err(e) => assert!(e.is_corruption(), "{e}"),
            Ok(other) => assert!(other != input, "{kind:?}"),
        }
        // The next call does not remember the dictionary, or mistake it for another.
        assert_eq!(pack(kind, DEFAULT_LEVEL, &[], &input).unwrap(), without);
        let other = text(3, 16 << 10);
        let payload = pack(kind, DEFAULT_LEVEL, &other, &input).unwrap();
        assert_eq!(decompress(kind, &payload, 5, &other).unwrap(), input);
        assert_eq!(decompress(kind, &with, 5, &dict).unwrap(), input);
    }
}

#[test]
fn a_trained_zstd_dictionary() {
    let samples: Vec<Vec<u8>> = (0..500).map(|i| text(i, 400)).collect();
    let dict = zstd::dict::from_samples(&samples, 4096).unwrap();
    let input = text(9999, 2000);
    let payload = pack(CompressionType::Zstd, 3, &dict, &input).unwrap();
    assert_eq!(
        decompress(CompressionType::Zstd, &payload, 5, &dict).unwrap(),
        input
    );
}

#[test]
fn what_does_not_shrink_is_left_alone() {
    let mut random = vec![0; 5000];
    Rng::new(3).fill(&mut random);
    for kind in CODECS {
        for input in [&random[..], &[], b"a", b"aaaaaaa"] {
            assert_eq!(pack(kind, DEFAULT_LEVEL, &[], input), None, "{kind:?}");
        }
        // Zeros for an eighth of it and a little more pay; for less than an eighth they do not.
        let mut part = random.clone();
        part[..1000].fill(0);
        let payload = pack(kind, DEFAULT_LEVEL, &[], &part);
        assert!(payload.is_none_or(|p| p.len() < 4375));
        part[500..].copy_from_slice(&random[500..]);
        assert_eq!(pack(kind, DEFAULT_LEVEL, &[], &part), None, "{kind:?}");
    }
    let kind = CompressionType::None;
    assert_eq!(pack(kind, DEFAULT_LEVEL, &[], &[0; 1000]), None);
    assert_eq!(decompress(kind, b"abc", 5, &[]).unwrap(), b"abc");
}

#[test]
fn payloads_begin_with_the_size() {
    for kind in CODECS {
        let payload = pack(kind, DEFAULT_LEVEL, &[], &vec![b'x'; 100_000]).unwrap();
        let mut from = Decoder::new(&payload);
        assert_eq!(from.varint32(), Some(100_000), "{kind:?}");
        for wrong in [0, 99_999, 100_001, 120_000, u32::MAX] {
            let mut bad = Vec::new();
            put_varint(&mut bad, u64::from(wrong));
            bad.extend_from_slice(from.rest());
            let e = decompress(kind, &bad, 5, &[]).unwrap_err();
            assert!(e.is_corruption(), "{kind:?} {wrong}: {e}");
        }
        for cut in [1, 2, payload.len() / 2] {
            let short = &payload[..payload.len() - cut];
            assert!(decompress(kind, short, 5, &[]).unwrap_err().is_corruption());
        }
        assert!(decompress(kind, &[], 5, &[]).unwrap_err().is_corruption());
        let old = decompress(kind, &payload, 1, &[]).unwrap_err();
        assert_eq!(old.kind(), base::ErrorKind::NotSupported);
    }
}

#[test]
fn highly_compressible_blocks_are_within_the_caps() {
    let zeros = vec![0; 8 << 20];
    for kind in CODECS {
        for level in [1, 9] {
            let payload = pack(kind, level, &[], &zeros).unwrap();
            assert!(
                decompress(kind, &payload, 5, &[]).unwrap() == zeros,
                "{kind:?}"
            );
        }
    }
}

#[test]
fn names_and_numbers() {
    for &kind in CompressionType::ALL {
        assert_eq!(CompressionType::from_u8(kind.to_u8()), Some(kind));
        assert_eq!(
            CompressionType::from_property_name(kind.property_name()),
            Some(kind)
        );
        assert_eq!(CompressionType::parse(&kind.print()), Some(kind));
    }
    assert_eq!(CompressionType::from_u8(0x40), Some(CompressionType::Zstd));
    assert_eq!(CompressionType::from_u8(6), None);
    assert_eq!(CompressionType::from_u8(0x80), None);
    assert_eq!(
        CompressionType::from_property_name("ZSTDNotFinal"),
        Some(CompressionType::Zstd)
    );
    assert_eq!(CompressionType::from_property_name("Xpress"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_a_block_or_an_error(
        kind in 0usize..6,
        size in prop_oneof![0u32..2000, any::<u32>()],
        body: Vec<u8>,
        dict in prop_oneof![Just(Vec::new()), any::<Vec<u8>>()],
    ) {
        let mut payload = Vec::new();
        put_varint(&mut payload, u64::from(size));
        payload.extend_from_slice(&body);
        if let Ok(out) = decompress(CODECS[kind], &payload, 5, &dict) {
            prop_assert_eq!(out.len(), size as usize);
            prop_assert!(out.capacity() <= out.len() + 1);
        }
        drop(decompress(CODECS[kind], &body, 5, &dict));
    }

    #[test]
    fn damaged_payloads_are_a_block_or_an_error(
        kind in 0usize..6,
        seed: u64,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
    ) {
        let input = text(seed, 3000);
        let mut payload = pack(CODECS[kind], DEFAULT_LEVEL, &[], &input).unwrap();
        for (at, bit) in flips {
            let at = at.index(payload.len());
            payload[at] ^= 1 << bit;
        }
        drop(decompress(CODECS[kind], &payload, 5, &[]));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may start threads")]
fn what_a_thread_compressed_before_does_not_matter() {
    let mut rng = Rng::new(5);
    for i in 0..1500 {
        let kind = CODECS[i % CODECS.len()];
        // Some of it, up to all, is not compressible.
        let mut bytes = |len_max: u64| {
            let mut out = text(rng.next_u64(), rng.below(len_max) as usize);
            let random = out.len() as u64 * rng.below(5) / 4;
            rng.fill(&mut out[..random as usize]);
            out
        };
        let with_dict = (i / CODECS.len()).is_multiple_of(2);
        let (dict, input) = (bytes(if with_dict { 2000 } else { 1 }), bytes(3000));
        let here = pack(kind, DEFAULT_LEVEL, &dict, &input);
        let (d, n) = (dict.clone(), input.clone());
        let there = base::sync::thread::spawn(move || pack(kind, DEFAULT_LEVEL, &d, &n));
        assert!(here == there.join().unwrap(), "{kind:?} {i}");
    }
}
