#!/usr/bin/env python3
"""Tests of `weft kubernetes` with a real API server. Run by `.ci/kubernetes`, in a network namespace of its own.

usage: run.py PROGRAMS DEFINITIONS WEFT [TEST...]
"""
import signal
import sys
import tempfile
import time

from cluster import GATEWAY, Backend, Cluster, Load, ask, poll

CLASS = {"kind": "GatewayClass", "apiVersion": "gateway.networking.k8s.io/v1",
         "metadata": {"name": "weft"}, "spec": {"controllerName": "weft/gateway"}}
LISTENER = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
ROUTES = f"{GATEWAY}/namespaces/default/httproutes"


def gateway(name="gw", listeners=(LISTENER,)):
    return {"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"name": name},
            "spec": {"gatewayClassName": "weft", "listeners": list(listeners)}}


def backend(name):
    return {"rules": [{"backendRefs": [{"name": name, "port": 80}]}]}


def condition(status, kind):
    found = [it for it in status.get("conditions", []) if it["type"] == kind]
    return (found[0]["status"], found[0]["observedGeneration"]) if found else None


def serves_a_route_and_sets_statuses(cluster):
    cluster.route("first", {"hostnames": ["first.example"], **backend("app")})
    poll(lambda: ask("first.example")[0] == 200, 10, "the route is served")
    assert ask("first.example", "/a/b?c")[2]["path"] == "/a/b?c"
    assert ask("other.example")[0] == 404

    def statuses():
        route = cluster.get(f"{ROUTES}/first")
        own = cluster.get(f"{GATEWAY}/namespaces/default/gateways/gw")
        parents = route.get("status", {}).get("parents", [])
        parent = condition(parents[0], "Accepted") if parents else None
        status = own.get("status", {})
        return (parent == ("True", route["metadata"]["generation"])
                and condition(status, "Programmed") == ("True", own["metadata"]["generation"])
                and status["addresses"] == [{"type": "IPAddress", "value": "10.244.0.1"}]
                and status["listeners"][0]["attachedRoutes"] == 1)
    poll(statuses, 30, "the statuses are set")


def changes_routes_under_load_without_a_lost_request(cluster):
    cluster.route("changed", {"hostnames": ["changed.example"], **backend("app")})
    poll(lambda: ask("changed.example")[0] == 200, 10, "the route is served")
    load = Load("changed.example")
    for number in range(20):
        name = ["other", "app"][number % 2]
        cluster.patch(f"{ROUTES}/changed", {"spec": backend(name)})
        poll(lambda: ask("changed.example")[2].get("name") == name, 10, "the change is in effect")
    results = load.stop()
    print(f"  20 changes of a route: {results}")
    assert set(results) == {200} and results[200] > 100, results


def changes_endpoints_under_load_without_a_lost_request(cluster):
    cluster.service("rolling", ["10.244.0.4"])
    cluster.route("rolling", {"hostnames": ["rolling.example"], **backend("rolling")})
    old = Backend("10.244.0.4", "0")
    poll(lambda: ask("rolling.example")[0] == 200, 10, "the route is served")
    load = Load("rolling.example")
    for number in range(1, 21):
        address = f"10.244.0.{4 + number % 10}"
        new = Backend(address, str(number))
        cluster.service("rolling", [address])
        poll(lambda: ask("rolling.example")[2].get("name") == str(number), 10, "the endpoint is used")
        # A pod has a grace period in which it answers.
        time.sleep(0.1)
        old.stop()
        old = new
    results = load.stop()
    print(f"  20 changes of the endpoint: {results}")
    assert set(results) == {200} and results[200] > 100, results
    cluster.service("rolling", [])
    poll(lambda: ask("rolling.example")[0] == 503, 10, "a service without endpoints gets 503")
    old.stop()


