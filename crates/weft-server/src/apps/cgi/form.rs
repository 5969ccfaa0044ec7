//! `cgi`: the keys of a route to CGI scripts.

use std::path::Path;
use std::time::Duration;

use futures_util::future::FutureExt;
use weft::{Application, Request};
use weft_config::{Key, SectionKeys, ValueKind, quoted, quoted_list, show_size, show_time};

use super::{Cgi, CgiSettings};
use crate::apps::form::{
    OpenContext, Operator, PathKeys, PlanContext, RouteApp, RouteForm, section_keys,
};
use crate::apps::proxy::BUFFER_BYTES;
use crate::apps::script::{index_name, variables};
use crate::apps::script_patterns::script_patterns;
use crate::apps::{ResponseFuture, respond_later};
use crate::base::script_files::{ScriptFiles, ScriptRule};
use crate::options::RouteOptions;
use crate::sections::limits::limit;

const MAX_COUNT: u64 = 65_535;

/// They have no command-line options, because `--route` takes only the short form.
static KEYS: [Key<CgiSettings>; 17] = [
    Key {
        name: "cgi",
        help: "script, or directory of scripts",
        kind: ValueKind::Path(|settings, root| settings.root = root.value),
        show: |settings| quoted(&settings.root.to_string_lossy()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "index",
        help: "index script of a directory",
        kind: ValueKind::Text(|settings, name| {
            settings.index = Some(index_name(name)?);
            Ok(())
        }),
        show: |settings| settings.index.as_deref().map_or(String::new(), quoted),
        ..Key::FILE_ONLY
    },
    Key {
        name: "scripts",
        help: "patterns of the scripts that are run, by their paths below the directory: \
               `report.cgi`, `admin/*`, or `~ REGEX` for the path of the request; with `!` in front, \
               those that are not run; by default all",
        kind: ValueKind::Texts(|settings, texts| {
            settings.scripts = Some(script_patterns(texts)?);
            Ok(())
        }),
        show: |settings| {
            settings.scripts.as_ref().map_or_else(String::new, |texts| quoted_list(texts.iter()))
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "environment",
        help: "environment variables, which override the variables of the request: `NAME=VALUE`, \
               or `NAME` to pass on a variable of the server; by default only `PATH` is passed \
               on",
        kind: ValueKind::Texts(|settings, texts| {
            settings.environment = variables(texts)?;
            Ok(())
        }),
        show: |settings| quoted_list(settings.environment.iter().map(ToString::to_string)),
        ..Key::FILE_ONLY
    },
    limit!(
        timeout,
        "",
        time,
        "timeout for the response head of a script; then the script is terminated, and 504"
    ),
    limit!(
        body_timeout,
        "",
        time,
        "timeout for a script without output within the body, or still running after it; then the \
         script is terminated, and the response aborted"
    ),
    limit!(max_processes, "", count 1..=MAX_COUNT,
        "maximum number of concurrent scripts of this route, over all workers"),
    limit!(max_processes_per_client, "", count 0..=MAX_COUNT,
        "maximum number of these scripts that one client address, or /64 of IPv6, runs at the same \
         time; 0: half of `max_processes`"),
    limit!(max_queued, "", count 0..=MAX_COUNT, "maximum number of queued requests; more: 503"),
    limit!(queue_timeout, "", time, "timeout in the queue; then 503"),
    limit!(max_spooled_bytes, "", size 0..=u64::MAX,
        "maximum size of a request body of unknown length, which is always buffered; larger: 413"),
    limit!(buffer_requests, "", switch, "receive a request body before the script is started"),
    limit!(
        buffer_responses,
        "",
        switch,
        "receive a response body as fast as the script writes it, except for event streams"
    ),
    limit!(request_buffer_bytes, "", size BUFFER_BYTES,
        "maximum memory of a buffered request body; more is stored in a temporary file"),
    limit!(response_buffer_bytes, "", size BUFFER_BYTES,
        "maximum memory of a buffered response body; more is stored in a temporary file"),
    limit!(max_temp_file_bytes, "", size 0..=u64::MAX,
        "maximum size of the temporary file of a buffered body; more is streamed; 0: no file"),
    limit!(max_head_bytes, "", size 1_024..=1 << 20,
        "maximum size of a response head; larger: 502"),
];

impl RouteForm for CgiSettings {
    type App = Cgi;

    fn name() -> &'static str {
        KEYS[0].name
    }

    fn keys() -> SectionKeys<CgiSettings> {
        section_keys(&KEYS)
    }

    fn operator() -> Option<Operator<CgiSettings>> {
        let parse = |folder: &str, base: &Path| {
            Ok(CgiSettings { root: base.join(folder), ..CgiSettings::default() })
        };
        Some(Operator { sign: "=>", argument: "FOLDER", subject: "CGI", parse })
    }

    fn path_keys() -> PathKeys {
        PathKeys::Rewrite
    }

    fn plan(
        &mut self,
        options: &mut RouteOptions,
        context: &PlanContext<'_>,
    ) -> Result<(), String> {
        self.trusted = context.trusted_proxies.to_vec();
        self.max_body_bytes = options.request_body.max_bytes(context.limits);
        Ok(())
    }

    fn open(&self, context: &OpenContext<'_>) -> Result<Cgi, String> {
        Cgi::new(self.clone(), context.buffer_space.clone())
            .map_err(|error| format!("cannot run scripts of {}: {error}", self.root.display()))
    }

    fn root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn runs_application(&self) -> bool {
        true
    }

    fn scripts(&self) -> Option<ScriptFiles> {
        Some(ScriptFiles { folder: Some(self.root.clone()), rule: ScriptRule::Executable })
    }
}

impl RouteApp for Cgi {
    fn for_worker(&self, _: bool) -> Cgi {
        self.clone()
    }

    fn call(&self, request: Request) -> ResponseFuture {
        let cgi = self.clone();
        respond_later(async move { Application::call(&cgi, request).await }.boxed_local())
    }
}
