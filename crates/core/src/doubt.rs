//! Why a store may no longer have what it granted.

/// Why leases that a store granted may be gone although their time is not up.
///
/// It proves nothing: whoever holds one asks at once, instead of when its renewal is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The way to it ended: a network failed, or the server did.
    Cut,
    /// Another process answers in its place, or one that has no say any more: it was started again, with or without its
    /// data, or became a replica of another.
    Replaced,
}
