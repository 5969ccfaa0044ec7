//! Configurations of several files, snippets, and environment variables.

use std::fs;
use std::path::Path;

use crate::common::{Program, Signal, Weft, until, weft};
use crate::config::{folder_with, run_in};

const SITE: &str = "[hosts.NAME]\n\"/\" = { respond = \"NAME\" }\n";

fn site(name: &str) -> String {
    SITE.replace("NAME", name)
}

/// Each row: the files, the argument of `check`, and what it reports (nothing if it is valid).
#[test]
fn reads_included_files() {
    let (a, b) = (site("a"), site("b"));
    let main = "include = [\"sites/*.toml\"]\n";
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    let rows: &[Row<'_>] = &[
        (&[("w.toml", main), ("sites/a.toml", &a), ("sites/b.toml", &b)], "w.toml", &[]),
        // A folder instead of a file.
        (&[("conf/a.toml", &a), ("conf/b.toml", &b)], "conf", &[]),
        (&[("conf/a.txt", "=")], "conf", &["weft: conf has no file *.toml"]),
        (&[("w.toml", "include = \"sites\"\n"), ("sites/a.toml", &a)], "w.toml", &[]),
        // Names with a leading dot are not matched.
        (&[("w.toml", main), ("sites/a.toml", &a), ("sites/.#a.toml", "=")], "w.toml", &[]),
        // A pattern may match nothing, a name may not.
        (&[("w.toml", &format!("{main}{a}"))], "w.toml", &[]),
        (
            &[("w.toml", &format!("include = [\"b.toml\"]\n{a}"))],
            "w.toml",
            &["weft: w.toml:1:12: cannot read b.toml: No such file or directory (os error 2)"],
        ),
        (
            &[("w.toml", &format!("include = [\"[z\"]\n{a}"))],
            "w.toml",
            &["weft: w.toml:1:12: invalid pattern [z: Pattern syntax error near position 0: \
               invalid range pattern"],
        ),
        // Paths are relative to the file that has them.
        (
            &[
                ("w.toml", main),
                ("sites/a.toml", "include = \"../more/b.toml\""),
                ("more/b.toml", &b),
            ],
            "w.toml",
            &[],
        ),
        (
            &[("w.toml", main), ("sites/a.toml", "[hosts.a]\n\"/\" = \"-> www\"\n")],
            "w.toml",
            &[
                "weft: sites/a.toml:2:7: cannot serve sites/www: No such file or directory (os error 2)",
            ],
        ),
        // Each file is read once, also in a cycle.
        (
            &[
                ("w.toml", "include = [\"*.toml\", \"a.toml\"]\n"),
                ("a.toml", &format!("include = [\"./w.toml\", \"a.toml\"]\n{a}")),
            ],
            "w.toml",
            &[],
        ),
        // Lists are joined, and a single value is given once.
        (
            &[
                ("w.toml", &format!("{main}listen = [\":1\"]\nworkers = 1\n")),
                ("sites/a.toml", &format!("listen = [\":2\"]\nworkers = 2\n{a}")),
                ("sites/b.toml", &format!("[files]\nlist = 1\n{a}")),
            ],
            "w.toml",
            &[
                "weft: sites/a.toml:2:11: `workers` is given twice, first in w.toml:3",
                "weft: sites/b.toml:2:8: expected true or false, found the number 1",
                "weft: sites/b.toml:3:8: the host `a` is given twice, first in sites/a.toml:3",
            ],
        ),
        // The syntax errors of a file hide no errors of others.
        (
            &[("w.toml", main), ("sites/a.toml", "listen =\n"), ("sites/b.toml", "lisen = 1\n")],
            "w.toml",
            &[
                "weft: sites/a.toml:1:9: expected a value: a text in quotes, a number, true, \
                 false, a list or a table",
                "weft: sites/b.toml:1:1: unknown key `lisen`; did you mean `listen`?",
            ],
        ),
        (
            &[("w.toml", main), ("sites/a.toml", "server {\n  listen 80;\n}\n")],
            "w.toml",
            &["weft: sites/a.toml:1:1: this is the syntax of nginx; a configuration of weft is \
               TOML, and docs/migrating-from-nginx.md translates the directives"],
        ),
    ];
    for (files, path, expected) in rows {
        let folder = folder_with(files);
        let output = run_in(folder.path(), &["check", path]);
        let reported: Vec<&str> = output.stderr.lines().collect();
        assert_eq!(reported, *expected, "{files:?}");
        assert_eq!(output.status, Ok(i32::from(!expected.is_empty())), "{files:?}");
    }
}

