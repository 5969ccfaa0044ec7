//! Compression of files on the fly.

use super::*;

#[test]
fn compresses_text_files_dynamically() {
    let tree = Tree::new();
    let types = ["html", "css", "js", "json", "svg", "txt", "xml", "wasm"];
    types.iter().for_each(|end| tree.write(format!("a.{end}"), text(30_000)));
    tree.settle();
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for end in types {
        let target = format!("/a.{end}");
        let plain = ask(&mut client, "GET", &target);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{end}");
        assert!(plain.text() == text(30_000), "{end}");
        assert_eq!(varies_by(&plain), BTreeSet::from(["accept-encoding"]), "{end}");
        let strong = etag(&plain);
        assert!(strong.starts_with('"'), "{end}");
        let weak = format!("W/{strong}");
        for coding in ["br", "zstd", "gzip"] {
            let fields = format!("Accept-Encoding: {coding}");
            let mut get = || send_request_with_fields(&mut client, "GET", &target, &fields);
            let (first, second) = (get(), get());
            assert_eq!((first.status, first.header("content-encoding")), (200, Some(coding)));
            assert!(first.body.len() < 15_000, "{end} {coding}: {} bytes", first.body.len());
            assert!(decoded(&first) == plain.body, "{end} {coding}");
            assert_eq!(
                first.header("content-type"),
                plain.header("content-type"),
                "{end} {coding}"
            );
            assert_eq!(varies_by(&first), BTreeSet::from(["accept-encoding"]), "{end} {coding}");
            assert_eq!(etag(&first), weak, "{end} {coding}");
            for name in ["last-modified", "accept-ranges"] {
                assert!(plain.header(name).is_some(), "{name}");
                assert_eq!(first.header(name), plain.header(name), "{end} {coding} {name}");
            }
            assert!(second.body == first.body, "{end} {coding}");
            assert_eq!(fields_without_date(&second), fields_without_date(&first), "{end} {coding}");
            let head = send_request_with_fields(&mut client, "HEAD", &target, &fields);
            assert_eq!(fields_without_date(&head), fields_without_date(&first), "{end} {coding}");
            for known in [&weak, &strong] {
                let fields = format!("{fields}\r\nIf-None-Match: {known}");
                let same = send_request_with_fields(&mut client, "GET", &target, &fields);
                assert_eq!((same.status, etag(&same)), (304, weak.clone()), "{end} {coding}");
                assert_eq!(varies_by(&same), BTreeSet::from(["accept-encoding"]));
            }
            // Ranges apply to the uncompressed file: only that has a strong ETag.
            let ranges = format!("{fields}\r\nRange: bytes=100-199");
            let part = send_request_with_fields(&mut client, "GET", &target, &ranges);
            assert_eq!((part.status, part.header("content-encoding")), (206, None));
            assert!(part.body == plain.body[100..200], "{end} {coding}");
            assert_eq!(etag(&part), strong, "{end} {coding}");
            assert_eq!(varies_by(&part), BTreeSet::from(["accept-encoding"]));
            for (known, status) in [(&strong, 206), (&weak, 200)] {
                let fields = format!("{ranges}\r\nIf-Range: {known}");
                let response = send_request_with_fields(&mut client, "GET", &target, &fields);
                assert_eq!(response.status, status, "{end} {coding} {known}");
                let whole = decoded(&response);
                let expected = if status == 206 { &plain.body[100..200] } else { &plain.body };
                assert!(whole == expected, "{end} {coding} {known}");
            }
        }
    }
    stop(server);
}

