//! Authentication by another server.

mod client; // asks the server about requests

use std::time::Duration;

use weft::header::HeaderName;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted_time};

use self::client::DEFAULT_TIMEOUT;
pub(super) use self::client::ForwardAuth;
use super::fields::names::{check_request_name, parse_name};
use super::layer::OpenContext;
use super::scope::{Finding, Scope};
use super::{NONE, RouteOption, Setting, show_list, show_setting};
use crate::base::auth_url::AuthUrl;

/// The server that is asked about requests. The layer of `authentication` asks it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ForwardAuthOptions {
    url: Option<Setting<AuthUrl>>,
    headers: Option<Vec<HeaderName>>,
    timeout: Option<Duration>,
}

impl ForwardAuthOptions {
    fn url(&self) -> Option<&AuthUrl> {
        self.url.as_ref().and_then(Setting::value)
    }

    /// Returns true if a server is asked.
    pub(super) fn is_enabled(&self) -> bool {
        self.url().is_some()
    }

    /// Names of the fields that only the server may set.
    pub(super) fn copied(&self) -> &[HeaderName] {
        self.headers.as_deref().filter(|_| self.is_enabled()).unwrap_or_default()
    }

    /// Creates the client of the server, if there is one.
    ///
    /// # Errors
    /// If the URL needs certificate authorities, and the system has none.
    pub(super) fn client(&self, context: &OpenContext<'_>) -> Result<Option<ForwardAuth>, String> {
        let client = |url| {
            let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
            ForwardAuth::new(url, self.copied(), timeout, context)
        };
        self.url().map(client).transpose()
    }
}

impl RouteOption for ForwardAuthOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "forward_auth",
            help: "URL of a server that is asked about each request: with a status of 2xx the request \
                   continues, any other response is that for the client; none: no such server",
            kind: ValueKind::Text(set_url),
            show: |options| show_setting(options.url.as_ref(), AuthUrl::to_string),
            ..Key::FILE_ONLY
        },
        Key {
            name: "forward_auth_headers",
            help: "names of fields of the response of `forward_auth` that upstreams and scripts \
                   get, in place of the fields of the client",
            kind: ValueKind::Texts(|options, texts| {
                let names =
                    texts.iter().map(|text| parse_name(text, &text.value, check_request_name));
                options.headers = Some(names.collect::<ConfigResult<_>>()?);
                Ok(())
            }),
            show: |options| show_list(options.headers.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "forward_auth_timeout",
            help: "timeout for the response of `forward_auth` (10s); then 504",
            kind: ValueKind::Time(|options, time| options.timeout = Some(time)),
            show: |options| options.timeout.map_or_else(String::new, quoted_time),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        ForwardAuthOptions {
            url: self.url.or_else(|| outer.url.clone()),
            headers: self.headers.or_else(|| outer.headers.clone()),
            timeout: self.timeout.or(outer.timeout),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let lacks_server =
            scope.route().is_some() && !scope.any(|all| all.forward_auth.is_enabled());
        vec![(
            (self.headers.is_some() || self.timeout.is_some()) && lacks_server,
            "`forward_auth_headers` and `forward_auth_timeout` have no effect without `forward_auth`",
        )]
    }
}

fn set_url(options: &mut ForwardAuthOptions, text: Located<String>) -> ConfigResult {
    options.url = Some(match &*text.value {
        NONE => Setting::None,
        url => Setting::Value(AuthUrl::parse(url).map_err(|invalid| text.problem(invalid))?),
    });
    Ok(())
}
