//! Content codings: brotli, zstd and gzip (RFC 9110 §8.4.1, RFC 7932, RFC 8878, RFC 1952).
//! Compressible media types, compression of whole files and of streams.
//!
//! A stream, and a file at its first request, are compressed with little effort; a file that is
//! requested often is compressed again with more (see `files/compressed.rs`). The levels were
//! chosen by measurement, on HTML and script (one core of a cloud machine; sizes in per cent of the
//! original, speed in MB/s, memory of one encoder by a counting allocator):
//!
//! | [`Effort::Fast`] | sizes | speed | memory |
//! | --- | --- | --- | --- |
//! | zstd 3, window 2^16 | 27.7, 25.9 | 327–346 | 681 KiB |
//! | gzip 3 | 26.4, 24.9 | 149–162 | 469 KiB |
//! | brotli 3, window 2^18 | 25.8, 20.0 | 112–126 | 1.6 MiB |
//!
//! One level more costs streams more than it saves: gzip 5 has 25.2 and 23.7 per cent at 114 to 120
//! MB/s, brotli 4 has 25.0 and 19.0 at 67 to 90 with twice the memory. The gzip level 1 of zlib,
//! the default of nginx, has 30.2 per cent of the same HTML at 140 MB/s. Streams have gzip 2. Its
//! output is smaller than the output of zlib's level 1 for each of five texts of 81 to 146 KiB
//! (words, two pages of HTML, a script, JSON; best of 40 and more runs):
//!
//! | gzip | sizes | speed |
//! | --- | --- | --- |
//! | 1 | 33.6, 22.1, 37.5, 46.3, 29.5 | 221–753 |
//! | 2 | 22.5, 18.0, 29.2, 36.7, 21.4 | 138–507 |
//! | 3 | 20.6, 16.7, 27.3, 34.4, 20.4 | 115–286 |
//! | zlib 1.2.13, level 1 | 23.7, 18.5, 30.7, 37.9, 23.1 | 103–258 |
//!
//! | [`Effort::Best`] | sizes | speed | memory |
//! | --- | --- | --- | --- |
//! | brotli 8 | 19.9, 10.0 | 17–38 | 33 MiB |
//! | zstd 10 | 20.2, 10.6 | 50–90 | 25 MiB |
//! | gzip 9 | 23.6, 13.9 | 35–40 | 403 KiB |

#[cfg(feature = "brotli")]
mod brotli;
pub(crate) mod budget; // CPU time and memory for the compression of files
mod codec; // the interface of the codings
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "zstd")]
mod zstd;

use std::io;

use bytes::Bytes;
use smallvec::SmallVec;

pub(crate) use self::codec::Levels;
use self::codec::{Codec, StreamEncoder};
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

/// Returns the codings of this build, the preferred one first.
pub(crate) fn available() -> SmallVec<[Coding; Coding::ALL.len()]> {
    Coding::ALL.into_iter().filter(|&coding| is_available(coding)).collect()
}

/// Returns true if a media type compresses well. Already compressed types, such as most images, and
/// unknown types are not compressible.
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

/// Effort of the compression of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The level of streams: about 9 ms for each MiB. For files that clients wait for.
    Fast,
    /// Up to 60 ms for each MiB, and up to 33 MiB of memory. For files that are requested often.
    Best,
}

/// Size of a step of [`compress`]: 4 ms of work or less.
pub(crate) const STEP_BYTES: usize = 64 << 10;

/// Compresses a whole file of `length` bytes, step by step, so that it need not be in memory. Calls
/// `is_wanted` before each step, and returns `None` as soon as it returns false.
///
/// # Errors
/// If no memory or the coding is not available, and the errors of the steps.
pub(crate) fn compress(
    coding: Coding,
    effort: Effort,
    length: usize,
    steps: impl Iterator<Item = io::Result<Bytes>>,
    mut is_wanted: impl FnMut() -> bool,
) -> io::Result<Option<Bytes>> {
    let mut encoder = match effort {
        Effort::Fast => Encoder::new(coding, Levels::default())?,
        Effort::Best => Encoder::best(coding, length)?,
    };
    for step in steps {
        if !is_wanted() {
            return Ok(None);
        }
        encoder.write(&step?)?;
    }
    let mut compressed = encoder.stream.finish()?;
    // The result is cached.
    compressed.shrink_to_fit();
    Ok(Some(compressed.into()))
}

/// Returns the steps of a text in memory.
pub(crate) fn steps(text: Bytes) -> impl Iterator<Item = io::Result<Bytes>> {
    let end = text.len();
    (0..end).step_by(STEP_BYTES).map(move |at| Ok(text.slice(at..end.min(at + STEP_BYTES))))
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
    pub(crate) fn new(coding: Coding, levels: Levels) -> io::Result<Encoder> {
        let codec = require(coding)?;
        let max_unflushed = codec.max_unflushed_bytes;
        Ok(Encoder { stream: (codec.encoder)(levels)?, unflushed: 0, max_unflushed })
    }

    /// Creates an encoder with more effort for a file of `length` bytes. It is never flushed, which
    /// costs memory, but needs no bound: few of these run at a time.
    fn best(coding: Coding, length: usize) -> io::Result<Encoder> {
        let stream = (require(coding)?.best_encoder)(length)?;
        Ok(Encoder { stream, unflushed: 0, max_unflushed: usize::MAX })
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
                for effort in [Effort::Fast, Effort::Best] {
                    let steps = steps(Bytes::copy_from_slice(&text));
                    let compressed = compress(coding, effort, length, steps, || true);
                    let compressed = compressed.unwrap().unwrap();
                    let case = format!("{coding:?} {effort:?} {length}");
                    assert!(length < 1_000 || compressed.len() < length / 2, "{case}");
                    assert_eq!(decode(coding, &compressed).unwrap(), text, "{case}");
                }
            }
        }
    }

    #[test]
    fn compression_ends_at_the_step_at_which_it_is_not_wanted() {
        let text = text(20 * STEP_BYTES);
        for (coding, effort) in Coding::ALL
            .into_iter()
            .flat_map(|coding| [(coding, Effort::Fast), (coding, Effort::Best)])
        {
            let mut steps = 0;
            let steps_of_text = super::steps(Bytes::copy_from_slice(&text));
            let compressed = compress(coding, effort, text.len(), steps_of_text, || {
                steps += 1;
                steps < 3
            });
            assert_eq!((compressed.unwrap(), steps), (None, 3), "{coding:?} {effort:?}");
        }
    }

    #[test]
    fn flushed_output_can_be_decoded() {
        for coding in Coding::ALL {
            let text = text(500_000);
            let mut encoder = Encoder::new(coding, Levels::default()).unwrap();
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
            let mut encoder = Encoder::new(coding, Levels::default()).unwrap();
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
            let end = Encoder::new(coding, Levels::default()).unwrap().finish().unwrap();
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