#[test]
fn joins_the_lists_of_all_files() {
    let folder = folder_with(&[
        ("w.toml", "include = \"sites/*.toml\"\nlisten = [\":1\"]\n"),
        ("sites/a.toml", &format!("listen = \":2\"\n[files]\ncache = [\"1h\"]\n{}", site("a"))),
        (
            "sites/b.toml",
            "listen = [\":3\", \":4\"]\n[files]\ncache = { \"*.css\" = \"1d\" }\n\
             [hosts.b]\n\"/\" = \"-> .\"\n",
        ),
    ]);
    let printed = run_in(folder.path(), &["check", "--print", "w.toml"]).stdout;
    assert!(printed.contains("listen = [\":1\", \":2\", \":3\", \":4\"]\n"), "{printed}");
    assert!(printed.contains("cache = [\"1h\", \"*.css=1d\"]"), "{printed}");
}

#[test]
fn limits_the_depth_of_includes() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..20 {
        let text = format!("include = \"{}.toml\"\n", number + 1);
        fs::write(folder.path().join(format!("{number}.toml")), text).unwrap();
    }
    let output = run_in(folder.path(), &["check", "0.toml"]);
    let expected = "weft: 16.toml:1:11: more than 16 files include each other\n";
    assert_eq!(output.stderr.lines().next(), expected.lines().next());
}

/// Each row: a file, and a line of `--print`, or an error.
#[test]
fn applies_snippets() {
    let begin = r#"
[snippets.safe]
allow = ["10.0.0.0/8"]
response_headers = { X-A = "safe", X-B = "safe" }
[snippets.app]
rate = "1/s"
connect_timeout = "1s"
response_headers = { X-B = "app" }
[snippets.pages]
"/shared" = { respond = "shared" }
"/own" = { respond = "shared" }
"#;
    for (hosts, expected) in [
        (
            "[hosts.a]\nuse = [\"safe\"]\n\"/\" = { respond = \"\" }\n[hosts.b]\nuse = \"pages\"\n\"/b\" = { proxy = \"http://a/\", use = \"app\" }\n",
            r#""/" = { respond = "", status = 200, response_headers = ["x-a: safe", "x-b: safe"], allow = ["10.0.0.0/8"] }"#,
        ),
        // Own keys before later snippets before earlier ones, by the rules of inheritance.
        (
            "[hosts.a]\nuse = \"pages\"\n\"/\" = { proxy = \"http://a/\", use = [\"safe\", \"app\"], deny = [\"::1\"], connect_timeout = \"2s\", response_headers = { X-C = \"own\" } }\n",
            r#"response_headers = ["x-c: own", "x-b: app", "x-a: safe"], deny = ["::1"], rate = "1/s" }"#,
        ),
        (
            "[hosts.a]\nuse = \"pages\"\n\"/\" = { proxy = \"http://a/\", use = [\"safe\", \"app\"], connect_timeout = \"2s\" }\n",
            r#"connect_timeout = "2s""#,
        ),
        (
            "[hosts.a]\nuse = [\"pages\", \"safe\"]\n\"/own\" = { respond = \"own\", use = \"app\" }\n",
            "w.toml:7:1: unknown key `connect_timeout`",
        ),
        (
            "[hosts.a]\nuse = [\"pages\", \"safe\"]\n\"/own\" = { respond = \"own\" }\n[hosts.b]\n\"/\" = { proxy = \"http://a/\", use = \"app\" }\n",
            r#""/own/" = { respond = "own", status = 200, "#,
        ),
        (
            "[hosts.a]\nuse = [\"pages\", \"safe\"]\n\"/\" = { proxy = \"http://a/\", use = \"app\" }\n",
            r#""/shared/" = { respond = "shared", status = 200, "#,
        ),
        ("[hosts.a]\nuse = \"saef\"\n", ":13:7: there is no snippet `saef`; did you mean `safe`?"),
        (
            "[hosts.a]\nuse = \"x\"\n",
            ":13:7: there is no snippet `x`; it is a section [snippets.x]",
        ),
        ("[snippets.c]\nuse = \"safe\"\n", ":13:1: a snippet uses no other snippets"),
        (
            "[hosts.a]\nuse = [\"pages\"]\n",
            ":2:11: warning: no host and no route uses this snippet",
        ),
    ] {
        let folder = folder_with(&[("w.toml", &format!("{begin}{hosts}"))]);
        let output = run_in(folder.path(), &["check", "w.toml", "--print"]);
        let all = output.stdout + &output.stderr;
        assert!(all.contains(expected), "{hosts}: {all}");
    }
}

