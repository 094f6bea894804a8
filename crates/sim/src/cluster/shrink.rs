//! Removes what a failure does not need (Zeller, Hildebrandt: Simplifying and isolating failure-inducing
//! input, 2002): first large parts, then single items.

/// A part of `items`, in order, that still fails, but not without any single item of it; or the part that
/// is left after `tries` tries. `items` itself must fail.
pub fn shrink<T: Clone>(items: &[T], tries: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = items.to_vec();
    let mut left = tries;
    let mut part = kept.len().div_ceil(2);
    while part > 0 {
        let (mut at, mut changed) = (0, false);
        while at < kept.len() && left > 0 {
            left -= 1;
            let end = (at + part).min(kept.len());
            let mut fewer = kept.clone();
            drop(fewer.drain(at..end));
            if fails(&fewer) {
                kept = fewer;
                changed = true;
            } else {
                at = end;
            }
        }
        if left == 0 || (part == 1 && !changed) {
            break;
        }
        if !changed {
            part /= 2;
        }
        part = part.min(kept.len());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays() {
        let all: Vec<u32> = (0..100).collect();
        let mut asked = 0;
        let kept = shrink(&all, usize::MAX, |some| {
            asked += 1;
            [3, 50, 99].iter().all(|n| some.contains(n))
        });
        assert_eq!(kept, [3, 50, 99]);
        assert!(asked < 100, "{asked} questions");
        assert!(shrink(&all, usize::MAX, |_| true).is_empty());
        assert_eq!(shrink(&all, usize::MAX, |some| some.len() == 100), all);
    }

    #[test]
    fn things_that_need_each_other_go_together() {
        // Both items of a pair, or none: a single one cannot be left out.
        let all: Vec<u32> = (0..64).collect();
        let kept = shrink(&all, usize::MAX, |some| {
            let pairs = some.chunks(2).all(|p| p.len() == 2 && p[1] == p[0] + 1);
            some.contains(&20) && pairs
        });
        assert!(kept.len() < 64 && kept.contains(&20), "{kept:?}");
    }

    #[test]
    fn the_number_of_questions_is_bounded() {
        let all: Vec<u32> = (0..1000).collect();
        let mut asked = 0;
        shrink(&all, 10, |_| {
            asked += 1;
            false
        });
        assert_eq!(asked, 10);
    }
}
