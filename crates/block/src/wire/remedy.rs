//! Hints for errors between two processes that do not understand each other.

/// For a message that the receiver does not know.
pub(crate) const SAME_RELEASE: &str =
    "run the same release of ironstone-block in all processes of the cluster";
/// For bytes that are no frame.
pub(crate) const ADDRESS: &str =
    "the other side is no ironstone-block: check which address it was given";
/// For a frame that was changed on its way.
pub(crate) const DAMAGE: &str = "the bytes were changed on their way: if it goes on, check the network \
                                 and the memory of both machines";
/// For a peer of another cluster, or in another's place.
pub(crate) const CLUSTER_FILE: &str =
    "check which cluster file and which --store each process was given";