/// Each row: a file, and lines of `--print` or errors.
#[test]
fn replaces_environment_variables() {
    for (text, expected) in [
        ("listen = \"{env.WEFT_TEST_ADDRESS}\"", "listen = [\"127.0.0.1:81\"]"),
        ("workers = \"{env.WEFT_TEST_COUNT}\"", "workers = 3"),
        ("workers = \"{env.WEFT_TEST_NONE:5}\"", "workers = 5"),
        ("workers = \"5\"", "w.toml:1:11: expected a number, found \"5\""),
        ("workers = \"{env.WEFT_TEST_NONE:no}\"", "expected a number from 1 to 1024, found no"),
        ("[limits]\nhttp2 = \"{env.WEFT_TEST_NONE:false}\"", "http2 = false"),
        ("pid_file = \"/{env.WEFT_TEST_QUOTES}\"", "pid_file = \"/a\\\"\\n[x]\""),
        ("[hosts.\"{env.WEFT_TEST_NAME}\"]\n\"/\" = \"<< /x/\"", "[hosts.\"b.example\"]"),
        (
            "[hosts.b]\n\"/\" = { respond = \"a{env.WEFT_TEST_NONE}\" }",
            "w.toml:2:19: the environment variable WEFT_TEST_NONE is not set; with a default it \
             is {env.WEFT_TEST_NONE:default}",
        ),
        ("listen = \"{env.X\"", "w.toml:1:10: the placeholder \"{env.X\" has no closing brace"),
    ] {
        let text = format!("{text}\n[hosts.a]\n\"/\" = {{ respond = \"\" }}\n");
        let folder = folder_with(&[("w.toml", &text)]);
        let mut command = weft(["check", "w.toml", "--print"]);
        command.current_dir(folder.path());
        command.env("WEFT_TEST_ADDRESS", "127.0.0.1:81").env("WEFT_TEST_COUNT", "3");
        command.env("WEFT_TEST_QUOTES", "a\"\n[x]").env("WEFT_TEST_NAME", "b.example");
        let output = Program::start(&mut command).wait_with_output();
        let all = output.stdout + &output.stderr;
        assert!(all.contains(expected), "{text}: {all}");
    }
}

/// Reloads the configuration, and waits until this text is logged.
fn reload(server: &Weft, text: &str) {
    let before = server.stderr().len();
    server.signal(Signal::HUP);
    until(text, || {
        let log = server.stderr()[before..].to_owned();
        log.contains(text) && log.contains("reloaded")
    });
}

#[test]
fn reload_reads_all_files_again() {
    let folder = folder_with(&[
        ("weft.toml", "include = [\"sites/*.toml\"]\nlisten = [\"127.0.0.1:0\"]\n"),
        ("sites/a.toml", &site("a")),
    ]);
    let file = folder.path().join("weft.toml");
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    let get = |server: &Weft, host: &str| {
        let mut client = server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    assert_eq!((get(&server, "a"), get(&server, "b")), (200, 404));
    fs::write(folder.path().join("sites/b.toml"), site("b")).unwrap();
    reload(&server, "the configuration was reloaded");
    assert_eq!((get(&server, "a"), get(&server, "b")), (200, 200));
    fs::write(folder.path().join("sites/b.toml"), "x = 1").unwrap();
    reload(&server, "sites/b.toml:1:1: unknown key `x`");
    assert_eq!((get(&server, "a"), get(&server, "b")), (200, 200));
    fs::remove_file(folder.path().join("sites/b.toml")).unwrap();
    reload(&server, "the configuration was reloaded");
    assert_eq!((get(&server, "a"), get(&server, "b")), (200, 404));
    server.stop();
}
