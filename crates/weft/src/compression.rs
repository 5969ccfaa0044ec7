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

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use zstd::zstd_safe::CParameter;

pub use weft_proto::semantics::coding::Coding;

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

/// Compresses a whole file. The result is cached, so this may take time: up to 0.1 s per MiB. The
/// window of zstd is within the 8 MiB limit of RFC 9659.
///
/// # Errors
/// If no memory is available.
pub(crate) fn compress(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Brotli => {
            let params =
                BrotliEncoderParams { quality: 8, size_hint: bytes.len(), ..Default::default() };
            let mut writer =
                CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params);
            writer.write_all(bytes)?;
            Ok(writer.into_inner())
        }
        Coding::Zstd => zstd::bulk::compress(bytes, 10),
        Coding::Gzip => {
            let mut writer = GzEncoder::new(Vec::new(), Compression::best());
            writer.write_all(bytes)?;
            writer.finish()
        }
    }
}

/// Compresses a stream, in bounded memory and with little CPU time.
pub(crate) struct Encoder {
    writer: Writer,
    /// Number of input bytes since the last flush.
    unflushed: usize,
}

enum Writer {
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

/// Size of the buffer between the brotli encoder and its output.
const BROTLI_BUFFER_BYTES: usize = 4 << 10;

/// Number of input bytes after which the brotli encoder is flushed. Without flushes it buffers
/// several MiB, and its memory doubles; the flushes change the size by less than one per cent.
const BROTLI_FLUSH_BYTES: usize = 64 << 10;

impl Encoder {
    /// Creates an encoder, which allocates its memory now or with the first bytes.
    pub(crate) fn new(coding: Coding) -> io::Result<Encoder> {
        let writer = match coding {
            Coding::Brotli => {
                let params = BrotliEncoderParams { quality: 4, lgwin: 18, ..Default::default() };
                let writer =
                    CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params);
                Writer::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let mut writer = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
                writer.set_parameter(CParameter::WindowLog(16))?;
                writer.set_parameter(CParameter::HashLog(15))?;
                writer.set_parameter(CParameter::ChainLog(14))?;
                Writer::Zstd(writer)
            }
            Coding::Gzip => Writer::Gzip(GzEncoder::new(Vec::new(), Compression::new(5))),
        };
        Ok(Encoder { writer, unflushed: 0 })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.unflushed += bytes.len();
        self.writer().write_all(bytes)?;
        if matches!(self.writer, Writer::Brotli(_)) && self.unflushed >= BROTLI_FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Flushes the encoder, so that all bytes written so far can be decoded from the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.unflushed) {
            0 => Ok(()),
            _ => self.writer().flush(),
        }
    }

    /// Compressed output that was not taken yet.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match &mut self.writer {
            Writer::Brotli(writer) => writer.get_mut(),
            Writer::Zstd(writer) => writer.get_mut(),
            Writer::Gzip(writer) => writer.get_mut(),
        }
    }

    /// Takes the compressed output.
    pub(crate) fn take_output(&mut self) -> Bytes {
        std::mem::take(self.output()).into()
    }

    /// Ends the stream and returns the rest of the output.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        let out = match self.writer {
            Writer::Brotli(writer) => writer.into_inner(),
            Writer::Zstd(writer) => writer.finish()?,
            Writer::Gzip(writer) => writer.finish()?,
        };
        Ok(out.into())
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.writer {
            Writer::Brotli(writer) => writer,
            Writer::Zstd(writer) => writer,
            Writer::Gzip(writer) => writer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Decodes as many bytes as possible; the input may be incomplete.
    fn decode_prefix(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        // Each decoder fails at the end of an incomplete input, after it has returned the rest.
        let _ = match coding {
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
            Coding::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut out),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
        };
        out
    }

    /// Decodes a complete stream; fails if it is incomplete.
    fn decode(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out)?,
            Coding::Zstd => zstd::Decoder::new(bytes)?.read_to_end(&mut out)?,
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
