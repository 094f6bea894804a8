//! What to do where two processes do not understand each other: the second half of such errors.

/// One says what the other does not know.
pub(crate) const SAME_RELEASE: &str =
    "run the same release of ironstone-block in all processes of the cluster";
/// What came is no frame.
pub(crate) const ADDRESS: &str =
    "the other side is no ironstone-block: check which address it was given";
/// What came is a frame that was changed.
pub(crate) const DAMAGE: &str = "the bytes were changed on their way: if it goes on, check the network \
                                 and the memory of both machines";
/// Who came is of another cluster, or has another's place.
pub(crate) const CLUSTER_FILE: &str =
    "check which cluster file and which --store each process was given";
