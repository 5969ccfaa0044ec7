//! Keys of a CGI route, besides `cgi` itself.

use std::time::Duration;

use super::key::{Key, ValueKind};
use super::keys::{quoted, quoted_list};
use super::limits::limit;
use super::location::{ConfigResult, Located};
use super::units::{show_size, show_time};
use crate::apps::cgi::{Settings, Variable};

const MAX_COUNT: u64 = 65_535;

/// Valid only in the table of a route. They have no command-line options, because `--route` takes
/// only the short form.
pub(crate) static CGI: [Key<Settings>; 10] = [
    Key {
        name: "index",
        flag: "",
        argument: "",
        help: "the script that stands for its folder",
        kind: ValueKind::Text(set_index),
        show: |settings| settings.index.as_deref().map_or(String::new(), quoted),
    },
    Key {
        name: "environment",
        flag: "",
        argument: "",
        help: "variables for scripts, before those of the request: `NAME=VALUE`, or `NAME` for one \
               of the server's own; of these scripts see only `PATH` otherwise",
        kind: ValueKind::Texts(set_environment),
        show: |settings| quoted_list(settings.environment.iter().map(ToString::to_string)),
    },
    limit!(
        timeout,
        "",
        time,
        "how long a script may take for the head of its response; then it is ended, and 504"
    ),
    limit!(
        body_timeout,
        "",
        time,
        "how long it may be silent in the middle of its output, or go on behind it; then it is \
         ended, and the response cut"
    ),
    limit!(max_processes, "", count 1..=MAX_COUNT,
        "the most scripts of this route that run at a time, in all workers together"),
    limit!(max_queued, "", count 0..=MAX_COUNT, "the most requests that wait for their turn; more: 503"),
    limit!(queue_timeout, "", time, "how long they wait; then 503"),
    limit!(max_body_bytes, "", size 0..=u64::MAX, "the largest body of a request; larger: 413"),
    limit!(max_spooled_bytes, "", size 0..=u64::MAX,
        "the same for a body of unknown length, which is kept in a temporary file first"),
    limit!(max_head_bytes, "", size 1_024..=1 << 20,
        "the largest head of a response; larger: 502"),
];

fn set_index(settings: &mut Settings, name: Located<String>) -> ConfigResult {
    if name.value.is_empty() || name.value.starts_with('.') || name.value.contains(['/', '\0']) {
        return Err(name.problem(format!("expected the name of a script, found {:?}", name.value)));
    }
    settings.index = Some(name.value);
    Ok(())
}

fn set_environment(settings: &mut Settings, variables: Vec<Located<String>>) -> ConfigResult {
    let parse = |text: Located<String>| {
        Variable::parse(&text.value).map_err(|invalid| text.problem(invalid))
    };
    settings.environment = variables.into_iter().map(parse).collect::<ConfigResult<_>>()?;
    Ok(())
}
