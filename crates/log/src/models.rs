//! A loom model of a log's [`Watermarks`]: `cargo xtask loom`.

use std::sync::Arc;

use base::sync::thread::spawn;

use crate::sync::{Lsn, Watermarks};

/// A thread that checks the marks while a log advances always finds them in order.
pub fn marks_keep_their_order() {
    let marks = Arc::new(Watermarks::new(0));
    let writer = {
        let marks = Arc::clone(&marks);
        spawn(move || {
            for to in [1, 2] {
                marks.set_appended(to);
                marks.set_submitted(to);
                marks.raise_durable(Lsn(to));
            }
        })
    };
    assert!(marks.check_order().is_ok());
    assert!(writer.join().is_ok());
    assert_eq!(marks.durable(), Lsn(2));
}
