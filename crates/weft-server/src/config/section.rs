//! The list of the sections with fixed keys. Parser, command line, help, JSON schema, `--print` and
//! hints in error messages come from it.

use std::sync::LazyLock;

use weft_config::{PartKey, SectionKey, SectionKeys};

use super::Config;
use crate::apps::FILES;
use crate::options::option_keys;
use crate::sections::acme::ACME;
use crate::sections::cluster::CLUSTER;
use crate::sections::limits::LIMITS;
use crate::sections::log::LOG;
use crate::sections::response_cache::RESPONSE_CACHE;
use crate::sections::status::STATUS;
use crate::sections::tls::TLS;
use crate::sections::top::TOP;
use crate::sections::tracing::TRACING;

/// A section of a file.
pub(crate) struct Section {
    /// Name in a file. Empty for the keys before the first section.
    pub(crate) name: &'static str,
    pub(crate) keys: SectionKeys<Config>,
    /// Title in the help text of options.
    pub(crate) title: &'static str,
    /// Group of the help text. Empty for a section without options.
    pub(crate) help_group: &'static str,
    /// Options of the group that are no keys, each with its help text.
    pub(crate) other_options: &'static [(&'static str, &'static str)],
    /// `--print` shows the section even if it has only defaults.
    pub(crate) is_always_printed: bool,
}

/// Returns the sections in the order of a file. The first has the keys before all sections.
pub(crate) fn sections() -> &'static [Section] {
    &SECTIONS
}

static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    vec![
        Section::new("", &TOP, |it| &it.top, |it| &mut it.top)
            .help("server", "Addresses and process:")
            .always_printed(),
        Section::new("log", &LOG, |it| &it.log, |it| &mut it.log)
            .help("logs", "Logs:")
            .options(&[("--no-log", "the same as --log none")])
            .always_printed(),
        Section::new("tls", &TLS, |it| &it.tls, |it| &mut it.tls).help("tls", "TLS:"),
        Section::new("acme", &ACME, |it| &it.acme, |it| &mut it.acme)
            .help("acme", "Automatic certificates:"),
        Section::new("status", &STATUS, |it| &it.status, |it| &mut it.status)
            .help("status", "Status:"),
        Section::new("tracing", &TRACING, |it| &it.tracing, |it| &mut it.tracing),
        Section::new(
            "response_cache",
            &RESPONSE_CACHE,
            |it| &it.response_cache,
            |it| &mut it.response_cache,
        ),
        Section::new("cluster", &CLUSTER, |it| &it.cluster, |it| &mut it.cluster),
        Section::new("limits", &LIMITS, |it| &it.limits, |it| &mut it.limits)
            .help("limits", "Limits (sizes such as 16MiB, times such as 20s, 5m or never):")
            .always_printed(),
        Section::new("files", &FILES, |it| &it.files, |it| &mut it.files)
            .help("files", "Files:")
            .options(&[("--follow-links", "the same as --links anywhere")]),
        Section::new("defaults", option_keys(), |it| &it.defaults, |it| &mut it.defaults)
            .help("routes", "All routes:"),
    ]
});

impl Section {
    fn new<P: 'static, K: SectionKey<P> + 'static>(
        name: &'static str,
        keys: impl IntoIterator<Item = K>,
        part: fn(&Config) -> &P,
        part_mut: fn(&mut Config) -> &mut P,
    ) -> Section {
        let key = |key| Box::new(PartKey::new(key, part, part_mut)) as Box<dyn SectionKey<Config>>;
        Section {
            name,
            keys: keys.into_iter().map(key).collect(),
            title: "",
            help_group: "",
            other_options: &[],
            is_always_printed: false,
        }
    }

    fn help(mut self, group: &'static str, title: &'static str) -> Section {
        (self.help_group, self.title) = (group, title);
        self
    }

    fn options(mut self, options: &'static [(&'static str, &'static str)]) -> Section {
        self.other_options = options;
        self
    }

    fn always_printed(mut self) -> Section {
        self.is_always_printed = true;
        self
    }

    /// Returns the section with this name.
    pub(super) fn find(name: &str) -> Option<&'static Section> {
        sections()[1..].iter().find(|section| section.name == name)
    }

    /// Returns the keys before the first section.
    pub(super) fn top() -> &'static SectionKeys<Config> {
        &sections()[0].keys
    }
}