#[test]
fn head_does_not_compress_and_has_the_fields_of_get() {
    let tree = Tree::new();
    tree.write("young.html", text(5_000));
    let server = tree.serve();
    let mut client = Client::connect(&server);
    tree.write("settled.html", text(5_000));
    tree.settle();
    for target in ["/young.html", "/settled.html"] {
        let mut ask = |method: &str, fields: &str| {
            let fields = format!("Accept-Encoding: zstd{fields}");
            send_request_with_fields(&mut client, method, target, &fields)
        };
        // The length is known only after a compression, and two requests have not caused one.
        let heads = [ask("HEAD", ""), ask("HEAD", "")];
        let known = ask("HEAD", &format!("\r\nIf-None-Match: {}", etag(&heads[0])));
        let get = ask("GET", "");
        assert_eq!((get.status, get.header("content-encoding")), (200, Some("zstd")));
        let framing = ["content-length", "transfer-encoding"];
        let is_other = |(name, _): &&(String, String)| !framing.contains(&name.as_str());
        let fields = |response: &Response| -> Vec<_> {
            let all = fields_without_date(response);
            let mut others: Vec<_> = all.iter().filter(is_other).cloned().collect();
            others.sort();
            others
        };
        for head in heads {
            assert_eq!(head.header("content-length"), None, "{target}");
            assert_eq!(fields(&head), fields(&get), "{target}");
        }
        assert_eq!((known.status, etag(&known)), (304, etag(&get)), "{target}");
        let head = ask("HEAD", "");
        assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target}");
    }
    stop(server);
}

#[test]
fn popular_files_are_compressed_with_more_effort_and_kept() {
    let tree = Tree::new();
    // The fast level of zstd does not find a repetition at this distance.
    let contents = text(100_000).repeat(2);
    tree.write("popular.txt", &contents);
    tree.write("other.txt", &contents);
    tree.settle();
    let evict_after = Duration::from_secs(1);
    let server = tree.serve_with(DirectorySettings { evict_after, ..Default::default() });
    for coding in ["br", "zstd"] {
        let mut client = Client::connect(&server);
        let mut ask = |method: &str, name: &str| {
            let fields = format!("Accept-Encoding: {coding}");
            let response =
                send_request_with_fields(&mut client, method, format!("/{name}.txt"), &fields);
            assert_eq!(response.header("content-encoding"), Some(coding));
            response
        };
        let first = ask("GET", "popular");
        assert_eq!(ask("GET", "other").body, first.body);
        // HEAD does not make a file popular.
        (0..100).for_each(|_| assert!(ask("HEAD", "other").body.is_empty()));
        let best = std::cell::OnceCell::new();
        until("the file is compressed with more effort", || {
            let response = ask("GET", "popular");
            assert_eq!(etag(&response), etag(&first), "{coding}");
            assert!(decoded(&response) == contents.as_bytes(), "{coding}");
            response.body.len() < first.body.len() && best.set(response).is_ok()
        });
        let best = best.into_inner().unwrap();
        // The other file is evicted, so the length of its compressed form is not known.
        until("the other file is evicted", || {
            std::thread::sleep(2 * evict_after);
            ask("HEAD", "other").header("content-length").is_none()
        });
        let head = ask("HEAD", "popular");
        assert_eq!(head.header("content-length"), Some(&*best.body.len().to_string()));
    }
    stop(server);
}

