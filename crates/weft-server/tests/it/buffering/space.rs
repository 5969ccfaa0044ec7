//! The memory and the disk space that buffered bodies share, and the shares of clients.

use std::collections::BTreeMap;

use super::*;
use crate::budgets::wire::{
    DATA, END_STREAM, INITIAL_WINDOW_SIZE, MAX_WINDOW, RST_STREAM, h2_get, preface, stream,
    window_update,
};

/// A client of HTTP/2 with an open connection window and closed windows of streams.
struct ShutClient {
    socket: TcpStream,
    /// The bodies, each with true if it is complete.
    bodies: BTreeMap<u32, (Vec<u8>, bool)>,
}

impl ShutClient {
    /// Connects from 127.0.0.`last` and requests `/large` on each stream.
    fn connect(site: &Site, last: u8, streams: usize) -> ShutClient {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let mut socket = connect_from(from, site.server.address());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut opening = preface(&[(INITIAL_WINDOW_SIZE, 0)]);
        opening.extend(window_update(0, MAX_WINDOW - 65_535));
        opening.extend((0..streams).flat_map(|number| h2_get(number, "/large", &[])));
        socket.write_all(&opening).unwrap();
        ShutClient { socket, bodies: BTreeMap::new() }
    }

    /// Opens the windows of streams and reads their bodies to the end.
    #[track_caller]
    fn read(&mut self, numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
        for number in numbers.clone() {
            self.socket.write_all(&window_update(stream(number), MAX_WINDOW / 2)).unwrap();
        }
        let is_complete = |client: &ShutClient, number| {
            client.bodies.get(&stream(number)).is_some_and(|(_, is_complete)| *is_complete)
        };
        while !numbers.clone().all(|number| is_complete(self, number)) {
            self.read_frame();
        }
        numbers.map(|number| self.bodies.remove(&stream(number)).expect("a body").0).collect()
    }

    fn read_frame(&mut self) {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).expect("a frame");
        let [_, _, _, kind, flags, ..] = head;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.socket.read_exact(&mut payload).expect("a payload");
        assert_ne!(kind, RST_STREAM, "stream {id}");
        if kind == DATA {
            let (body, is_complete) = self.bodies.entry(id).or_default();
            body.extend(payload);
            *is_complete = flags & END_STREAM != 0;
        }
    }
}

fn stored(site: &Site) -> u64 {
    site.temp_files().iter().sum()
}

/// The first script writes less than a connection obtains ahead (32 KiB), the others as much as a
/// pipe holds (64 KiB) before the program reads: on a busy machine any script does.
const UNEQUAL_WRITES: &str = "
if mkdir first 2>/dev/null; then
    head -c 30000 response; touch written; exec tail -c +30001 response
fi
until [ -e written ]; do sleep 0.01; done
exec cat response
";

/// Each row: the limits, and the range of the bytes that the responses have in memory, of which
/// the connection itself may hold some.
#[test]
fn responses_beyond_the_memory_are_stored_in_files() {
    const BYTES: u64 = 100_000;
    const STREAMS: usize = 16;
    // 32 KiB and a piece of as many.
    const CONNECTION: u64 = 72 << 10;
    for (top, memory) in [
        ("", 0..=STREAMS as u64 * (16 << 10) + CONNECTION),
        (
            "max_buffer_bytes_per_client = \"16MiB\"",
            STREAMS as u64 * (8 << 10)..=STREAMS as u64 * (16 << 10) + CONNECTION,
        ),
        ("max_buffer_bytes_per_client = \"1KiB\"", 0..=CONNECTION),
        ("max_buffer_bytes_per_client = 0", 0..=CONNECTION),
        ("max_buffer_bytes = 0", 0..=CONNECTION),
    ] {
        for is_script in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let route = match is_script {
                false => format!("proxy = \"http://{}/\"", large_upstream(BYTES as usize)),
                true => {
                    let mut response = b"Content-Type: a/b\n\n".to_vec();
                    response.resize(response.len() + BYTES as usize, 0);
                    fs::write(folder.path().join("response"), response).unwrap();
                    Site::write_script(&folder, UNEQUAL_WRITES)
                }
            };
            let site = Site::start(folder, top, &route);
            let mut client = ShutClient::connect(&site, 1, STREAMS);
            let in_memory = || (STREAMS as u64 * BYTES).saturating_sub(stored(&site));
            let case = format!("{top}, script: {is_script}");
            until(&format!("{case}: the responses are stored"), || in_memory() <= *memory.end());
            std::thread::sleep(Duration::from_millis(100));
            let found = in_memory();
            assert!(memory.contains(&found), "{case}: {found}");
            let expected =
                if is_script { vec![0; BYTES as usize] } else { pattern(BYTES as usize) };
            let bodies = client.read(0..STREAMS);
            assert!(bodies.iter().all(|body| *body == expected), "{case}");
            until("all temporary files are closed", || site.temp_files().is_empty());
        }
    }
}

/// A body that has been received as a whole needs no spool, but the memory of its client.
#[test]
fn whole_responses_beyond_the_memory_are_stored_in_files() {
    const BYTES: u64 = 12_000;
    const STREAMS: usize = 16;
    const MEMORY: u64 = (64 << 10) + (72 << 10);
    let upstream = large_upstream(BYTES as usize);
    let site = Site::start(
        tempfile::tempdir().unwrap(),
        "max_buffer_bytes_per_client = \"64KiB\"",
        &format!("proxy = \"http://{upstream}/\""),
    );
    let mut client = ShutClient::connect(&site, 1, STREAMS);
    let in_memory = || (STREAMS as u64 * BYTES).saturating_sub(stored(&site));
    until("the responses are stored", || in_memory() <= MEMORY);
    let expected = pattern(BYTES as usize);
    assert!(client.read(0..STREAMS).iter().all(|body| *body == expected));
    until("all temporary files are closed", || site.temp_files().is_empty());
}

