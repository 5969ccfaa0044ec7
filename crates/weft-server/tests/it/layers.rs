//! The direction of imports inside of the program, as ARCHITECTURE.md draws it, and the files that
//! name a key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules directly beneath `src/`. Each may import the modules before it, so that there is no
/// cycle.
const LAYERS: &[&str] = &[
    "base",
    "template",
    "sections",
    "route",
    "options",
    "apps",
    "logs",
    "config",
    "config_change",
    "import",
    "cli",
    "router",
    "stream",
    "sockets",
    "open",
    "stream_server",
    "status",
    "kubernetes",
    "lifecycle",
];

#[test]
fn imports_follow_the_layers() {
    let crates = weft_structure::crates("crates/weft-server");
    let program = crates.iter().find(|it| it.files.len() > 100).expect("the files are found");
    assert_eq!(program.entries(""), LAYERS.iter().copied().collect());
    let position = |layer: &str| LAYERS.iter().position(|it| *it == layer);
    let uses = program.uses_beneath("");
    let wrong: Vec<_> =
        uses.iter().filter(|(user, used)| position(user) < position(used)).collect();
    assert!(wrong.is_empty(), "imports against the direction: {wrong:?}");
}

/// Folders of slices: each file, or folder, has one family of keys.
const SLICES: &[&str] = &["apps", "options", "route", "sections"];

/// Source files that may name a key: its slice, and help texts and messages that refer to it.
const MAX_FILES_OF_KEY: usize = 3;
const MAX_MEDIAN_OF_FILES: usize = 1;

/// Help texts, messages and lists of other slices that refer to a key.
const REFERENCES: &[(&str, &[&str])] = &[
    ("access", &["options/access_log/mod.rs", "sections/streams/mod.rs"]),
    ("allow", &["config/mod.rs", "options/authentication/mod.rs"]),
    ("cgi", &["cli/file_reference.rs"]),
    ("certificates", &["lib.rs", "sections/acme/mod.rs"]),
    ("cache", &["options/response_cache/mod.rs"]),
    ("cache_purge", &["cli/cache.rs", "status/cache.rs"]),
    ("client_auth", &["options/client_certificate.rs"]),
    ("client_ca", &["options/client_certificate.rs"]),
    ("client_cert", &["options/fields/names.rs"]),
    ("client_cert_required", &["sections/tls/mod.rs"]),
    ("config_changes", &["status/config.rs"]),
    ("defer_accept", &["config/unsupported.rs"]),
    ("deny", &["options/authentication/mod.rs"]),
    ("drain_timeout", &["cli/manual.rs", "lifecycle/shutdown.rs"]),
    ("error_pages", &["config/warnings.rs"]),
    ("fastcgi", &["cli/file_reference.rs"]),
    ("files", &["route/rewrite_keys.rs"]),
    ("group", &["lifecycle/privileges.rs"]),
    ("head_timeout", &["sections/acme/on_demand.rs"]),
    ("keep_alive_timeout", &["apps/fastcgi/keys.rs"]),
    ("links", &["cli/args.rs"]),
    ("listen", &["cli/args.rs", "cli/cache.rs", "config/host_names.rs", "sections/addresses.rs"]),
    ("max_body_bytes", &["logs/worker.rs"]),
    ("max_connections", &["config/needed_descriptors.rs", "logs/worker.rs", "stream/targets.rs"]),
    ("max_idle_connections", &["apps/fastcgi/keys.rs"]),
    ("max_spooled_bytes", &["logs/worker.rs"]),
    ("php", &["apps/fastcgi/mod.rs"]),
    ("pid_file", &["cli/args.rs", "lib.rs"]),
    ("proxy", &["cli/file_reference.rs"]),
    ("proxy_protocol", &["config/mod.rs", "logs/worker.rs"]),
    ("resolver", &["apps/proxy/mod.rs", "sections/streams/mod.rs"]),
    ("response_cache", &["cli/file_reference.rs", "config/section.rs"]),
    ("response_headers", &["template/mod.rs"]),
    ("respond", &["cli/foreign_commands.rs"]),
    ("reuse_port", &["config/unsupported.rs"]),
    ("rewrite", &["cli/file_reference.rs"]),
    ("shutdown_delay", &["lifecycle/shutdown.rs"]),
    ("split", &["base/share.rs", "cli/file_reference.rs", "config/warnings.rs"]),
    ("tls", &["sections/tls/mod.rs"]),
    ("trusted_proxies", &["apps/proxy/keys.rs", "options/request_id.rs"]),
    ("try_files", &["apps/files/mod.rs", "config/warnings.rs"]),
    ("upstream_changes", &["status/upstreams.rs"]),
    ("user", &["config/unsupported.rs", "lifecycle/privileges.rs"]),
    ("via", &["options/fields/names.rs"]),
    ("when", &["options/response_cache/settings.rs"]),
];

