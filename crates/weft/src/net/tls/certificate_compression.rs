//! Compression of the server's certificates (RFC 8879), for clients that offer it.
//!
//! The encoders of rustls are not used, because they need other versions of the crates that
//! compress responses. Certificates of clients are never compressed, so that nothing is
//! decompressed.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::compress::{CertCompressor, CompressionCache};
#[cfg(any(feature = "brotli", feature = "gzip"))]
use rustls::{
    CertificateCompressionAlgorithm,
    compress::{CompressionFailed, CompressionLevel},
};

/// Number of compressed chains that are stored, of some KiB each.
const CACHED_CHAINS: usize = 64;

/// Algorithms in the order of preference.
static COMPRESSORS: &[&dyn CertCompressor] = &[
    #[cfg(feature = "brotli")]
    &Brotli,
    #[cfg(feature = "gzip")]
    &Zlib,
];

/// Compresses the certificates of a configuration.
pub(super) fn enable(config: &mut ServerConfig) {
    config.cert_compressors = COMPRESSORS.to_vec();
    config.cert_compression_cache = Arc::new(CompressionCache::new(CACHED_CHAINS));
}

#[cfg(feature = "brotli")]
#[derive(Debug)]
struct Brotli;

#[cfg(feature = "brotli")]
impl CertCompressor for Brotli {
    /// Ignores the level: the best quality takes 100 times as long for some bytes less, on the
    /// event loop.
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        use std::io::Write;
        let size_hint = input.len();
        // A chain has some KiB; a larger window would only need more memory.
        let params = brotli::enc::BrotliEncoderParams {
            quality: 5,
            lgwin: 14,
            size_hint,
            ..Default::default()
        };
        let mut encoder = brotli::CompressorWriter::with_params(Vec::new(), 4 << 10, &params);
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        Ok(encoder.into_inner())
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[cfg(feature = "gzip")]
#[derive(Debug)]
struct Zlib;

#[cfg(feature = "gzip")]
impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        encoder.finish().map_err(|_| CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}
