"""Processes behind the test: MariaDB, PHP-FPM, Weft and Chromium, each with its files in one folder."""

import grp
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from http.client import HTTPSConnection

PATIENCE = 60

WORDPRESS = pathlib.Path("/usr/share/wordpress")
DATABASE_PASSWORD = "between test and database"


def until(what, condition):
    """Polls a condition until it has a value that is true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE} s until {what}")
        time.sleep(0.05)


class Site:
    """A folder with WordPress, and the processes that serve it. `close` ends them by their IDs."""

    def __init__(self, folder, weft, config):
        self.folder = pathlib.Path(folder)
        self.weft = weft
        self.config = config
        self.root = self.folder / "blog"
        self.fpm_socket = self.folder / "php/php-fpm.sock"
        self.database_socket = self.folder / "database/mariadb.sock"
        self.processes = []
        # As root, the servers run as the users that Debian has for them.
        self.is_root = os.getuid() == 0
        self.folder.chmod(0o711)

    def _user(self, name):
        if not self.is_root:
            return {}
        user = pwd.getpwnam(name)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _own(self, path, name):
        path.mkdir(exist_ok=True)
        if self.is_root:
            os.chown(path, pwd.getpwnam(name).pw_uid, grp.getgrnam(name).gr_gid)

    def _start(self, name, command, **more):
        """Starts a process, in a group of its own, with a log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **more,
            )
        self.processes.append((name, process))
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def cpu_time(self, name):
        """Returns the CPU time of a process and of its children, in seconds."""
        pid = next(process.pid for known, process in self.processes if known == name)
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ticks = 0
        for process in (pid, *children):
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _until_ready(self, name, process, condition):
        def is_ready():
            if process.poll() is not None:
                raise RuntimeError(f"{name} has exited: {self.log(name)[-4000:]}")
            return condition()

        return until(f"{name} is ready", is_ready)

    def close(self):
        """Ends all processes, the last one first, and their groups if they do not end in time."""
        for _, process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    pass
            # The remaining processes of its group, of which it was the first.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.processes.clear()

    def start_database(self):
        folder = self.folder / "database"
        self._own(folder, "mysql")
        data = folder / "data"
        user = self._user("mysql")
        with open(self.folder / "install-db.log", "wb") as log:
            subprocess.run(
                ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
                 "--auth-root-authentication-method=normal"],
                stdout=log, stderr=log, check=True, timeout=PATIENCE, cwd="/", **user,
            )  # fmt: skip
        options = [
            f"--datadir={data}", f"--socket={self.database_socket}", "--skip-networking",
            f"--pid-file={folder}/pid", f"--tmpdir={folder}", "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
        ]  # fmt: skip
        process = self._start("mariadbd", ["mariadbd", "--no-defaults", *options], cwd="/", **user)
        self._until_ready("mariadbd", process, self._database_responds)
        self._query(
            "CREATE DATABASE wordpress; GRANT ALL ON wordpress.* TO wordpress@localhost"
            f" IDENTIFIED BY '{DATABASE_PASSWORD}'"
        )

    def _query(self, text, **more):
        command = ["mariadb", "--no-defaults", f"--socket={self.database_socket}", "-u", "root"]
        return subprocess.run(
            [*command, "--execute", text], check=True, capture_output=True, timeout=PATIENCE, **more
        )

    def _database_responds(self):
        try:
            return self._query("SELECT 1")
        except subprocess.CalledProcessError:
            return None

    def copy_wordpress(self):
        """Copies WordPress. The package has links to other packages, which Weft does not follow
        because they lead out of the folder."""
        shutil.copytree(WORDPRESS, self.root, ignore=shutil.ignore_patterns(".htaccess"))
        # Debian's own configuration, in place of which the installer writes one.
        (self.root / "wp-config.php").unlink()
        (self.root / "wp-content/uploads").mkdir()
        (self.root / "wp-content/mu-plugins").mkdir()
        if self.is_root:
            user = pwd.getpwnam("www-data")
            for path in (self.root, self.root / "wp-content", self.root / "wp-content/uploads"):
                os.chown(path, user.pw_uid, user.pw_gid)

        (self.root / "wp-content/mu-plugins/cron.php").write_text(
            "<?php if (defined('DOING_CRON')) file_put_contents(WP_CONTENT_DIR . '/uploads/cron.log',"
            " $_SERVER['QUERY_STRING'] . PHP_EOL, FILE_APPEND);\n"
        )

    def start_php(self):
        folder = self.folder / "php"
        self._own(folder, "www-data")
        before = folder / "before.php"
        before.write_text(
            "<?php define('WP_HTTP_BLOCK_EXTERNAL', true); define('AUTOMATIC_UPDATER_DISABLED', true);\n"
        )
        user = "user = www-data\ngroup = www-data\nlisten.owner = www-data\n" if self.is_root else ""
        config = folder / "php-fpm.conf"
        # The hole that the test asks for is open in this pool: PHP shortens a path until it is a
        # file (`cgi.fix_pathinfo`, its default), and runs files of any name.
        config.write_text(
            f"[global]\ndaemonize = no\nerror_log = {self.folder}/php-fpm.log\n"
            f"[blog]\nlisten = {self.fpm_socket}\n{user}"
            "pm = static\npm.max_children = 6\ncatch_workers_output = yes\n"
            "php_admin_value[cgi.fix_pathinfo] = 1\nsecurity.limit_extensions =\n"
            "php_admin_value[upload_max_filesize] = 32M\nphp_admin_value[post_max_size] = 32M\n"
            "php_admin_value[sendmail_path] = /bin/true\n"
            f"php_admin_value[auto_prepend_file] = {before}\n"
        )
        programs = sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))
        process = self._start("php-fpm", [programs[-1], "--fpm-config", config])
        self._until_ready("php-fpm", process, self.fpm_socket.exists)

    def start_weft(self, name="weft", config=None):
        """Starts Weft with a configuration, by default that of the documentation, and returns the
        URL of the site."""
        config = config or self.config
        for former, new in (
            ("blog.example.org", "localhost"),
            ("/srv/blog", str(self.root)),
            ("unix:/run/php/php-fpm.sock", f"unix:{self.fpm_socket}"),
        ):
            if former not in config:
                raise RuntimeError(f"the configuration has no {former}: {config}")
            config = config.replace(former, new)
        file = self.folder / f"{name}.toml"
        tls = (
            f'[tls]\nlisten = ["127.0.0.1:0"]\n'
            f'certificates = [{{ cert = "{self.folder}/cert.pem", key = "{self.folder}/key.pem" }}]\n'
        )
        file.write_text(f'listen = ["127.0.0.1:0"]\nworkers = 2\n{tls}{config}')
        subprocess.run([self.weft, "check", "--strict", file], check=True, timeout=PATIENCE)
        process = self._start(name, [self.weft, "--config", file])
        port = self._until_ready(
            name, process, lambda: re.search(r"https://[^ ;]*:(\d+)", self.log(name))
        )
        return int(port[1])

    def make_certificate(self):
        """Makes a certificate, which WordPress trusts for the requests to itself."""
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", self.folder / "key.pem", "-out", self.folder / "cert.pem"],
            check=True, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
        certificate = self.folder / "cert.pem"
        (self.root / "wp-content/mu-plugins/certificate.php").write_text(
            "<?php add_filter('http_request_args',"
            f" fn($arguments) => ['sslcertificates' => '{certificate}'] + $arguments);\n"
        )

    def start_browser(self):
        """Starts Chromium, and returns the port of its protocol."""
        profile = self.folder / "profile"
        process = self._start(
            "chromium",
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--ignore-certificate-errors", "--window-size=1400,1000",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--remote-debugging-port=0",
             "about:blank"],
            env=os.environ | {"LANG": "C.UTF-8", "HOME": str(self.folder)},
        )  # fmt: skip
        file = profile / "DevToolsActivePort"
        text = self._until_ready(
            "chromium", process, lambda: file.exists() and re.match(r"(\d+)\n", file.read_text())
        )
        return int(text[1])


