//! Storage of the responses of upstreams and scripts (RFC 9111).

mod settings; // keys of a table

use weft::Settings;
use weft_config::{
    ConfigResult, CustomType, Given, Key, Value, ValueKind, print_entries, schema, unknown_key,
};

pub(crate) use self::settings::{CacheSettings, RESPONSE_CACHE};
use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, Setting};

/// The cache in front of the application of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResponseCacheOptions {
    cache: Option<Setting<CacheSettings>>,
}

impl ResponseCacheOptions {
    pub(crate) fn is_enabled(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.value().is_some())
    }
}

impl RouteOption for ResponseCacheOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "response_cache",
        help: "store responses of upstreams and scripts, and send them to later requests (RFC 9111): true, \
               false, or a table; see [response_cache] for the store, and `cache` for files",
        kind: ValueKind::Custom(&CACHE, |options, given| {
            if let Given::Values([value, ..]) = given {
                options.cache = Some(read_cache(value)?);
            }
            Ok(())
        }),
        show: |options| options.cache.as_ref().map_or_else(String::new, show_cache),
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        ResponseCacheOptions { cache: self.cache.or_else(|| outer.cache.clone()) }
    }

    fn complete(&mut self, _: &RouteOptions, _: &Settings) {
        self.cache = self.cache.take().filter(|cache| cache.value().is_some());
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let lacks_application = scope.route().is_some_and(|route| !route.has_application);
        vec![(
            self.is_enabled() && lacks_application,
            "`response_cache` has no effect on a route without upstreams and scripts; the lifetime of \
             files is `cache`",
        )]
    }

    fn open(&self, _: &RouteOptions, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let settings = self.cache.as_ref().and_then(Setting::value);
        let settings = settings.filter(|_| context.has_application);
        let layer =
            |settings: &CacheSettings| Layer::of_cache(settings.cache(context.response_store));
        Ok(settings.map(layer).into_iter().collect())
    }
}

static CACHE: CustomType = CustomType {
    is_list: false,
    shape: "boolean or table",
    schema: || {
        let table = schema::table(schema::properties(&RESPONSE_CACHE));
        schema::any_of([schema::boolean(), table])
    },
};

fn read_cache(value: &Value<'_>) -> ConfigResult<Setting<CacheSettings>> {
    let mut cache = CacheSettings::default();
    match value.bool() {
        Ok(true) => return Ok(Setting::Value(cache)),
        Ok(false) => return Ok(Setting::None),
        Err(_) => {}
    }
    let entries = value.entries().map_err(|_| {
        value.expected("true, false, or a table such as { lifetimes = { 200 = \"10m\" } }")
    })?;
    for (name, value) in entries {
        match RESPONSE_CACHE.iter().find(|key| key.name == name.value) {
            Some(key) => weft_config::SectionKey::set_value(key, &mut cache, &value)?,
            None => return Err(unknown_key(&name, RESPONSE_CACHE.iter().map(|key| key.name))),
        }
    }
    Ok(Setting::Value(cache))
}

fn show_cache(cache: &Setting<CacheSettings>) -> String {
    let Some(settings) = cache.value() else { return "false".to_owned() };
    let set = print_entries(&RESPONSE_CACHE, settings, &CacheSettings::default());
    match set.is_empty() {
        true => "true".to_owned(),
        false => format!("{{ {} }}", set.join(", ")),
    }
}

#[cfg(test)]
mod tests;
