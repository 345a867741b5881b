"""Compares two answers after replacing what cannot be the same twice: sequences, sizes, times, ids of servers."""

import json
import re

HEADERS = ("content-type", "etag", "location", "allow", "cache-control", "content-range", "accept-ranges", "content-md5", "content-encoding", "vary", "x-couch-id",
           "x-couch-update-newrev", "www-authenticate", "content-security-policy", "preference-applied", "x-foo", "content-disposition", "set-cookie", "access-control-allow-origin", "pragma", "(open)", "(broken)")
SEQUENCES = {"seq", "last_seq", "update_seq", "committed_seq", "purge_seq", "start_last_seq", "end_last_seq", "recorded_seq", "source_last_seq"}
OPAQUE = {"instance_start_time", "signature", "collator_versions", "sizes", "uuid", "git_sha", "version", "features", "vendor", "compact_running", "session_id", "bookmark", "execution_time_ms", "_local_id",
          "node", "nodes", "all_nodes", "cluster_nodes", "uuids", "stack", "ref", "pid", "name@node", "start_time", "last_updated", "seeds", "range", "view_index"}
SERVERS_OWN = {"access", "engines", "engine_reasons", "engine", "engine_reason"}


def plain(item, name=""):
    """Returns a JSON value with its members as pairs in their order, and with opaque values replaced."""
    if name in OPAQUE:
        return "nil" if item == "nil" else "(opaque)"
    if name == "shards" and isinstance(item, list):
        return "(opaque)"
    if name in SEQUENCES and isinstance(item, str):
        return re.sub(r"^(\d+)-.*", r"\1-", item)
    if isinstance(item, list):
        if item and isinstance(item[0], tuple):
            return {"members": [(key, plain(member, key)) for key, member in item if key not in SERVERS_OWN]}
        return [plain(member, name if name in SEQUENCES else "") for member in item]
    return item


def parsed(text):
    """Returns the JSON value of a text with objects as lists of pairs; an empty object is a list with one empty pair."""
    return json.loads(text, object_pairs_hook=lambda pairs: [(str(key), member) for key, member in pairs] or [("", None)])


def first_difference(left, right, path=""):
    if isinstance(left, dict) and isinstance(right, dict):
        names, others = [name for name, _ in left["members"]], [name for name, _ in right["members"]]
        mine, theirs = dict(left["members"]), dict(right["members"])
        for name in names:
            if name not in theirs:
                return f"{path}/{shown(name)} missing"
        for name in others:
            if name not in mine:
                return f"{path}/{shown(name)} extra"
        for name in names:
            if found := first_difference(mine[name], theirs[name], f"{path}/{shown(name)}"):
                return found
        return f"{path} order of members {names} {others}" if names != others else None
    if isinstance(left, list) and isinstance(right, list):
        for one, other in zip(left, right):
            if found := first_difference(one, other, path + "/#"):
                return found
        return f"{path} {len(left)} and {len(right)} elements" if len(left) != len(right) else None
    if type(left) is not type(right) or left != right:
        return f"{path}: {brief(left)} and {brief(right)}"
    return None


def shown(name):
    return name if re.fullmatch(r"[A-Za-z_]{1,30}", name) else "*"


def brief(item):
    if isinstance(item, str):
        return repr(general(item))[:90]
    return json.dumps(item)[:60] if not isinstance(item, (dict, list)) else type(item).__name__


def general(text):
    """Returns a text of an answer without the parts of the request that it repeats."""
    text = re.sub(r"\d+-[0-9a-f]{16,}", "REV", text)
    text = re.sub(r"df\d+s\d+", "DB", text)
    if "rlang" not in text and re.search(r"<<|\{\[|\{\[?\{", text):
        text = re.sub(r"(: |not |^).*(<<|\{\[).*", r"\1TERM", text)
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|<<.*>>", "'…'", text)
    return re.sub(r"\d+", "N", text)


def header(name, answer, here):
    values = sorted(answer.headers.get(name, []))
    text = ", ".join(values)
    if name == "set-cookie":
        text = re.sub(r"AuthSession=[^;]+", "AuthSession=X", re.sub(r"(Expires|Max-Age)=[^;]*", r"\1", text))
    if name == "content-type":
        text = re.sub(r"boundary=.*", "boundary", text)
    if name == "location":
        # The second pattern is the id that a server has generated.
        text = re.sub(r"/[0-9a-f]{32}$", "/UUID", re.sub(r"^https?://[^/]*", "", text))
    if name == "etag" and not re.fullmatch(r'"\d+-[0-9a-f]{32}"', text):
        return "(hash)" if text else ""
    if name == "allow":
        text = ",".join(sorted(part.strip() for part in text.split(",")))
    return text


def difference(request, answers):
    """Returns the kind of the first difference, or None."""
    left, right = answers
    if left.status == 500 and right.status != 500 and b"no_majority" not in left.body:
        return f"crash {right.status} {error(left)}"
    if left.status != right.status:
        return f"status {left.status} {error(left)} and {right.status} {error(right)}"
    if left.status == 500:
        return None
    for name in HEADERS:
        mine, theirs = header(name, left, None), header(name, right, None)
        if mine != theirs:
            return f"header {name} of {left.status}: {general(mine)!r} and {general(theirs)!r}"
    if left.body == right.body or request.method == "HEAD":
        return None
    return body_difference(left, right)


def body_difference(left, right):
    kind = (left.headers.get("content-type") or [""])[0]
    if kind.startswith("multipart/"):
        boundary = re.search(r'boundary="?([^";]*)', kind)[1].encode()
        other = re.search(r'boundary="?([^";]*)', right.headers["content-type"][0])[1].encode()
        mine, theirs = left.body.replace(boundary, b"BOUNDARY"), right.body.replace(other, b"BOUNDARY")
        mine, theirs = (re.sub(rb"boundary=\"[^\"]*\"|--[0-9a-f]{32}", b"BOUNDARY", text) for text in (mine, theirs))
        # Line ends before the first part and after the last one are no part of the content.
        mine, theirs = (text.replace(b"--BOUNDARYBOUNDARY", b"--BOUNDARY").strip() for text in (mine, theirs))
        return f"multipart {left.status}: bodies" if mine != theirs else None
    try:
        mine, theirs = plain(parsed(left.body)), plain(parsed(right.body))
    except ValueError:
        lines = [[line for line in answer.body.split(b"\n") if line.strip()] for answer in (left, right)]
        try:
            mine, theirs = ([plain(parsed(re.sub(rb"^data: ?", b"", line))) for line in of if not line.startswith((b"id:", b"event:")) and line.strip() != b"data:"] for of in lines)
        except ValueError:
            return f"text {left.status}: {general(left.body[:60].decode(errors='replace'))!r} and {general(right.body[:60].decode(errors='replace'))!r}"
    found = first_difference(mine, theirs)
    if not found:
        return None
    return f"body {left.status} {error(left)} {found}" if left.status < 400 else f"error {left.status} {error(left)} and {error(right)}"


def error(answer):
    try:
        body = json.loads(answer.body)
        return f"{body['error']}: {general(str(body.get('reason')))[:100]}" if isinstance(body, dict) and "error" in body else ""
    except (ValueError, KeyError, TypeError):
        return ""
