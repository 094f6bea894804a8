//! Bit rot: a bit that the medium has lost although no call has failed.

use std::path::{Path, PathBuf};

use base::rng::Rng;

use super::SimDisk;
use super::names::Node;

impl SimDisk {
    /// Flips one bit of a file for which `which` is true, in the state that the process sees and in the
    /// durable one. `seed` determines the file and the position, in a byte that is not zero if the file has
    /// one. Returns the file and the position of the byte; `None` if there is no such file. A pending write
    /// may repair it.
    pub fn flip_bit(&self, seed: u64, which: impl Fn(&Path) -> bool) -> Option<(PathBuf, u64)> {
        let mut rng = Rng::new(seed);
        let mut state = self.lock_state();
        let state = &mut *state;
        let mut files = Vec::new();
        for (path, node) in state.names.all() {
            if let Node::File(inode) = *node
                && state.inodes[inode].len() > 0
                && which(path)
            {
                files.push((path.clone(), inode));
            }
        }
        if files.is_empty() {
            return None;
        }
        let (path, inode) = files.swap_remove(rng.below(files.len() as u64) as usize);
        let inode = &mut state.inodes[inode];
        let start = rng.below(inode.len());
        let content = inode.content();
        let next = content.next_written(start);
        let at = next.or_else(|| content.next_written(0)).unwrap_or(start);
        inode.flip(at, 1 << rng.below(8));
        Some((path, at))
    }
}

#[cfg(test)]
mod tests {
    use io::{FileSystem, OpenHow, WriteSync};

    use super::*;
    use crate::disk::{Config, CrashKind};

    #[test]
    fn one_bit_is_gone_for_good() {
        let disk = SimDisk::new(Config::default());
        assert_eq!(disk.flip_bit(1, |_| true), None);
        let path = Path::new("/data");
        let file = disk.open(path, OpenHow::CREATE_TRUNCATE).unwrap();
        file.zero(0, 100_000).unwrap();
        io::write_all_at(&*file, &[0xff; 512], 4096, WriteSync::Dsync).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        assert_eq!(disk.flip_bit(1, |path| path.ends_with("other")), None);
        for seed in 0..20 {
            let (name, at) = disk.flip_bit(seed, |_| true).unwrap();
            assert_eq!(name, path);
            assert!((4096..4608).contains(&at), "{at}");
        }
        let image = disk.crash_image(&mut Rng::new(1), CrashKind::Nothing);
        for disk in [&disk, &image] {
            let mut bytes = [0; 512];
            let file = disk.open(path, OpenHow::READ).unwrap();
            io::read_exact_at(&*file, &mut bytes, 4096).unwrap();
            let zeros: u32 = bytes.iter().map(|b| b.count_zeros()).sum();
            assert!((10..=20).contains(&zeros), "{zeros} bits");
        }
    }
}