#[test]
fn compression_depends_on_type_and_size() {
    let tree = Tree::new();
    let settings = |max_compressed_bytes| DirectorySettings {
        max_compressed_bytes,
        media_types: vec![("odd".into(), HeaderValue::from_static("text/odd"))],
        ..DirectorySettings::default()
    };
    let large = text(100_001);
    // Name, content, and the expected presence of Content-Encoding and of Vary.
    for (name, contents, compressed, varies) in [
        ("1023.txt", &large[..1_023], false, false),
        ("1024.txt", &large[..1_024], true, true),
        ("100000.txt", &large[..100_000], true, true),
        ("100001.txt", &large[..], false, false),
        ("a.png", &large[..5_000], false, false),
        ("a.woff2", &large[..5_000], false, false),
        ("a.zip", &large[..5_000], false, false),
        ("a", &large[..5_000], false, false),
        ("a.odd", &large[..5_000], true, true),
        ("a.css.gz", &large[..5_000], false, false),
    ] {
        tree.write(name, contents);
        let server = tree.serve_with(settings(100_000));
        let mut client = Client::connect(&server);
        for fields in ["Accept-Encoding: gzip, br", "Accept-Encoding: *"] {
            let response = send_request_with_fields(&mut client, "GET", format!("/{name}"), fields);
            assert!(decoded(&response) == contents.as_bytes(), "{name}");
            assert_eq!(response.header("content-encoding").is_some(), compressed, "{name}");
            assert_eq!(response.header("vary").is_some(), varies, "{name}");
            assert!(etag(&response).starts_with("W/") || !compressed, "{name}");
        }
        stop(server);
    }
    // Files that do not become smaller are served as they are, and the server stores the result
    // instead of compressing them for each request.
    tree.write("noise.txt", noise(5_000));
    tree.settle();
    let server = tree.serve_with(settings(100_000));
    let mut client = Client::connect(&server);
    for _ in 0..2 {
        let fields = "Accept-Encoding: br";
        let response = send_request_with_fields(&mut client, "GET", "/noise.txt", fields);
        assert!(response.body == noise(5_000));
        assert_eq!(response.header("content-encoding"), None);
        assert!(etag(&response).starts_with('"'));
        assert_eq!(varies_by(&response), BTreeSet::from(["accept-encoding"]));
    }
    stop(server);
    let server = tree.serve_with(no_compression());
    let response = send_request_with_fields(
        &mut Client::connect(&server),
        "GET",
        "/1024.txt",
        "Accept-Encoding: br",
    );
    let fields = (response.header("content-encoding"), response.header("vary"));
    assert_eq!((response.text(), fields), (&large[..1_024], (None, None)));
    stop(server);
}

#[test]
fn changed_files_are_compressed_again() {
    let tree = Tree::new();
    let (first, second) = (text(20_000), text(20_001).to_uppercase());
    tree.write("kept.txt", &first);
    tree.settle();
    // A recently changed file is compressed again in any case.
    tree.write("young.txt", &first);
    let server = tree.serve_with(fast_revalidation(DirectorySettings::default()));
    let mut client = Client::connect(&server);
    for (target, name) in [("/kept.txt", "kept.txt"), ("/young.txt", "young.txt")] {
        let mut get =
            || send_request_with_fields(&mut client, "GET", target, "Accept-Encoding: br");
        let before = (0..3).map(|_| get()).last().unwrap();
        assert!(decoded(&before) == first.as_bytes(), "{name}");
        assert_eq!(before.header("content-encoding"), Some("br"));
        for (contents, by_rename) in [(&second, true), (&first, false)] {
            match by_rename {
                true => tree.replace(name, contents),
                false => tree.write(name, contents),
            }
            until("the new content is served", || {
                let response = get();
                assert_eq!(response.header("content-encoding"), Some("br"));
                let text = decoded(&response);
                assert!(text == first.as_bytes() || text == second.as_bytes(), "{name}");
                text == contents.as_bytes()
            });
            assert_ne!(etag(&get()), etag(&before), "{name}");
        }
    }
    stop(server);
}

#[test]
fn serves_concurrent_requests_for_files_not_yet_compressed() {
    let tree = Tree::new();
    (0..8).for_each(|at| tree.write(format!("{at}.html"), text(100_000 + at)));
    tree.settle();
    let server = tree.serve();
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(&server)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let target = at % 8;
        client.send(format!(
            "GET /{target}.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br, gzip\r\n\r\n"
        ));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let response = client.response();
        assert!(decoded(&response) == text(100_000 + at % 8).as_bytes(), "{at}");
        let is_weak = etag(&response).starts_with("W/");
        assert_eq!(is_weak, response.header("content-encoding").is_some(), "{at}");
    }
    let last = send_request_with_fields(&mut clients[0], "GET", "/7.html", "Accept-Encoding: br");
    assert_eq!(last.header("content-encoding"), Some("br"), "compressed in the end");
    stop(server);
}
