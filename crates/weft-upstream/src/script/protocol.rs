//! Requests to an upstream that runs scripts, by FastCGI, SCGI or uwsgi, and its responses. A
//! response is the output of a CGI script: in records, or up to the end of the connection.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weft::message::Version;
use weft::{Error, Method, Request};
use weft_proto::fastcgi::{self, Completion, RecordReader, ResponsePart};
use weft_proto::http1::client::{BodyLength, BodyPiece, ResponseHead};
use weft_proto::{scgi, uwsgi};

use super::meta_variables::{
    Credentials, MetaVariables, VariableRules, meta_variables, meta_variables_in,
};
use super::script_file::Script;
use super::script_head::{HeadForm, ScriptHeadParser};
use super::stderr;
use super::stderr::LineSplitter;
use crate::base::task::MayDrop;
use crate::connect::upstream::Upstream;
use crate::gateway_error::GatewayError;
use crate::settings::proxy_settings::{ProxySettings, UpstreamProtocol};
use crate::sys::bytes_of;

/// A script that handles a request.
pub struct ScriptCall {
    /// The script.
    pub script: Script,
    /// Set when all of the request was sent.
    pub is_sent: MayDrop,
}

/// Appends a request, up to its body. The variables in `environment` override the variables of the
/// request.
///
/// # Errors
/// If the protocol cannot express a value of the request.
pub(crate) fn compose(
    out: &mut Vec<u8>,
    request: &Request,
    script: &Script,
    body_length: Option<u64>,
    settings: &ProxySettings,
    environment: &[(String, OsString)],
) -> Result<(), Error> {
    // RFC 3875 §4.1.2: a request without a body has no CONTENT_LENGTH.
    let has_length = request.headers().get_bytes("content-length").is_some();
    let length = body_length.filter(|&length| length > 0 || has_length);
    let script = match &settings.fastcgi.script_root {
        Some(root) => &seen_beneath(root, script),
        None => script,
    };
    let rules =
        VariableRules { credentials: Credentials::Passed, trusted_proxies: settings.trusted() };
    if settings.protocol == UpstreamProtocol::FastCgi {
        fastcgi::begin_request(out, settings.max_idle_connections > 0);
        let start = fastcgi::begin_params(out);
        let text = if environment.is_empty() { std::mem::take(out) } else { Vec::new() };
        let mut variables = meta_variables_in(text, request, script, length, &rules);
        // PHP requires it as a protection against direct execution of its interpreter.
        variables.set("REDIRECT_STATUS", b"200");
        match environment.is_empty() {
            true => *out = variables.into_text(),
            false => overridden(&variables, environment).for_each(|(name, value)| {
                fastcgi::pair(out, name.len(), |out| {
                    out.extend_from_slice(name);
                    out.extend_from_slice(value);
                });
            }),
        }
        fastcgi::end_params(out, start);
        if body_length == Some(0) {
            fastcgi::end_of_stdin(out);
        }
        return Ok(());
    }
    let variables = meta_variables(request, script, length, &rules);
    let all = overridden(&variables, environment);
    match settings.protocol {
        UpstreamProtocol::Uwsgi => Ok(uwsgi::head(out, all)?),
        _ => Ok(scgi::head(out, body_length.unwrap_or(0), all)?),
    }
}

/// Returns the variables of a request, and the configured variables, which override them.
fn overridden<'a>(
    variables: &'a MetaVariables,
    environment: &'a [(String, OsString)],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let is_overridden = |name: &[u8]| environment.iter().any(|(known, _)| known.as_bytes() == name);
    let own = environment.iter().map(|(name, value)| (name.as_bytes(), bytes_of(value)));
    variables.iter().filter(move |(name, _)| !is_overridden(name)).chain(own)
}

/// Returns a script with the paths that an application sees which has the root somewhere else.
fn seen_beneath(root: &Path, script: &Script) -> Script {
    let relative = script.file.strip_prefix(&script.root).unwrap_or(&script.file);
    Script { file: root.join(relative), root: root.to_owned(), ..script.clone() }
}

/// Incremental parser for a response.
pub(crate) struct ResponseReader {
    output: Output,
    stage: Stage,
    keeps_connection: bool,
    stderr: LineSplitter,
    /// Named in the error log.
    upstream: Arc<Upstream>,
}

/// The way in which an upstream sends the output of a script.
enum Output {
    Records(RecordReader),
    /// All bytes of the connection.
    Bytes,
}

