#!/usr/bin/env python3
"""Times requests that read many documents, on one server or on two in turn.

    python3 crates/bench/scripts/reads_together.py http://admin:pw@127.0.0.1:5984 [http://admin:pw@127.0.0.1:5985]

Makes the database `reads-together` (and removes it at the end), so use servers that hold nothing of value. Each figure is
the median of the rounds, in milliseconds; with two servers the rounds alternate, and the last column says how many times as
fast the second is. Every answer is checked. Nothing but the standard library is needed.
"""

import argparse
import base64
import http.client
import json
import statistics
import time
import urllib.parse

DATABASE = "reads-together"
BODY = "lorem ipsum dolor sit amet " * 12


class Server:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port or 5984)
        login = f"{parts.username or ''}:{parts.password or ''}".encode()
        self.headers = {"Content-Type": "application/json"}
        if parts.username:
            self.headers["Authorization"] = "Basic " + base64.b64encode(login).decode()

    def ask(self, method, path, body=None, accepted=(200, 201, 202)):
        text = None if body is None else json.dumps(body)
        self.connection.request(method, f"/{DATABASE}{path}", text, self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status not in accepted:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:300]!r}")
        return content

    def prepare(self, count):
        self.ask("DELETE", "", accepted=(200, 202, 404))
        self.ask("PUT", "")
        for first in range(0, count, 5000):
            docs = [document(number) for number in range(first, min(count, first + 5000))]
            self.ask("POST", "/_bulk_docs", {"docs": docs})
        functions = {
            "views": {"n": {"map": "function (doc) { emit(doc.n, null); }"}},
            "filters": {"all": "function (doc, req) { return doc.n >= 0; }"},
        }
        self.ask("PUT", "/_design/reads", functions)
        self.ask("POST", "/_index", {"index": {"fields": ["group"]}, "ddoc": "find", "name": "group"})
        self.ask("GET", "/_design/reads/_view/n?limit=1")
        self.ask("POST", "/_find", {"selector": {"group": 1}, "limit": 1})


def document(number, prefix="d"):
    return {"_id": f"{prefix}{number:07}", "n": number, "group": number % 997, "text": BODY}


def elements(name, count):
    def check(answer):
        found = len(json.loads(answer)[name])
        assert found == count, f"{found} {name} instead of {count}"

    return check


def saved(count):
    def check(answer):
        revisions = [row for row in json.loads(answer) if "rev" in row]
        assert len(revisions) == count, f"{len(revisions)} were saved"

    return check


def members(count):
    def check(answer):
        assert len(json.loads(answer)) == count

    return check


def workloads(count, round_number):
    """Name, method, path, body, check. Which documents are asked for changes with the round."""

    def spread(wanted):
        return [f"d{(number * 7919 + round_number * 104729) % count:07}" for number in range(min(wanted, count))]

    unknown = ["9-00000000000000000000000000000000"]
    keys, ids, compared = spread(2000), spread(200), sorted(set(spread(500)))
    rows = min(20000, count)
    new = [document(number, f"v{round_number}-") for number in range(5000)]
    return [
        ("_all_docs?include_docs, 2,000 keys", "POST", "/_all_docs?include_docs=true", {"keys": keys},
         elements("rows", len(keys))),
        ("view with include_docs, 20,000 rows", "GET", f"/_design/reads/_view/n?include_docs=true&limit={rows}", None,
         elements("rows", rows)),
        ("_bulk_get of 200", "POST", "/_bulk_get", {"docs": [{"id": id} for id in ids]}, elements("results", len(ids))),
        ("_revs_diff of 500", "POST", "/_revs_diff", {id: unknown for id in compared}, members(len(compared))),
        ("_find by an index, 25 results", "POST", "/_find",
         {"selector": {"group": {"$gte": round_number % 900}}, "limit": 25}, elements("docs", 25)),
        ("_changes through a function, 2,000 rows", "GET", "/_changes?filter=reads/all&limit=2000", None,
         elements("results", min(2000, count))),
        ("_changes backwards with documents, 2,000 rows", "GET", "/_changes?descending=true&include_docs=true&limit=2000",
         None, elements("results", min(2000, count))),
        ("bulk of 5,000 with validate_doc_update", "POST", "/_bulk_docs", {"docs": new}, saved(len(new))),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="+", metavar="URL")
    parser.add_argument("--documents", type=int, default=50000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    servers = [Server(url) for url in args.servers[:2]]
    for server in servers:
        server.prepare(args.documents)
    times = {}
    for round_number in range(args.rounds):
        rule = {"validate_doc_update": "function (doc, old, user, security) { if (doc.n < 0) throw({forbidden: 'n'}); }"}
        for place, server in enumerate(servers):
            for name, method, path, body, check in workloads(args.documents, round_number):
                if name.startswith("bulk"):
                    rev = json.loads(server.ask("PUT", f"/_design/rule{round_number}", rule))["rev"]
                begun = time.perf_counter()
                answer = server.ask(method, path, body)
                times.setdefault(name, [[] for _ in servers])[place].append((time.perf_counter() - begun) * 1000)
                check(answer)
                if name.startswith("bulk"):
                    server.ask("DELETE", f"/_design/rule{round_number}?rev={rev}")
    for name, measured in times.items():
        medians = [statistics.median(values) for values in measured]
        columns = "  ".join(f"{value:9.1f} ms" for value in medians)
        factor = f"  {medians[0] / medians[1]:5.2f}x" if len(medians) == 2 else ""
        print(f"{name:46}  {columns}{factor}")
    for server in servers:
        server.ask("DELETE", "")


if __name__ == "__main__":
    main()
