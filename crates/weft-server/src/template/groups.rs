//! Patterns of a route and of its host, whose groups the templates of the route may have. Pure.

use weft_config::suggest;

use super::Template;
use super::captures::Group;
use super::pattern::Pattern;

/// Patterns whose groups templates may have.
#[derive(Clone, Copy)]
pub(crate) struct GroupPatterns<'a> {
    pub(crate) path: PathPattern<'a>,
    /// Set if the host is a pattern.
    pub(crate) host: Option<&'a Pattern>,
}

/// Pattern of the paths of a route.
#[derive(Clone, Copy)]
pub(crate) enum PathPattern<'a> {
    None,
    Pattern(&'a Pattern),
    /// The key of the route is invalid, which is reported elsewhere.
    Unknown,
}

impl GroupPatterns<'_> {
    /// Parses a template.
    ///
    /// # Errors
    /// The reason that the template is invalid, or that the patterns do not have a group of it.
    pub(crate) fn parse_template(&self, text: &str) -> Result<Template, String> {
        let template = Template::parse(text)?;
        self.check(&template)?;
        Ok(template)
    }

    /// Checks the groups of a template.
    ///
    /// # Errors
    /// The first group that the patterns do not have.
    pub(crate) fn check(&self, template: &Template) -> Result<(), String> {
        let unknown = match self.path {
            PathPattern::Unknown => None,
            PathPattern::Pattern(pattern) => {
                unknown_group(template.groups(), pattern, "the pattern", "re")
            }
            PathPattern::None => template.groups().next().map(|group| {
                format!("{{re.{group}}} needs a route with a pattern, as \"~ ^/a/(.+)\"")
            }),
        };
        unknown.map_or_else(|| check_host_groups(template, self.host), Err)
    }
}

/// Returns an error if a template has a group that the pattern of the host does not have.
pub(crate) fn check_host_groups(template: &Template, host: Option<&Pattern>) -> Result<(), String> {
    let unknown = match host {
        Some(pattern) => {
            unknown_group(template.host_groups(), pattern, "the pattern of the host", "host")
        }
        None => template.host_groups().next().map(|group| {
            format!(
                "{{host.{group}}} needs a host with a pattern, as [hosts.'~ ^(.+)\\.example\\.org$']"
            )
        }),
    };
    unknown.map_or(Ok(()), Err)
}

/// Describes the first group that a pattern does not have.
fn unknown_group<'g>(
    mut groups: impl Iterator<Item = &'g Group>,
    pattern: &Pattern,
    subject: &str,
    prefix: &str,
) -> Option<String> {
    let group = groups.find(|group| !pattern.has_group(group))?;
    let hint = match suggest(&group.to_string(), pattern.group_names()) {
        Some(suggestion) => format!("did you mean {{{prefix}.{suggestion}}}?"),
        None => match pattern.count_groups() {
            0 => "it has none".to_owned(),
            count => format!("its groups are {{{prefix}.1}} to {{{prefix}.{count}}}"),
        },
    };
    Some(format!("{subject} has no group {{{prefix}.{group}}}; {hint}"))
}
