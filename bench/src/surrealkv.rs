//! surrealkv: a log-structured tree whose commits are asynchronous.

use std::hint::black_box;
use std::path::Path;

use surrealkv::{Durability, LSMIterator, Mode, Tree, TreeBuilder};
use tokio::runtime::Runtime;

use crate::engine::{Engine, Get, Result};

pub(crate) struct Surreal {
    tree: Tree,
    /// Runs the commits, and what the tree does beside them.
    runtime: Runtime,
}

impl Surreal {
    pub(crate) fn open(dir: &Path, cache: usize) -> Result<Self> {
        let runtime = Runtime::new()?;
        let tree = {
            let _inside = runtime.enter();
            TreeBuilder::new()
                .with_path(dir.to_owned())
                .with_block_cache_capacity(cache as u64)
                .build()?
        };
        Ok(Self { tree, runtime })
    }
}

impl Engine for Surreal {
    fn put(&mut self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let mut transaction = self.tree.begin_with_mode(Mode::WriteOnly)?;
        transaction.set_durability(if sync {
            Durability::Immediate
        } else {
            Durability::Eventual
        });
        transaction.set(key, value)?;
        self.runtime.block_on(transaction.commit())?;
        Ok(())
    }

    fn read(&self, run: &mut dyn FnMut(&mut Get<'_>) -> Result<()>) -> Result<()> {
        let transaction = self.tree.begin_with_mode(Mode::ReadOnly)?;
        run(&mut |key| Ok(black_box(transaction.get(key)?).is_some()))
    }

    fn scan(&self, most: u64) -> Result<u64> {
        let transaction = self.tree.begin_with_mode(Mode::ReadOnly)?;
        let mut cursor = transaction.iter()?;
        let mut count = 0;
        let mut valid = cursor.seek_first()?;
        while valid && count < most {
            black_box(cursor.value()?);
            count += 1;
            valid = cursor.next()?;
        }
        Ok(count)
    }
}

impl Drop for Surreal {
    fn drop(&mut self) {
        if let Err(e) = self.runtime.block_on(self.tree.close()) {
            eprintln!("closing surrealkv: {e}");
        }
    }
}
