//! Validates the shares of requests that other routes get. Pure.

use super::rewrite::{Patterns, parse_template};
use crate::config::SplitConfig;
use weft_config::ConfigResult;

use crate::route::Split;

/// Default of `split_key`.
pub(crate) const DEFAULT_KEY: &str = "{client_ip}";

pub(super) fn plan_split(
    config: SplitConfig,
    patterns: Patterns<'_>,
) -> ConfigResult<Option<Split>> {
    let SplitConfig { shares, key } = config;
    let Some((first, _)) = shares.first().cloned() else {
        return match key {
            Some(key) => Err(key.problem("`split_key` needs `split`")),
            None => Ok(None),
        };
    };
    let template = parse_template(key.as_ref().map_or(DEFAULT_KEY, |key| &key.value), patterns);
    let key = key.as_ref().unwrap_or(&first);
    let template = template.map_err(|message| key.problem(message))?;
    if template.as_literal().is_some() {
        return Err(key.problem("expected a text with placeholders, such as {client_ip}"));
    }
    let shares = shares
        .into_iter()
        .map(|(name, share)| (name.value.trim_start_matches('@').to_owned(), share));
    Split::new(template, shares).map(Some).map_err(|message| first.problem(message))
}
