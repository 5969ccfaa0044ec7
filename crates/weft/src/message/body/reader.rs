//! A body from a reader.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncRead, ReadBuf};

use crate::error::{Error, Result};
use crate::message::body::{Body, into_body_error};

/// Maximum size of a piece.
const PIECE_BYTES: usize = 16 << 10;

impl Body {
    /// Creates a body from a reader, such as the output of a process, which is read in pieces of up
    /// to 16 KiB when the client can receive more. Its length is unknown, as for a
    /// [stream](Body::stream). For files, [`Response::from_file`](crate::Response::from_file) is
    /// cheaper, and `Response::file` opens one.
    ///
    /// ```
    /// use weft::{Body, Request, Response};
    ///
    /// async fn app(_: Request) -> Response {
    ///     let (mut writer, reader) = tokio::io::duplex(1_024);
    ///     tokio::spawn(async move {
    ///         use tokio::io::AsyncWriteExt;
    ///         writer.write_all(b"some lines\n").await
    ///     });
    ///     Response::text(Body::reader(reader))
    /// }
    /// # weft::testing::get(app, "/").assert_text("some lines\n");
    /// ```
    #[doc(alias = "from_reader")]
    pub fn reader<R: AsyncRead + Send + 'static>(reader: R) -> Body {
        Body::boxed(ReaderBody { reader: Box::pin(reader), buffer: BytesMut::new() })
    }
}

/// Adapter from a reader to a body.
struct ReaderBody<R> {
    reader: Pin<Box<R>>,
    /// The rest of an allocation, for the next pieces.
    buffer: BytesMut,
}

impl<R: AsyncRead> http_body::Body for ReaderBody<R> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let ReaderBody { reader, buffer } = &mut *self;
        if buffer.is_empty() {
            buffer.resize(PIECE_BYTES, 0);
        }
        let mut piece = ReadBuf::new(buffer);
        ready!(reader.as_mut().poll_read(cx, &mut piece)).map_err(into_body_error)?;
        let count = piece.filled().len();
        let piece = buffer.split_to(count).freeze();
        Poll::Ready((count > 0).then(|| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::ErrorKind;

    #[tokio::test]
    async fn reads_to_the_end_in_pieces() {
        for bytes in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES] {
            let content: Vec<_> = (0..bytes).map(|n| n as u8).collect();
            let mut body = Body::reader(io::Cursor::new(content.clone()));
            assert_eq!(body.length(), None);
            let mut received = Vec::new();
            while let Some(piece) = body.chunk().await.unwrap() {
                assert!((1..=PIECE_BYTES).contains(&piece.len()));
                received.extend_from_slice(&piece);
            }
            assert!(received == content, "{bytes}");
        }
    }

    #[tokio::test]
    async fn failure_of_the_reader_is_the_failure_of_the_body() {
        struct Fails;
        impl AsyncRead for Fails {
            fn poll_read(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                _: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                Poll::Ready(Err(io::Error::other("disk")))
            }
        }
        let mut body = Body::reader(io::Cursor::new("ab").chain(Fails));
        assert_eq!(body.chunk().await.unwrap().unwrap(), "ab");
        let error = body.chunk().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BodyFailed);
        assert_eq!(error.to_string(), "the application's body failed: disk");
    }
}