/// Words that are also the name of a key: sections, commands, fields, values of log lines and of
/// templates, and directives of other servers.
const HOMONYMS: &[(&str, &[&str])] = &[
    ("access", &["logs/open.rs"]),
    ("access_log", &["cli/file_reference.rs", "config/foreign_keys.rs"]),
    ("cache", &["cli/args.rs"]),
    ("certificates", &["cli/args.rs", "open/cluster_events.rs"]),
    ("check", &["cli/args.rs", "cli/help.rs"]),
    ("client", &["apps/proxy/keys.rs", "route/conditions/key.rs", "stream/record.rs"]),
    ("content_type", &["apps/respond.rs"]),
    ("default", &["options/error_pages/mod.rs"]),
    ("entries", &["cli/cache.rs", "status/cache.rs"]),
    ("error", &["logs/open.rs"]),
    ("files", &["config/foreign_keys.rs", "config/section.rs"]),
    ("group", &["base/unix_address.rs"]),
    (
        "host",
        &[
            "base/log_format.rs",
            "open/cluster_events.rs",
            "options/fields/names.rs",
            "router/table.rs",
            "sections/tracing/mod.rs",
            "status/prometheus.rs",
            "status/upstreams.rs",
            "template/groups.rs",
            "template/names.rs",
        ],
    ),
    ("hosts", &["config/mod.rs", "config/schema.rs", "status/site.rs"]),
    ("include", &["config/foreign_keys.rs"]),
    ("list", &["cli/args.rs", "cli/cache.rs"]),
    ("listen", &["config/foreign_keys.rs", "open/cluster_events.rs"]),
    ("log_format", &["config/foreign_keys.rs"]),
    ("name", &["sections/tracing/otlp.rs", "status/prometheus.rs"]),
    ("proxy", &["options/fields/names.rs"]),
    ("query", &["base/log_format.rs", "route/conditions/key.rs", "template/names.rs"]),
    (
        "request_id",
        &[
            "base/log_format.rs",
            "base/request_notes/mod.rs",
            "open/route_logs.rs",
            "template/names.rs",
        ],
    ),
    ("root", &["config/foreign_keys.rs"]),
    (
        "server_name",
        &[
            "config/foreign_keys.rs",
            "status/prometheus.rs",
            "stream/record.rs",
            "template/names.rs",
        ],
    ),
    ("state", &["status/prometheus.rs", "status/upstreams.rs"]),
    (
        "status",
        &[
            "apps/respond.rs",
            "base/log_format.rs",
            "base/request_notes/upstream.rs",
            "cli/args.rs",
            "cli/cache.rs",
            "config/section.rs",
            "lifecycle/reload.rs",
            "sections/tracing/otlp.rs",
            "sockets/mod.rs",
            "sockets/systemd.rs",
            "status/cache.rs",
        ],
    ),
    ("tag", &["cli/cache.rs", "sections/response_cache/purge_request.rs"]),
    ("timeout", &["stream/end.rs"]),
    (
        "tls",
        &["config/foreign_keys.rs", "config/section.rs", "sockets/systemd.rs", "stream/end.rs"],
    ),
    ("tracing", &["config/section.rs", "sections/tracing/mod.rs"]),
    (
        "user",
        &[
            "base/log_format.rs",
            "base/request_notes/mod.rs",
            "base/unix_address.rs",
            "open/route_logs.rs",
            "sections/log.rs",
            "template/names.rs",
        ],
    ),
    ("via", &["status/permission.rs"]),
];

#[test]
fn keys_are_named_in_one_slice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let crates = weft_structure::crates("crates/weft-server");
    let program = crates.iter().find(|it| it.files.len() > 100).expect("the files are found");
    // Without tests.
    let files = program.files.iter().map(|(file, _)| file.as_str());
    let sources: Vec<(String, &str)> = files.map(|it| (code(&root.join(it)), it)).collect();
    // Several slices may have a key of the same name.
    let mut declaring = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (code, file) in sources.iter().filter(|(_, file)| slice(file).is_some()) {
        for key in keys(code) {
            declaring.entry(key).or_default().insert(file);
        }
    }
    let (mut wrong, mut counts) = (Vec::new(), Vec::new());
    for (key, declaring) in &declaring {
        let naming = sources.iter().filter(|(code, _)| names(code, key)).map(|(_, file)| *file);
        let of_slices = |file: &&str| declaring.iter().any(|it| slice(it) == slice(file));
        let (own, others): (BTreeSet<&str>, BTreeSet<&str>) = naming.partition(of_slices);
        let (references, homonyms) = (listed(REFERENCES, key), listed(HOMONYMS, key));
        if others != &references | &homonyms {
            wrong.push(format!("`{key}` of {declaring:?}: also in {others:?}"));
        }
        let count = (own.union(declaring).count() + references.len()).div_ceil(declaring.len());
        if count > MAX_FILES_OF_KEY {
            wrong.push(format!("{count} files name `{key}`: {own:?}, {references:?}"));
        }
        counts.push(count);
    }
    assert!(wrong.is_empty(), "keys that other files name: {wrong:#?}");
    counts.sort_unstable();
    assert!(counts.len() > 220, "only {} keys", counts.len());
    assert!(counts[counts.len() / 2] <= MAX_MEDIAN_OF_FILES);
}

fn listed(list: &[(&str, &'static [&'static str])], key: &str) -> BTreeSet<&'static str> {
    let files = list.iter().filter(|(known, _)| *known == key);
    files.flat_map(|(_, files)| files.iter().copied()).collect()
}

/// Returns the text of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the slice of a file: `options/rate` or `options/jwt`.
fn slice(file: &str) -> Option<&str> {
    let folder = file.split('/').next().filter(|folder| SLICES.contains(folder))?;
    let name = file[folder.len() + 1..].find(['/', '.'])?;
    Some(&file[..folder.len() + 1 + name])
}

/// Returns the names of the keys in a file, in each form in which keys are written.
fn keys(code: &str) -> impl Iterator<Item = &str> {
    let after = |start: &'static str| code.split(start).skip(1).map(str::trim_start);
    let named = after("Key {").filter_map(|rest| rest.strip_prefix("name: \""));
    let names = named.chain(after("limit!(")).chain(after("upstreams_key(\""));
    names.filter_map(|rest| rest.split(['"', ',']).next())
}

/// Returns true if `code` has a text that is the name, or that has it in backticks.
fn names(code: &str, name: &str) -> bool {
    [format!("\"{name}\""), format!("`{name}`"), format!("`{name} =")]
        .iter()
        .any(|text| code.contains(text))
}
