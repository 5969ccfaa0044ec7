//! Multipart forms, read part by part as a stream (RFC 7578).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;

use crate::error::{Error, Result};
use crate::form::disposition::{Disposition, next_parameter, sanitize_file_name};
use crate::form::parts::{Parser, Step};
use crate::form::rejection::{
    MAX_ALL, MAX_FIELD, MAX_FIELDS, MAX_FILE, MAX_FILES, expect_type, too_large,
};
use crate::form::settings::FormSettings;
use crate::form::temp_file::{self, TempFile};
use crate::message::body::{self, Body};
use crate::message::request_head::RequestHead;
use weft_proto::headers::Headers;

/// A form whose parts are read one after the other. Like a [`Body`] it is *pulled*: data is read
/// only on demand, and consumed data is not kept.
///
/// ```
/// use weft::{Request, Response, form};
///
/// async fn upload(request: Request) -> weft::Result<Response> {
///     let mut form = form::multipart(request)?;
///     let mut summary = String::new();
///     while let Some(part) = form.next().await? {
///         let name = part.name().to_owned();
///         summary += &match part.safe_file_name() {
///             Some(file) => format!("{file}: {} bytes\n", part.into_file().await?.length()),
///             None => format!("{name} = {}\n", part.text().await?),
///         };
///     }
///     Ok(Response::text(summary))
/// }
///
/// let body = "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nA letter\r\n\
///     --x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../letter.txt\"\r\n\
///     Content-Type: text/plain\r\n\r\nDear all\r\n--x--\r\n";
/// let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x";
/// let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
/// let response = weft::testing::call(upload, weft::testing::request(request));
/// response.assert_text("title = A letter\nletter.txt: 8 bytes\n");
/// ```
#[derive(Debug)]
pub struct Multipart {
    settings: FormSettings,
    body: Body,
    parser: Parser,
    state: State,
    /// Bytes received in total.
    bytes: u64,
    fields: usize,
    files: usize,
    /// Total bytes that the fields other than files may still have.
    remaining_field_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    /// In a file, with the number of bytes that it may still have.
    File(u64),
    /// In a field other than a file, with the number of bytes that it may still have.
    Field(usize),
    Failed,
}

impl FormSettings {
    /// Starts to read a multipart form.
    ///
    /// # Errors
    /// [`MediaTypeUnsupported`](crate::ErrorKind::MediaTypeUnsupported) if the request's
    /// `Content-Type` is not `multipart/form-data`, [`Malformed`](crate::ErrorKind::Malformed)
    /// if that has no boundary.
    pub fn multipart(self, request: impl Into<(RequestHead, Body)>) -> Result<Multipart> {
        let (head, mut body) = request.into();
        let mut parameters = expect_type(&head, "multipart/form-data")?;
        let boundary = loop {
            match next_parameter(parameters)? {
                Some((found, _)) if found.name.eq_ignore_ascii_case(b"boundary") => {
                    break found.value;
                }
                Some((_, rest)) => parameters = rest,
                None => {
                    return Err(Error::malformed("the Content-Type of the form has no boundary"));
                }
            }
        };
        let parser = Parser::new(&boundary, self.max_part_head_bytes, self.max_part_fields)?;
        if let Some(bytes) = self.max_bytes {
            body.set_limit(bytes);
        }
        let remaining_field_bytes = self.max_all_fields_bytes;
        let (bytes, fields, files) = (0, 0, 0);
        let state = State::Between;
        Ok(Multipart {
            settings: self,
            body,
            parser,
            state,
            bytes,
            fields,
            files,
            remaining_field_bytes,
        })
    }
}

