"""Feeds that stay open while documents are written: continuous, longpoll and eventsource of `_changes` and `_db_updates`."""

import json
import re

from compare import body_difference, first_difference, parsed, plain
from endpoints import Request, bound

# The feeds of one round are open at the same time. Each write waits for the rows of the one before, because a feed may skip a revision.
FEEDS = 4
WINDOW = 4.5
WRITE_DELAY = 0.35
# Less than the `timeout` of feeds that receive the writes.
END_TIMEOUT = 1.2
ROUTES = ("(feed) /{db}/_changes", "(feed) /_db_updates")
# Each list has a value that is absent from most requests. Times are far from multiples of WRITE_DELAY.
OPTIONS = {
    "since": (["{last}", "{last}", "now", "now", "{seq}", "0"], 0.95), "heartbeat": (["500", "true", "1200", "0", "false", "-1", "x"], 0.4),
    "timeout": (["100", "1800", "1800", "0", "-1", "x"], 0.5), "style": (["all_docs", "main_only"], 0.3), "include_docs": (["true"], 0.3), "conflicts": (["true"], 0.15),
    "limit": (["1", "2", "3", "0", "x"], 0.2), "attachments": (["true"], 0.08), "att_encoding_info": (["true"], 0.05), "descending": (["true"], 0.05),
    "seq_interval": (["2"], 0.05), "last-event-id": (["{last}", "x"], 0.05), "callback": (["f"], 0.03),
}
FILTERS = [[], [], [], [("filter", "d/yes")], [("filter", "d/odd")], [("filter", "d/throws")], [("filter", "d/none")], [("filter", "none/f")], [("filter", "_design")], [("filter", "_view"), ("view", "d/v")],
           [("filter", "_view"), ("view", "d/stats")], [("filter", "_view")], [("filter", "d/slow")], [("filter", "_doc_ids"), ("doc_ids", '["conf","w1","b"]')], [("filter", "_doc_ids")]]
BODIES = [({"selector": {"n": {"$gt": 1}}}, "_selector"), ({"selector": {"n": {"$gt": 1}}, "fields": ["n"]}, "_selector"), ({"doc_ids": ["w1", "a", "none"]}, "_doc_ids"), ({}, None), ({"selector": 1}, "_selector")]


def drawn(draw, partitioned):
    """Returns the feeds of a round and the writes that are sent while they are open."""
    return [feed(draw) for _ in range(FEEDS)], writes(draw, "p:" if partitioned else "")


def feed(draw):
    updates = draw.random() < 0.2
    # The time of a row of `_db_updates` varies, because CouchDB combines the events of half a second.
    names = ("heartbeat",) if updates else tuple(OPTIONS)
    query = [("feed", draw.choice(["continuous", "continuous", "longpoll", "eventsource"]))]
    query += [(name, draw.choice(values)) for name, (values, share) in OPTIONS.items() if name in names and draw.random() < share]
    if updates:
        return Request("GET", ROUTES[1], "/_db_updates", query + [("since", "now")] + ([("heartbeat", "1200")] if len(query) == 1 else []), {}, None)
    if not any(name in ("heartbeat", "timeout") for name, _ in query):
        query.append(("timeout", "1800"))
    if draw.random() < 0.25:
        body, name = draw.choice(BODIES)
        query += [("filter", name)] if name else []
        return Request("POST", ROUTES[0], "/{db}/_changes", query, {"Content-Type": "application/json"}, json.dumps(body))
    headers = {"Last-Event-ID": draw.choice(["{last}", "0", "x"])} if draw.random() < 0.05 else {}
    return Request("GET", ROUTES[0], "/{db}/_changes", query + draw.choice(FILTERS), headers, None)


def ends_at_once(request):
    """Returns true if the feed ends before the first write, unless the server is slow."""
    return any(option in request.query for option in (("timeout", "0"), ("timeout", "100"))) and not any(name == "heartbeat" for name, _ in request.query)


def writes(draw, prefix):
    conflict = {"_id": prefix + "w5", "_rev": "2-" + "c" * 32, "_revisions": {"start": 2, "ids": ["c" * 32, "a" * 32]}, "n": 3}
    choices = [("PUT", f"/{{db}}/{prefix}w1", {"n": 1}), ("PUT", f"/{{db}}/{prefix}w2", {"n": 2, "a": "x"}), ("POST", "/{db}/_bulk_docs", {"docs": [{"_id": prefix + "w3", "n": 3}, {"_id": prefix + "w4"}]}),
               ("POST", "/{db}/_bulk_docs", {"new_edits": False, "docs": [conflict]}), ("DELETE", f"/{{db}}/{prefix}b?rev={{rev}}", None), ("PUT", f"/{{db}}/{prefix}w6/f", "text"),
               ("PUT", "/{db}/_local/w", {"n": 1}), ("PUT", "/{db}/_design/w", {"filters": {}}), ("PUT", f"/{{db}}/{prefix}a?rev={{rev}}", {"n": 5})]
    requests = []
    deletion = [("DELETE", "/{db}", None)] if draw.random() < 0.12 else []
    for method, path, body in draw.sample(choices, 3 - len(deletion)) + deletion:
        identified = path.removeprefix("/{db}/").split("?")[0]
        requests.append(Request(method, "(write) " + path, bound(path, identified), [], {"Content-Type": "application/json"}, body if isinstance(body, str) or body is None else json.dumps(body)))
    return requests


def difference(request, answers, database):
    """Returns the kind of the first difference between two feeds, or None."""
    if answers[0].status != 200:
        return body_difference(*answers) if answers[0].status in range(201, 500) else None
    left, right = ([*items(request, answer, database)] for answer in answers)
    beats = [heartbeats(answer) for answer in answers]
    if request.route == ROUTES[0] and ("heartbeat", "500") in request.query and (beats[0] == 0) != (beats[1] == 0):
        return f"heartbeats {beats[0]} and {beats[1]}"
    return (found := first_difference(left, right)) and f"rows {found}"


def heartbeats(answer):
    return len(re.findall(rb"event: heartbeat", answer.body)) or len(re.findall(rb"(?m)^$", re.sub(rb"(?m)^(data|id):.*\n\n?", b"", answer.body.rstrip(b"\n") + b"\n" * answer.body.endswith(b"\n\n"))))


def items(request, answer, database):
    """Yields the rows of a feed. Events of `_db_updates` are those of the writes, each kind once, because CouchDB combines them."""
    text = answer.body.decode(errors="replace")
    rows = [text] if ("feed", "longpoll") in request.query or answer.status != 200 else re.findall(r"(?m)^(?:data: ?)?(\{.*)$", text)
    seen = set()
    for row in filter(str.strip, rows):
        try:
            value = parsed(row)
        except ValueError:
            yield re.sub(r"\s+|\"[0-9]+-[^\"]*\"", "", row)[:200]
            continue
        # A longpoll feed of `_db_updates` ends with the event of any database.
        if request.route == ROUTES[1] and ("feed", "longpoll") in request.query:
            continue
        if request.route == ROUTES[1]:
            found = set(re.findall(r'"db_name":"' + database + r'","type":"(updated|deleted)"', row)) - seen
            seen |= found
        else:
            yield plain(value)
    if seen:
        yield sorted(seen)
