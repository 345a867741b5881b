#!/usr/bin/env python3
"""Measures a database with per-document access next to one database per user.

    python3 clients/python/access_figures.py target/release/settee [--users 1000] [--documents 1000]

Starts a server on a free port with an empty data directory. Each document names its user. Of ten consecutive documents one also
names a group, of which each user has one as a role, and eight name topics, which no user has: ten lists for each user. The
measured users also get a database of their own with the same visible documents. Prints medians. Use it on a machine without
other work. It is not a test.
"""

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import threading
import time

GROUPS = 100
MAP = "function (doc) { emit(doc.kind, doc.at); }"
DESIGN = {"_id": "_design/d", "views": {"by_kind": {"map": MAP, "reduce": "_stats"}}}
INDEX = {"index": {"fields": ["kind", "at"]}, "ddoc": "q", "name": "i"}


class Client:
    """One connection. Requests are sent with a cookie, because checking a password takes longer than most requests."""

    def __init__(self, port, name):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self.headers = {"Content-Type": "application/json"}
        self.ask("POST", "/_session", {"name": name, "password": "pw"})

    def open(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, self.headers)
        return self.connection.getresponse()

    def ask(self, method, path, body=None):
        answer = self.open(method, path, body)
        cookie = answer.getheader("Set-Cookie")
        if cookie:
            self.headers["Cookie"] = cookie.split(";")[0]
        return json.loads(answer.read())

    def status(self, method, path, body=None):
        answer = self.open(method, path, body)
        answer.read()
        return answer.status


def millis(act, rounds=1):
    begun = time.perf_counter()
    for _ in range(rounds):
        act()
    return (time.perf_counter() - begun) * 1000 / rounds


def shown(name, values):
    parts = []
    for place, measured in values.items():
        low, middle, high = statistics.quantiles(measured, n=4)
        parts.append(f"{place} {middle:.2f} ms ({low:.2f} to {high:.2f})")
    print(f"{name}: {', '.join(parts)}", flush=True)


def document(user, at, is_listed=True):
    kind = at % 10
    others = [f"g{user % GROUPS}"] if kind == 0 else [f"topic{kind}"] if kind < 9 else []
    access = {"_access": [f"u{user}", *others]} if is_listed else {}
    return {"_id": f"{user:04}-{at:06}", "kind": f"k{at % 7}", "at": at, "text": "x" * 200, **access}


def visible(user, users, count):
    """The documents of a user, and those of the group."""
    mates = [other for other in range(user % GROUPS, users, GROUPS) if other != user]
    own = [document(user, at, False) for at in range(count)]
    return own + [document(mate, at, False) for mate in mates for at in range(0, count, 10)]


def load(admin, users, count, measured):
    """Loads documents into one database, and the visible ones of each measured user into a database of this user."""
    admin.ask("PUT", "/shared?access=true")
    admin.ask("PUT", "/shared/_security", {"members": {"roles": ["_users"]}})

    def together():
        for at in range(count):
            admin.ask("POST", "/shared/_bulk_docs", {"docs": [document(user, at) for user in range(users)]})

    def separate():
        for user in measured:
            admin.ask("PUT", f"/own{user}")
            admin.ask("POST", f"/own{user}/_bulk_docs", {"docs": visible(user, users, count)})

    one, many = millis(together) / 1000, millis(separate) / 1000
    each = len(visible(0, users, count))
    print(f"load: {users * count} documents {one:.1f} s", flush=True)
    print(f"load: {len(measured)} databases with {each} documents each {many:.1f} s", flush=True)

    def indexed(database):
        admin.ask("PUT", f"/{database}/_design/d", DESIGN)
        admin.ask("GET", f"/{database}/_design/d/_view/by_kind")
        admin.ask("POST", f"/{database}/_index", INDEX)
        admin.ask("POST", f"/{database}/_find", {"selector": {"kind": "none"}})

    one, many = millis(lambda: indexed("shared")) / 1000, millis(lambda: [indexed(f"own{user}") for user in measured]) / 1000
    print(f"view and JSON index: {one:.1f} s, of {len(measured)} databases {many:.1f} s", flush=True)