impl Output {
    /// Returns true if nothing but its length ends the output, and all of that has been received.
    fn has_all(&self, received: usize, remaining: Option<u64>) -> bool {
        let is_bytes = matches!(self, Output::Bytes);
        is_bytes && remaining.is_some_and(|remaining| remaining <= received as u64)
    }
}

enum Stage {
    /// The incomplete head. Nearly all heads are received at once.
    Head { output: BytesMut, parser: ScriptHeadParser },
    Body {
        /// Data that has been received and not returned.
        received: Received,
        /// Bytes remaining of the application's `Content-Length`.
        remaining: Option<u64>,
        /// No more data follows.
        has_ended: bool,
    },
}

/// Data in the order of its receipt. Nearly always there is one piece, which is not copied.
#[derive(Default)]
struct Received {
    first: Bytes,
    rest: BytesMut,
}

impl Received {
    fn push(&mut self, data: Bytes) {
        match self.first.is_empty() && self.rest.is_empty() {
            true => self.first = data,
            false => self.rest.extend_from_slice(&data),
        }
    }

    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Takes the next piece; empty if there is none.
    fn take(&mut self) -> Bytes {
        match self.first.is_empty() {
            true => self.rest.split().freeze(),
            false => std::mem::take(&mut self.first),
        }
    }

    /// Takes all data.
    fn take_all(&mut self) -> Bytes {
        match self.rest.is_empty() {
            true => self.take(),
            false => [&*self.take(), &self.rest.split()].concat().into(),
        }
    }
}

/// The next part of a response without the text for the error log.
enum Part {
    Data(Bytes),
    End,
    Wait,
}

impl ResponseReader {
    pub(crate) fn new(settings: &ProxySettings, upstream: Arc<Upstream>) -> ResponseReader {
        let head_form = match settings.protocol {
            UpstreamProtocol::Uwsgi => HeadForm::CgiOrHttp,
            _ => HeadForm::Cgi,
        };
        ResponseReader {
            output: match settings.protocol {
                UpstreamProtocol::Scgi | UpstreamProtocol::Uwsgi => Output::Bytes,
                _ => Output::Records(RecordReader::default()),
            },
            stage: Stage::Head {
                output: BytesMut::new(),
                parser: ScriptHeadParser::new(head_form, settings.max_response_head_bytes),
            },
            keeps_connection: settings.max_idle_connections > 0,
            stderr: LineSplitter::default(),
            upstream,
        }
    }

