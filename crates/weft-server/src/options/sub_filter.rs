//! Substitution of texts in the bodies of responses.

use std::sync::Arc;

use bytes::Bytes;
use weft::middleware::{Replacement, Substitute};
use weft::{Application, Method, Middleware, Request, Response, StatusCode, header};
use weft_config::{ConfigResult, Key, Located, Pair, ValueKind, quoted_table};
use weft_upstream::RequestFields;

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show, show_list};
use crate::template::Template;

/// Texts that are replaced in bodies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SubFilterOptions {
    list: Option<Vec<Substitution>>,
    types: Option<Vec<String>>,
    is_once: Option<bool>,
}

/// A text that is replaced in the bodies of responses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Substitution {
    text: String,
    replacement: Template,
}

impl SubFilterOptions {
    /// Returns true if texts of bodies are replaced.
    pub(crate) fn has_texts(&self) -> bool {
        self.list.as_ref().is_some_and(|list| !list.is_empty())
    }
}

impl RouteOption for SubFilterOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "sub_filter",
            help: "texts that are replaced in the bodies of responses, without regard to case: \
                   `{ \"</head>\" = \"<script src=/a.js></script></head>\" }`",
            kind: ValueKind::Pairs(set_sub_filter),
            show: |options| match &options.list {
                None => String::new(),
                Some(list) if list.is_empty() => "{}".to_owned(),
                Some(list) => quoted_table(
                    list.iter().map(|it| (it.text.clone(), it.replacement.source().to_owned())),
                ),
            },
            ..Key::FILE_ONLY
        },
        Key {
            name: "sub_filter_types",
            help: "media types of the bodies in which `sub_filter` replaces texts; * for all (text/html)",
            kind: ValueKind::Texts(set_types),
            show: |options| show_list(options.types.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "sub_filter_once",
            help: "replace each text of `sub_filter` only once per response (true)",
            kind: ValueKind::Bool(|options, switch| options.is_once = Some(switch)),
            show: |options| show(options.is_once.as_ref()),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        SubFilterOptions {
            list: self.list.or_else(|| outer.list.clone()),
            types: self.types.or_else(|| outer.types.clone()),
            is_once: self.is_once.or(outer.is_once),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let has_texts = scope.any(|all| all.sub_filter.has_texts());
        vec![(
            (self.types.is_some() || self.is_once.is_some()) && !has_texts,
            "`sub_filter_types` and `sub_filter_once` have no effect without `sub_filter`",
        )]
    }

    fn templates(&self) -> Vec<&Template> {
        self.list.iter().flatten().map(|it| &it.replacement).collect()
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let Some(list) = self.list.as_ref().filter(|list| !list.is_empty()) else {
            return Ok(Vec::new());
        };
        let pairs = list.iter().map(|it| (&it.text, replacement(&it.replacement)));
        let mut substitute = Substitute::new(pairs).map_err(|error| error.reason().to_owned())?;
        if let Some(types) = &self.types {
            let pattern = |it: &String| if it == "*" { "*/*".to_owned() } else { it.clone() };
            substitute = substitute.media_types(types.iter().map(pattern));
        }
        let is_once = self.is_once.unwrap_or(true);
        let substitute = if is_once { substitute } else { substitute.everywhere() };
        Ok(vec![Layer::of_middleware(ReplaceTexts(substitute))])
    }
}

fn set_sub_filter(options: &mut SubFilterOptions, pairs: Vec<Pair>) -> ConfigResult {
    if let Some(Pair { name: first, .. }) = pairs.first() {
        let texts = pairs.iter().map(|pair| (&pair.name.value, ""));
        let limits = Substitute::new(texts);
        limits.map_err(|error| first.problem(format!("sub_filter: {}", error.reason())))?;
    }
    let substitution = |Pair { name, value, .. }: Pair| {
        let replacement = Template::parse(&value.value).map_err(|text| value.problem(text))?;
        Ok(Substitution { text: name.value, replacement })
    };
    options.list = Some(pairs.into_iter().map(substitution).collect::<ConfigResult<_>>()?);
    Ok(())
}

fn set_types(options: &mut SubFilterOptions, types: Vec<Located<String>>) -> ConfigResult {
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
    options.types = Some(types);
    Ok(())
}

/// Replaces texts in the bodies of responses, which upstreams and scripts send uncoded. If they
/// send a range of such a body, they are asked again for the whole.
#[derive(Clone)]
struct ReplaceTexts(Substitute);

fn replacement(template: &Template) -> Replacement {
    match template.as_literal() {
        Some(text) => text.into(),
        None => {
            let template = template.clone();
            Replacement::ByRequest(Arc::new(move |request| {
                // Only an attack has values that are too long; the text is removed.
                Bytes::from(template.expand_html(request).unwrap_or_default())
            }))
        }
    }
}

impl Middleware for ReplaceTexts {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        RequestFields::remove(&mut request, header::ACCEPT_ENCODING);
        let has_range = request.headers().get_bytes(header::RANGE.as_str()).is_some();
        // Upstreams ignore `Range` for other methods (RFC 9110 §14.2).
        let whole =
            (has_range && *request.method() == Method::GET).then(|| without_range(&request));
        let response = self.0.call(request, next).await;
        match whole {
            // Parts of the original would not fit together with parts of the changed body. Other
            // media, such as videos, keep their ranges.
            Some(whole) if is_part(&response) && self.0.has_media_type_of(&response) => {
                drop(response);
                self.0.call(whole, next).await
            }
            _ => response,
        }
    }
}

fn without_range(request: &Request) -> Request {
    let mut whole = request.without_body();
    // Route and changed fields of the request.
    *whole.extensions_mut() = request.extensions().clone();
    for name in [header::RANGE, header::IF_RANGE] {
        RequestFields::remove(&mut whole, name);
    }
    whole
}

fn is_part(response: &Response) -> bool {
    response.status() == StatusCode::PARTIAL_CONTENT
}
