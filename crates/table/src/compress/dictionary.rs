//! Dictionaries for a table's data blocks: samples of the data, or a dictionary that zstd makes from
//! samples.
//!
//! The samples are whole blocks. They are taken from the buffered blocks in large fixed steps, so that
//! they come from all over the table, and the same data always gives the same dictionary.
#![deny(clippy::indexing_slicing)]
#![expect(
    unsafe_code,
    reason = "one function of the zstd library that its crate declares and does not wrap"
)]

use zstd::zstd_safe::{train_from_buffer, zstd_sys};

use super::{CompressionSettings, CompressionType, DEFAULT_LEVEL};

/// A prime larger than any number of blocks, so that steps of it, modulo that number, visit each block.
const STEP: u64 = 545_055_921_143;
/// Minimum size in bytes of a dictionary in zstd's format.
const TRAINED_BYTES_MIN: usize = 256;

/// Makes a dictionary for `blocks`; empty if that is not possible.
pub(crate) fn make(
    kind: CompressionType,
    settings: &CompressionSettings,
    blocks: &[Vec<u8>],
) -> Vec<u8> {
    let max = settings.max_dict_bytes as usize;
    let train = kind == CompressionType::Zstd && settings.zstd_max_train_bytes > 0;
    let wanted = if train {
        settings.zstd_max_train_bytes as usize
    } else {
        max
    };
    let (samples, lengths) = sample(blocks, wanted);
    if !train {
        return samples;
    }
    if samples.is_empty() || max < TRAINED_BYTES_MIN {
        return Vec::new();
    }
    let trained = if settings.use_zstd_dict_trainer {
        let mut out = Vec::with_capacity(max);
        train_from_buffer(&mut out, &samples, &lengths)
            .is_ok()
            .then_some(out)
    } else {
        finalize(&samples, &lengths, max, settings.level)
    };
    // The trainer refuses samples that are too few or too similar: then there is no dictionary.
    trained.unwrap_or_default()
}

/// At most `wanted` bytes of whole blocks (the last one may be truncated), and their lengths.
fn sample(blocks: &[Vec<u8>], wanted: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut samples, mut lengths) = (Vec::new(), Vec::new());
    let count = blocks.len() as u64;
    let mut at = count / 2;
    for _ in 0..count {
        let left = wanted - samples.len();
        if left == 0 {
            break;
        }
        if let Some(block) = blocks.get(at as usize) {
            let part = block.get(..left).unwrap_or(block);
            samples.extend_from_slice(part);
            lengths.push(part.len());
        }
        at = (at + STEP) % count;
    }
    (samples, lengths)
}

/// A dictionary with the last samples as its content, and with statistics of all samples.
fn finalize(samples: &[u8], lengths: &[usize], max: usize, level: i32) -> Option<Vec<u8>> {
    let content = samples
        .get(samples.len().saturating_sub(max)..)
        .unwrap_or_default();
    let mut out: Vec<u8> = Vec::with_capacity(max);
    // SAFETY: the three buffers are live slices passed with their lengths; the lengths of the
    // samples add up to the samples' buffer, as `sample` made them; at most `max` bytes are written
    // into a vector that has reserved them, and C keeps no pointer.
    let len = unsafe {
        zstd_sys::ZDICT_finalizeDictionary(
            out.as_mut_ptr().cast(),
            max,
            content.as_ptr().cast(),
            content.len(),
            samples.as_ptr().cast(),
            lengths.as_ptr(),
            u32::try_from(lengths.len()).ok()?,
            zstd_sys::ZDICT_params_t {
                compressionLevel: if level == DEFAULT_LEVEL { 3 } else { level },
                notificationLevel: 0,
                dictID: 0,
            },
        )
    };
    // SAFETY: takes a number.
    let failed = unsafe { zstd_sys::ZDICT_isError(len) } != 0;
    if failed || len > max {
        return None;
    }
    // SAFETY: the library has written `len` bytes from the start, within the capacity.
    unsafe { out.set_len(len) };
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_whole_blocks_from_all_over_and_the_same_each_time() {
        let blocks: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; 10]).collect();
        let (samples, lengths) = sample(&blocks, 205);
        assert_eq!(samples.len(), 205);
        assert_eq!(lengths.len(), 21);
        assert_eq!(lengths.iter().sum::<usize>(), 205);
        let mut seen: Vec<u8> = samples.iter().copied().step_by(10).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 21);
        assert_eq!(sample(&blocks, 205).0, samples);
        let (all, lengths) = sample(&blocks, 5000);
        assert_eq!((all.len(), lengths.len()), (1000, 100));
        assert!(sample(&[], 10).0.is_empty());
        assert!(sample(&blocks, 0).0.is_empty());
    }

    #[test]
    fn trained_and_finalized_dictionaries_have_the_magic_and_the_size() {
        let mut rng = base::rng::Rng::new(1);
        let blocks: Vec<Vec<u8>> = (0..200)
            .map(|_| {
                let mut block = Vec::new();
                while block.len() < 1000 {
                    let (field, value) = (rng.below(40), rng.below(90));
                    block.extend_from_slice(format!("field{field}=value{value};").as_bytes());
                }
                block
            })
            .collect();
        let mut settings = CompressionSettings {
            max_dict_bytes: 4096,
            zstd_max_train_bytes: 100_000,
            ..CompressionSettings::default()
        };
        for trainer in [true, false] {
            settings.use_zstd_dict_trainer = trainer;
            let dict = make(CompressionType::Zstd, &settings, &blocks);
            assert!(dict.starts_with(&[0x37, 0xa4, 0x30, 0xec]), "{trainer}");
            assert!(dict.len() <= 4096 && dict.len() > 1000, "{}", dict.len());
            // Other codecs take the samples as they are.
            assert_eq!(make(CompressionType::Lz4, &settings, &blocks).len(), 4096);
            // Nothing to learn from.
            assert!(make(CompressionType::Zstd, &settings, &[]).is_empty());
            let one = [vec![0; 10]];
            let _ = make(CompressionType::Zstd, &settings, &one);
        }
        settings.max_dict_bytes = 10;
        assert!(make(CompressionType::Zstd, &settings, &blocks).is_empty());
    }
}
