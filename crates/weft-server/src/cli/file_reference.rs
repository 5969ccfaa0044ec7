//! All keys of a configuration file, for reference documentation.

use weft_config::{ReferenceEntry, reference};

use crate::apps::FORMS;
use crate::config::{Config, sections};
use crate::options::access_log::ACCESS_LOG;
use crate::options::response_cache::{CacheSettings, RESPONSE_CACHE};
use crate::route::{REWRITE, SPLIT, WHEN};
use crate::sections::host::HOST;
use crate::sections::maps::MAP;
use crate::sections::streams::STREAM;

/// Returns the parts of a file, each with its name and its keys.
pub(crate) fn parts_of_file() -> Vec<(String, Vec<ReferenceEntry>)> {
    let defaults = Config::shown_defaults();
    let sections = sections().iter().map(|section| {
        let name = match section.name {
            "" => "the top".to_owned(),
            name => format!("[{name}]"),
        };
        (name, reference(&section.keys, &defaults))
    });
    // The keys of the other forms have one value each.
    let forms = FORMS.iter().filter(|form| ["proxy", "fastcgi", "cgi"].contains(&(form.name)()));
    let forms = forms.map(|form| ((form.name)().to_owned(), (form.reference)()));
    let parts = [
        ("access_log", reference(&ACCESS_LOG, &Default::default())),
        ("response_cache", reference(&RESPONSE_CACHE, &CacheSettings::default())),
        ("rewrite", reference(&REWRITE, &Default::default())),
        ("split", reference(&SPLIT, &Default::default())),
        ("conditions", reference(&WHEN, &Default::default())),
        ("[maps]", reference(&MAP, &Default::default())),
        ("a host", reference(&HOST, &Default::default())),
        ("[streams]", reference(&STREAM, &Default::default())),
    ];
    let parts = parts.into_iter().map(|(name, entries)| (name.to_owned(), entries));
    sections.chain(forms).chain(parts).collect()
}