class Response:
    def __init__(self, response):
        self.status = response.status
        self.fields = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def __repr__(self):
        return f"{self.status} {self.fields} {self.body[:500]!r}"


def request(port, target, method="GET", body=None, **fields):
    """Sends a request with exactly this target."""
    context = ssl._create_unverified_context()
    connection = HTTPSConnection("localhost", port, timeout=PATIENCE, context=context)
    try:
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, target, body=body, headers=named)
        return Response(connection.getresponse())
    finally:
        connection.close()


def log_in_by_form(port, host, form):
    """Sends the form of a login, and returns the cookies of the response as a field."""
    context = ssl._create_unverified_context()
    connection = HTTPSConnection("localhost", port, timeout=PATIENCE, context=context)
    fields = {
        "Host": host,
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": "wordpress_test_cookie=WP%20Cookie%20check",
    }
    connection.request("POST", "/wp-login.php", body=form, headers=fields)
    found = [value for name, value in connection.getresponse().getheaders() if name.lower() == "set-cookie"]
    connection.close()
    return "; ".join(value.split(";")[0] for value in found)


def get_repeatedly(port, target, host, count):
    """Sends requests on one connection."""
    context = ssl._create_unverified_context()
    connection = HTTPSConnection("localhost", port, timeout=PATIENCE, context=context)
    for _ in range(count):
        connection.request("GET", target, headers={"Host": host})
        response = connection.getresponse()
        if response.status != 200 or not response.read():
            raise RuntimeError(f"{target}: {response.status}")
    connection.close()


def leave_at_once(port, target):
    """Sends a request and closes the connection, as WordPress does."""
    context = ssl._create_unverified_context()
    with socket.create_connection(("localhost", port), timeout=PATIENCE) as stream:
        with context.wrap_socket(stream, server_hostname="localhost") as secure:
            head = f"POST {target} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 0\r\n\r\n"
            secure.sendall(head.encode())


def run_by_fastcgi(path, script):
    """Sends a script's name directly to PHP-FPM, and returns its output."""

    def record(kind, content):
        return bytes([1, kind, 0, 1]) + len(content).to_bytes(2, "big") + b"\0\0" + content

    def size(part):
        return (len(part) | 1 << 31).to_bytes(4, "big")

    def pair(name, value):
        return size(name) + size(value) + name + value

    variables = {
        b"SCRIPT_FILENAME": script.encode(), b"REQUEST_METHOD": b"GET", b"CONTENT_LENGTH": b"0",
    }  # fmt: skip
    parameters = b"".join(pair(name, value) for name, value in variables.items())
    output = b""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE)
        stream.connect(str(path))
        begin = record(1, b"\0\1\0\0\0\0\0\0")
        stream.sendall(begin + record(4, parameters) + record(4, b"") + record(5, b""))
        while data := stream.recv(1 << 16):
            output += data
    return output
