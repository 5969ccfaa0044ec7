//! Values by text and by pattern. Pure.

use std::collections::HashMap;

use weft::Request;
use weft_config::{Located, Problem};

use super::Entry;
use super::map_text::MapText;
use crate::template::{GroupPatterns, MapValue, PathPattern, Pattern, PatternSet, Template};

/// Maximum number of patterns of a map.
const MAX_PATTERNS: usize = 1_000;

/// Values by input: an equal text comes first, then the first pattern.
pub(super) struct ValueTable {
    exact: HashMap<Box<str>, MapText>,
    /// `None` without patterns.
    patterns: Option<PatternSet>,
    /// Values of the patterns, in their order.
    of_patterns: Vec<(Pattern, MapText)>,
}

impl ValueTable {
    pub(super) fn new(
        name: &Located<String>,
        entries: &[Entry<String>],
        problems: &mut Vec<Problem>,
    ) -> ValueTable {
        let mut table =
            ValueTable { exact: HashMap::new(), patterns: None, of_patterns: Vec::new() };
        for entry in entries {
            problems.extend(table.add(entry).err());
        }
        let patterns = table.of_patterns.iter().map(|(pattern, _)| pattern);
        if patterns.len() > 0 {
            let owner = format!("the map `{}`", name.value);
            let set = PatternSet::with_maximum(patterns, MAX_PATTERNS, &owner);
            table.patterns = set.map_err(|message| problems.push(name.problem(message))).ok();
        }
        table
    }

    fn add(&mut self, Entry { key, value }: &Entry<String>) -> Result<(), Problem> {
        if let Some(source) = key.value.strip_prefix("~ ") {
            let pattern = Pattern::parse(source);
            let pattern = pattern
                .map_err(|reason| key.problem(format!("the key {:?} {reason}", key.value)))?;
            let template = Template::parse(&value.value).and_then(|template| {
                let groups = GroupPatterns { path: PathPattern::Pattern(&pattern), host: None };
                groups.check(&template)?;
                template.known_with_groups()
            });
            let template = template.map_err(|message| value.problem(message))?;
            self.of_patterns.push((pattern, MapText::new(template)));
            return Ok(());
        }
        if key.value.starts_with('~') {
            let rest = key.value.trim_start_matches(['~', '*']);
            return Err(key.problem(format!(
                "a pattern needs a space behind its sign: \"~ {rest}\"; the text itself is {:?}",
                format!("= {}", key.value)
            )));
        }
        let text = key.value.strip_prefix("= ").unwrap_or(&key.value);
        match self.exact.insert(text.into(), MapText::parse(value)?) {
            Some(_) => Err(key.problem(format!("{text:?} is given twice"))),
            None => Ok(()),
        }
    }

    /// Returns the value for an input.
    pub(super) fn find(&self, input: &str, request: &Request) -> Option<MapValue> {
        if let Some(text) = self.exact.get(input) {
            return Some(text.expand(request));
        }
        let number = self.patterns.as_ref()?.first_match(input.as_bytes())?;
        let (pattern, text) = &self.of_patterns[number];
        Some(match text.template() {
            None => text.expand(request),
            Some(template) => {
                let groups = pattern.host_captures(input);
                MapValue::expanded(template, template.expand_with_groups(request, groups.as_ref()))
            }
        })
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &MapText> {
        self.exact.values().chain(self.of_patterns.iter().map(|(_, text)| text))
    }
}
