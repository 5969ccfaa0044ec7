//! Files and directories.

use super::*;

#[test]
fn serves_files_with_preconditions_and_ranges() {
    let large = pattern(3_000_000);
    let tree = Tree::with_files(&[("ten.txt", "0123456789"), ("empty.txt", "")]);
    tree.write("large.bin", &large);
    tree.write("long.txt", "x".repeat(5_000));
    // Small files are cached in memory from now on.
    tree.settle();
    on_every_transport(async |transport| {
        let server = transport.serve(Directory::open(tree.root()).unwrap());
        let mut client = server.client().await;
        let first = client.get("/ten.txt").await;
        assert_eq!(first.field("accept-ranges"), Some("bytes"));
        let etag = first.field("etag").expect("an ETag").to_owned();
        let date = first.field("last-modified").expect("a date").to_owned();
        let cases: Vec<Case> = vec![
            (vec![], 200, None, "0123456789"),
            (vec![("range", "bytes=2-3".into())], 206, Some("bytes 2-3/10"), "23"),
            (vec![("range", "bytes=5-".into())], 206, Some("bytes 5-9/10"), "56789"),
            (vec![("range", "bytes=-3".into())], 206, Some("bytes 7-9/10"), "789"),
            (
                vec![("range", "bytes=16-".into())],
                416,
                Some("bytes */10"),
                "416 Range Not Satisfiable\n",
            ),
            (vec![("range", "lines=1-2".into())], 200, None, "0123456789"),
            (
                vec![("range", "bytes=2-3".into()), ("if-range", etag.clone())],
                206,
                Some("bytes 2-3/10"),
                "23",
            ),
            (
                vec![("range", "bytes=2-3".into()), ("if-range", "\"x\"".into())],
                200,
                None,
                "0123456789",
            ),
            (vec![("if-none-match", etag.clone())], 304, None, ""),
            (vec![("if-none-match", format!("\"x\", W/{etag}"))], 304, None, ""),
            (vec![("if-none-match", "\"x\"".into())], 200, None, "0123456789"),
            (vec![("if-modified-since", date)], 304, None, ""),
            (
                vec![("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT".into())],
                200,
                None,
                "0123456789",
            ),
            (vec![("if-match", etag.clone())], 200, None, "0123456789"),
            (vec![("if-match", "\"x\"".into())], 412, None, "412 Precondition Failed\n"),
        ];
        for (fields, status, range, body) in cases {
            for method in ["GET", "HEAD"] {
                let request = fields
                    .iter()
                    .fold(ClientRequest::new(method, "/ten.txt"), |request, (name, value)| {
                        request.field(name, value)
                    });
                let response = client.fetch(request).await;
                let actual = (response.status, response.field("content-range"), response.text());
                // RFC 9110 §14.2: Range applies to GET only.
                let (status, range) = match method {
                    "HEAD" if matches!(status, 206 | 416) => (200, None),
                    _ => (status, range),
                };
                let body = if method == "HEAD" { "" } else { body };
                assert_eq!(actual, (status, range, body), "{method} {fields:?}");
                assert_eq!(response.field("etag"), Some(&*etag), "{method} {fields:?}");
            }
        }
        let request = ClientRequest::get("/large.bin").field("range", "bytes=1000000-2999998");
        assert!(client.fetch(request).await.body == large[1_000_000..2_999_999]);
        assert!(client.get("/large.bin").await.body == large);
        assert_eq!(client.get("/empty.txt").await.field("content-length"), Some("0"));

        for (name, whole, part_type) in [
            ("long.txt", &[b'x'; 5_000][..], "text/plain; charset=utf-8"),
            ("large.bin", &large, "application/octet-stream"),
        ] {
            let length = whole.len();
            let request =
                ClientRequest::get(format!("/{name}")).field("range", "bytes=0-2,2000-2001,-1");
            let response = client.fetch(request).await;
            let media_type = response.field("content-type").expect("a type");
            let boundary =
                media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
            let mut expected = Vec::new();
            for (from, to) in [(0, 2), (2_000, 2_001), (length - 1, length - 1)] {
                let line_end = if expected.is_empty() { "" } else { "\r\n" };
                expected.extend(format!("{line_end}--{boundary}\r\n").bytes());
                expected.extend(format!("Content-Type: {part_type}\r\n").bytes());
                expected
                    .extend(format!("Content-Range: bytes {from}-{to}/{length}\r\n\r\n").bytes());
                expected.extend(&whole[from..=to]);
            }
            expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
            assert_eq!((response.status, &response.body), (206, &expected), "{name}");
            assert_eq!(response.field("content-length"), Some(&*expected.len().to_string()));
        }
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn serves_directory_listing_error_pages_and_codings() {
    let text = "This is a line of a long text.\n".repeat(200);
    let tree = Tree::with_files(&[
        ("index.html", "top"),
        ("page.css", &text),
        ("folder/a.txt", "a"),
        ("folder/b.txt", "b"),
        ("404.html", "none"),
        (".env", "hidden"),
    ]);
    on_every_transport(async |transport| {
        let settings = DirectorySettings {
            listing: true,
            fallback: Some("index.html".to_owned()),
            fallback_for: FallbackPaths::Pages,
            ..DirectorySettings::default()
        };
        let server = transport.serve(Directory::with_settings(tree.root(), settings).unwrap());
        let mut client = server.client().await;
        for (method, target, status, body) in [
            ("GET", "/", 200, "top"),
            ("GET", "/a/route/of/the/page", 200, "top"),
            ("GET", "/none.css", 404, "none"),
            ("HEAD", "/folder", 301, ""),
            ("GET", "/folder/a.txt", 200, "a"),
            ("GET", "/../secret.txt", 404, "none"),
        ] {
            let response = client.fetch(ClientRequest::new(method, target)).await;
            assert_eq!((response.status, response.text()), (status, body), "{method} {target}");
        }
        assert_eq!(client.get("/folder").await.field("location"), Some("/folder/"));
        let refused = client.fetch(ClientRequest::post("/").body("abc")).await;
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
        let list =
            client.fetch(ClientRequest::get("/folder/").field("accept", "application/json")).await;
        let list: serde_json::Value = serde_json::from_str(list.text()).unwrap();
        let names = list["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["a.txt", "b.txt"]);
        let page = client.get("/folder/").await;
        assert!(page.text().contains("href=\"./a.txt\""), "{}", page.text());
        let head = client.fetch(ClientRequest::new("HEAD", "/folder/")).await;
        assert_eq!(head.field("content-length"), page.field("content-length"));
        for coding in CODINGS {
            let response = client
                .fetch(ClientRequest::get("/page.css").field("accept-encoding", coding))
                .await;
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert_eq!(response.field("vary"), Some("accept-encoding"));
            assert!(response.body.len() < text.len() / 4);
            assert_eq!(decoded_so_far(coding, &response.body), text, "{coding}");
        }
        assert_eq!(client.get("/page.css").await.text(), text);
        server.stop().await;
    });
}

#[test]
fn serves_embedded_files() {
    static LARGE: [u8; 100_000] = [b'x'; 100_000];
    let files: [(&str, &'static [u8]); _] =
        [("index.html", b"top"), ("folder/ten.txt", b"0123456789"), ("large.bin", &LARGE)];
    on_every_transport(async |transport| {
        let server = transport.serve(Directory::embedded(files, DirectorySettings::default()));
        let mut client = server.client().await;
        assert_eq!(client.get("/").await.text(), "top");
        assert_eq!(client.get("/none").await.status, 404);
        assert_eq!(client.get("/large.bin").await.body, LARGE);
        let response =
            client.fetch(ClientRequest::get("/folder/ten.txt").field("range", "bytes=2-3")).await;
        assert_eq!((response.status, response.text()), (206, "23"));
        let etag = response.field("etag").unwrap();
        let response =
            client.fetch(ClientRequest::get("/folder/ten.txt").field("if-none-match", etag)).await;
        assert_eq!(response.status, 304);
        let response =
            client.fetch(ClientRequest::get("/large.bin").field("range", "bytes=0-1,99998-")).await;
        assert_eq!(response.status, 206);
        assert_eq!(response.text().matches("\r\n\r\nxx\r\n").count(), 2, "{}", response.text());
        server.stop().await;
    });
}

#[test]
fn file_truncated_while_sending_gives_incomplete_response() {
    let tree = Tree::new();
    on_every_transport(async |transport| {
        tree.write("large.bin", pattern(40 << 20));
        let server = transport.serve(Directory::open(tree.root()).unwrap());
        let mut client = server.client().await;
        let response =
            client.send(ClientRequest::get("/large.bin")).await.read_head().await.unwrap();
        let file = fs::File::options().write(true).open(tree.path("large.bin")).unwrap();
        file.set_len(1 << 20).unwrap();
        let partial = response.try_collect().await.expect_err("the response must be incomplete");
        assert!(partial.body.len() < 40 << 20);
        // Beyond the new length, the kernel may have zeroed data that was already queued.
        let unchanged = partial.body.len().min(1 << 20);
        assert!(partial.body[..unchanged] == pattern(unchanged));
        server.stop().await;
    });
}
