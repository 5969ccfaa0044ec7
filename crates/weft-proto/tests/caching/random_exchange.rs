//! Random requests and responses with the fields that matter to caches.

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use weft_proto::semantics::date::imf_fixdate;

/// A generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// Returns true for one of `count`.
    pub fn one_of(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, values: &[&'a T]) -> &'a T {
        values[self.below(values.len() as u64) as usize]
    }

    /// Seconds, often near the durations of other messages.
    pub fn seconds(&mut self) -> u64 {
        [0, 1, 5, 10, 30, 59, 60, 61, 600, 3_600, 90_000][self.below(11) as usize]
    }
}

const STATUSES: [u16; 16] =
    [200, 200, 200, 200, 200, 200, 204, 206, 299, 301, 302, 403, 404, 410, 500, 501];

/// Directives of responses. `N` is a number of seconds.
const DIRECTIVES: [&str; 28] = [
    "max-age=N",
    "max-age=N",
    "max-age=N",
    "max-age=\"N\"",
    "max-age=x",
    "max-age=-1",
    "Max-Age=N",
    "s-maxage=N",
    "s-maxage=N",
    "no-cache",
    "no-cache=\"x-user\"",
    "no-store",
    "private",
    "private=\"x-user\"",
    "private=\"x-user, set-cookie\"",
    "public",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "immutable",
    "stale-while-revalidate=N",
    "stale-while-revalidate=N",
    "stale-if-error=N",
    "stale-if-error=N",
    "extension=\"no-store, max-age=5\"",
    "extension",
    "no-stored",
];

/// Values of `CDN-Cache-Control`.
const TARGETED: [&str; 12] = [
    "max-age=N",
    "max-age=N, must-revalidate",
    "max-age=N;x=1, public",
    "s-maxage=N",
    "no-store",
    "private",
    "no-cache=?0, max-age=N",
    "public",
    "max-age=\"N\"",
    "max-age=N, &&&",
    "Max-Age=N",
    "max-age =N",
];

const REQUEST_DIRECTIVES: [&str; 10] = [
    "max-age=N",
    "max-age=N",
    "max-age=x",
    "min-fresh=N",
    "max-stale=N",
    "max-stale=N",
    "max-stale",
    "no-cache",
    "no-store",
    "only-if-cached",
];

/// Values of fields by which responses vary.
const ENCODINGS: [&str; 7] =
    ["gzip", "GZIP", "gzip, br", "br,gzip;q=0.5", "gzip, br;q=0", "identity", "identity;q=0"];

fn add(fields: &mut HeaderMap, name: &'static str, value: &str) {
    fields.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
}

fn directive(random: &mut Random, directives: &[&str]) -> String {
    let directive = random.pick(directives);
    directive.replace('N', &random.seconds().to_string())
}

fn date(seconds: u64) -> String {
    String::from_utf8(imf_fixdate(seconds).to_vec()).unwrap()
}

/// Returns the fields of a request.
pub fn request(random: &mut Random) -> HeaderMap {
    let mut fields = HeaderMap::new();
    if random.one_of(3) {
        let count = 1 + random.below(2);
        let mut directives: Vec<_> =
            (0..count).map(|_| directive(random, &REQUEST_DIRECTIVES)).collect();
        // No RFC says which one of several applies.
        directives.dedup_by_key(|directive| directive.split('=').next().unwrap().to_owned());
        add(&mut fields, "cache-control", &directives.join(", "));
    }
    if random.one_of(20) {
        add(&mut fields, "pragma", random.pick(&["no-cache", "other"]));
    }
    if random.one_of(8) {
        add(&mut fields, "authorization", "Basic eDp4");
    }
    if random.one_of(2) {
        add(&mut fields, "accept-encoding", random.pick(&ENCODINGS));
    }
    for _ in 0..random.below(3) {
        add(&mut fields, "x-a", random.pick(&["1", "2", "1, 2", "1 ,2"]));
    }
    fields
}

/// Returns the status and the fields of a response at the time `now`.
pub fn response(random: &mut Random, now: u64) -> (StatusCode, HeaderMap) {
    let mut fields = HeaderMap::new();
    for _ in 0..[1, 1, 1, 2, 0][random.below(5) as usize] {
        let count = 1 + random.below(3);
        let directives: Vec<_> = (0..count).map(|_| directive(random, &DIRECTIVES)).collect();
        add(&mut fields, "cache-control", &directives.join(", "));
    }
    if random.one_of(8) {
        add(&mut fields, "cdn-cache-control", &directive(random, &TARGETED));
    }
    if random.one_of(6) {
        let expires = (now + random.seconds()).saturating_sub(random.seconds());
        let expires = if random.one_of(6) { "0".to_owned() } else { date(expires) };
        add(&mut fields, "expires", &expires);
    }
    if random.one_of(2) {
        let offset = if random.one_of(3) { random.seconds() } else { 0 };
        let early = random.one_of(2);
        add(&mut fields, "date", &date(if early { now - offset } else { now + offset }));
    }
    if random.one_of(8) {
        add(&mut fields, "age", random.pick(&["0", "5", "61", "x", "5;a=b", "5, 90"]));
    }
    if random.one_of(4) {
        let time = now - random.pick(&[&100_u64, &6_000, &600_000, &6_000_000]);
        add(&mut fields, "last-modified", &date(time));
    }
    if random.one_of(3) {
        add(&mut fields, "etag", random.pick(&["\"1\"", "\"2\"", "W/\"1\""]));
    }
    if random.one_of(3) {
        let names = ["x-a", "accept-encoding", "X-A, Accept-Encoding", "*", "x-a, *"];
        add(&mut fields, "vary", random.pick(&names));
    }
    if random.one_of(10) {
        add(&mut fields, "set-cookie", "a=b");
    }
    if random.one_of(6) {
        add(&mut fields, "x-user", random.pick(&["bob", "eve"]));
    }
    if random.one_of(10) {
        add(&mut fields, "connection", "close, x-user");
    }
    (StatusCode::from_u16(STATUSES[random.below(16) as usize]).unwrap(), fields)
}
