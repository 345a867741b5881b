#!/usr/bin/env python3
"""Sends random invalid requests to a server and reports faults: a status of 500, no answer, or an answer after more than 20 s.

    python3 fuzz/nonsense.py --url http://admin:pw@127.0.0.1:5984 --seconds 600 [--seed N]

Use a server without valuable data. Routes come from crates/api/src/tests/routes.txt; parameters, headers and bodies are
drawn from values that are difficult to parse. The exit code is 1 if a fault was found; the seed is printed.
"""

import argparse
import base64
import collections
import http.client
import pathlib
import random
import sys
import time
import urllib.parse

ROUTES = pathlib.Path(__file__).parent.parent / "crates/api/src/tests/routes.txt"
# Excluded, because these requests stop the server, change its settings or wait for other servers.
EXCLUDED = ("_restart", "_config", "_reload", "_replicate", "_cluster_setup", "_node")
TEXTS = ["", "0", "1", "-1", "18446744073709551616", "1e400", "null", "true", "false", '"a"', '"\\ud800"', "[]", "[1,[2]]",
         "{}", '{"a":{"$gt":null}}', "a" * 5000, "%00", "\u00e9\u4e2d", "now", "0-g", "1-abc", "1-" + "f" * 32, "_local",
         "..", "a/b", "normal", "longpoll", "ok", "all", "lazy", '["a",{}]', "[" * 200, '{"a":' * 150]
PARAMETERS = ["rev", "revs", "revs_info", "open_revs", "atts_since", "conflicts", "latest", "attachments", "since", "limit",
              "skip", "descending", "startkey", "endkey", "key", "keys", "startkey_docid", "endkey_docid", "inclusive_end", "group",
              "group_level", "reduce", "include_docs", "update", "stable", "feed", "filter", "view", "style", "timeout", "heartbeat",
              "seq_interval", "batch", "new_edits", "q", "n", "partitioned", "bookmark", "count", "last-event-id", "doc_ids", "sorted",
              "update_seq", "local_seq", "meta", "att_encoding_info", "w", "r", "full", "next", "basic", "nonsense"]
MEMBERS = ["_id", "_rev", "_deleted", "_attachments", "_revisions", "docs", "keys", "queries", "selector", "fields", "sort", "limit",
           "map", "reduce", "language", "views", "options", "index", "name", "type", "doc_ids", "new_edits", "purge_seq", "a",
           "validate_doc_update", "filters", "updates", "shows", "lists", "rewrites", "sample", "documents", "action", "admins", "members"]
SCALARS = [None, True, False, 0, 1, -1, 1.5, 1e308, 2 ** 64, "", "a", "_x", "_design/d", "1-" + "0" * 32, "function(doc){emit(doc._id)}",
           "function(k,v,r){return v}", "_sum", "javascript", "query", "erlang", "wasm", "x" * 3000, "\u0000", "\u4e2d"]
# Reasons of expected answers with status 500: CouchDB's status for a parameter of the list of indexes and for a rewrite rule
# without a target; attachments stored as gzip that are not valid gzip and are requested by a client without gzip support.
EXPECTED = [b"invalid_list_index_params", b"invalid_rewrite_target", b"an attachment is not readable"]
NAMES = ["db", "db", "db", "other", "_users", "none", "A", "a" * 300, "db%2Fx", "_replicator"]
IDS = ["a", "b", "_design/d", "_local/l", "_design%2Fd", "%00", "a%2Fb", "x" * 600, "_x", "\u4e2d", "d", "v", "f"]


def value(draw, depth=0):
    kind = draw.random()
    if depth > 5 or kind < 0.5:
        return draw.choice(SCALARS)
    if kind < 0.7:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(MEMBERS): value(draw, depth + 1) for _ in range(draw.randrange(5))}


