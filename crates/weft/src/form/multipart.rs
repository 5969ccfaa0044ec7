//! A form with files, part by part, as it comes (RFC 7578).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;

use crate::error::{Error, Result};
use crate::form::disposition::{Disposition, base_name, next_parameter};
use crate::form::parts::{Parts, Step};
use crate::form::temp_file::{self, TempFile};
use crate::form::{Settings, expect_type, too_large};
use crate::message::body::{self, Body};
use crate::message::request::Head;
use crate::proto::headers::Headers;

/// A form whose parts are read one after the other. Like a [`Body`] it is *pulled*: nothing is
/// read that was not asked for, and nothing is kept that was not taken.
///
/// ```
/// use weft::{Request, Response, form};
///
/// async fn upload(request: Request) -> weft::Result<Response> {
///     let mut form = form::multipart(request)?;
///     let mut said = String::new();
///     while let Some(part) = form.next().await? {
///         let name = part.name().to_owned();
///         said += &match part.safe_file_name() {
///             Some(file) => format!("{file}: {} bytes\n", part.into_file().await?.length()),
///             None => format!("{name} = {}\n", part.text().await?),
///         };
///     }
///     Ok(Response::text(said))
/// }
///
/// let body = "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nA letter\r\n\
///     --x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../letter.txt\"\r\n\
///     Content-Type: text/plain\r\n\r\nDear all\r\n--x--\r\n";
/// let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x";
/// let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
/// let reply = weft::testing::call(upload, weft::testing::request(request));
/// reply.assert_text("title = A letter\nletter.txt: 8 bytes\n");
/// ```
#[derive(Debug)]
pub struct Multipart {
    settings: Settings,
    body: Body,
    parts: Parts,
    state: State,
    /// How much came in all.
    bytes: u64,
    fields: usize,
    files: usize,
    /// What the fields that are no files may still have together.
    left_for_fields: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    /// In a file, which may still have so many bytes.
    File(u64),
    /// The same for a field that is none.
    Field(usize),
    Failed,
}

impl Settings {
    /// A form with files.
    ///
    /// # Errors
    /// [`MediaTypeUnsupported`](crate::ErrorKind::MediaTypeUnsupported) if the request's
    /// `Content-Type` is not `multipart/form-data`, [`Malformed`](crate::ErrorKind::Malformed)
    /// if that has no boundary.
    pub fn multipart(self, request: impl Into<(Head, Body)>) -> Result<Multipart> {
        let (head, mut body) = request.into();
        let mut parameters = expect_type(&head, "multipart/form-data")?;
        let boundary = loop {
            match next_parameter(parameters)? {
                Some((found, _)) if found.name.eq_ignore_ascii_case(b"boundary") => {
                    break found.value;
                }
                Some((_, behind)) => parameters = behind,
                None => {
                    return Err(Error::malformed("the Content-Type of the form has no boundary"));
                }
            }
        };
        let parts = Parts::new(&boundary, self.max_part_head_bytes)?;
        if let Some(bytes) = self.max_bytes {
            body.set_limit(bytes);
        }
        let left_for_fields = self.max_all_fields_bytes;
        let (bytes, fields, files) = (0, 0, 0);
        let state = State::Between;
        Ok(Multipart { settings: self, body, parts, state, bytes, fields, files, left_for_fields })
    }
}

