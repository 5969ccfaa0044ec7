//! Fields that restrict what browsers do with responses.

use std::time::Duration;

use weft::header::{self, HeaderName};
use weft::middleware::SecurityHeaders;
use weft_config::{Key, ValueKind, quoted_time};

use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, show};

/// Default fields of responses without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SecurityHeaderOptions {
    has_defaults: Option<bool>,
    hsts: Option<Duration>,
}

impl RouteOption for SecurityHeaderOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "security_headers",
            flag: "security-headers",
            argument: "",
            help: "add X-Content-Type-Options, Referrer-Policy and X-Frame-Options to responses \
                   without them",
            kind: ValueKind::Bool(|options, switch| options.has_defaults = Some(switch)),
            show: |options| show(options.has_defaults.as_ref()),
        },
        Key {
            name: "hsts",
            flag: "hsts",
            argument: "TIME",
            help: "time for which browsers use HTTPS only (Strict-Transport-Security); start with a \
                   short one; 0s: none",
            kind: ValueKind::Time(|options, time| options.hsts = Some(time)),
            show: |options| options.hsts.map_or_else(String::new, quoted_time),
        },
    ];

    fn or(self, outer: &Self) -> Self {
        SecurityHeaderOptions {
            has_defaults: self.has_defaults.or(outer.has_defaults),
            hsts: self.hsts.or(outer.hsts),
        }
    }

    fn open(&self, all: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        const DEFAULTS: [HeaderName; 3] =
            [header::X_CONTENT_TYPE_OPTIONS, header::REFERRER_POLICY, header::X_FRAME_OPTIONS];
        let max_age = self.hsts.map(|time| time.as_secs()).filter(|seconds| *seconds > 0);
        let has_defaults = self.has_defaults.unwrap_or(false);
        if !has_defaults && max_age.is_none() {
            return Ok(Vec::new());
        }
        let mut headers = SecurityHeaders::new();
        if !has_defaults {
            headers = DEFAULTS.into_iter().fold(headers, SecurityHeaders::without);
        }
        // A field that is removed explicitly is not added again.
        let removed = all.response_headers.removed().iter().cloned();
        headers = removed.fold(headers, SecurityHeaders::without);
        headers = max_age.into_iter().fold(headers, SecurityHeaders::hsts);
        Ok(vec![Layer::of_middleware(headers)])
    }
}