def pull(client, database):
    """Returns the last sequence of a first replication, which reads as PouchDB does."""
    feed = client.ask("GET", f"/{database}/_changes?style=all_docs&since=0&limit=10000")
    wanted = [{"id": row["id"], "rev": each["rev"]} for row in feed["results"] for each in row["changes"]]
    for begin in range(0, len(wanted), 100):
        client.ask("POST", f"/{database}/_bulk_get?revs=true&latest=true", {"docs": wanted[begin : begin + 100]})
    return feed["last_seq"]


def reads(port, admin, users):
    found = {}
    query = {"selector": {"kind": "k3"}, "sort": ["kind", "at"], "limit": 10}
    for user in users:
        member = Client(port, f"u{user}")
        for place, client, database in [("shared", member, "shared"), ("own", admin, f"own{user}")]:
            view = f"/{database}/_design/d/_view/by_kind"

            def add(name, act, rounds=5):
                found.setdefault(name, {}).setdefault(place, []).append(millis(act, rounds))

            add("first replication", lambda: pull(client, database))
            for number in range(10):
                since = client.ask("GET", f"/{database}/_changes?descending=true&limit=1")["last_seq"]
                body = {**document(user, 500_001, place == "shared"), "_id": f"{user:04}-new{number}"}
                add("a write", lambda: client.ask("PUT", f"/{database}/{body['_id']}", body), 1)
            add("_changes with one later change", lambda: client.ask("GET", f"/{database}/_changes?since={since}"))
            add("_all_docs", lambda: client.ask("GET", f"/{database}/_all_docs"))
            add("_all_docs, ten rows", lambda: client.ask("GET", f"/{database}/_all_docs?limit=10"))
            add("a document", lambda: client.ask("GET", f"/{database}/{user:04}-000003"))
            client.ask("GET", view)
            add("reduced view", lambda: client.ask("GET", view))
            add("reduced view, one key, grouped", lambda: client.ask("GET", f"{view}?key=%22k3%22&group=true"))
            add("rows of a key", lambda: client.ask("GET", f"{view}?key=%22k3%22&reduce=false"))
            client.ask("POST", f"/{database}/_find", query)
            add("_find with an index, ten rows", lambda: client.ask("POST", f"/{database}/_find", query))
    for name, values in found.items():
        shown(name, values)


def roles(port, admin, count):
    """The cost by the number of names that grant access to the same documents."""
    for number in (0, 10, 50, 100):
        name = f"many{number}"
        account = {"name": name, "password": "pw", "type": "user", "roles": [f"{name}-{role}" for role in range(number)]}
        admin.ask("PUT", f"/_users/org.couchdb.user:{name}", account)
        grants = lambda at: [f"{name}-{at % number}"] if number else [name]
        docs = [{"_id": f"{name}-{at:06}", "kind": "k", "at": at, "_access": grants(at)} for at in range(count)]
        admin.ask("POST", "/shared/_bulk_docs", {"docs": docs})
    admin.ask("GET", "/shared/_design/d/_view/by_kind")
    for number in (0, 10, 50, 100):
        member = Client(port, f"many{number}")
        path = "/shared/_design/d/_view/by_kind"
        member.ask("GET", path)
        values = {"_all_docs": [millis(lambda: member.ask("GET", "/shared/_all_docs")) for _ in range(9)]}
        values["reduced view"] = [millis(lambda: member.ask("GET", path)) for _ in range(9)]
        shown(f"{count} documents, {number} roles", values)


def feeds(port, seconds, users):
    """Ten feeds while a client writes documents of many users."""
    def write(is_followed):
        writer = Client(port, "admin")
        written, end = 0, time.time() + seconds
        while time.time() < end:
            user = users[written % len(users)]
            doc = {**document(user, written), "_id": f"{is_followed}-{written}", "sent": time.time()}
            writer.ask("PUT", f"/shared/{doc['_id']}", doc)
            written += 1
        return written / seconds

    def follow(user, delays, is_ended):
        client = Client(port, f"u{user}")
        since = client.ask("GET", "/shared/_changes?descending=true&limit=1")["last_seq"]
        while not is_ended.is_set():
            feed = client.ask("GET", f"/shared/_changes?feed=longpoll&timeout=1000&include_docs=true&since={since}")
            since = feed["last_seq"]
            delays += [(time.time() - row["doc"]["sent"]) * 1000 for row in feed["results"] if "sent" in row.get("doc", {})]

    alone = write(0)
    delays, is_ended = [], threading.Event()
    threads = [threading.Thread(target=follow, args=(user, delays, is_ended)) for user in users[:10]]
    [thread.start() for thread in threads]
    time.sleep(1)
    followed = write(1)
    is_ended.set()
    [thread.join() for thread in threads]
    delays.sort()
    middle, late = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
    print(f"writes: {alone:.0f}/s without feeds, {followed:.0f}/s with 10 feeds")
    print(f"{len(delays)} changes in feeds: median delay {middle:.1f} ms, p99 {late:.1f} ms")


