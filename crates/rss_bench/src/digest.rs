//! Digests as reports print them.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of pieces, one after the other, as hexadecimal digits.
pub(crate) fn sha256<B: AsRef<[u8]>>(pieces: impl IntoIterator<Item = B>) -> String {
    let mut digest = Sha256::new();
    for piece in pieces {
        digest.update(piece);
    }
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
