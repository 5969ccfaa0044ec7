//! Compression of responses.

use weft::middleware::Compress;
use weft_config::{Key, ValueKind};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show};

/// Compression of the responses of upstreams and scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CompressOptions {
    pub(crate) is_enabled: Option<bool>,
    gzip_level: Option<u32>,
}

impl RouteOption for CompressOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "compress",
            help: "compress responses of upstreams and scripts for clients that accept it; for files \
                   see [files]",
            kind: ValueKind::Bool(|options, switch| options.is_enabled = Some(switch)),
            show: |options| show(options.is_enabled.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "gzip_level",
            help: "level of gzip for the responses that `compress` compresses, from 1 (fast) to 9 (small) (2)",
            kind: ValueKind::Count(1..=9, |options, level| options.gzip_level = Some(level as u32)),
            show: |options| show(options.gzip_level.as_ref()),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        CompressOptions {
            is_enabled: self.is_enabled.or(outer.is_enabled),
            gzip_level: self.gzip_level.or(outer.gzip_level),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let is_enabled = scope.any(|all| all.compress.is_enabled == Some(true));
        vec![
            (
                self.gzip_level.is_some() && !is_enabled,
                "`gzip_level` has no effect without `compress`",
            ),
            (
                self.is_enabled == Some(true) && scope.route().is_some_and(|it| it.is_redirect),
                "`compress` has no effect on a redirect",
            ),
        ]
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        if self.is_enabled != Some(true) {
            return Ok(Vec::new());
        }
        let compress = self.gzip_level.into_iter().fold(Compress::new(), Compress::gzip_level);
        Ok(vec![Layer::of_middleware(compress)])
    }
}