def measures_the_time_until_a_route_is_served(cluster):
    for others in [0, 1000]:
        for number in range(others):
            cluster.route(f"bulk{number}", {"hostnames": [f"bulk{number}.example"], **backend("app")})
        if others:
            begin = time.time()
            poll(lambda: ask(f"bulk{others - 1}.example")[0] == 200, 60, "the last route is served")
            print(f"  the last of {others} routes is served {(time.time() - begin) * 1000:.0f} ms later")
        times, statuses = [], set()
        for number in range(20):
            name = f"probe{others}-{number}"
            begin = time.time()
            cluster.route(name, {"hostnames": [f"{name}.example"], **backend("app")})

            def is_served():
                status = ask(f"{name}.example")[0]
                statuses.add(status)
                return status == 200
            poll(is_served, 30, "the route is served")
            times.append((time.time() - begin) * 1000)
        times.sort()
        print(f"  {others} other routes: p50 {times[10]:.0f} ms, most {times[-1]:.0f} ms; statuses {statuses}")
        assert statuses <= {200, 404}, statuses
    resident = [it for it in open(f"/proc/{cluster.server.pid}/status") if it.startswith("VmRSS")][0]
    print(f"  memory with 1,000 routes: {resident.split()[1]} kB")
    for number in range(others):
        cluster.call("DELETE", f"{ROUTES}/bulk{number}")


def an_invalid_route_does_not_disturb_others(cluster):
    # The API server accepts it, and a field that frames a message cannot be set.
    bad = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [
        {"name": "Transfer-Encoding", "value": "x"}]}}
    rule = {"filters": [bad], "backendRefs": [{"name": "app", "port": 80}]}
    cluster.route("bad", {"hostnames": ["bad.example"], "rules": [rule]})
    cluster.route("good", {"hostnames": ["good.example"], **backend("app")})
    poll(lambda: ask("good.example")[0] == 200, 10, "the other route is served")
    assert ask("bad.example")[0] != 200

    def is_refused():
        parents = cluster.get(f"{ROUTES}/bad").get("status", {}).get("parents", [])
        return parents and condition(parents[0], "Accepted")[0] == "False"
    poll(is_refused, 10, "the status has the refusal")


def serves_while_the_api_server_is_away(cluster):
    cluster.route("steady", {"hostnames": ["steady.example"], **backend("app")})
    poll(lambda: ask("steady.example")[0] == 200, 10, "the route is served")
    api = cluster.processes[1]
    load = Load("steady.example")
    api.send_signal(signal.SIGSTOP)
    time.sleep(5)
    api.send_signal(signal.SIGCONT)
    results = load.stop()
    print(f"  API server stopped for 5 s: {results}")
    assert set(results) == {200}, results
    poll(lambda: cluster.call("GET", "/readyz")[0] == 200, 30, "the API server is back")
    cluster.route("after", {"hostnames": ["after.example"], **backend("app")})
    poll(lambda: ask("after.example")[0] == 200, 60, "later routes are served")


def ends_after_open_requests(cluster):
    process = cluster.server
    load = Load("first.example", clients=1)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    results = load.stop()
    statuses = {it for it in results if isinstance(it, int)}
    print(f"  SIGTERM: {results}")
    assert statuses == {200}, results


TESTS = [
    serves_a_route_and_sets_statuses,
    changes_routes_under_load_without_a_lost_request,
    changes_endpoints_under_load_without_a_lost_request,
    an_invalid_route_does_not_disturb_others,
    measures_the_time_until_a_route_is_served,
    serves_while_the_api_server_is_away,
    ends_after_open_requests,
]


def main():
    programs, definitions, weft, *names = sys.argv[1:]
    tests = [test for test in TESTS if not names or test.__name__ in names]
    with tempfile.TemporaryDirectory(prefix="weft-kubernetes-") as folder:
        cluster = Cluster(programs, folder)
        failed = 0
        try:
            cluster.add_definitions(definitions)
            cluster.create(f"{GATEWAY}/gatewayclasses", CLASS)
            cluster.create(f"{GATEWAY}/namespaces/default/gateways", gateway())
            backends = [Backend("10.244.0.2", "app"), Backend("10.244.0.3", "other")]
            cluster.service("app", ["10.244.0.2"])
            cluster.service("other", ["10.244.0.3"])
            cluster.server = cluster.weft(weft)
            poll(lambda: ask("localhost", "/ready", 9901, address="127.0.0.1")[0] == 200, 30, "weft is ready")
            for test in tests:
                try:
                    print(f"test {test.__name__}", flush=True)
                    test(cluster)
                except Exception as error:
                    failed += 1
                    print(f"  FAILED: {type(error).__name__} {error}")
            if failed:
                print(open(f"{folder}/weft.log").read()[-4000:])
        finally:
            cluster.stop()
        print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
