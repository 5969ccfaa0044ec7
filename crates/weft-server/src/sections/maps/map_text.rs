//! Texts of maps: values and defaults.

use weft::Request;
use weft_config::{Located, Problem};

use crate::template::{MapValue, Template};

/// A text of a map: most have no placeholders.
pub(super) enum MapText {
    Literal(Box<str>),
    Template(Template),
}

impl MapText {
    /// Parses a text without groups of a pattern.
    pub(super) fn parse(text: &Located<String>) -> Result<MapText, Problem> {
        let template = Template::parse(&text.value).and_then(Template::known_to_router);
        template.map(MapText::new).map_err(|message| text.problem(message))
    }

    pub(super) fn new(template: Template) -> MapText {
        match template.as_literal() {
            Some(text) => MapText::Literal(text.into()),
            None => MapText::Template(template),
        }
    }

    pub(super) fn expand(&self, request: &Request) -> MapValue {
        match self {
            MapText::Literal(text) => MapValue::literal(text),
            MapText::Template(template) => MapValue::expanded(template, template.expand(request)),
        }
    }

    pub(super) fn template(&self) -> Option<&Template> {
        match self {
            MapText::Literal(_) => None,
            MapText::Template(template) => Some(template),
        }
    }
}