impl Multipart {
    /// Returns the next part, or `None` after the last one. Unread data of the previous part is
    /// skipped.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if the body is not a valid form or ends before
    /// its last boundary, [`BodyTooLarge`](crate::ErrorKind::BodyTooLarge) if a limit is exceeded,
    /// and the errors of [`Body::chunk`]. After an error all further reads fail.
    pub async fn next(&mut self) -> Result<Option<Part<'_>>> {
        while self.chunk().await?.is_some() {}
        loop {
            return match poll_fn(|cx| self.poll_step(cx)).await? {
                Step::Head(headers) => match self.start_part(&headers) {
                    Ok(disposition) => Ok(Some(Part { form: self, disposition, headers })),
                    Err(error) => Err(self.fail(error)),
                },
                Step::End => Ok(None),
                Step::Wait | Step::Data(_) | Step::PartEnd => continue,
            };
        }
    }

    /// Checks the number of parts and starts the next one.
    fn start_part(&mut self, headers: &Headers) -> Result<Disposition> {
        let value = headers.get_bytes("content-disposition");
        let value = value.ok_or_else(|| Error::malformed("a part has no Content-Disposition"))?;
        let disposition = Disposition::parse(value)?;
        let (limit, kind, count, max) = match disposition.file_name {
            Some(_) => (MAX_FILES, "files", &mut self.files, self.settings.max_files),
            None => (MAX_FIELDS, "fields", &mut self.fields, self.settings.max_fields),
        };
        *count += 1;
        if *count > max {
            return Err(too_large(limit, format!("more than {max} {kind}")));
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

    /// Reads the next chunk of the current part.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if self.state == State::Between {
            return Poll::Ready(Ok(None));
        }
        match ready!(self.poll_step(cx))? {
            Step::Data(data) => match self.count_bytes(data.len()) {
                Ok(()) => Poll::Ready(Ok(Some(data))),
                Err(error) => Poll::Ready(Err(self.fail(error))),
            },
            _ => {
                self.state = State::Between;
                Poll::Ready(Ok(None))
            }
        }
    }

    /// Counts the bytes of the current part against the limits.
    fn count_bytes(&mut self, bytes: usize) -> Result<()> {
        match &mut self.state {
            State::File(remaining) => {
                let max = self.settings.max_file_bytes;
                let exceeded = || too_large(MAX_FILE, format!("a file is larger than {max} bytes"));
                *remaining = remaining.checked_sub(bytes as u64).ok_or_else(exceeded)?;
            }
            State::Field(remaining) => {
                let max = self.settings.max_field_bytes;
                let exceeded =
                    || too_large(MAX_FIELD, format!("a field is larger than {max} bytes"));
                *remaining = remaining.checked_sub(bytes).ok_or_else(exceeded)?;
                let max = self.settings.max_all_fields_bytes;
                let exceeded =
                    || too_large(MAX_ALL, format!("the fields are larger than {max} bytes"));
                let all = &mut self.remaining_field_bytes;
                *all = all.checked_sub(bytes).ok_or_else(exceeded)?;
            }
            State::Between | State::Failed => {}
        }
        Ok(())
    }

    /// Returns the next parser step, and reads the body as required.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step>> {
        if self.state == State::Failed {
            return Poll::Ready(Err(Error::malformed("the form cannot be read after an error")));
        }
        let step = loop {
            match self.parser.step() {
                Ok(Step::Wait) => {}
                step => break step,
            }
            match ready!(self.body.poll_chunk(cx)) {
                Ok(Some(chunk)) => {
                    self.bytes += chunk.len() as u64;
                    // A body without a connection has no limit of its own.
                    if let Some(max) = self.settings.max_bytes.filter(|max| self.bytes > *max) {
                        break Err(body::too_large(max, "FormSettings::max_bytes"));
                    }
                    self.parser.push(chunk);
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

/// One part of a form: a field or a file. Its content is read on demand.
#[derive(Debug)]
pub struct Part<'a> {
    form: &'a mut Multipart,
    disposition: Disposition,
    headers: Headers,
}

impl Part<'_> {
    /// Name of the form field.
    pub fn name(&self) -> &str {
        &self.disposition.name
    }

    /// File name as sent by the client; it may be a path, empty, or any other text. A part without
    /// a file name is not a file; browsers send an empty file name if no file was selected.
    pub fn file_name(&self) -> Option<&str> {
        self.disposition.file_name.as_deref()
    }

    /// Returns a safe name for storing the file: the last component of the path, at most 255 bytes,
    /// without control characters and separators, and without dots at either end. `None` if nothing
    /// is left, or the part is not a file.
    ///
    /// The name does not indicate the type of the content, and is not unique.
    pub fn safe_file_name(&self) -> Option<String> {
        sanitize_file_name(self.file_name()?)
    }

    /// Media type declared by the client.
    pub fn content_type(&self) -> Option<&str> {
        self.headers.get("content-type")
    }

    /// All header fields of the part.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Reads the next chunk of the content; `None` at the end.
    ///
    /// # Errors
    /// The errors of [`Multipart::next`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.form.chunk().await
    }

    /// Reads the whole content into memory, at most `limit` bytes.
    ///
    /// # Errors
    /// [`BodyTooLarge`](crate::ErrorKind::BodyTooLarge) if the limit is exceeded, and the errors of
    /// [`Multipart::next`].
    pub async fn collect(self, limit: usize) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.form.chunk().await? {
            if whole.len() + chunk.len() > limit {
                let name = &self.disposition.name;
                let reason = format!("the field {name:?} is larger than {limit} bytes");
                let error = too_large("Part::collect(limit)", reason);
                return Err(self.form.fail(error));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// Reads the content as text of at most [`FormSettings::max_field_bytes`], even if the client
    /// declares it as a file.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if it is not UTF-8, and the errors of
    /// [`collect`](Part::collect).
    pub async fn text(self) -> Result<String> {
        let limit = self.form.settings.max_field_bytes;
        let bytes = self.collect(limit).await?;
        String::from_utf8(bytes.into())
            .map_err(|_| Error::malformed("a field of the form is not valid UTF-8"))
    }

    /// Writes the content to a temporary file, which is deleted when the value is dropped. A thread
    /// of the runtime's pool writes to the disk; the client is not read from during a write.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if a write fails, and the errors of [`Multipart::next`]. After
    /// an error the partial file is deleted.
    pub async fn into_file(self) -> Result<TempFile> {
        let mut writer = temp_file::Writer::new(self.form.settings.temp_dir.clone()).await?;
        while let Some(chunk) = self.form.chunk().await? {
            writer.write(&chunk).await?;
        }
        writer.finish().await
    }
}

/// Yields the content chunk by chunk.
impl Stream for Part<'_> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.form.poll_chunk(cx).map(Result::transpose)
    }
}
