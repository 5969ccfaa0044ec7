//! Random numbers that others cannot guess.

use std::sync::Once;

use crate::base::crypto::fill_random;

/// Draws the first random number of the process, for which 110 to 190 ms of CPU time are spent on
/// entropy. Called while upstreams are created, so that no event loop stops for a query or for a
/// handshake.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    // A failure is reported again when a number is needed.
    PREPARED.call_once(|| {
        let _ = fill_random(&mut [0]);
    });
}