/// Neither memory nor files: responses are streamed, and each stream that is read makes progress
/// although all others wait for the same client.
#[test]
fn streams_make_progress_without_space() {
    const BYTES: usize = 200_000;
    const STREAMS: usize = 64;
    for top in [
        "max_buffer_bytes_per_client = 0\nmax_temp_bytes = 0",
        "max_buffer_bytes = 0\nmax_temp_bytes = 0",
        "max_buffer_bytes_per_client = \"64KiB\"\nmax_temp_bytes = \"64KiB\"",
        "max_buffer_bytes_per_client = 0",
    ] {
        let route = format!("proxy = \"http://{}/\"", large_upstream(BYTES));
        let site = Site::serve(top, &route);
        let mut client = ShutClient::connect(&site, 1, STREAMS);
        let expected = pattern(BYTES);
        for numbers in [STREAMS - 1..STREAMS, 0..1, 1..STREAMS - 1] {
            let bodies = client.read(numbers.clone());
            assert!(bodies.iter().all(|body| *body == expected), "{top}: {numbers:?}");
        }
        // Another client is served in the meantime and afterwards.
        assert_eq!(parts(&site.get("/")), OK);
        until("all temporary files are closed", || site.temp_files().is_empty());
    }
}

/// A client uses up its share of the memory and half of the disk space. The share of another one is
/// untouched.
#[test]
fn a_client_leaves_space_to_others() {
    const MAX: u64 = 1 << 20;
    let route = format!("proxy = \"http://{}/\"", large_upstream(1 << 20));
    let site = Site::serve("max_temp_bytes = \"1MiB\"", &route);
    let _first = ShutClient::connect(&site, 1, 16);
    let is_near = |max: u64| stored(&site) + (128 << 10) >= max;
    until("the first client has its share", || is_near(MAX / 2));
    std::thread::sleep(Duration::from_millis(100));
    assert!(stored(&site) <= MAX / 2, "{}", stored(&site));
    let _second = ShutClient::connect(&site, 2, 16);
    until("the second client has its share", || is_near(MAX));
    assert!(stored(&site) <= MAX, "{}", stored(&site));
    // A third one gets its response nevertheless.
    let mut third = ShutClient::connect(&site, 3, 2);
    assert!(third.read(0..2).iter().all(|body| *body == pattern(1 << 20)));
}

/// A client that leaves its responses unread, again and again, makes the server write its share to
/// the disk once: the bytes count for a while after their files are gone.
#[test]
fn a_client_that_reads_nothing_causes_few_writes() {
    const MAX: u64 = 1 << 20;
    let route = format!("proxy = \"http://{}/\"", large_upstream(1 << 20));
    let site = Site::serve("max_temp_bytes = \"1MiB\"", &route);
    let first = ShutClient::connect(&site, 1, 8);
    until("the client has its share", || stored(&site) + (128 << 10) >= MAX / 2);
    drop(first);
    until("all temporary files are closed", || site.temp_files().is_empty());
    let mut again = ShutClient::connect(&site, 1, 8);
    // By then, the responses of the first client would have been stored, too.
    let _other = ShutClient::connect(&site, 2, 8);
    until("another client has its share", || stored(&site) + (128 << 10) >= MAX / 2);
    std::thread::sleep(Duration::from_millis(100));
    // The rest of the share of the first client, and the share of the other one.
    assert!(stored(&site) <= MAX / 2 + (128 << 10), "{}", stored(&site));
    assert!(again.read(0..2).iter().all(|body| *body == pattern(1 << 20)));
}

/// A response is received ahead of a client only as far as that reads it, at a multiple of its
/// pace.
#[test]
fn a_response_is_stored_only_for_a_client_that_reads_it() {
    const BYTES: usize = 2 << 20;
    const MAX: u64 = 256 << 10;
    let route = format!(
        "proxy = \"http://{}/\", max_connections = 1, max_connections_per_client = 1, max_queued = 0",
        large_upstream(BYTES)
    );
    let site = Site::serve("max_unread_bytes_per_client = \"256KiB\"", &route);
    let mut client = ShutClient::connect(&site, 1, 1);
    until("the limit is used up", || stored(&site) + (64 << 10) >= MAX);
    // Longer than a spool waits before it tries to write again.
    std::thread::sleep(Duration::from_millis(700));
    assert!(stored(&site) <= MAX, "{}", stored(&site));
    assert_eq!(site.get("/").0, 503, "the upstream sends at the pace of the client");

    const STEP: usize = 64 << 10;
    let mut read = 0;
    while site.get("/").0 == 503 {
        let before = stored(&site);
        client.socket.write_all(&window_update(stream(0), STEP as u32)).unwrap();
        read += STEP;
        while client.bodies.get(&stream(0)).is_none_or(|(body, _)| body.len() < read) {
            client.read_frame();
        }
        until("more is stored", || stored(&site) > before || site.get("/").0 == 200);
    }
    // On a busy machine the client reads more than once for each write.
    assert!(read < BYTES / 4 * 3, "the upstream is free after {read} bytes");
    let bodies = client.read(0..1);
    assert!(bodies[0] == pattern(BYTES));
    until("all temporary files are closed", || site.temp_files().is_empty());
}