def text_of(draw):
    import json
    kind = draw.random()
    if kind < 0.15:
        return draw.choice(TEXTS).encode()
    text = json.dumps(value(draw), ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind < 0.3:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + bytes(draw.randrange(256) for _ in range(draw.randrange(4))) + text[at + draw.randrange(3):]
    return text


def path_of(draw, routes):
    parts = []
    for part in draw.choice(routes).strip("/").split("/"):
        if part == "{db}":
            part = draw.choice(NAMES)
        elif part.startswith("{"):
            part = draw.choice(IDS)
        parts.append(part)
    if draw.random() < 0.05:
        parts.insert(draw.randrange(len(parts) + 1), draw.choice(IDS + TEXTS))
    query = "&".join(f"{draw.choice(PARAMETERS)}={urllib.parse.quote(draw.choice(TEXTS)) if draw.random() < 0.9 else draw.choice(TEXTS)}"
                     for _ in range(draw.choice([0, 0, 1, 1, 2, 4])))
    path = "/" + "/".join(parts) + ("?" + query if query else "")
    path = "".join(c if 32 < ord(c) < 127 else urllib.parse.quote(c) for c in path)
    return path if any(name in path for name in ("timeout=", "heartbeat=")) or "feed" not in path else path + "&timeout=100"


def headers_of(draw):
    headers = {}
    if draw.random() < 0.9:
        headers["Content-Type"] = draw.choice(["application/json"] * 6 + ["text/plain", "multipart/related; boundary=x",
                                               "multipart/related", "multipart/form-data; boundary=", "application/x-www-form-urlencoded"])
    for name, values in {"Accept": ["*/*", "multipart/mixed", "application/json", "text/html", ";;"], "If-Match": TEXTS[:20],
                         "If-None-Match": TEXTS[:20], "Range": ["bytes=0-", "bytes=5-1", "bytes=-0", "x"], "Content-Encoding": ["gzip", "x"],
                         "Destination": ["c", "a?rev=1-x", "%00", ""], "X-Couch-Full-Commit": ["true", "x"], "Origin": ["http://x"],
                         "Content-MD5": ["x", "Rk7S2Q=="], "X-HTTP-Method-Override": ["PUT", "DELETE", "NONE"],
                         "Cookie": ["AuthSession=x", "AuthSession=YWRtaW46NUE6eA"]}.items():
        if draw.random() < 0.06:
            chosen = draw.choice(values)
            headers[name] = chosen if chosen.isascii() and chosen.isprintable() else "x"
    return headers


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", required=True)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=time.time_ns() % 2 ** 32)
    options = options.parse_args()
    url = urllib.parse.urlsplit(options.url)
    login = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
    routes = [line.split()[0] for line in ROUTES.read_text().splitlines() if line.startswith("/")]
    routes = [route for route in dict.fromkeys(routes) if not any(name in route for name in EXCLUDED)]
    draw, statuses, found = random.Random(options.seed), collections.Counter(), 0
    print(f"seed {options.seed}, {len(routes)} routes")
    connection, end = None, time.monotonic() + options.seconds
    for name in ("db", "other"):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        connection.request("PUT", "/" + name, headers={"Authorization": "Basic " + login})
        connection.getresponse().read()
    while time.monotonic() < end:
        method = draw.choice(["GET"] * 5 + ["POST"] * 4 + ["PUT"] * 3 + ["DELETE", "HEAD", "COPY", "OPTIONS", "PATCH"])
        path, headers, body = path_of(draw, routes), headers_of(draw), text_of(draw)
        if method in ("GET", "HEAD", "DELETE", "OPTIONS") and draw.random() < 0.9:
            body = None
        if draw.random() < 0.9:
            headers["Authorization"] = "Basic " + login
        began = time.monotonic()
        try:
            if connection is None:
                connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            if status == 500 and method == "HEAD":
                # An answer to HEAD contains no reason.
                connection.request("GET", path, headers=headers)
                text = connection.getresponse().read()
            is_expected = any(reason in text for reason in EXPECTED)
            complaint = f"{status} {text[:300]!r}" if status == 500 and not is_expected else None
        except (http.client.HTTPException, OSError) as error:
            status, connection = type(error).__name__, None
            # A timeout is a fault. A closed connection is not, because the server need not read the rest of a refused request.
            complaint = repr(error) if isinstance(error, TimeoutError) else None
        statuses[status] += 1
        if complaint is None and time.monotonic() - began > 20:
            complaint = "timeout: answered after more than 20 s"
        if complaint:
            found += 1
            print(f"{complaint}\n  {method} {path} {headers} {body!r}"[:1500])
    print(dict(statuses.most_common()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
