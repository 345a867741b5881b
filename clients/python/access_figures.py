#!/usr/bin/env python3
"""Measures a database with per-document access next to one database per user.

    python3 clients/python/access_figures.py target/release/settee [--users 1000] [--documents 100]

Starts a server on a free port with an empty data directory. Each document names its user; every tenth one also names one of 100
groups, of which each user has one as a role. Prints medians. Use it on a machine without other work. It is not a test.
"""

import argparse
import http.client
import json
import os
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

    def status(self, path):
        answer = self.open("GET", path)
        answer.read()
        return answer.status


def millis(act, rounds=1):
    begun = time.perf_counter()
    for _ in range(rounds):
        act()
    return (time.perf_counter() - begun) * 1000 / rounds


def shown(name, values):
    parts = [f"{place} {statistics.median(measured):.2f} ms" for place, measured in values.items()]
    print(f"{name}: {', '.join(parts)}", flush=True)


def document(user, at, is_listed=True):
    groups = [f"g{user % GROUPS}"] if at % 10 == 0 else []
    access = {"_access": [f"u{user}", *groups]} if is_listed else {}
    return {"_id": f"{user:04}-{at:06}", "kind": f"k{at % 7}", "at": at, "text": "x" * 200, **access}


def visible(user, users, count):
    """The documents of a user, and those of the group."""
    mates = [other for other in range(user % GROUPS, users, GROUPS) if other != user]
    own = [document(user, at, False) for at in range(count)]
    return own + [document(mate, at, False) for mate in mates for at in range(0, count, 10)]


def load(admin, users, count):
    """Loads documents into one database, and the visible ones of each user into a database of this user."""
    admin.ask("PUT", "/shared?access=true")
    admin.ask("PUT", "/shared/_security", {"members": {"roles": ["_users"]}})
    docs = [document(user, at) for at in range(count) for user in range(users)]
    parts = [docs[begin : begin + 1000] for begin in range(0, len(docs), 1000)]
    one = millis(lambda: [admin.ask("POST", "/shared/_bulk_docs", {"docs": part}) for part in parts]) / 1000

    def separate():
        for user in range(users):
            admin.ask("PUT", f"/own{user}")
            admin.ask("POST", f"/own{user}/_bulk_docs", {"docs": visible(user, users, count)})

    many = millis(separate) / 1000
    each = len(visible(0, users, count))
    print(f"load: {len(docs)} documents {one:.1f} s, {users} databases with {each} documents each {many:.1f} s", flush=True)
    for database in ["shared", *(f"own{user}" for user in range(users))]:
        admin.ask("PUT", f"/{database}/_design/d", DESIGN)
    admin.ask("POST", "/shared/_index", INDEX)


def pull(client, database):
    """Returns the last sequence of a first replication, which reads as PouchDB does."""
    feed = client.ask("GET", f"/{database}/_changes?style=all_docs&since=0&limit=10000")
    wanted = [{"id": row["id"], "rev": each["rev"]} for row in feed["results"] for each in row["changes"]]
    for begin in range(0, len(wanted), 100):
        client.ask("POST", f"/{database}/_bulk_get?revs=true&latest=true", {"docs": wanted[begin : begin + 100]})
    return feed["last_seq"]


def reads(port, admin, users):
    names = ["first replication", "one later change", "reduced view", "rows of a key", "_find with an index", "a write"]
    found = {name: {"shared": [], "own": []} for name in names}
    key = "key=%22k3%22&reduce=false"
    query = {"selector": {"kind": "k3"}, "sort": ["kind", "at"], "limit": 10}
    for user in users:
        member = Client(port, f"u{user}")
        for place, client, database in [("shared", member, "shared"), ("own", admin, f"own{user}")]:
            view = f"/{database}/_design/d/_view/by_kind"
            client.ask("GET", view)
            if place == "own":
                client.ask("POST", f"/{database}/_index", INDEX)
            client.ask("POST", f"/{database}/_find", query)
            add = lambda name, act, rounds=5: found[name][place].append(millis(act, rounds))
            add(names[0], lambda: pull(client, database))
            for number in range(10):
                since = client.ask("GET", f"/{database}/_changes?descending=true&limit=1")["last_seq"]
                body = {**document(user, 500_001, place == "shared"), "_id": f"{user:04}-new{number}"}
                add(names[5], lambda: client.ask("PUT", f"/{database}/{body['_id']}", body), 1)
            add(names[1], lambda: client.ask("GET", f"/{database}/_changes?since={since}"))
            client.ask("GET", view)
            add(names[2], lambda: client.ask("GET", view))
            add(names[3], lambda: client.ask("GET", f"{view}?{key}"))
            client.ask("POST", f"/{database}/_find", query)
            add(names[4], lambda: client.ask("POST", f"/{database}/_find", query))
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


def probes(port, rounds):
    """Alternating reads of documents that do not exist, and of invisible ones."""
    client = Client(port, "u1")
    kinds = {"missing": "none-000001", "foreign": "0002-000001", "foreign, 200 revisions": "long", "deleted": "gone"}
    times = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, id_ in kinds.items():
            begun = time.perf_counter()
            assert client.status(f"/shared/{id_}") == 404
            times[kind].append((time.perf_counter() - begun) * 1000)
    for kind, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"GET of a {kind} document: median {middle:.4f} ms, quartiles {low:.4f} and {high:.4f} ms")


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
    parser.add_argument("--documents", type=int, default=100, help="documents of each user")
    parser.add_argument("--measured", type=int, default=20, help="number of users whose requests are measured")
    parser.add_argument("--seconds", type=int, default=10)
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
            load(admin, args.users, args.documents)
            admin.ask("GET", "/shared/_design/d/_view/by_kind")
            reads(port, admin, measured)
            roles(port, admin, 1000)
            hidden(admin)
            probes(port, 3000)
            feeds(port, args.seconds, measured)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
