//! Keys of a route that change the path of a request: `rewrite` and `try_files`.

use weft_config::{Key, Located, ValueKind, quoted, quoted_list};

/// Changes to the path of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewriteConfig {
    pub(crate) rewrite: Option<Located<String>>,
    pub(crate) try_files: Vec<Located<String>>,
}

pub(crate) static REWRITE: [Key<RewriteConfig>; 2] = [
    Key {
        name: "rewrite",
        flag: "",
        argument: "",
        help: "path in place of that behind the prefix, with placeholders; a query in it replaces \
               that of the request; alone: path whose route responds",
        kind: ValueKind::Text(|config, text| {
            config.rewrite = Some(text);
            Ok(())
        }),
        show: |config| config.rewrite.as_ref().map_or_else(String::new, |text| quoted(&text.value)),
    },
    Key {
        name: "try_files",
        flag: "",
        argument: "",
        help: "paths of which the first that exists is served, and at last a path, a route such as \
               @app or a status such as =404; only with `files`",
        kind: ValueKind::Texts(|config, texts| {
            config.try_files = texts;
            Ok(())
        }),
        show: |config| quoted_list(config.try_files.iter().map(|text| &text.value)),
    },
];
