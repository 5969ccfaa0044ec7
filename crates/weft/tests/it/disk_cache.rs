//! The response cache in files: restarts, damage, limits, purges, and the folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use weft::cache::{Cache, DiskSettings, EntryOrder, Purge, Store};
use weft::testing::{self, TestResponse};
use weft::{Application, Body, Request, Response};

use crate::common::clients::{self, ClientRequest, Transport};

/// Length of the content of `/large`.
const LARGE: usize = 300_000;

const SECONDS: Duration = Duration::from_secs(20);

/// An application that counts its requests. Its responses have the number of the request, and the
/// fields that the query says. A 304 has the second value as `X-Long`.
#[derive(Clone, Default)]
struct Origin(Arc<AtomicUsize>, Arc<Mutex<String>>);

impl Application for Origin {
    async fn call(&self, request: Request) -> Response {
        let number = self.0.fetch_add(1, SeqCst) + 1;
        if request.headers().contains("if-none-match") {
            let mut response = Response::from(weft::StatusCode::NOT_MODIFIED);
            let long = self.1.lock().unwrap().clone();
            if !long.is_empty() {
                response.append_header("x-long", long);
                response.append_header("cache-control", "max-age=3600");
            }
            return response;
        }
        let length = if request.path().starts_with("/large") { LARGE } else { 2_000 };
        let text = format!("{number} {} ", request.path());
        let mut response =
            Response::text(text.repeat(length / text.len() + 1)[..length].to_owned());
        response.append_header("cache-control", "max-age=3600");
        for (name, value) in request.query_pairs() {
            response.append_header(&*name, &*value);
        }
        response
    }
}

/// A store over a folder, with an origin that outlives it.
struct Site {
    folder: TempDir,
    origin: Origin,
    disk: DiskSettings,
    store: Store,
    app: weft::cache::Cached<Origin>,
}

impl Site {
    fn new() -> Site {
        Site::with(|disk| disk)
    }

    fn with(configure: impl FnOnce(DiskSettings) -> DiskSettings) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let disk = configure(DiskSettings::new(folder.path().join("cache")));
        let (origin, store) = (Origin::default(), open(&disk));
        let app = Cache::new(&store).over(origin.clone());
        let site = Site { folder, origin, disk, store, app };
        site.wait_for_scan();
        site
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn get(&self, target: &str) -> TestResponse {
        get(&self.app, target)
    }

    /// Stores responses, and moves them to files.
    fn fill(&mut self, targets: &[&str]) {
        targets.iter().for_each(|target| _ = self.get(target));
        self.restart();
    }

    /// Ends the store, and opens another one over the same folder.
    fn restart(&mut self) {
        assert!(self.store.save(SECONDS), "all responses are written");
        self.reopen();
    }

    /// Does not write the responses in memory.
    fn reopen(&mut self) {
        self.close();
        self.open();
    }

    fn close(&mut self) {
        self.store = Store::new();
        self.app = Cache::new(&self.store).over(self.origin.clone());
    }

    fn open(&mut self) {
        self.store = open(&self.disk);
        self.app = Cache::new(&self.store).over(self.origin.clone());
        self.wait_for_scan();
    }

    fn wait_for_scan(&self) {
        wait_until("the files are found", || self.store.disk_totals().unwrap().is_scanned);
    }

    /// Number of files of responses.
    fn files(&self) -> usize {
        files(&self.path()).len()
    }

    /// Returns true if the cache answers with the response that was stored.
    fn is_stored(&self, target: &str) -> bool {
        let former = self.origin.0.load(SeqCst);
        self.get(target);
        self.origin.0.load(SeqCst) == former
    }
}

