//! Keys of a proxy route about copies of its requests for another server.

use weft_config::{Key, ValueKind, quoted, quoted_time};
use weft_upstream::{MirrorSettings, ProxySettings};

use crate::base::share::Share;

const MAX_COUNT: u64 = 65_535;

pub(super) const MIRROR: Key<ProxySettings> = Key {
    name: "mirror",
    help: "URL of a server that gets copies of the requests, with the field `X-Mirror`; its responses \
           are discarded",
    kind: ValueKind::Text(|settings, url| {
        let parsed = url.value.parse().map_err(|invalid: String| url.problem(invalid))?;
        settings.mirror.url = Some(parsed);
        Ok(())
    }),
    show: |settings| {
        let url = settings.mirror.url.as_ref();
        url.map_or_else(String::new, |url| quoted(&url.to_string()))
    },
    ..Key::FILE_ONLY
};

pub(super) const MIRROR_SHARE: Key<ProxySettings> = Key {
    name: "mirror_share",
    help: "share of the requests that are copied; by default all",
    kind: ValueKind::Text(|settings, text| match Share::parse(&text.value) {
        Some(Share(share)) => {
            settings.mirror.share = share;
            Ok(())
        }
        None => Err(text.problem(Share::EXPECTED)),
    }),
    show: |settings| show(settings, |mirror| quoted(&Share(mirror.share).to_string())),
    ..Key::FILE_ONLY
};

pub(super) const MIRROR_TIMEOUT: Key<ProxySettings> = Key {
    name: "mirror_timeout",
    help: "timeout of a copy, from its connection to the end of its response; by default 10s",
    kind: ValueKind::Time(|settings, time| settings.mirror.timeout = time),
    show: |settings| show(settings, |mirror| quoted_time(mirror.timeout)),
    ..Key::FILE_ONLY
};

pub(super) const MAX_MIRRORED: Key<ProxySettings> = Key {
    name: "max_mirrored",
    help: "maximum number of copies per worker that are in progress; further requests are not \
           copied; by default 32",
    kind: ValueKind::Count(1..=MAX_COUNT, |settings, count| {
        settings.mirror.max_copies = usize::try_from(count).unwrap_or(usize::MAX);
    }),
    show: |settings| show(settings, |mirror| mirror.max_copies.to_string()),
    ..Key::FILE_ONLY
};

fn show(settings: &ProxySettings, show: impl Fn(&MirrorSettings) -> String) -> String {
    settings.mirror.url.as_ref().map_or_else(String::new, |_| show(&settings.mirror))
}
