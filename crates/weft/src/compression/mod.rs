//! Content codings: brotli, zstd and gzip (RFC 9110 §8.4.1, RFC 7932, RFC 8878, RFC 1952).
//! Compressible media types, compression of whole files and of streams.
//!
//! The levels were chosen by measurement, on 1 MiB of HTML and 1 MiB of script (one core of a
//! cloud machine; sizes in per cent of the original, speed in MB/s, memory of one encoder by
//! a counting allocator):
//!
//! | stream | sizes | speed | memory |
//! | --- | --- | --- | --- |
//! | zstd 3, window 2^16 | 27.0, 21.4 | 305–405 | 681 KiB |
//! | gzip 5 | 24.1, 17.4 | 103–128 | 403 KiB |
//! | brotli 4, window 2^18 | 24.2, 19.1 | 80–100 | 2.1 MiB |
//!
//! | whole file | sizes | speed | memory |
//! | --- | --- | --- | --- |
//! | brotli 8 | 19.9, 10.0 | 17–38 | 33 MiB |
//! | zstd 10 | 20.2, 10.6 | 50–90 | 25 MiB |
//! | gzip 9 | 23.6, 13.9 | 35–40 | 403 KiB |

#[cfg(feature = "brotli")]
mod brotli;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "zstd")]
mod zstd;

use std::io::{self, Write};

use bytes::Bytes;

pub use weft_proto::semantics::coding::Coding;

/// The codings of this build.
const CODECS: &[Codec] = &[
    #[cfg(feature = "brotli")]
    brotli::CODEC,
    #[cfg(feature = "gzip")]
    gzip::CODEC,
    #[cfg(feature = "zstd")]
    zstd::CODEC,
];

/// Implementation of a coding.
struct Codec {
    coding: Coding,
    /// Compresses a whole file.
    compress: fn(&[u8]) -> io::Result<Vec<u8>>,
    /// Creates the encoder of a stream, which allocates its memory now or with the first bytes.
    encoder: fn() -> io::Result<Box<dyn StreamEncoder>>,
    /// Number of input bytes after which a stream is flushed.
    max_unflushed_bytes: usize,
}

/// Encoder that stores its output until it is taken.
trait StreamEncoder: Write + Send {
    fn output(&mut self) -> &mut Vec<u8>;

    /// Ends the stream and returns the rest of the output.
    fn finish(self: Box<Self>) -> io::Result<Vec<u8>>;
}

/// Returns the implementation of a coding, if its feature is enabled.
fn codec(coding: Coding) -> Option<&'static Codec> {
    CODECS.iter().find(|codec| codec.coding == coding)
}

/// The same, as an error.
fn require(coding: Coding) -> io::Result<&'static Codec> {
    codec(coding).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Returns true if the feature of a coding is enabled.
pub(crate) fn is_available(coding: Coding) -> bool {
    codec(coding).is_some()
}

/// Returns true for media types that compress well. Already compressed types, such as most images,
/// and unknown types are not compressible.
pub(crate) fn is_compressible(content_type: &[u8]) -> bool {
    let end = content_type.iter().position(|&b| b == b';').unwrap_or(content_type.len());
    let lower = content_type[..end].trim_ascii().to_ascii_lowercase();
    lower.starts_with(b"text/")
        || lower.ends_with(b"+json")
        || lower.ends_with(b"+xml")
        || COMPRESSIBLE.contains(&&lower[..])
}

const COMPRESSIBLE: &[&[u8]] = &[
    b"application/ecmascript",
    b"application/graphql",
    b"application/javascript",
    b"application/json",
    b"application/json-seq",
    b"application/manifest",
    b"application/ndjson",
    b"application/rtf",
    b"application/sql",
    b"application/toml",
    b"application/vnd.apple.mpegurl",
    b"application/vnd.ms-fontobject",
    b"application/wasm",
    b"application/x-javascript",
    b"application/x-ndjson",
    b"application/x-tar",
    b"application/x-yaml",
    b"application/xml",
    b"application/xml-dtd",
    b"application/yaml",
    b"font/collection",
    b"font/otf",
    b"font/sfnt",
    b"font/ttf",
    b"image/bmp",
    b"image/vnd.microsoft.icon",
    b"image/x-icon",
    b"image/x-ms-bmp",
];

/// Compresses a whole file. The result is cached, so this may take time: up to 0.1 s per MiB.
///
/// # Errors
/// If no memory is available, or the coding is not.
pub(crate) fn compress(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    (require(coding)?.compress)(bytes)
}

/// Compresses a stream, in bounded memory and with little CPU time.
pub(crate) struct Encoder {
    stream: Box<dyn StreamEncoder>,
    /// Number of input bytes since the last flush.
    unflushed: usize,
    max_unflushed: usize,
}

