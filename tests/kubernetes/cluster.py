"""An API server with etcd in a network namespace of its own, backends, and `weft kubernetes` against it.

Endpoints have private addresses, which the API server requires; they are addresses of the loopback interface of
the namespace. There are no nodes and no pods: the tests write the EndpointSlices that a cluster would have.
"""
import http.client
import http.server
import json
import os
import ssl
import subprocess
import threading
import time

TOKEN = "admintoken"
API = ("127.0.0.1", 25443)
CONTEXT = ssl._create_unverified_context()  # the certificate of a test
GATEWAY = "/apis/gateway.networking.k8s.io/v1"


class Cluster:
    """The API server, started with the programs in `programs`."""

    def __init__(self, programs, folder):
        self.folder, self.processes = folder, []
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for number in range(1, 20):
            subprocess.run(["ip", "addr", "add", f"10.244.0.{number}/32", "dev", "lo"], check=True)
        with open(f"{folder}/tokens.csv", "w") as file:
            file.write(f'{TOKEN},admin,admin,"system:masters"\n')
        subprocess.run(
            ["openssl", "genrsa", "-out", f"{folder}/sa.key", "2048"], check=True, capture_output=True
        )
        peer = "http://127.0.0.1:25380"
        self.start("etcd", [
            f"{programs}/etcd", "--data-dir", f"{folder}/etcd", "--unsafe-no-fsync",
            "--listen-client-urls", "http://127.0.0.1:25379",
            "--advertise-client-urls", "http://127.0.0.1:25379",
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ])
        self.start_api(programs)

    def start_api(self, programs):
        folder = self.folder
        self.start("apiserver", [
            f"{programs}/kube-apiserver", "--etcd-servers=http://127.0.0.1:25379",
            f"--secure-port={API[1]}", f"--bind-address={API[0]}", f"--cert-dir={folder}/certs",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder}/sa.key",
            f"--service-account-key-file={folder}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/16", f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC", "--advertise-address=10.244.0.1",
            "--endpoint-reconciler-type=none",
        ])
        poll(lambda: self.call("GET", "/readyz")[0] == 200, 120, "the API server is ready")
        with open(f"{folder}/kubeconfig", "w") as file:
            file.write(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "clusters": [{"name": "c", "cluster": {
                    "server": f"https://{API[0]}:{API[1]}", "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }))

    def start(self, name, command, **options):
        log = open(f"{self.folder}/{name}.log", "a")
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options)
        self.processes.append(process)
        return process

    def stop(self):
        # etcd last: without it the API server waits at its end.
        for process in reversed(self.processes):
            process.kill()
            process.wait()

    def call(self, method, path, body=None, kind="application/json"):
        connection = http.client.HTTPSConnection(*API, context=CONTEXT, timeout=30)
        try:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            content = response.read()
            try:
                return response.status, json.loads(content)
            except ValueError:
                return response.status, content
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def create(self, path, body, kind="application/json"):
        status, answer = self.call("POST", path, body, kind)
        assert status == 201, (path, status, answer)
        return answer

    def patch(self, path, body):
        status, answer = self.call("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, (path, status, answer)
        return answer

    def get(self, path):
        status, answer = self.call("GET", path)
        assert status == 200, (path, status, answer)
        return answer

    def add_definitions(self, folder):
        """Adds the custom resource definitions of the Gateway API."""
        for name in sorted(os.listdir(folder)):
            text = open(f"{folder}/{name}").read()
            if "kind: CustomResourceDefinition" in text:
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                self.create(path, text, "application/yaml")
        poll(lambda: self.call("GET", f"{GATEWAY}/httproutes")[0] == 200, 30, "HTTPRoutes are known")

    def weft(self, program, *options, name="weft"):
        command = [
            program, "kubernetes", "--kubeconfig", f"{self.folder}/kubeconfig", "--address", "10.244.0.1",
            "--status-listen", "127.0.0.1:9901", "--log", "none", "--shutdown-delay", "1s", *options,
        ]
        return self.start(name, command)

    def service(self, name, addresses, port=8080, namespace="default"):
        """Creates a service with the endpoints at `addresses`, or replaces its endpoints."""
        body = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name},
                "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port}]}}
        if self.call("GET", f"/api/v1/namespaces/{namespace}/services/{name}")[0] == 404:
            self.create(f"/api/v1/namespaces/{namespace}/services", body)
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        endpoints = [{"addresses": [it], "conditions": {"ready": True}} for it in addresses]
        body = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "endpoints": endpoints,
                "ports": [{"name": "http", "port": port, "protocol": "TCP"}]}
        if self.call("GET", f"{slices}/{name}-1")[0] == 404:
            self.create(slices, body)
        else:
            self.patch(f"{slices}/{name}-1", {"endpoints": endpoints})

    def route(self, name, spec, namespace="default", gateway="gw"):
        body = {"kind": "HTTPRoute", "apiVersion": "gateway.networking.k8s.io/v1",
                "metadata": {"name": name}, "spec": {"parentRefs": [{"name": gateway}], **spec}}
        return self.create(f"{GATEWAY}/namespaces/{namespace}/httproutes", body)


class Backend:
    """A server whose responses have its name. It waits for open requests when it stops."""

    def __init__(self, address, name, port=8080):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = json.dumps({"name": name, "path": self.path, "headers": dict(self.headers)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def ask(host, path="/", port=10080, headers={}, address="10.244.0.1"):
    """Returns status, fields and content of a response; the status 0 for no response."""
    connection = http.client.HTTPConnection(address, port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": host, **headers})
        response = connection.getresponse()
        content = response.read()
        try:
            content = json.loads(content)
        except ValueError:
            pass
        return response.status, dict(response.getheaders()), content
    except OSError as error:
        return 0, {}, str(error)
    finally:
        connection.close()


def poll(condition, seconds, what):
    """Waits until `condition` returns something true, and returns that."""
    end = time.time() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.time() < end, f"after {seconds} s it is not true that {what}"
        time.sleep(0.005)


class Load:
    """Requests of some clients, one after the other, until they are stopped."""

    def __init__(self, host, clients=4, pause=0.005):
        self.results, self.is_stopped, self.lock = {}, False, threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(host, pause)) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, host, pause):
        connection = http.client.HTTPConnection("10.244.0.1", 10080, timeout=10)
        while not self.is_stopped:
            try:
                connection.request("GET", "/", headers={"Host": host})
                response = connection.getresponse()
                response.read()
                result = response.status
            except Exception as error:
                result = type(error).__name__
                connection.close()
            with self.lock:
                self.results[result] = self.results.get(result, 0) + 1
            time.sleep(pause)

    def stop(self):
        self.is_stopped = True
        for thread in self.threads:
            thread.join()
        return self.results
