//! Substitution of texts in bodies.

use weft::middleware::Substitute;
use weft_config::{ConfigResult, Key, Located, Pair, ValueKind, quoted_list, quoted_table};

use super::{RouteOptions, show};
use crate::template::Template;

/// A text that is replaced in the bodies of responses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Substitution {
    pub(crate) text: String,
    pub(crate) replacement: Template,
}

pub(super) const SUB_FILTER: Key<RouteOptions> = Key {
    name: "sub_filter",
    flag: "",
    argument: "",
    help: "texts that are replaced in the bodies of responses, without regard to case: \
           `{ \"</head>\" = \"<script src=/a.js></script></head>\" }`",
    kind: ValueKind::Pairs(set_sub_filter),
    show: |options| match &options.sub_filter {
        None => String::new(),
        Some(list) if list.is_empty() => "{}".to_owned(),
        Some(list) => quoted_table(
            list.iter().map(|it| (it.text.clone(), it.replacement.source().to_owned())),
        ),
    },
};

pub(super) const SUB_FILTER_TYPES: Key<RouteOptions> = Key {
    name: "sub_filter_types",
    flag: "",
    argument: "",
    help: "media types of the bodies in which `sub_filter` replaces texts; * for all (text/html)",
    kind: ValueKind::Texts(set_types),
    show: |options| {
        let types = options.sub_filter_types.as_ref();
        types.map_or_else(String::new, |types| quoted_list(types.iter()))
    },
};

pub(super) const SUB_FILTER_ONCE: Key<RouteOptions> = Key {
    name: "sub_filter_once",
    flag: "",
    argument: "",
    help: "replace each text of `sub_filter` only once per response (true)",
    kind: ValueKind::Bool(|options, switch| options.sub_filter_once = Some(switch)),
    show: |options| show(options.sub_filter_once.as_ref()),
};

fn set_sub_filter(options: &mut RouteOptions, pairs: Vec<Pair>) -> ConfigResult {
    if let Some(Pair { name: first, .. }) = pairs.first() {
        let texts = pairs.iter().map(|pair| (&pair.name.value, ""));
        let limits = Substitute::new(texts);
        limits.map_err(|error| first.problem(format!("sub_filter: {}", error.reason())))?;
    }
    let substitution = |Pair { name, value, .. }: Pair| {
        let replacement = Template::parse(&value.value).map_err(|text| value.problem(text))?;
        Ok(Substitution { text: name.value, replacement })
    };
    options.sub_filter = Some(pairs.into_iter().map(substitution).collect::<ConfigResult<_>>()?);
    Ok(())
}

fn set_types(options: &mut RouteOptions, types: Vec<Located<String>>) -> ConfigResult {
    let media_type = |it: Located<String>| {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-/".contains(&b);
        let is_type = it.value.split('/').filter(|part| !part.is_empty()).count() == 2
            && it.value.bytes().all(is_permitted);
        match is_type || it.value == "*" {
            true => Ok(it.value),
            false => Err(it.problem(format!(
                "expected a media type such as text/css, or *, found {:?}",
                it.value
            ))),
        }
    };
    let types = types.into_iter().map(media_type).collect::<ConfigResult<_>>()?;
    options.sub_filter_types = Some(types);
    Ok(())
}