def probes(port, users, count, rounds):
    """Alternating requests for documents that do not exist, and for invisible ones, in random order."""
    client = Client(port, "u1")
    other = 2 % users
    foreign = lambda at: f"{other:04}-{at % count:06}"
    ids = {"missing": lambda at: f"{foreign(at)}-none", "foreign": foreign}
    bulk = lambda id_: {"docs": [{"id": id_}]}
    routes = {
        "GET": lambda id_: client.status("GET", f"/shared/{id_}") == 404,
        "open_revs": lambda id_: client.status("GET", f"/shared/{id_}?open_revs=all") == 404,
        "attachment": lambda id_: client.status("GET", f"/shared/{id_}/name") == 404,
        "_bulk_get": lambda id_: client.status("POST", "/shared/_bulk_get", bulk(id_)) == 200,
        "_all_docs with keys": lambda id_: client.status("POST", "/shared/_all_docs", {"keys": [id_]}) == 200,
        "_revs_diff": lambda id_: client.status("POST", "/shared/_revs_diff", {id_: ["1-a"]}) == 200,
        "PUT with a revision": lambda id_: client.status("PUT", f"/shared/{id_}?rev=1-a", {"_access": ["u1"]}) == 409,
        "PUT with a foreign list": lambda id_: client.status("PUT", f"/shared/{id_}", {"_access": ["u2"]}) == 403,
    }
    for route, request in routes.items():
        kinds = ids
        if route == "GET":
            kinds = {**ids, "foreign, 200 revisions": lambda _: "long", "foreign, deleted": lambda _: "gone"}
        times = {kind: [] for kind in kinds}
        for at in range(rounds):
            for kind in random.sample(list(kinds), len(kinds)):
                id_ = kinds[kind](at)
                begun = time.perf_counter()
                is_refused = request(id_)
                times[kind].append((time.perf_counter() - begun) * 1000)
                assert is_refused, (route, kind)
        for kind, values in times.items():
            low, middle, high = statistics.quantiles(values, n=4)
            print(f"{route}, {kind}: median {middle:.4f} ms, quartiles {low:.4f} and {high:.4f} ms", flush=True)


def hidden(admin):
    rev = admin.ask("PUT", "/shared/gone", {"_access": ["u2"]})["rev"]
    admin.ask("DELETE", f"/shared/gone?rev={rev}")
    doc = {"_id": "long", "_access": ["u2"]}
    for number in range(200):
        doc["_rev"] = admin.ask("PUT", "/shared/long", {**doc, "number": number})["rev"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=1000, help="documents of each user")
    parser.add_argument("--measured", type=int, default=50, help="number of users whose requests are measured")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5000, help="requests of each kind of the comparison of durations")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command = [args.program, "serve", "--data", directory, "--port", "0", "--set", "log/level=error"]
        environment = {**os.environ, "COUCHDB_USER": "admin", "COUCHDB_PASSWORD": "pw"}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            port = int(re.search(r"http://[^/\s]+:(\d+)", server.stdout.readline()).group(1))
            admin = Client(port, "admin")
            admin.ask("PUT", "/_users")
            step = max(1, args.users // args.measured)
            measured = list(range(0, args.users, step))
            for user in {*measured, 1}:
                account = {"name": f"u{user}", "password": "pw", "roles": [f"g{user % GROUPS}"], "type": "user"}
                admin.ask("PUT", f"/_users/org.couchdb.user:u{user}", account)
            load(admin, args.users, args.documents, measured)
            reads(port, admin, measured)
            roles(port, admin, 1000)
            hidden(admin)
            probes(port, args.users, args.documents, args.rounds)
            feeds(port, args.seconds, measured)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