impl Encoder {
    /// Creates an encoder, which allocates its memory now or with the first bytes.
    pub(crate) fn new(coding: Coding) -> io::Result<Encoder> {
        let codec = require(coding)?;
        let max_unflushed = codec.max_unflushed_bytes;
        Ok(Encoder { stream: (codec.encoder)()?, unflushed: 0, max_unflushed })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unflushed += bytes.len();
        self.stream.write_all(bytes)?;
        if self.unflushed >= self.max_unflushed {
            self.flush()?;
        }
        Ok(())
    }

    /// Flushes the encoder, so that all bytes written so far can be decoded from the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.unflushed) {
            0 => Ok(()),
            _ => self.stream.flush(),
        }
    }

    /// Compressed output that was not taken yet.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        self.stream.output()
    }

    /// Takes the compressed output.
    pub(crate) fn take_output(&mut self) -> Bytes {
        std::mem::take(self.output()).into()
    }

    /// Ends the stream and returns the rest of the output.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        Ok(self.stream.finish()?.into())
    }
}

#[cfg(all(test, feature = "brotli", feature = "gzip", feature = "zstd"))]
mod tests {
    use super::*;
    use std::io::Read;

    /// Decodes as many bytes as possible; the input may be incomplete.
    fn decode_prefix(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // Each decoder fails at the end of an incomplete input, after it has returned the rest.
        let _ = match coding {
            Coding::Brotli => ::brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
            Coding::Zstd => ::zstd::Decoder::new(bytes).unwrap().read_to_end(&mut out),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
        };
        out
    }

    /// Decodes a complete stream; fails if it is incomplete.
    fn decode(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Brotli => ::brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out)?,
            Coding::Zstd => ::zstd::Decoder::new(bytes)?.read_to_end(&mut out)?,
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out)?,
        };
        Ok(out)
    }

    fn text(length: usize) -> Vec<u8> {
        let words = (0_u32..).flat_map(|n| format!("{} words, ", n.wrapping_mul(n)).into_bytes());
        words.take(length).collect()
    }

    #[test]
    fn compresses_whole_files_losslessly() {
        for coding in Coding::ALL {
            for length in [0, 1, 1_000, 1 << 20] {
                let text = text(length);
                let small = compress(coding, &text).unwrap();
                assert!(length < 1_000 || small.len() < length / 2, "{coding:?} {length}");
                assert_eq!(decode(coding, &small).unwrap(), text, "{coding:?} {length}");
            }
        }
    }

    #[test]
    fn flushed_output_can_be_decoded() {
        for coding in Coding::ALL {
            let text = text(500_000);
            let mut encoder = Encoder::new(coding).unwrap();
            let mut out = Vec::new();
            let mut written = 0;
            for size in [1, 0, 20, 4_000, 32_768, 1, 100_000, 7, 200_000] {
                encoder.write(&text[written..written + size]).unwrap();
                written += size;
                out.extend(encoder.take_output());
                encoder.flush().unwrap();
                out.extend(encoder.take_output());
                assert!(encoder.output().is_empty());
                assert!(decode_prefix(coding, &out) == text[..written], "{coding:?} {written}");
                assert!(decode(coding, &out).is_err(), "{coding:?}: the stream is incomplete");
            }
            out.extend(encoder.finish().unwrap());
            assert!(decode(coding, &out).unwrap() == text[..written], "{coding:?}");
        }
    }

    #[test]
    fn stream_is_not_buffered_until_its_end() {
        for coding in Coding::ALL {
            let text = text(2 << 20);
            let mut encoder = Encoder::new(coding).unwrap();
            let mut out = Vec::new();
            for piece in text.chunks(10_000) {
                encoder.write(piece).unwrap();
                out.extend(encoder.take_output());
            }
            let rest = encoder.finish().unwrap();
            assert!(rest.len() < out.len() / 4, "{coding:?} buffers {} bytes", rest.len());
            out.extend(rest);
            assert!(decode(coding, &out).unwrap() == text, "{coding:?}");
        }
    }

    #[test]
    fn empty_input_makes_a_valid_stream() {
        for coding in Coding::ALL {
            let end = Encoder::new(coding).unwrap().finish().unwrap();
            assert_eq!(decode(coding, &end).unwrap(), b"", "{coding:?}");
        }
    }

    #[test]
    fn recognizes_compressible_types() {
        for yes in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "text/event-stream",
            "application/json ;charset=utf-8",
            "application/ld+json",
            "application/manifest+json",
            "application/wasm",
            "image/svg+xml",
            "image/vnd.microsoft.icon",
            "font/ttf",
        ] {
            assert!(is_compressible(yes.as_bytes()), "{yes}");
        }
        for no in ["", "image/png", "font/woff2", "application/zip", "video/mp4", "json", ";text/"]
        {
            assert!(!is_compressible(no.as_bytes()), "{no}");
        }
    }
}
