#!/usr/bin/env python3
"""Sends the same random requests to two servers, a CouchDB and a Settee, and reports each class of different answers once.

    python3 fuzz/differential.py --left http://admin:pw@127.0.0.1:15984 --right http://admin:pw@127.0.0.1:5984 --requests 20000 [--seed N]

Requests are grouped into stories. A story creates its own database, sends 60 requests, writes while feeds
are open, and then compares the documents and changes.
It depends only on the seed and its number: `--seed N --story K` repeats one story, `--verbose` prints each of its requests. The
names of the databases begin with df; use servers without valuable data. The exit code is 1 if a difference occurred that
`differential/accepted.py` does not list.
"""

import argparse
import base64
import collections
import concurrent.futures
import dataclasses
import http.client
import json
import pathlib
import random
import re
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parent / "differential"))
import accepted  # noqa: E402
import compare  # noqa: E402
import endpoints  # noqa: E402
import feeds  # noqa: E402
import stories  # noqa: E402

# Feeds and replications may not end. Other requests wait longer, because a busy server is no difference.
READ_TIMEOUT = 3.0
RESPONSE_TIMEOUT = 60.0
BATCH_DELAY = 0.5
STORY = 60
WRITES = ("PUT", "POST", "DELETE", "COPY")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Server:
    """One of the two servers, with the values that placeholders have on it."""

    def __init__(self, url):
        self.url = urllib.parse.urlsplit(url)
        self.here = f"{self.url.scheme}://{self.url.netloc}"
        self.logins = {"admin": f"{self.url.username}:{self.url.password}", "user": "df-user:pw"}
        self.values = {}

    def fill(self, text, revs):
        def found(match):
            name, _, identified = match[1].partition(":")
            if name in ("rev", "old", "other"):
                known = revs.get(identified) if name != "other" else revs.get("b" if identified == "a" else "a")
                return (known[0] if name == "old" else known[-1]) if known else "1-" + "e" * 32
            return self.values.get(name, match[0])
        return re.sub(r"\{((?:rev|old|other):[^{}]*|seq|last|here|md5)\}", found, text.replace("{db}", self.values.get("db", "{db}")))

    def send(self, method, url, headers, body, login="admin", revs=None, window=None):
        revs = revs or {}
        url = "".join(c if 32 < ord(c) < 127 else urllib.parse.quote(c) for c in self.fill(url, revs))
        headers = {name: self.fill(value, revs).encode() for name, value in headers.items()}
        if login in self.logins:
            headers["Authorization"] = "Basic " + base64.b64encode(self.logins[login].encode()).decode()
        headers.setdefault("Accept", "application/json")
        body = self.fill(body, revs).encode("utf-8", "surrogatepass") if body is not None else None
        # One connection per request, because some answers to HEAD have a body, which would be read as the next answer.
        timeout = window or (READ_TIMEOUT if re.search("_changes|_db_updates|_replicate", url) else RESPONSE_TIMEOUT)
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=timeout)
        try:
            connection.putrequest(method, url, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return read(connection.sock, connection.getresponse(), timeout)
        except TimeoutError:
            return Answer("open", {}, b"")
        except (http.client.HTTPException, OSError) as error:
            return Answer(type(error).__name__, {}, b"")
        finally:
            connection.close()


def read(socket, response, timeout):
    """Reads an answer to its end, but for `timeout` seconds at most, because feeds do not end."""
    deadline = time.monotonic() + timeout
    headers = {}
    for name, value in response.getheaders():
        headers.setdefault(name.lower(), []).append(value)
    body = b""
    try:
        while chunk := response.read1(65536):
            body += chunk
            if time.monotonic() > deadline:
                headers["(open)"] = ["yes"]
                break
            socket.settimeout(max(deadline - time.monotonic(), 0.001))
    except TimeoutError:
        headers["(open)"] = ["yes"]
    except http.client.HTTPException:
        headers["(broken)"] = ["yes"]
    return Answer(response.status, headers, body)


class Run:
    def __init__(self, left, right, options):
        self.servers, self.options = (left, right), options
        self.classes, self.known, self.crashes = {}, collections.Counter(), {}
        self.requests, self.last_new = 0, 0
        # True after a change of settings or a purge in the current story, because CouchDB counts these in the update sequence.
        self.renumbered = False

    def both(self, request, revs):
        self.requests += 1
        return [server.send(request.method, request.url(), request.headers, request.body, request.login, revs) for server in self.servers]

    def report(self, story, step, request, answers, found):
        signature = f"{request.route} | {found}"
        reason = accepted.reason(request, answers, found, self.renumbered)
        if reason:
            self.known[reason] += 1
        elif found.startswith("crash"):
            if self.crashes.setdefault(signature, [0])[0] == 0:
                print(f"CRASH {signature}\n   story {story}/{step} {request.method} {request.url()} {request.body!r:.200}\n   right {answers[1].status} {answers[1].body[:200]!r}", flush=True)
            self.crashes[signature][0] += 1
        else:
            if signature not in self.classes:
                self.classes[signature] = 0
                self.last_new = self.requests
                print(f"NEW {signature}\n   story {story}/{step}: {request.method} {request.url()} {request.headers} {request.login} {request.body!r:.600}", flush=True)
                for side, answer in zip(("left ", "right"), answers):
                    print(f"   {side} {answer.status} {answer.body[:400]!r}", flush=True)
            self.classes[signature] += 1

    def watch(self, story, draw, partitioned, revs):
        """Opens feeds, writes while they are open and compares them. Returns false if the answers to a write differ or the database was deleted."""
        requests, writes = feeds.drawn(draw, partitioned)
        with concurrent.futures.ThreadPoolExecutor(2 * len(requests)) as pool:
            opened = [[pool.submit(server.send, request.method, request.url(), request.headers, request.body, "admin", dict(revs), feeds.WINDOW) for server in self.servers] for request in requests]
            for write in writes:
                time.sleep(feeds.WRITE_DELAY)
                answers = self.both(write, revs)
                learn(answers[0], revs)
                if found := compare.difference(write, answers):
                    self.report(story, "write", write, answers, found)
                    return False
            results = [[side.result() for side in sides] for sides in opened]
        self.requests += len(requests)
        for request, answers in zip(requests, results):
            found = compare.difference(dataclasses.replace(request, method="HEAD"), answers) or feeds.difference(request, answers, self.servers[0].values["db"])
            if self.options.verbose:
                print(f"feed {request.method} {request.url()} {request.headers} {request.body}\n   {answers[0].status} {answers[0].body!r:.1000}\n   {answers[1].status} {answers[1].body!r:.1000}\n   {found}")
            if found:
                self.report(story, "feed", request, answers, found)
        return writes[-1].path != "/{db}"

    def play(self, story):
        """Runs a story. The story ends early if the answers to a write differ, because the databases then differ too."""
        draw = random.Random(f"{self.options.seed}/{story}")
        partitioned = draw.random() < 0.15
        name = f"df{self.options.seed}s{story}"
        revs, self.renumbered = {}, False
        for server in self.servers:
            server.values = {"db": name, "here": server.here, "md5": "x"}
            server.send("DELETE", "/{db}", {}, None)
        for method, path, body in stories.setup(partitioned):
            request = endpoints.Request(method, "(setup)", path, [], {"Content-Type": "application/json"}, body)
            answers = self.both(request, revs)
            learn(answers[0], revs)
            if found := compare.difference(request, answers):
                self.report(story, "setup", request, answers, found)
        for doc in stories.documents()[1]:
            revs.setdefault(("q:" if partitioned else "") + doc["_id"], []).append(doc["_rev"])
        for server in self.servers:
            feed = json.loads(server.send("GET", "/{db}/_changes", {}, None).body)
            server.values |= {"seq": feed["results"][2]["seq"], "last": feed["last_seq"]}
        watched = draw.randrange(STORY)
        for step in range(STORY):
            if step == watched and not self.watch(story, draw, partitioned, revs):
                break
            request = endpoints.one(draw, partitioned)
            answers = self.both(request, revs)
            found = compare.difference(request, answers)
            if self.options.verbose:
                print(f"{step} {request.method} {request.url()} {request.headers} {request.body!r:.300}\n   {answers[0].status} {answers[0].body[:200]!r}\n   {answers[1].status} {answers[1].body[:200]!r}\n   {found}")
            learn(answers[0], revs)
            if answers[0].status in (200, 201, 202) and re.search(r"_purge$|_limit$|_security$", request.route) and request.method in WRITES:
                self.renumbered = True
            # The edit is stored after the response.
            if answers[0].status == 202 and ("batch", "ok") in request.query:
                time.sleep(BATCH_DELAY)
            # Generated ids differ, and so does their position in the order of ids.
            if request.method == "POST" and answers[0].status in (201, 202) and generated(answers[0]) != generated(answers[1]):
                break
            # A batched edit of a revision that does not exist is answered alike, but only CouchDB stores it.
            if answers[0].status == 202 and ("batch", "ok") in request.query and (any(name == "rev" for name, _ in request.query) or "If-Match" in request.headers or '"_rev' in (request.body or "")):
                break
            if found:
                self.report(story, step, request, answers, found)
                if request.method in WRITES and (answers[0].status != answers[1].status or answers[0].status in (201, 202)):
                    break
        else:
            for path in ("/{db}/_all_docs?include_docs=true&conflicts=true", "/{db}/_changes?style=all_docs", "/{db}/_local_docs?include_docs=true", "/{db}/_security"):
                request = endpoints.Request("GET", "(end) " + path, path, [], {}, None)
                answers = self.both(request, revs)
                if found := compare.difference(request, answers):
                    self.report(story, "end", request, answers, found)
        for server in self.servers:
            server.send("DELETE", "/{db}", {}, None)
            users = json.loads(server.send("GET", '/_users/_changes?style=all_docs&filter=_doc_ids&doc_ids=["org.couchdb.user:{db}-u","org.couchdb.user:{db}-v"]', {}, None).body)
            purged = {row["id"]: [change["rev"] for change in row["changes"]] for row in users["results"]}
            server.send("POST", "/_users/_purge", {"Content-Type": "application/json"}, json.dumps(purged))


def generated(answer):
    """Returns the ids of 32 hexadecimal digits in an answer, which a server has generated."""
    return re.findall(rb'"id":"[0-9a-f]{32}"', answer.body)


def learn(answer, revs):
    """Adds the revisions in an answer to a write to `revs`."""
    if answer.status not in (200, 201, 202):
        return
    try:
        body = json.loads(answer.body)
    except ValueError:
        return
    for row in body if isinstance(body, list) else [body]:
        if isinstance(row, dict) and isinstance(row.get("rev"), str) and isinstance(row.get("id"), str):
            revs.setdefault(row["id"], []).append(row["rev"])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--left", required=True, help="URL of the reference server")
    options.add_argument("--right", required=True, help="URL of the server to compare")
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=time.time_ns() % 2 ** 24)
    options.add_argument("--story", type=int, help="run only this story")
    options.add_argument("--verbose", action="store_true")
    options = options.parse_args()
    print(f"seed {options.seed}", flush=True)
    run = Run(Server(options.left), Server(options.right), options)
    for server in run.servers:
        # Stories send wrong passwords. With lockout enabled both servers would then answer all other requests with 403.
        if server.send("PUT", "/_node/_local/_config/chttpd_auth_lockout/mode", {"Content-Type": "application/json"}, '"off"').status != 200:
            sys.exit(f"{server.here} does not accept the administrator")
        # With few iterations, because a slow server would otherwise not answer within READ_TIMEOUT.
        server.send("PUT", "/_node/_local/_config/chttpd_auth/iterations", {"Content-Type": "application/json"}, '"10"')
        server.send("PUT", "/_users/org.couchdb.user:df-user", {"Content-Type": "application/json"}, json.dumps({"name": "df-user", "password": "pw", "roles": [], "type": "user"}))
        if server.send("GET", "/_session", {}, None, login="user").status != 200:
            sys.exit(f"{server.here} does not accept the user df-user")
    if options.story is not None:
        run.play(options.story)
    else:
        story = 0
        while run.requests < options.requests:
            run.play(story)
            story += 1
    for reason, count in run.known.most_common():
        print(f"accepted {count}: {reason}")
    for signature, count in sorted(run.classes.items(), key=lambda entry: -entry[1]):
        print(f"class {count}: {signature}")
    print(f"{run.requests} requests, {len(run.classes)} classes of differences, {run.requests - run.last_new} requests since the last new one")
    return 1 if run.classes else 0


if __name__ == "__main__":
    sys.exit(main())
