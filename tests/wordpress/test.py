"""WordPress with MariaDB and PHP-FPM behind Weft, used with a browser and attacked without one."""

import pathlib
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import zlib
from urllib.parse import quote

from browser import Page
from servers import (
    DATABASE_PASSWORD, Site, get_repeatedly, leave_at_once, log_in_by_form, request, run_by_fastcgi, until,
)  # fmt: skip

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
USER, PASSWORD = "writer", "a long enough Password 4 this test"
# A program, and the text that it prints if it is run, which its source does not contain.
PROGRAM = b"<?php echo 'was ', 'run'; __halt_compiler();"
WAS_RUN = b"was run"


def documented_configurations():
    """Returns the configurations in the page about WordPress: the short one, the recommended one, and
    the recommended one with a cache of pages."""
    page = (REPOSITORY / "docs/wordpress.md").read_text()
    short, recommended, cache = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    return short, recommended, recommended + cache


def png(width, height, text=b""):
    """Makes a picture with a gradient, and a comment in it."""

    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    rows = b"".join(
        b"\0" + bytes(byte for x in range(width) for byte in (x * 255 // width, y * 255 // height, 128))
        for y in range(height)
    )
    return b"".join((
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        chunk(b"tEXt", b"Comment\0" + text) if text else b"",
        chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b""),
    ))  # fmt: skip


def check(condition, message):
    if not condition:
        raise AssertionError(message() if callable(message) else message)


def equal(found, expected, what):
    check(found == expected, f"{what}: {found!r}, expected {expected!r}")


class Visit:
    """The steps of an author of a blog, and of a reader."""

    def __init__(self, site, page, port):
        self.site = site
        self.page = page
        self.port = port
        self.url = f"https://localhost:{port}"
        self.post = None  # path of the post

    def install(self):
        page = self.page
        page.open(self.url + "/")
        check("/wp-admin/setup-config.php" in page.evaluate("location.href"), page.describe)
        page.load(lambda: page.click(".step a"))
        for field, text in (
            ("dbname", "wordpress"),
            ("uname", "wordpress"),
            ("pwd", DATABASE_PASSWORD),
            ("dbhost", f"localhost:{self.site.database_socket}"),
        ):
            page.enter(f"#{field}", text)
        page.load(lambda: page.click("input[type=submit]"))
        page.load(lambda: page.click(".step a"))
        page.enter("#weblog_title", "Warp & Weft – ein Blog")
        page.enter("#user_login", USER)
        page.enter("#pass1", PASSWORD)
        page.enter("#admin_email", "writer@example.org")
        page.load(lambda: page.click("#submit"))
        check("Success!" in page.text(), page.describe)
        protocol = page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
        equal(protocol, "h2", "protocol of the browser")

    def log_in(self):
        page = self.page
        page.open(self.url + "/wp-login.php")
        page.enter("#user_login", USER)
        page.enter("#user_pass", PASSWORD)
        page.load(lambda: page.click("#wp-submit"))
        check(page.exists("#wpadminbar") and page.exists("#dashboard-widgets"), page.describe)

    def set_permalinks(self):
        """The installer has requested a permalink from the site itself, and found that it works."""
        page = self.page
        page.open(self.url + "/wp-admin/options-permalink.php")
        structure = page.evaluate("document.querySelector('#permalink_structure').value")
        equal(structure, "/%year%/%monthnum%/%day%/%postname%/", "permalinks of the installer")
        # WordPress does not know that the server can do without `/index.php/`.
        page.click("input[type=radio][value='/index.php/%year%/%monthnum%/%postname%/']")
        page.load(lambda: page.click("#submit"))
        check("Permalink structure updated" in page.text(), page.describe)
        path = request(self.port, "/?p=1").fields["location"].removeprefix(self.url)
        check(re.fullmatch(r"/index\.php/\d{4}/\d\d/hello-world/", path), path)
        equal(request(self.port, path).status, 200, path)
        page.click("#custom_selection")
        page.enter("#permalink_structure", "/%year%/%monthnum%/%postname%/")
        page.load(lambda: page.click("#submit"))
        check("Permalink structure updated" in page.text(), page.describe)

    def upload(self, name, data):
        """Uploads a picture to the library, and returns the paths of all its sizes."""
        file = self.site.folder / name
        file.write_bytes(data)
        page = self.page
        page.open(self.url + "/wp-admin/media-new.php")
        page.choose_file(".moxie-shim input[type=file]", file)
        page.until("!!document.querySelector('.media-item .edit-attachment, .media-item .error-div')")
        check(page.exists(".media-item .edit-attachment"), page.describe)
        sizes = page.evaluate(
            "fetch('/wp-json/wp/v2/media?per_page=1').then(r => r.json())"
            ".then(list => Object.values(list[0].media_details.sizes).map(size => size.source_url))"
        )
        return [url.removeprefix(self.url) for url in sizes]

    def check_picture(self, path, width):
        """A picture is a file that Weft serves, and a browser shows it."""
        found = request(self.port, path)
        equal(found.status, 200, path)
        equal(found.fields["content-type"], "image/png", path)
        equal(found.fields["cache-control"], "max-age=604800", path)
        check(found.body.startswith(b"\x89PNG"), path)
        tag = found.fields["etag"]
        equal(request(self.port, path, If_None_Match=tag).status, 304, f"{path} again")
        part = request(self.port, path, Range="bytes=1-3")
        equal((part.status, part.body), (206, b"PNG"), f"{path} in part")
        shown = self.page.evaluate(
            f"new Promise(done => {{ const image = new Image(); image.src = '{path}';"
            " image.onload = () => done(image.naturalWidth); image.onerror = () => done(0); })"
        )
        equal(shown, width, f"width of {path}")

    def publish(self):
        """Writes a post with a picture in the editor, and publishes it."""
        page = self.page
        picture = self.site.folder / "second.png"
        picture.write_bytes(png(600, 400))
        page.open(self.url + "/wp-admin/post-new.php")
        page.click(".components-guide .components-modal__header button")
        page.click(".editor-post-title__input")
        page.insert("Hello")
        page.press("Enter", 13)
        page.insert("The first words.")
        page.press("Enter", 13)
        page.insert("/image")
        page.until("!!document.querySelector('.components-autocomplete__result.is-selected')")
        page.press("Enter", 13)
        page.choose_file(".block-editor-media-placeholder input[type=file]", picture)
        page.until("document.querySelector('.wp-block-image img')?.src.startsWith('https:')")
        page.click(".editor-post-publish-panel__toggle")
        page.click(".editor-post-publish-panel .editor-post-publish-button")
        link = page.until("document.querySelector('.post-publish-panel__postpublish a')?.href")
        self.post = link.removeprefix(self.url)
        check(re.fullmatch(r"/\d{4}/\d\d/hello/", self.post), link)

    def edit(self):
        page = self.page
        page.open(self.url + self.post)
        check("The first words." in page.text(), page.describe)
        page.load(lambda: page.click("#wp-admin-bar-edit a"))
        page.click(".wp-block-paragraph")
        page.press("End", 35)
        page.insert(" And the last.")
        page.click(".editor-post-publish-button")
        page.until("document.querySelector('.components-snackbar')?.innerText.includes('updated')")
        page.open(self.url + self.post)
        check("The first words. And the last." in page.text(), page.describe)
        shown = page.evaluate("document.querySelector('.wp-block-image img').naturalWidth")
        equal(shown, 600, "picture in the post")

    def comment(self, text, **fields):
        """Comments on the post. WordPress permits one comment in 15 seconds."""
        page = self.page
        page.open(self.url + self.post)
        page.enter("#comment", text)
        for name, value in fields.items():
            page.enter(f"#{name}", value)
        page.load(lambda: page.click("#submit"))
        check("awaiting moderation" in page.text(), page.describe)
        check(page.evaluate("location.pathname") == self.post, page.describe)
        check(text in page.text(), page.describe)

    def change_by_rest(self):
        """Methods other than GET and POST reach WordPress by the fallback."""
        post = (
            "fetch('/wp-json/wp/v2/posts?slug=hello').then(r => r.json()).then(([{ id }]) =>"
            " fetch('/wp-json/wp/v2/posts/' + id, { method: METHOD, body: BODY, headers:"
            " { 'Content-Type': 'application/json', 'X-WP-Nonce': wpApiSettings.nonce } }))"
            ".then(async r => r.status + ' ' + (await r.json()).excerpt.raw)"
        )
        self.page.open(self.url + "/wp-admin/post-new.php")
        body = """JSON.stringify({ excerpt: 'In short.' })"""
        put = post.replace("METHOD", "'PUT'").replace("BODY", body)
        equal(self.page.evaluate(put), "200 In short.", "PUT")

    def upload_large_file(self):
        """A file that is larger than the default limit of bodies, over HTTP/2."""
        self.page.open(self.url + "/wp-admin/post-new.php")
        link = self.page.evaluate(
            "fetch('/wp-json/wp/v2/media', { method: 'POST', body: new Blob([new Uint8Array(20 << 20)]),"
            " headers: { 'X-WP-Nonce': wpApiSettings.nonce, 'Content-Type': 'application/zip',"
            " 'Content-Disposition': 'attachment; filename=large.zip' } })"
            ".then(r => r.text()).then(text => JSON.parse(text).source_url ?? text)"
        )
        check(link.startswith("https:"), link)
        path = link.removeprefix(self.url)
        file = request(self.port, path)
        equal((file.status, len(file.body)), (200, 20 << 20), path)
        equal(file.fields["content-type"], "application/zip", path)

    def log_out(self):
        page = self.page
        page.open(self.url + "/")
        page.load(lambda: page.open(page.evaluate("document.querySelector('#wp-admin-bar-logout a').href")))
        check("You are now logged out" in page.text(), page.describe)
        page.open(self.url + "/wp-admin/")
        check(page.evaluate("location.pathname") == "/wp-login.php", page.describe)

    def find_nothing(self):
        page = self.page
        page.open(self.url + "/no/such/page/")
        check(page.exists("body.error404"), page.describe)
        equal(request(self.port, "/no/such/page/").status, 404, "status")

    def check_messages(self):
        """The browser has reported nothing but pictures of other sites, which cannot be reached."""
        known = ("secure.gravatar.com", "https://s.w.org/", "/no/such/page/")
        others = [text for text in self.page.messages if not any(part in text for part in known)]
        equal(others, [], "messages of the browser")
        equal({protocol for *_, protocol in self.page.responses}, {"h2"}, "protocols")


class Attack:
    """Requests of a client that wants to run its own programs, or to read the configuration."""

    def __init__(self, site, port):
        self.site = site
        self.port = port
        root = site.root
        [picture] = root.glob("wp-content/uploads/*/*/織物.png")
        self.uploads = "/" + str(picture.parent.relative_to(root))
        self.picture = f"{self.uploads}/{quote(picture.name)}"
        check(PROGRAM in picture.read_bytes(), "the picture has lost its program")
        # The pool would run the program in the picture.
        output = run_by_fastcgi(site.fpm_socket, f"{picture}/x.php")
        check(WAS_RUN in output, f"the pool does not have the hole: {output!r}")
        # As a plugin with a hole would leave them.
        for name in ("shell.php", "shell.PHP", "shell.phtml", "shell.php7", "shell.phar"):
            (picture.parent / name).write_bytes(PROGRAM)
        secret = (root / "wp-config.php").read_text()
        check(DATABASE_PASSWORD in secret, "the configuration has no password")
        for name in ("wp-config.php.bak", "wp-config.php~", "wp-content/debug.log", ".htpasswd"):
            (root / name).write_text(secret)

    def expect(self, rows, port):
        """Each row: a path, the status of its response."""
        for target, status in rows:
            found = request(port, target, Host=f"localhost:{self.port}")
            equal(found.status, status, f"{target} {found}")
            check(WAS_RUN not in found.body, f"{target} was run")
            check(DATABASE_PASSWORD.encode() not in found.body, f"{target} is readable")

    def with_recommended_configuration(self):
        uploads, picture = self.uploads, self.picture
        self.expect(
            [
                (picture, 200),
                (f"{picture}?x.php", 200),
                (f"{picture}/x.php", 404),
                (f"{picture}%2Fx.php", 404),
                (f"{picture}%00.php", 400),
                (f"{picture};x.php", 400),
                (f"{picture}/..;/x.php", 400),
                (f"{uploads}/", 404),
                (f"{uploads}/shell.php", 404),
                (f"{uploads}/shell.PHP", 404),
                (f"{uploads}/shell.ph%70", 404),
                (f"{uploads}//shell.php", 404),
                (f"{uploads}/shell.php/x.jpg", 404),
                (f"{uploads}/shell.php%2Fx.jpg", 400),
                (f"{uploads}/shell.phtml", 404),
                (f"{uploads}/shell.php7", 404),
                (f"{uploads}/shell.phar", 404),
                (f"/wp-content%2Fuploads{uploads.removeprefix('/wp-content/uploads')}/shell.php", 400),
                (f"/index.php/..{uploads}/shell.php", 404),
                ("/wp-config.php", 404),
                ("/wp-config.PHP", 404),
                ("/wp-config.php/x", 404),
                ("/wp-config.php.", 404),
                ("/%77p-config.php", 404),
                ("//wp-config.php", 404),
                ("/index.php/../wp-config.php", 404),
                ("/index.php/%2e%2e/wp-config.php", 404),
                ("/index.php/..%2Fwp-config.php", 400),
                ("/index.php%2F..%2Fwp-config.php", 400),
                ("/wp-content/..%5Cwp-config.php", 400),
                ("/wp-config.php.bak", 404),
                ("/wp-config.php~", 404),
                ("/wp-content/debug.log", 404),
                ("/.htpasswd", 404),
            ],
            self.port,
        )

    def with_short_configuration(self, port):
        """What the page about WordPress says about the configuration without the other rules."""
        uploads, picture = self.uploads, self.picture
        self.expect(
            [
                (picture, 200),
                (f"{picture}/x.php", 404),
                (f"{picture}%2Fx.php", 404),
                (f"{picture}%00.php", 400),
                (f"{uploads}/shell.PHP", 404),
                ("/wp-config.php", 200),
                ("/index.php/..%2Fwp-config.php", 400),
                ("/.htpasswd", 404),
            ],
            port,
        )
        found = request(port, f"{uploads}/shell.php")
        check(found.status == 200 and WAS_RUN in found.body, found)
        for name in ("shell.phtml", "shell.php7", "shell.phar"):
            equal(request(port, f"{uploads}/{name}").status, 403, name)

    def exceed_rates(self):
        """Guesses passwords, by both ways, until there are too many."""
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        for target, body in (
            ("/wp-login.php", f"log={USER}&pwd=wrong"),
            ("/xmlrpc.php", "<methodCall><methodName>demo.sayHello</methodName></methodCall>"),
        ):
            found = [request(self.port, target, "POST", body, **form).status for _ in range(11)]
            check(set(found) == {200, 429}, f"{target}: {found}")
        equal(request(self.port, "/wp-login.php").status, 200, "page for the login")


def check_static_files(port):
    path = "/wp-includes/css/dist/block-library/style.min.css"
    style = request(port, path, Accept_Encoding="gzip")
    equal(style.status, 200, path)
    for name, value in (
        ("content-type", "text/css; charset=utf-8"),
        ("content-encoding", "gzip"),
        ("cache-control", "max-age=2592000"),
        ("x-content-type-options", "nosniff"),
    ):
        equal(style.fields.get(name), value, f"{name} of {path}")
    page = request(port, "/", Accept_Encoding="gzip")
    equal((page.status, page.fields.get("content-encoding")), (200, "gzip"), f"{page.fields}")
    equal(page.fields.get("cache-control"), None, "cache of a page")
    head = request(port, "/", "HEAD")
    equal((head.status, head.body), (200, b""), "HEAD")


def check_cron(site, port):
    """WordPress runs scheduled tasks by a request to itself, whose response it does not await."""
    log = site.root / "wp-content/uploads/cron.log"

    def lines():
        return log.read_text().split() if log.exists() else []

    until("WordPress has run its tasks", lambda: [it for it in lines() if "doing_wp_cron=" in it])
    for number in range(20):
        leave_at_once(port, f"/wp-cron.php?number={number}")
    expected = {f"number={number}" for number in range(20)}
    until("all requests have arrived", lambda: expected <= set(lines()))


def check_cache(site, port, cached):
    """Visitors share pages, at a fraction of their cost; a user neither sees nor fills them."""
    host = f"localhost:{port}"

    def visit(target, **fields):
        return request(cached, target, Host=host, **fields)

    def is_hit(response):
        return "; hit" in response.fields["cache-status"]

    check(not is_hit(visit("/")), "the first request is a miss")
    visitor = visit("/")
    check(is_hit(visitor) and visitor.status == 200, visitor)
    # A user who logs in without the browser, behind the cache.
    form = f"log={USER}&pwd={quote(PASSWORD)}&wp-submit=Log+In&testcookie=1"
    cookies = log_in_by_form(cached, host, form)
    check("wordpress_logged_in_" in cookies, cookies)
    for target in ("/", "/?cold=1"):
        user = visit(target, Cookie=cookies)
        check(b"wpadminbar" in user.body, f"{target}: {user}")
        equal(user.fields["cache-status"], "Weft; fwd=bypass", target)
        for _ in range(2):
            other = visit(target)
            check(b"wpadminbar" not in other.body and other.status == 200, f"{target}: {other}")
    check(is_hit(visit("/?cold=1")), "pages of visitors are stored after the visit of a user")
    without = cpu_of_visits(site, "weft", port, host, 20)
    with_cache = cpu_of_visits(site, "cached", cached, host, 2000)
    print(f"         {without * 1000:.2f} ms of CPU per page, {with_cache * 1000:.3f} ms with the cache")
    check(with_cache * 50 <= without, f"{without} s, with the cache {with_cache} s")


def cpu_of_visits(site, name, port, host, count):
    """Returns the CPU time of a visit, of Weft, PHP and the database together."""
    names = (name, "php-fpm", "mariadbd")
    before = sum(map(site.cpu_time, names))
    get_repeatedly(port, "/", host, count)
    return (sum(map(site.cpu_time, names)) - before) / count


def main(weft):
    short, recommended, cached = documented_configurations()
    started = step = time.monotonic()

    def report(name):
        nonlocal step
        now = time.monotonic()
        print(f"{now - step:6.1f} s  {name}", flush=True)
        step = now

    folder = tempfile.mkdtemp(prefix="weft-wordpress-")
    site = Site(folder, weft, recommended)
    try:
        site.copy_wordpress()
        site.make_certificate()
        site.start_database()
        site.start_php()
        port = site.start_weft()
        page = Page(site.start_browser())
        report("start")
        visit = Visit(site, page, port)
        try:
            for action in (visit.install, visit.log_in, visit.set_permalinks):
                action()
                report(action.__name__)
            pictures = visit.upload("織物.png", png(1600, 1200, PROGRAM))
            check(len(pictures) >= 5, pictures)
            for path in pictures:
                width = re.search(r"-(\d+)x\d+\.png$", path)
                visit.check_picture(quote(path), int(width[1]) if width else 1600)
            report(f"upload of a picture, {len(pictures)} sizes")
            for action in (
                visit.publish, visit.edit, visit.change_by_rest, visit.upload_large_file, visit.log_out,
            ):  # fmt: skip
                action()
                report(action.__name__)
            visit.comment("A comment of a reader.", author="Reader", email="reader@example.org")
            visit.find_nothing()
            visit.check_messages()
            report("comment, page that does not exist")
            check_static_files(port)
            check_cron(site, port)
            report("files, scheduled tasks")
            check_cache(site, port, site.start_weft("cached", cached))
            report("cache of pages")
            attack = Attack(site, port)
            attack.with_recommended_configuration()
            attack.with_short_configuration(site.start_weft("short", short))
            attack.exceed_rates()
            report("attacks")
        except BaseException:
            for name in ("weft", "php-fpm", "mariadbd"):
                print(f"-- {name}\n{site.log(name)[-3000:]}", file=sys.stderr)
            raise
    finally:
        site.close()
        shutil.rmtree(folder)
    print(f"WordPress works, in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    # The processes end with the test also if that is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(*sys.argv[1:])
