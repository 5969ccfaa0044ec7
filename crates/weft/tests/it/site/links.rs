//! Symbolic links and dot files.

use super::*;

#[test]
fn follows_symlinks_according_to_the_policy() {
    let tree = Tree::with_files(&[
        ("a.txt", "a"),
        ("folder/b.txt", "b"),
        ("folder/index.html", "index"),
        ("folder/deep/x", "x"),
        ("out-index/x", "x"),
        ("page.html", "page"),
    ]);
    let inside = tree.path("a.txt");
    let outer = tree.outer.path();
    fs::create_dir(outer.join("shared")).unwrap();
    fs::write(outer.join("shared/c.txt"), "c").unwrap();
    fs::write(outer.join("shared/index.html"), "shared").unwrap();
    fs::write(outer.join("shared/page.html.br"), "shared br").unwrap();
    let (shared, shared_file) = (outer.join("shared"), outer.join("shared/c.txt"));
    let links: [(&str, &Path); _] = [
        ("link.txt", Path::new("a.txt")),
        ("folder/up.txt", Path::new("../a.txt")),
        ("chain.txt", Path::new("link.txt")),
        ("linked", Path::new("folder")),
        ("absolute-in.txt", &inside),
        ("out.txt", Path::new("../shared/c.txt")),
        ("out-and-in.txt", Path::new("../root/a.txt")),
        ("out-chain.txt", Path::new("out.txt")),
        ("absolute-out.txt", &shared_file),
        ("out", Path::new("../shared")),
        ("absolute", &shared),
        ("out-index/index.html", Path::new("../../shared/index.html")),
        ("page.html.br", Path::new("../shared/page.html.br")),
        ("loop", Path::new("loop")),
        ("loop-a", Path::new("loop-b")),
        ("loop-b", Path::new("loop-a")),
        ("dangling", Path::new("nothing")),
        ("magic", Path::new("/proc/self/root")),
        ("magic-file", Path::new("/proc/self/exe")),
    ];
    links.iter().for_each(|(name, target)| tree.link(name, target));
    // Statuses for Never, Inside and Anywhere, and the body of a 200.
    let cases = [
        ("/a.txt", [200, 200, 200], "a"),
        ("/folder/", [200, 200, 200], "index"),
        ("/link.txt", [404, 200, 200], "a"),
        ("/folder/up.txt", [404, 200, 200], "a"),
        ("/chain.txt", [404, 200, 200], "a"),
        ("/linked", [404, 301, 301], ""),
        ("/linked/", [404, 200, 200], "index"),
        ("/linked/b.txt", [404, 200, 200], "b"),
        ("/linked/up.txt", [404, 200, 200], "a"),
        ("/absolute-in.txt", [404, 404, 200], "a"),
        ("/out.txt", [404, 404, 200], "c"),
        ("/out-and-in.txt", [404, 404, 200], "a"),
        ("/out-chain.txt", [404, 404, 200], "c"),
        ("/absolute-out.txt", [404, 404, 200], "c"),
        ("/out", [404, 404, 301], ""),
        ("/out/", [404, 404, 200], "shared"),
        ("/out/c.txt", [404, 404, 200], "c"),
        ("/absolute/c.txt", [404, 404, 200], "c"),
        ("/out-index/", [404, 404, 200], "shared"),
        ("/loop", [404, 404, 404], ""),
        ("/loop-a", [404, 404, 404], ""),
        ("/dangling", [404, 404, 404], ""),
        ("/magic/etc/passwd", [404, 404, 404], ""),
        ("/magic-file", [404, 404, 404], ""),
        // Dot segments after a link out of the root are not found either.
        ("/out/../secret.txt", [404, 404, 404], ""),
        ("/out/%2e%2e/secret.txt", [404, 404, 404], ""),
    ];
    for (at, links) in
        [Symlinks::Never, Symlinks::Inside, Symlinks::Anywhere].into_iter().enumerate()
    {
        let settings = DirectorySettings { symlinks: links, ..no_compression() };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for (target, statuses, body) in cases {
            let response = ask(&mut client, "GET", target);
            assert_eq!(response.status, statuses[at], "{links:?} {target}");
            if response.status == 200 {
                assert_eq!(response.text(), body, "{links:?} {target}");
            }
        }
        // The policy applies to precompressed files as well.
        let page =
            send_request_with_fields(&mut client, "GET", "/page.html", "Accept-Encoding: br");
        let expected = if links == Symlinks::Anywhere { "shared br" } else { "page" };
        assert_eq!((page.status, page.text()), (200, expected), "{links:?}");
        stop(server);
    }
}

#[test]
fn dot_segments_cannot_escape_the_root_with_any_symlink_policy() {
    let tree = Tree::with_files(&[("folder/deep/a.txt", "a"), ("index.html", "top")]);
    fs::create_dir(tree.outer.path().join("shared")).unwrap();
    tree.link("out", "../shared");
    let mut targets = tree.traversal_targets();
    targets.extend(
        [
            "/out/../secret.txt",
            "/out/%2e%2e/secret.txt",
            "/out/..%2fsecret.txt",
            "/out%2f..%2fsecret.txt",
            "/out/..\\secret.txt",
            "/out/%c0%ae%c0%ae/secret.txt",
            "/out/..%00/secret.txt",
            "/out/../root-secret/",
            "/out/../root/index.html",
        ]
        .map(str::to_owned),
    );
    let cases: Vec<_> = targets.iter().map(|target| (&**target, 404)).collect();
    for links in [Symlinks::Never, Symlinks::Inside, Symlinks::Anywhere] {
        for dot_files in [false, true] {
            let settings = DirectorySettings { symlinks: links, dot_files, ..no_compression() };
            let server = tree.serve_with(settings);
            assert_statuses(&server, &cases);
            assert_bodies(&server, &[("/folder/deep/a.txt", "a"), ("/", "top")]);
            stop(server);
        }
    }
}

#[test]
fn serves_dot_files_if_enabled() {
    let tree = Tree::with_files(&[
        (".env", "env"),
        (".git/config", "config"),
        ("folder/.hidden/index.html", "hidden"),
        (".well-known/x", "x"),
        ("...", "three"),
        ("..a", "two"),
    ]);
    let files = [
        ("/.env", "env"),
        ("/%2eenv", "env"),
        ("/.git/config", "config"),
        ("/folder/.hidden/", "hidden"),
        ("/...", "three"),
        ("/%2e%2e%2e", "three"),
        ("/..a", "two"),
    ];
    let server = tree.serve_with(DirectorySettings { dot_files: true, ..no_compression() });
    assert_bodies(&server, &files);
    assert_bodies(&server, &[("/.well-known/x", "x")]);
    assert_statuses(&server, &[("/.", 404), ("/..", 404), ("/folder/..", 404), ("/.git", 301)]);
    stop(server);
    let server = tree.serve_with(no_compression());
    assert_statuses(&server, &files.map(|(target, _)| (target, 404)));
    assert_bodies(&server, &[("/.well-known/x", "x")]);
    stop(server);
}