    /// Returns true if a part of the response has been received.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(&self.stage, Stage::Head { output, .. } if output.is_empty())
    }

    /// Splits the head off the start of `input` if it is complete.
    pub(crate) fn read_head(
        &mut self,
        input: &mut BytesMut,
        method: &Method,
    ) -> Result<Option<ResponseHead>, GatewayError> {
        loop {
            let mut data = match self.next_part(input)? {
                Part::Data(data) => data,
                Part::Wait => return Ok(None),
                Part::End => {
                    let reason = "it ended without a head".to_owned();
                    return Err(GatewayError::BadResponse(reason));
                }
            };
            let Stage::Head { output, parser } = &mut self.stage else { return Ok(None) };
            let is_first = output.is_empty();
            if !is_first {
                output.extend_from_slice(&data);
            }
            let parsed = parser.parse(if is_first { &data } else { output });
            if let Some((head, end)) = parsed.map_err(GatewayError::BadResponse)? {
                if !is_first {
                    data = std::mem::take(output).freeze();
                }
                let received = Received { first: data.split_off(end), rest: BytesMut::new() };
                let has_body = *method != Method::HEAD && head.has_body();
                let remaining = if has_body { head.length } else { Some(0) };
                let has_ended = self.output.has_all(received.len(), remaining);
                self.stage = Stage::Body { received, remaining, has_ended };
                return Ok(Some(ResponseHead {
                    status: head.status,
                    version: Version::HTTP_11,
                    headers: head.fields,
                    length: remaining.map_or(BodyLength::UntilClose, BodyLength::Sized),
                    keep_alive: self.keeps_connection,
                }));
            }
            if is_first {
                output.extend_from_slice(&data);
            }
        }
    }

    /// Splits the next piece of the body off the start of `input`.
    pub(crate) fn read_body(&mut self, input: &mut BytesMut) -> Result<BodyPiece, GatewayError> {
        loop {
            let Stage::Body { received, remaining, has_ended } = &mut self.stage else {
                return Ok(BodyPiece::End);
            };
            let mut data = received.take();
            if let Some(remaining) = remaining {
                // Bytes beyond the length are not part of the body.
                data.truncate(usize::try_from(*remaining).unwrap_or(usize::MAX));
                *remaining -= data.len() as u64;
            }
            match (data.is_empty(), *has_ended, *remaining) {
                (false, ..) => return Ok(BodyPiece::Data(data)),
                (true, true, None | Some(0)) => return Ok(BodyPiece::End),
                (true, true, Some(_)) => {
                    let reason = "it wrote less than its Content-Length".to_owned();
                    return Err(GatewayError::BadResponse(reason));
                }
                (true, false, _) if self.receive(input)? => {}
                (true, false, _) => return Ok(BodyPiece::Wait),
            }
        }
    }

    /// Returns the whole body if it has been received, with the end of the response.
    pub(crate) fn take_received_body(&mut self, input: &mut BytesMut) -> Option<Bytes> {
        // An error is returned again by `read_body`.
        while self.receive(input).unwrap_or(false) {}
        let Stage::Body { received, remaining, has_ended: true } = &mut self.stage else {
            return None;
        };
        let length = remaining.unwrap_or(received.len() as u64);
        if length > received.len() as u64 {
            return None;
        }
        *remaining = Some(0);
        let mut data = received.take_all();
        data.truncate(usize::try_from(length).ok()?);
        Some(data)
    }

    /// Receives the next part of the body. Returns false if more input is needed, or if there is
    /// none.
    fn receive(&mut self, input: &mut BytesMut) -> Result<bool, GatewayError> {
        if let Stage::Body { has_ended: true, .. } = self.stage {
            return Ok(false);
        }
        let part = self.next_part(input)?;
        let Stage::Body { received, remaining, has_ended } = &mut self.stage else {
            return Ok(false);
        };
        match part {
            Part::Data(data) => received.push(data),
            Part::End => *has_ended = true,
            Part::Wait => return Ok(false),
        }
        *has_ended |= self.output.has_all(received.len(), *remaining);
        Ok(true)
    }

    /// Returns the number of remaining bytes of the body, if it is known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self.stage {
            Stage::Body { remaining, .. } => remaining,
            Stage::Head { .. } => None,
        }
    }

    /// Returns the number of bytes of the body that are held here.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.stage {
            Stage::Body { received, .. } => received.len(),
            Stage::Head { output, .. } => output.len(),
        }
    }

    /// Returns true if the end of the response has been received: the connection may be used again.
    pub(crate) fn has_ended(&mut self, input: &mut BytesMut) -> bool {
        // The end usually arrives with the last data.
        while self.receive(input).unwrap_or(false) {}
        matches!(self.stage, Stage::Body { has_ended: true, .. })
    }

    /// Returns true if the end of the connection ends the body.
    pub(crate) fn may_end_at_eof(&self) -> bool {
        let is_bytes = matches!(self.output, Output::Bytes);
        is_bytes && matches!(self.stage, Stage::Body { remaining: None, .. })
    }

    /// Splits the next part off the start of `input`. Text for the error log is logged.
    fn next_part(&mut self, input: &mut BytesMut) -> Result<Part, GatewayError> {
        let Output::Records(records) = &mut self.output else {
            return Ok(match input.is_empty() {
                true => Part::Wait,
                false => Part::Data(input.split().freeze()),
            });
        };
        loop {
            let upstream = &self.upstream;
            match records.read(input).map_err(GatewayError::invalid_response)? {
                ResponsePart::Stdout(data) => return Ok(Part::Data(data)),
                ResponsePart::Stderr(text) => {
                    self.stderr.push(&text, |line| stderr::warn(upstream, line));
                }
                ResponsePart::Wait => return Ok(Part::Wait),
                ResponsePart::End { status, completion } => {
                    let lines = std::mem::take(&mut self.stderr);
                    lines.finish(|line| stderr::warn(upstream, line));
                    if status != 0 {
                        stderr::warn(upstream, format_args!("it ended with status {status}"));
                    }
                    return check(completion).map(|()| Part::End);
                }
            }
        }
    }
}

fn check(completion: Completion) -> Result<(), GatewayError> {
    let rejected = |reason: &str| Err(GatewayError::BadResponse(reason.to_owned()));
    match completion {
        Completion::Complete => Ok(()),
        Completion::Overloaded => Err(GatewayError::Overloaded("it has no free process")),
        Completion::CannotMultiplex => rejected("it takes the request for a second one"),
        Completion::UnknownRole => rejected("it is not a FastCGI responder"),
    }
}
