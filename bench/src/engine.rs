//! What a benchmark asks of an engine.

/// Any error; it ends the program.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Gets a key: whether it is there. The value has been read then.
pub(crate) type Get<'a> = dyn FnMut(&[u8]) -> Result<bool> + 'a;

/// An open database.
pub(crate) trait Engine {
    /// Puts a key, durably if `sync`.
    fn put(&mut self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Calls `run` with what gets keys, all of one transaction.
    fn read(&self, run: &mut dyn FnMut(&mut Get<'_>) -> Result<()>) -> Result<()>;

    /// Reads at most so many keys and values in their order; how many there were.
    fn scan(&self, most: u64) -> Result<u64>;
}