impl Multipart {
    /// The next part; `None` behind the last. What was not read of the part before is passed
    /// over.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if the body is no such form or ends before
    /// its last boundary, [`BodyTooLarge`](crate::ErrorKind::BodyTooLarge) over a limit, and
    /// those of [`Body::chunk`]. After an error there is no more to read.
    pub async fn next(&mut self) -> Result<Option<Part<'_>>> {
        while self.chunk().await?.is_some() {}
        loop {
            return match poll_fn(|cx| self.poll_step(cx)).await? {
                Step::Head(headers) => match self.begin(&headers) {
                    Ok(disposition) => Ok(Some(Part { form: self, disposition, headers })),
                    Err(error) => Err(self.fail(error)),
                },
                Step::End => Ok(None),
                Step::Wait | Step::Data(_) | Step::PartEnd => continue,
            };
        }
    }

    /// Counts a part.
    fn begin(&mut self, headers: &Headers) -> Result<Disposition> {
        let value = headers.get_bytes("content-disposition");
        let value = value.ok_or_else(|| Error::malformed("a part has no Content-Disposition"))?;
        let disposition = Disposition::parse(value)?;
        let (kind, count, most) = match disposition.file_name {
            Some(_) => ("files", &mut self.files, self.settings.max_files),
            None => ("fields", &mut self.fields, self.settings.max_fields),
        };
        *count += 1;
        if *count > most {
            return Err(too_large(format!("more than {most} {kind}")));
        }
        self.state = match disposition.file_name {
            Some(_) => State::File(self.settings.max_file_bytes),
            None => State::Field(self.settings.max_field_bytes),
        };
        Ok(disposition)
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// The next chunk of the part that is being read.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if self.state == State::Between {
            return Poll::Ready(Ok(None));
        }
        match ready!(self.poll_step(cx))? {
            Step::Data(data) => match self.count(data.len()) {
                Ok(()) => Poll::Ready(Ok(Some(data))),
                Err(error) => Poll::Ready(Err(self.fail(error))),
            },
            _ => {
                self.state = State::Between;
                Poll::Ready(Ok(None))
            }
        }
    }

    /// Counts the bytes of a part.
    fn count(&mut self, bytes: usize) -> Result<()> {
        match &mut self.state {
            State::File(left) => {
                let most = self.settings.max_file_bytes;
                let over = || too_large(format!("a file is larger than {most} bytes"));
                *left = left.checked_sub(bytes as u64).ok_or_else(over)?;
            }
            State::Field(left) => {
                let most = self.settings.max_field_bytes;
                let over = || too_large(format!("a field is larger than {most} bytes"));
                *left = left.checked_sub(bytes).ok_or_else(over)?;
                let most = self.settings.max_all_fields_bytes;
                let over = || too_large(format!("the fields are larger than {most} bytes"));
                let all = &mut self.left_for_fields;
                *all = all.checked_sub(bytes).ok_or_else(over)?;
            }
            State::Between | State::Failed => {}
        }
        Ok(())
    }

    /// The next step, for which the body is read where that is needed.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step>> {
        if self.state == State::Failed {
            return Poll::Ready(Err(Error::malformed("the form has failed before")));
        }
        let step = loop {
            match self.parts.step() {
                Ok(Step::Wait) => {}
                step => break step,
            }
            match ready!(self.body.poll_chunk(cx)) {
                Ok(Some(chunk)) => {
                    self.bytes += chunk.len() as u64;
                    // A body that is no connection's has no limit of its own.
                    if self.settings.max_bytes.is_some_and(|most| self.bytes > most) {
                        break Err(body::too_large());
                    }
                    self.parts.push(chunk);
                }
                Ok(None) => break Err(Error::malformed("the form ends before its last boundary")),
                Err(error) => break Err(error),
            }
        };
        Poll::Ready(step.map_err(|error| self.fail(error)))
    }

    fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed;
        error
    }
}

/// One part of a form: a field, or a file. Its content is what is still to come.
#[derive(Debug)]
pub struct Part<'a> {
    form: &'a mut Multipart,
    disposition: Disposition,
    headers: Headers,
}

impl Part<'_> {
    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.disposition.name
    }

    /// The name of the file as the client sent it, which may be a path, empty, or anything else.
    /// A part that has none is no file; one whose name is empty is how browsers say that no file
    /// was chosen.
    pub fn file_name(&self) -> Option<&str> {
        self.disposition.file_name.as_deref()
    }

    /// A name under which the file could be stored: the last part of the path, at most 255
    /// bytes, without control characters, separators, and dots at either end. `None` if nothing
    /// is left, or the part is no file.
    ///
    /// It says nothing of what the file is, and others may have the same.
    pub fn safe_file_name(&self) -> Option<String> {
        base_name(self.file_name()?)
    }

    /// The media type that the client takes the content for.
    pub fn content_type(&self) -> Option<&str> {
        self.headers.get("content-type")
    }

    /// All fields of the part's head.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The next chunk of the content, as it comes; `None` at the end.
    ///
    /// # Errors
    /// Those of [`Multipart::next`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.form.chunk().await
    }

    /// The whole content in memory, if it has at most `limit` bytes.
    ///
    /// # Errors
    /// [`BodyTooLarge`](crate::ErrorKind::BodyTooLarge) past the limit, and those of
    /// [`Multipart::next`].
    pub async fn collect(self, limit: usize) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.form.chunk().await? {
            if whole.len() + chunk.len() > limit {
                let name = &self.disposition.name;
                let error = too_large(format!("the field {name:?} is larger than {limit} bytes"));
                return Err(self.form.fail(error));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// The content as a text of at most [`Settings::max_field_bytes`], even if the client says
    /// that it is a file.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if it is not UTF-8, and those of
    /// [`collect`](Part::collect).
    pub async fn text(self) -> Result<String> {
        let limit = self.form.settings.max_field_bytes;
        let bytes = self.collect(limit).await?;
        String::from_utf8(bytes.into())
            .map_err(|_| Error::malformed("expected a field in UTF-8, and found other bytes"))
    }

    /// The content in a temporary file, which is deleted when it is dropped. The disk is
    /// written to by a thread of the runtime's pool; the client is not read from meanwhile.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the disk refuses, and those of [`Multipart::next`]. What
    /// was written until then is deleted.
    pub async fn into_file(self) -> Result<TempFile> {
        let mut writer = temp_file::Writer::new(self.form.settings.folder.clone()).await?;
        while let Some(chunk) = self.form.chunk().await? {
            writer.write(&chunk).await?;
        }
        writer.finish().await
    }
}

/// The content, chunk by chunk.
impl Stream for Part<'_> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.form.poll_chunk(cx).map(Result::transpose)
    }
}