#[track_caller]
fn wait_until(description: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + SECONDS;
    while !is_done() {
        assert!(Instant::now() < deadline, "{description}: not within {SECONDS:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn open(disk: &DiskSettings) -> Store {
    Store::new().max_bytes(1 << 20).disk(disk).unwrap()
}

fn get(app: &(impl Application + Clone + Send + 'static), target: &str) -> TestResponse {
    let (target, fields) = target.split_once('\n').unwrap_or((target, ""));
    let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    testing::call(app.clone(), testing::request(text))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().len() == 16).collect()
}

#[test]
fn responses_survive_a_restart() {
    let mut site = Site::new();
    let targets = ["/small", "/large", "/a?vary=accept", "/tagged?cache-tag=t", "/?x=1&x=2"];
    let before: Vec<_> = targets.iter().map(|target| site.get(target)).collect();
    site.restart();
    for (target, before) in targets.iter().zip(before) {
        let after = site.get(target);
        assert_eq!(after.body, before.body, "{target}");
        for name in ["cache-control", "vary", "x", "date", "content-type"] {
            assert_eq!(after.header(name), before.header(name), "{target}: {name}");
        }
        assert!(after.header("cache-status").unwrap().contains("; hit"), "{target}");
    }
    assert_eq!(site.origin.0.load(SeqCst), targets.len());
    // The twin: another request of the same URL.
    assert!(site.is_stored("/a?vary=accept"));
    assert!(!site.is_stored("/a?vary=accept\nAccept: x"));
}

#[test]
fn responses_that_leave_the_memory_are_kept() {
    let site = Site::new();
    let targets: Vec<String> = (0..1_000).map(|number| format!("/{number}")).collect();
    let mut settled = 0;
    for target in &targets {
        site.get(target);
        // The queue is bounded: a slow disk makes it skip responses.
        settled += 1;
        if settled % 50 == 0 {
            let (_, _, evicted) = site.store.totals();
            wait_until("evicted responses are written", || site.files() as u64 >= evicted);
        }
    }
    let (_, entries, _) = site.store.totals();
    assert!(entries < 500, "{entries} responses in 1 MiB of memory");
    assert!(targets.iter().all(|target| site.is_stored(target)));
    assert!(site.store.disk_totals().unwrap().loaded > 400);
}

#[test]
fn files_have_ranges_and_preconditions() {
    let mut site = Site::new();
    site.fill(&["/large?etag=%22v1%22"]);
    let target = "/large?etag=%22v1%22";
    let whole = site.get(target).body;
    assert_eq!(whole.len(), LARGE);
    for (fields, status, expected) in [
        ("Range: bytes=1000-1999", 206, &whole[1_000..2_000]),
        ("Range: bytes=-5", 206, &whole[LARGE - 5..]),
        ("Range: bytes=300000-", 416, &b""[..]),
        ("If-None-Match: \"v1\"", 304, b""),
        ("If-None-Match: \"v2\"", 200, &whole),
    ] {
        let response = site.get(&format!("{target}\n{fields}"));
        assert_eq!(response.status, status, "{fields}");
        if status < 300 {
            assert_eq!(response.body, expected, "{fields}");
        }
    }
    assert_eq!(site.origin.0.load(SeqCst), 1);
}

/// A changed byte anywhere, and each other length, make a miss, and the file is removed.
#[test]
fn damaged_files_are_never_served() {
    let mut site = Site::new();
    site.fill(&["/"]);
    let path = files(&site.path()).remove(0);
    let intact = fs::read(&path).unwrap();
    let head = 48 + u32::from_le_bytes(intact[16..20].try_into().unwrap()) as usize;
    // The flag for expired responses is no damage, nor is the room behind the head.
    let positions = (0..8).chain(16..head).chain(intact.len() - 2_000..intact.len());
    let changed = positions.step_by(11).map(|at| {
        let mut bytes = intact.clone();
        bytes[at] ^= 0x10;
        (format!("byte {at}"), bytes)
    });
    let cut = (0..intact.len()).step_by(97).map(|length| intact[..length].to_vec());
    let cut = cut.chain([[&intact[..], b"x"].concat()]);
    let cut = cut.map(|bytes| (format!("{} bytes", bytes.len()), bytes));
    for (name, bytes) in changed.chain(cut) {
        site.close();
        fs::write(&path, &bytes).unwrap();
        site.open();
        assert!(!site.is_stored("/"), "{name}");
        let totals = site.store.disk_totals().unwrap();
        assert_eq!((totals.damaged, totals.files), (1, 0), "{name}");
        wait_until("the file is removed", || !path.exists());
        // A file that changes while its store is open.
        fs::write(&path, &intact).unwrap();
        site.reopen();
        assert_eq!(site.store.disk_totals().unwrap().files, 1, "{name}");
        fs::write(&path, &bytes).unwrap();
        assert!(!site.is_stored("/"), "{name}");
        wait_until("the file is removed", || !path.exists());
    }
    // The twin: the intact file is served.
    site.close();
    fs::write(&path, &intact).unwrap();
    site.open();
    assert!(site.is_stored("/"));
    assert_eq!(site.store.disk_totals().unwrap().damaged, 0);
}

#[test]
fn purges_remove_files() {
    let targets =
        ["/a?n=1", "/a?n=2", "/b?cache-tag=one,+two", "/c?cache-tag=two&etag=%22v%22", "/large"];
    let url = |path: &str| format!("http://a{path}");
    for (purge, purged) in [
        (Purge::Url(url("/a?n=1")), &targets[..1]),
        (Purge::Prefix(url("/a")), &targets[..2]),
        (Purge::Tag("one".into()), &targets[2..3]),
        (Purge::Tag("two".into()), &targets[2..4]),
        (Purge::All, &targets[..]),
    ] {
        let mut site = Site::new();
        site.fill(&targets);
        // One of them is in memory as well, and counts once.
        assert!(site.is_stored(targets[4]) && site.is_stored(targets[0]));
        assert_eq!(site.store.purge(&purge, false), purged.len(), "{purge:?}");
        let left = targets.len() - purged.len();
        wait_until("files are removed", || site.files() == left);
        site.reopen();
        for target in targets {
            assert_eq!(site.is_stored(target), !purged.contains(&target), "{purge:?}: {target}");
        }
    }
}

#[test]
fn soft_purges_make_files_stale() {
    let mut site = Site::new();
    let (purged, other) = ("/a?etag=%22v%22", "/b?etag=%22v%22");
    site.fill(&[purged, other]);
    let content = site.get(purged).body;
    site.reopen();
    assert_eq!(site.store.purge(&Purge::Url("http://a/a?etag=%22v%22".into()), true), 1);
    site.restart();
    let response = site.get(purged);
    assert!(response.header("cache-status").unwrap().contains("fwd=stale"), "{response:?}");
    assert_eq!(response.body, content, "the origin confirms the stored response");
    assert!(site.is_stored(other));
}

#[test]
fn unsafe_methods_remove_files() {
    let mut site = Site::new();
    site.fill(&["/a", "/b"]);
    let request = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(testing::call(site.app.clone(), testing::request(request)).status, 200);
    wait_until("the file is removed", || site.files() == 1);
    assert!(!site.is_stored("/a"));
    assert!(site.is_stored("/b"));
}

/// The files of the store before are found only when it ends: what was purged or replaced in between
/// does not return.
#[test]
fn changes_before_the_files_are_found_apply_to_them() {
    let mut site = Site::new();
    site.fill(&["/purged", "/replaced", "/soft?etag=%22v%22", "/kept"]);
    let later = open(&site.disk);
    let app = Cache::new(&later).over(site.origin.clone());
    assert!(!later.disk_totals().unwrap().is_scanned);
    later.purge(&Purge::Url("http://a/purged".into()), false);
    later.purge(&Purge::Prefix("http://a/soft".into()), true);
    let replaced = get(&app, "/replaced").body;
    site.close();
    (site.store, site.app) = (later, app);
    site.wait_for_scan();
    wait_until("purged and replaced ones are removed", || site.files() == 2);
    site.restart();
    assert!(site.is_stored("/kept"));
    assert!(!site.is_stored("/purged"));
    assert_eq!(site.get("/replaced").body, replaced);
    assert!(site.get("/soft?etag=%22v%22").header("cache-status").unwrap().contains("fwd=stale"));
}

#[test]
fn files_that_were_used_last_stay() {
    let mut site = Site::with(|disk| disk.max_bytes(30_000));
    let targets: Vec<String> = (0..10).map(|number| format!("/{number}")).collect();
    for target in &targets {
        site.fill(&[target]);
        // Used again and again.
        assert!(site.is_stored("/0"), "{target}");
    }
    let totals = site.store.disk_totals().unwrap();
    assert!(totals.bytes <= 30_000 && totals.files > 5, "{totals:?}");
    let length = |path: PathBuf| fs::metadata(path).unwrap().len();
    wait_until("evicted files are removed", || site.files() == totals.files);
    assert_eq!(files(&site.path()).into_iter().map(length).sum::<u64>(), totals.bytes);
    assert!(site.is_stored("/0") && site.is_stored("/9"));
    assert!(!site.is_stored("/1"));
    // A larger limit keeps all.
    let mut twin = Site::new();
    targets.iter().for_each(|target| twin.fill(&[target]));
    assert!(targets.iter().all(|target| twin.is_stored(target)));
}

/// A hot set is requested among URLs that are requested once, which are all written to files.
#[test]
fn a_scan_keeps_the_limit_of_the_files() {
    const DISK: u64 = 8 << 20;
    let urls = std::env::var("WEFT_SCAN").map_or(2_500, |count| count.parse().unwrap());
    let site = Site::with(|disk| disk.max_bytes(DISK));
    let (mut hot_requests, mut hot_hits) = (0, 0);
    for number in 0..urls {
        site.get(&format!("/scan/{number}"));
        if number % 4 == 0 {
            hot_requests += 1;
            hot_hits += usize::from(site.is_stored(&format!("/hot/{}", number / 4 % 100)));
        }
        assert!(site.store.totals().0 <= 1 << 20);
        assert!(site.store.disk_totals().unwrap().bytes <= DISK);
    }
    let misses = hot_requests - hot_hits;
    // The first request of each.
    assert!(misses <= 100 + hot_requests / 20, "{misses} misses of {hot_requests}");
    let length = |path: PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    wait_until("the folder has no more than its limit", || {
        files(&site.path()).into_iter().map(length).sum::<u64>() <= DISK
    });
    let listed = site.store.files(EntryOrder::Largest, 5);
    assert!(listed.len() == 5 && listed.iter().all(|it| it.bytes > 2_000), "{listed:?}");
}

#[test]
fn index_has_limited_memory() {
    let mut site = Site::with(|disk| disk.max_index_bytes(3_000));
    let targets: Vec<String> = (0..30).map(|number| format!("/{number}")).collect();
    site.fill(&targets.iter().map(String::as_str).collect::<Vec<_>>());
    let totals = site.store.disk_totals().unwrap();
    assert!(totals.index_bytes <= 3_000 && (5..12).contains(&totals.files), "{totals:?}");
    // A key that alone is longer than the limit.
    let long = format!("/{}", "x".repeat(4_000));
    site.fill(&[&long]);
    assert!(!site.is_stored(&long));
}

#[test]
fn files_and_folder_are_private() {
    let mut site = Site::new();
    site.fill(&["/../x%2f?a=/b", "/large"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&site.path()), 0o700);
    let names = fs::read_dir(site.path()).unwrap().map(|entry| entry.unwrap().path());
    for path in names {
        assert_eq!(mode(&path), 0o600, "{path:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_number = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_number || name == "lock", "{name}");
    }
    assert_eq!(site.files(), 2);
    for (mode, is_accepted) in [(0o700, true), (0o755, true), (0o770, false), (0o707, false)] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let opened = Store::new().disk(&DiskSettings::new(folder.path()));
        assert_eq!(opened.is_ok(), is_accepted, "{mode:o}");
    }
}

/// Files that another program has made stay; files of an interrupted write do not.
#[test]
fn only_own_files_are_removed() {
    let mut site = Site::new();
    site.fill(&["/"]);
    site.close();
    let names =
        ["notes.txt", "0123", "new-0123456789abcdef", "0123456789abcdef", "0123456789ABCDEF"];
    names.iter().for_each(|name| fs::write(site.path().join(name), "x").unwrap());
    site.open();
    let exists = names.map(|name| site.path().join(name).exists());
    assert_eq!(exists, [true, true, false, false, true]);
    assert!(site.is_stored("/"));
    assert_eq!(site.store.disk_totals().unwrap().damaged, 1);
}

#[test]
fn failed_writes_are_reported_once() {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let sink = messages.clone();
    let site = Site::with(|disk| {
        disk.on_failure(move |message| sink.lock().unwrap().push(message.to_owned()))
    });
    wait_until("the folder is in use", || site.path().join("lock").exists());
    // The store still serves out of memory if its folder disappears.
    fs::remove_dir_all(site.path()).unwrap();
    for number in 0..1_000 {
        site.get(&format!("/{number}"));
    }
    wait_until("a write has failed", || !messages.lock().unwrap().is_empty());
    for number in 1_000..2_000 {
        site.get(&format!("/{number}"));
    }
    assert!(site.is_stored("/1999"));
    let messages = messages.lock().unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("cannot write a file in ") && messages[0].contains("os error 2"));
    assert_eq!(site.store.disk_totals().unwrap().files, 0);
    assert!(site.store.disk_totals().unwrap().skipped > 0);
}

/// The file of a validated response keeps its content, and gets the fields of the 304. A head that
/// outgrows its place costs the file.
#[test]
fn validated_responses_keep_their_files() {
    for (length, is_kept) in [(10, true), (5_000, false)] {
        let mut site = Site::new();
        let target = "/large?etag=%22v%22&x-long=a";
        site.fill(&[target]);
        let content = site.get(target).body;
        let former = files(&site.path());
        let inode = |path: &Path| fs::metadata(path).map(|it| it.ino()).ok();
        let before = inode(&former[0]);
        *site.origin.1.lock().unwrap() = "b".repeat(length);
        let response = site.get(&format!("{target}\nCache-Control: no-cache"));
        assert!(
            response.header("cache-status").unwrap().contains("fwd-status=304"),
            "{response:?}"
        );
        assert_eq!(response.header("x-long").map(str::len), Some(length));
        assert!(response.body == content);
        assert_eq!(site.origin.0.load(SeqCst), 2);
        wait_until("the file is kept or removed", || site.files() == usize::from(is_kept));
        site.reopen();
        assert_eq!(site.is_stored(target), is_kept, "{length}");
        if is_kept {
            let stored = site.get(target);
            assert_eq!(stored.header("x-long").map(str::len), Some(length));
            assert!(stored.body == content);
            assert_eq!(inode(&former[0]), before, "the content was not copied");
        }
    }
}

/// Length of a content for which a memory of 1 MiB is too small.
const HUGE: usize = 3 << 20;

/// Returns the content of a huge response, in pieces.
fn pieces(count: usize) -> impl Iterator<Item = Bytes> {
    (0..count).map(|number| {
        let bytes: Vec<u8> = (0..PIECE).map(|at| (at * 7 + at / 256 + number) as u8).collect();
        bytes.into()
    })
}

const PIECE: usize = 64 << 10;

/// Bodies that are too large for the memory are written to files while they arrive. Each row: the
/// length in pieces, the declared length, the failure at the end, and true if the body is stored.
#[test]
fn huge_bodies_are_kept_if_they_are_whole() {
    for (count, declared, end, is_stored) in [
        (HUGE / PIECE, Some(HUGE), "", true),
        (HUGE / PIECE, None, "", true),
        (HUGE / PIECE - 1, Some(HUGE), "fail", false),
        (HUGE / PIECE, None, "fail", false),
        (HUGE / PIECE, None, "purge", false),
        // Over `max_object_bytes`.
        (2 * HUGE / PIECE, None, "", false),
        (2 * HUGE / PIECE, Some(2 * HUGE), "", false),
    ] {
        let case = format!("{count} pieces, {declared:?}, {end:?}");
        let folder = tempfile::tempdir().unwrap();
        let store = open(&DiskSettings::new(folder.path()));
        wait_until("the folder is in use", || store.disk_totals().unwrap().is_scanned);
        let requests = Arc::<AtomicUsize>::default();
        let (counter, purged) = (requests.clone(), store.clone());
        let origin = move |_: Request| {
            counter.fetch_add(1, SeqCst);
            let purged = purged.clone();
            let body = pieces(count).map(Ok).chain(
                (end == "fail").then(|| Err(std::io::Error::other("the origin has failed"))),
            );
            let body = body.enumerate().map(move |(number, piece)| {
                if end == "purge" && number == count / 2 {
                    purged.purge(&Purge::All, false);
                }
                piece
            });
            let mut response = Response::from_body(Body::stream(futures_util::stream::iter(body)));
            response.append_header("cache-control", "max-age=90");
            if let Some(length) = declared {
                response.append_header("content-length", length.to_string());
            }
            std::future::ready(response)
        };
        let app = Cache::new(&store).max_object_bytes(5 << 20).over(origin);
        let expected = pieces(count).collect::<Vec<_>>().concat();
        run(async || {
            let server = Transport::Http1.serve(app.clone());
            let fetch = async |fields: &[(&str, &str)]| {
                let mut client = server.client().await;
                let mut request = ClientRequest::get("/");
                for (name, value) in fields {
                    request = request.field(name, value);
                }
                client.send(request).await.try_collect().await
            };
            let first = fetch(&[]).await;
            let is_whole = end != "fail";
            assert_eq!(first.is_ok_and(|it| it.body == expected), is_whole, "{case}");
            let totals = || store.disk_totals().unwrap();
            clients::wait_until(&case, || files(folder.path()).len() == usize::from(is_stored))
                .await;
            clients::wait_until(&format!("nothing else remains: {case}"), || {
                totals().files == usize::from(is_stored)
                    && fs::read_dir(folder.path()).unwrap().count() == 1 + usize::from(is_stored)
            })
            .await;
            if is_stored {
                let second = fetch(&[("range", "bytes=1000000-1999999")]).await.unwrap();
                assert_eq!((second.status, &*second.body), (206, &expected[1_000_000..2_000_000]));
                assert!(fetch(&[]).await.unwrap().body == expected, "{case}");
                assert_eq!(requests.load(SeqCst), 1, "{case}");
            }
            assert!(store.totals().0 < 10_000, "the memory has the head only");
            server.stop().await;
        });
    }
}

fn run(case: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(case());
}
