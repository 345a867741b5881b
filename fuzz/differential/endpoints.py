"""Endpoints with their parameters and bodies, and the databases that stories start with.

A request is drawn as text with placeholders ({rev}, {seq} …), which the runner fills in per server.
"""

import dataclasses
import json
import urllib.parse

from pools import BAD_DOCUMENTS, BAD_REVS, CONTENT_TYPES, DOCUMENTS, HEADERS, METHODS, REVS, TYPES, broken_text, damaged, document, odd, text, value

VIEW = {"key": "key", "keys": "keys", "startkey": "key", "start_key": "key", "endkey": "key", "end_key": "key", "startkey_docid": "docid", "start_key_doc_id": "docid",
        "endkey_docid": "docid", "end_key_doc_id": "docid", "limit": "int", "skip": "int", "descending": "bool", "inclusive_end": "bool", "include_docs": "bool",
        "conflicts": "bool", "attachments": "bool", "att_encoding_info": "bool", "update_seq": "bool", "sorted": "bool", "stable": "bool", "update": "update",
        "stale": "stale", "reduce": "bool", "group": "bool", "group_level": "level", "partition": "partition", "callback": "word", "direction": "word", "x": "word"}
ALL_DOCS = VIEW
LISTING = {name: VIEW[name] for name in ("startkey", "endkey", "start_key", "end_key", "limit", "skip", "descending", "inclusive_end", "key", "keys")}
READ = {"rev": "rev", "revs": "bool", "revs_info": "bool", "open_revs": "revs", "atts_since": "revlist", "conflicts": "bool", "deleted_conflicts": "bool", "latest": "bool",
        "local_seq": "bool", "meta": "bool", "attachments": "bool", "att_encoding_info": "bool", "deleted": "bool", "r": "quorum", "x": "word"}
WRITE = {"rev": "rev", "new_edits": "bool", "batch": "batch", "w": "quorum", "x": "word"}
CHANGES = {"feed": "feed", "since": "since", "limit": "int", "descending": "bool", "style": "style", "include_docs": "bool", "conflicts": "bool", "attachments": "bool",
           "att_encoding_info": "bool", "filter": "filter", "view": "viewname", "doc_ids": "doc_ids", "seq_interval": "int", "heartbeat": "heartbeat", "timeout": "timeout",
           "last-event-id": "since", "x": "word"}
CALL = {"x": "word", "y": "key", "code": "int"}


@dataclasses.dataclass
class Request:
    method: str
    route: str
    path: str
    query: list
    headers: dict
    body: str | None
    login: str = "admin"
    odd: list = dataclasses.field(default_factory=list)

    def url(self):
        return self.path + ("?" + "&".join(f"{name}={urllib.parse.quote(value, safe='{}:')}" for name, value in self.query) if self.query else "")


def bound(item, identified):
    """Returns the body with the id of the enclosing document added to the placeholders of revisions."""
    if isinstance(item, str):
        for name in ("{rev}", "{old}", "{other}"):
            item = item.replace(name, name[:-1] + ":" + identified + "}")
        return item
    if isinstance(item, list):
        return [bound(member, identified) for member in item]
    if isinstance(item, dict):
        own = item.get("_id", item.get("id"))
        own = own if isinstance(own, str) else identified
        return {name: bound(member, name if isinstance(member, list) and name in DOCUMENTS else own) for name, member in item.items()}
    return item


def view_body(draw, _):
    body = {}
    for _ in range(draw.randrange(4)):
        name = draw.choice(list(VIEW))
        good, bad = TYPES[VIEW[name]]
        chosen = draw.choice(good if draw.random() < 0.8 else bad)
        try:
            body[name] = json.loads(chosen)
        except ValueError:
            body[name] = chosen
    return body


def queries_body(draw, shape):
    return {"queries": [view_body(draw, shape) for _ in range(draw.randrange(3))]}


def doc_body(draw, shape):
    return document(draw)


def post_body(draw, shape):
    return document(draw, draw.choice(DOCUMENTS + BAD_DOCUMENTS))


def bulk_docs_body(draw, shape):
    body = {"docs": [document(draw, draw.choice(DOCUMENTS + BAD_DOCUMENTS[:6])) for _ in range(draw.randrange(4))]}
    if draw.random() < 0.3:
        body["new_edits"] = draw.choice([True, False, False, None, 1, "false"])
    if draw.random() < 0.1:
        body["all_or_nothing"] = draw.choice([True, False])
    return body


def bulk_get_body(draw, shape):
    docs = []
    for _ in range(draw.randrange(4)):
        doc = {"id": draw.choice(DOCUMENTS + BAD_DOCUMENTS)}
        if draw.random() < 0.5:
            doc["rev"] = draw.choice(REVS + BAD_REVS + [None, 1])
        if draw.random() < 0.2:
            doc["atts_since"] = draw.choice([["{rev}"], ["{old}"], [], "x", [1], None, ["x"]])
        docs.append(doc)
    return {"docs": docs}


def revs_body(draw, shape):
    return {draw.choice(DOCUMENTS + BAD_DOCUMENTS): draw.choice([["{rev}"], ["{rev}", "1-abc"], ["{old}"], [], ["9-" + "a" * 32], ["x"], "x", None, [1], ["{rev}", "{rev}"], {}, ["1-"]])
            for _ in range(draw.randrange(4))}


FIELDS = ["a", "b", "n", "s", "list", "o", "o.a", "_id", "_rev", "type", "none", "a\\.b", "list.0", "_deleted", "_attachments", "$x", "", ".", "a.", ".a"]
OPERATORS = {"$eq": None, "$ne": None, "$gt": None, "$gte": None, "$lt": None, "$lte": None, "$in": "list", "$nin": "list", "$all": "list", "$exists": [True, False, None, "true", 1],
             "$type": ["string", "number", "object", "array", "boolean", "null", "x", 1], "$size": [0, 1, 2, -1, "1", 1.5], "$mod": [[2, 0], [2, 1], [2], [1.5, 0], "x", [2, 0, 1], [-2, 1]],
             "$regex": ["^a", "b$", "(", "", 1, "^x y$", "[", "a|b"], "$beginsWith": ["a", "", 1, "\u00e9"], "$elemMatch": "selector", "$allMatch": "selector",
             "$keyMapMatch": "selector", "$not": "condition", "$x": [1], "$and": [[]], "$or": [[{"a": 1}]], "$text": ["a"]}


def condition(draw, depth=0):
    kind = draw.random()
    if kind < 0.3:
        return value(draw, 1)
    condition_of = {}
    for _ in range(draw.choice([1, 1, 1, 2])):
        operator = draw.choice(list(OPERATORS))
        shape = OPERATORS[operator]
        if shape is None:
            argument = value(draw, 1)
        elif shape == "list":
            argument = [value(draw, 2) for _ in range(draw.randrange(4))] if draw.random() < 0.9 else odd(draw)
        elif shape == "selector":
            argument = draw.choice([condition(draw, depth + 1), selector(draw, depth + 1)]) if depth < 2 else {"$gt": 0}
        elif shape == "condition":
            argument = condition(draw, depth + 1) if depth < 2 else {"$gt": 0}
        else:
            argument = draw.choice(shape)
        condition_of[operator] = argument
    return condition_of


def selector(draw, depth=0):
    chosen = {}
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        if draw.random() < 0.2 and depth < 3:
            operator = draw.choice(["$and", "$or", "$nor", "$not"])
            parts = [selector(draw, depth + 1) for _ in range(draw.randrange(3))]
            chosen[operator] = (parts[0] if parts else {}) if operator == "$not" else parts
        else:
            chosen[draw.choice(FIELDS)] = condition(draw)
    return chosen


def find_body(draw, shape):
    body = {"selector": selector(draw)}
    options = {"limit": [0, 1, 3, 100, -1, "1", 1.5, None], "skip": [0, 1, 2, -1, "1", None], "fields": [["a"], ["_id", "a"], [], ["o.a"], "all_fields", None, "a", [1], ["a", ""], [[]], ["list.0"]],
               "sort": [["a"], [{"a": "desc"}], [{"a": "asc"}, {"n": "asc"}], ["_id"], [{"_id": "desc"}], [], "a", [{"a": "x"}], [{"a": "asc"}, {"n": "desc"}], None, [1], [{}], ["none"], ["n"]],
               "use_index": ["m", "_design/m", ["m", "byn"], ["_design/m", "none"], "none", [], ["m"], 1, None, "d", ["m", "byn", "x"], "_all_docs"], "allow_fallback": [True, False, 1, "x"],
               "conflicts": [True, False, 1, "true"], "r": [1, 2, "1", -1, "x", None], "bookmark": ["nil", "", "x", 1, None, "g1AAAA"], "update": [True, False, "lazy", "false", 1],
               "stable": [True, False, "x"], "stale": ["ok", "update_after", "x", 1, False], "execution_stats": [True, False, 1], "partition": ["p", "", 1, "none"], "x": [1]}
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        name = draw.choice(list(options))
        body[name] = draw.choice(options[name])
    return body


def index_body(draw, shape):
    fields = draw.choice([["a"], ["n", "a"], [{"a": "desc"}], [{"a": "asc"}, "n"], [], ["a", "a"], "a", [1], [{"a": "x"}], [{}], None, [{"a": "asc", "n": "asc"}], ["a."], [""], ["_id"],
                          ["a\\.b"], [{"a": "asc"}, {"n": "desc"}], [["a"]], [{"name": "a", "type": "string"}]])
    body = {"index": {"fields": fields}}
    for name, choices in {"ddoc": ["m", "_design/m", "new", "", 1, None, "_design/", "d", "a/b"], "name": ["byn", "new", "", 1, None, "x y"], "type": ["json", "x", 1, None, "special"],
                          "partitioned": [True, False, 1, "true"], "w": [1, "1", "x", -1], "x": [1]}.items():
        if draw.random() < 0.25:
            body[name] = draw.choice(choices)
    if draw.random() < 0.25:
        body["index"]["partial_filter_selector"] = draw.choice([{}, selector(draw), None, 1, []])
    return body


def changes_body(draw, shape):
    return draw.choice([{"doc_ids": ["a", "conf", "none"]}, {"doc_ids": []}, {"doc_ids": "a"}, {"doc_ids": [1]}, {"selector": selector(draw)}, {"selector": 1}, {"selector": {}}, {}, {"doc_ids": None},
                        {"selector": {"a": 1}, "fields": ["a", "_id"]}, {"doc_ids": ["_design/d"]}, {"selector": {"_id": {"$gt": "b"}}, "fields": "a"}, {"filter": "d/yes"}, {"since": "now"}])


def security_body(draw, shape):
    body = {}
    for group in ("admins", "members", "readers"):
        if draw.random() < 0.5:
            body[group] = draw.choice([{"names": ["u"], "roles": []}, {"names": [], "roles": ["r"]}, {}, {"names": ["u"]}, {"roles": 1}, {"names": "u"}, None, [], {"names": [1]}, {"x": 1}])
    if draw.random() < 0.2:
        body["x"] = odd(draw)
    return body


def number_body(draw, shape):
    return draw.choice([1, 2, 1000, 0, -1, 1.5, "1", "a", None, [], {}, True, 10 ** 20])


def design_body(draw, shape):
    map_of = ["function(doc){emit(doc.a,doc.n)}", "function(doc){", "", 1, None, "function(doc){emit([doc.a,doc.s],1)}", "x", "function(){}; 1", {"fields": {"a": "asc"}}]
    body = {"language": "javascript"} if draw.random() < 0.7 else {}
    if draw.random() < 0.1:
        body["language"] = draw.choice(["query", "x", 1, None, "erlang", ""])
    if draw.random() < 0.6:
        body["views"] = {"v": {"map": draw.choice(map_of)}}
        if draw.random() < 0.5:
            body["views"]["v"]["reduce"] = draw.choice(["_sum", "_count", "_stats", "_x", "", 1, None, "function(k,v,r){return v.length}", "function(", "_approx_count_distinct", "_sum ", "_top_3", "_first"])
        if draw.random() < 0.2:
            body["views"]["v"]["options"] = draw.choice([{}, None, 1, {"collation": "raw"}, {"x": 1}])
        if draw.random() < 0.2:
            body["views"] = damaged(draw, body["views"])
    for name, choices in {"filters": [{"f": "function(doc,req){return true}"}, {"f": 1}, 1, {"f": "("}, []], "updates": [{"f": "function(doc,req){return [null,'x']}"}, {"f": None}, "x"],
                          "shows": [{"f": "function(doc,req){return 'x'}"}, {"f": 1}, []], "lists": [{"f": "function(head,req){return 'x'}"}, 1], "options": [{}, {"local_seq": True}, {"include_design": True}, 1,
                          {"partitioned": False}, {"partitioned": 1}], "validate_doc_update": [1, "(", None, {}, ""], "rewrites": [[], 1, "x", [{"from": "a", "to": "b"}], {}], "autoupdate": [False, 1],
                          "_rev": ["{rev}"]}.items():
        if draw.random() < 0.12:
            body[name] = draw.choice(choices)
    return body


def uuid_free(draw, shape):
    return draw.choice([{"keys": ["{db}", "none"]}, {"keys": []}, {"keys": 1}, {"keys": [1]}, {}, [], {"keys": ["{db}"], "x": 1}, {"keys": ["A"]}, {"keys": [""]}])


def session_body(draw, shape):
    return draw.choice([{"name": "admin", "password": "pw"}, {"username": "admin", "password": "pw"}, {"name": "admin"}, {}, {"name": 1, "password": "pw"}, {"password": "pw"}, [], 1,
                        {"name": "nobody-{db}", "password": "x"}, "name=admin&password=pw", "name=admin", "name=nobody-{db}&password=x", {"name": "admin", "password": 1}])


def replicate_body(draw, shape):
    body = {"source": draw.choice(["{db}", "{here}/{db}", "none-{db}", "", 1, None, {}, {"url": "{here}/{db}"}, {"url": 1}, "http://", "ftp://x/y", "{here}/none-{db}"]),
            "target": draw.choice(["{here}/{db}", "{db}", "", 1, None, {}, "{here}/none-{db}", {"url": "{here}/{db}", "headers": 1}])}
    for name, choices in {"doc_ids": [["a"], 1, "a", [1], []], "filter": ["d/yes", 1, "d", "none/x"], "selector": [{}, 1, {"a": 1}], "create_target": [False, 1, "x"], "continuous": [1, "x", False],
                          "cancel": [True, 1, False], "since_seq": [0, "0", "x", None], "use_checkpoints": [True, 1, "x"], "checkpoint_interval": [1, "x", -1], "query_params": [{}, 1, {"a": "b"}],
                          "connection_timeout": [1000, "x", -1], "http_connections": [1, "x", 0], "worker_processes": [1, "x", 0], "x": [1], "winning_revs_only": [True, 1, "x"], "proxy": ["x", 1],
                          "create_target_params": [{}, 1]}.items():
        if draw.random() < 0.1:
            body[name] = draw.choice(choices)
    return body


def reshard_body(draw, shape):
    return draw.choice([{"state": "stopped"}, {"state": "x"}, {}, {"state": 1}, {"state": "running"}, [], {"state": "running", "reason": 1}])


def reshard_job_body(draw, shape):
    job = {"type": "split"} if draw.random() < 0.6 else {}
    # No combination of these values starts a job on a CouchDB.
    for name, choices in {"node": [1, None, "x@y.z"], "shard": [1, "x", None, "shards/00000000-7fffffff/none-{db}.1"], "db": [1, None, "none-{db}", ""],
                          "range": [1, "x", "00000001-00000000", "0000000x-00000002", None], "type": ["x", 1]}.items():
        if draw.random() < 0.25:
            job[name] = draw.choice(choices)
    return job


def string_body(draw, shape):
    return draw.choice(["v", "", 1, None, True, [], {}, "true", "\u00e9", "a=b", " a ", "a\nb"])


def cluster_body(draw, shape):
    return draw.choice([{}, {"action": "x"}, {"action": 1}, [], {"action": None}, 1])


def user_body(draw, shape):
    body = {"name": "{db}-u", "roles": [], "type": "user"}
    # A valid password is stored with a random salt, so that revisions would differ.
    if draw.random() < 0.1:
        body["password"] = draw.choice([1, None, [], True])
    for name, choices in {"name": ["{db}-v", 1, None, "", "a:b", "x y"], "roles": [["r"], ["_admin"], [1], "r", None, {}], "type": ["x", None, 1], "_rev": ["{rev}"], "salt": ["s", 1], "_deleted": [True],
                          "derived_key": ["a" * 40, 1], "password_scheme": ["pbkdf2", "simple", "x", 1], "iterations": [1, "x"], "pbkdf2_prf": ["sha256", "x"], "password_sha": ["a" * 40],
                          "_id": ["org.couchdb.user:{db}-u", "x"], "couch_private": [1], "x": [1], "password_hash": ["x"]}.items():
        if draw.random() < 0.12:
            body[name] = draw.choice(choices)
    for name in ("name", "roles", "type"):
        if draw.random() < 0.05:
            del body[name]
    return body


def multipart_body(draw, shape):
    """Returns a document with attachments as multipart/related with the boundary `b`, which some requests damage."""
    files = {"f": "hello", "g": ""}
    attachments = {name: {"follows": True, "length": len(content), "content_type": "text/plain"} for name, content in files.items() if draw.random() < 0.8}
    if attachments and draw.random() < 0.3:
        attachments[draw.choice(list(attachments))][draw.choice(["length", "follows", "content_type", "data", "stub", "digest", "revpos", "encoding"])] = draw.choice([0, 3, 9, "", "x", True, False, None, "gzip"])
    doc = {"a": 1, "_attachments": attachments}
    if draw.random() < 0.5:
        doc["_rev"] = "{rev}"
    parts = [f"Content-Type: application/json\r\n\r\n{text(doc)}"] + [f"Content-Disposition: attachment; filename=\"{name}\"\r\n\r\n{files[name]}" for name in attachments]
    if draw.random() < 0.15:
        parts = draw.choice([parts[:-1], parts + ["\r\n\r\nx"], ["\r\n" + text(doc)] + parts[1:], parts[1:], parts[::-1]])
    return "".join(f"--b\r\n{part}\r\n" for part in parts) + draw.choice(["--b--", "--b--", "--b--", "--b--\r\n", "--b--x"])


def bulk_delete_body(draw, shape):
    return draw.choice([{"docids": ["_design/m"]}, {"docids": []}, {"docids": ["none"]}, {}, {"docids": 1}, {"docids": [1]}, {"docids": ["m", "m"]}, {"docids": ["a"]}, {"docids": ["_design/none"], "w": 1}])


def raw_body(draw, shape):
    return draw.choice(["", "hello", "x" * 100, "\u00e9"])


def form_body(draw, shape):
    return draw.choice(["", "x=1", "{}", '{"a":1}', "hello"])


DDOC = ["d", "d", "d", "m", "none", "new", "a", ""]
PARTS = {"user": ["{db}-u", "{db}-v"], "db": ["{db}"] * 30 + ["none-{db}", "A", "_x", "1a", "{db}%2Fx", "a" * 240, "a.b", "{db}+x"], "ddoc": DDOC, "view": ["v", "v", "pairs", "stats", "raw", "mixed", "own", "distinct", "fails", "none", "lib", ""],
         "doc": DOCUMENTS * 2 + BAD_DOCUMENTS, "att": ["a.txt", "b.bin", "none", "f", "f/g", "_f", "new", "\u00e9", "a.txt/"], "show": ["s", "s", "json", "throws", "none"],
         "list": ["l", "l", "heads", "none"], "update": ["u", "u", "null", "bad", "none"], "partition": ["p", "q", "none", "_p", "p:1", ""], "index": ["byn", "none", "bya"],
         "section": ["df_{db}", "df_{db}", "none"], "key": ["k", "k2", "none"], "local": ["l", "none", "new", "", "a/b", "\u00e9"], "rest": ["", "x", "x/y"], "count": ["x"]}
ENDPOINTS = [
    (10, "GET HEAD", "/{db}/{doc}", READ, None), (10, "PUT", "/{db}/{doc}", WRITE, doc_body), (4, "DELETE", "/{db}/{doc}", WRITE, None), (3, "COPY", "/{db}/{doc}", {"rev": "rev", "batch": "batch"}, None),
    (4, "POST", "/{db}", WRITE, post_body), (1, "POST", "/{db}/{doc}", WRITE, form_body), (3, "PUT", "/{db}/_design/{ddoc}", WRITE, design_body), (2, "GET HEAD", "/{db}/_design/{ddoc}", READ, None),
    (2, "GET HEAD", "/{db}/_local/{local}", READ, None), (3, "PUT", "/{db}/_local/{local}", WRITE, doc_body), (1, "DELETE COPY", "/{db}/_local/{local}", WRITE, None),
    (4, "GET HEAD", "/{db}/{doc}/{att}", {"rev": "rev", "x": "word", "atts_since": "revlist"}, None), (3, "PUT", "/{db}/{doc}/{att}", WRITE, raw_body), (2, "DELETE", "/{db}/{doc}/{att}", WRITE, None),
    (8, "GET HEAD", "/{db}/_all_docs", ALL_DOCS, None), (4, "POST", "/{db}/_all_docs", ALL_DOCS, view_body), (2, "POST", "/{db}/_all_docs/queries", ALL_DOCS, queries_body),
    (2, "GET POST", "/{db}/_design_docs", ALL_DOCS, view_body), (1, "POST", "/{db}/_design_docs/queries", {}, queries_body), (2, "GET POST", "/{db}/_local_docs", ALL_DOCS, view_body),
    (1, "POST", "/{db}/_local_docs/queries", {}, queries_body), (10, "GET HEAD", "/{db}/_design/{ddoc}/_view/{view}", VIEW, None), (5, "POST", "/{db}/_design/{ddoc}/_view/{view}", VIEW, view_body),
    (2, "POST", "/{db}/_design/{ddoc}/_view/{view}/queries", VIEW, queries_body), (6, "POST", "/{db}/_bulk_docs", {"w": "quorum", "new_edits": "bool"}, bulk_docs_body),
    (6, "POST", "/{db}/_bulk_get", READ, bulk_get_body), (8, "GET HEAD", "/{db}/_changes", CHANGES, None), (4, "POST", "/{db}/_changes", CHANGES, changes_body),
    (3, "POST", "/{db}/_revs_diff", {"x": "word"}, revs_body), (2, "POST", "/{db}/_missing_revs", {}, revs_body), (2, "POST", "/{db}/_purge", {"w": "quorum"}, revs_body),
    (1, "GET", "/{db}/_purged_infos", {"x": "word"}, None), (1, "PUT GET", "/{db}/_purged_infos_limit", {}, number_body), (2, "PUT GET", "/{db}/_revs_limit", {}, number_body),
    (2, "PUT GET", "/{db}/_security", {}, security_body), (1, "POST", "/{db}/_ensure_full_commit", {"seq": "since"}, None), (1, "GET", "/{db}/_shards", {}, None), (1, "GET", "/{db}/_shards/{doc}", {}, None),
    (1, "POST", "/{db}/_sync_shards", {}, None), (1, "POST", "/{db}/_compact", {}, None), (1, "POST", "/{db}/_compact/{ddoc}", {}, None), (1, "POST", "/{db}/_view_cleanup", {}, None),
    (10, "POST", "/{db}/_find", {"x": "word", "partition": "partition"}, find_body), (3, "POST", "/{db}/_explain", {}, find_body), (3, "POST", "/{db}/_index", {}, index_body),
    (1, "GET", "/{db}/_index", {"limit": "int", "skip": "int"}, None), (1, "DELETE", "/{db}/_index/{ddoc}/json/{index}", {"w": "quorum"}, None), (1, "POST", "/{db}/_index/_bulk_delete", {}, bulk_delete_body),
    (3, "GET HEAD", "/{db}/_design/{ddoc}/_info", {}, None), (3, "GET POST HEAD", "/{db}/_design/{ddoc}/_show/{show}", CALL, form_body),
    (3, "GET POST", "/{db}/_design/{ddoc}/_show/{show}/{doc}", CALL, form_body), (4, "GET POST", "/{db}/_design/{ddoc}/_list/{list}/{view}", VIEW, view_body),
    (1, "GET", "/{db}/_design/{ddoc}/_list/{list}/{ddoc}/{view}", VIEW, None), (2, "POST PUT GET", "/{db}/_design/{ddoc}/_update/{update}", CALL, form_body),
    (3, "POST PUT", "/{db}/_design/{ddoc}/_update/{update}/{doc}", CALL, form_body), (1, "GET POST PUT", "/{db}/_design/{ddoc}/_rewrite/{rest}", CALL, form_body),
    (1, "GET HEAD", "/{db}", {"x": "word"}, None), (1, "GET", "/{db}/_partition/{partition}", {}, None), (3, "GET", "/{db}/_partition/{partition}/_all_docs", ALL_DOCS, None),
    (3, "GET POST", "/{db}/_partition/{partition}/_design/{ddoc}/_view/{view}", VIEW, view_body), (3, "POST", "/{db}/_partition/{partition}/_find", {}, find_body),
    (1, "POST", "/{db}/_partition/{partition}/_explain", {}, find_body), (1, "GET HEAD", "/", {"x": "word"}, None), (1, "GET HEAD", "/_up", {}, None), (1, "GET POST", "/_uuids", {"count": "int"}, None),
    (1, "GET", "/_session", {"basic": "bool"}, None), (1, "POST", "/_session", {"next": "word"}, session_body), (1, "DELETE", "/_session", {"next": "word"}, None),
    (1, "POST", "/_dbs_info", {}, uuid_free), (1, "GET", "/_all_dbs", LISTING, None), (1, "GET", "/_dbs_info", LISTING, None),
    (1, "GET", "/_node/_local/_config/{section}/{key}", {}, None), (2, "PUT DELETE", "/_node/_local/_config/{section}/{key}", {"raw": "bool"}, string_body), (1, "GET", "/_node/_local/_config/{section}", {}, None),
    (1, "GET POST", "/_node/{rest}", {}, form_body), (2, "POST", "/_replicate", {}, replicate_body), (1, "GET PUT", "/_reshard/state", {}, reshard_body), (1, "POST GET", "/_reshard/jobs", {}, reshard_job_body),
    (3, "PUT GET DELETE HEAD", "/_users/org.couchdb.user:{user}", {"rev": "rev"}, user_body), (2, "PUT", "/{db}/{doc}#related", WRITE, multipart_body),
    (1, "GET HEAD POST", "/favicon.ico", {}, form_body), (1, "GET PUT DELETE", "/{db}/_temp_view", {}, form_body), (1, "GET", "/_scheduler/docs", {"limit": "int", "skip": "int", "states": "word"}, None),
    (1, "GET", "/_scheduler/jobs/{rest}", {}, None), (1, "GET", "/_scheduler/docs/{rest}", {}, None), (1, "GET POST", "/_cluster_setup", {}, cluster_body), (1, "GET", "/_membership", {}, None),
    (1, "GET", "/_{rest}", {}, None), (1, "GET POST", "/{db}/_{rest}", {}, form_body), (1, "PUT", "/{db}", {"q": "int", "n": "int", "partitioned": "bool", "placement": "word"}, None), (1, "DELETE", "/{db}", {"rev": "rev"}, None),
]
LIMITED = {"/_all_dbs": "df", "/_dbs_info": "df"}
DESTINATIONS = ["new", "a", "a?rev={rev}", "conf", "_local/new", "_design/new", "", "x y", "a?rev=x", "http://example.org/x", "new?x=1", "_x", "%", "a%2Fb", "/x", "b?rev={other}", "a?rev="]


def one(draw, partitioned):
    """Draws a request of a random endpoint."""
    weights = [weight * (4 if partitioned and "_partition" in path else 0.3 if "_partition" in path else 1) for weight, _, path, _, _ in ENDPOINTS]
    _, methods, route, parameters, body_of = draw.choices(ENDPOINTS, weights)[0]
    method = draw.choice(methods.split()) if draw.random() < 0.97 else draw.choice(METHODS)
    odd_of = [] if method in methods.split() else ["method"]
    names = list(parameters)
    query = []
    for name in draw.sample(names, min(len(names), draw.choice([0, 0, 1, 1, 1, 2, 2, 3, 5]))):
        good, bad = TYPES[parameters[name]]
        is_bad = draw.random() < 0.22
        if is_bad:
            odd_of.append(name)
        query.append((name, draw.choice(bad if is_bad else good)))
    if query and draw.random() < 0.02:
        query.append((query[0][0], query[0][1]))
    if route.endswith("_changes") and method != "POST" and any(name == "feed" for name, _ in query) and not any(name in ("timeout", "heartbeat") for name, _ in query):
        query.append(("timeout", "10"))
    if route in LIMITED and not any("start" in name or "key" in name for name, _ in query):
        query += [("startkey", '"{db}"'), ("endkey", '"{db}z"')]
    path, identified = route.partition("#")[0], "a"
    for part in PARTS:
        while "{" + part + "}" in path:
            chosen = draw.choice(PARTS[part])
            escaped = chosen if part in ("db", "rest") else chosen if part == "doc" and chosen.startswith(("_design/", "_local/")) and draw.random() < 0.9 else urllib.parse.quote(chosen, safe="+/" if part == "att" else "+")
            if part in ("doc", "local", "ddoc", "user"):
                identified = {"doc": "", "local": "_local/", "ddoc": "_design/", "user": "org.couchdb.user:"}[part] + chosen
            path = path.replace("{" + part + "}", escaped.replace("{db}", "\0").replace("%7Bdb%7D", "\0"), 1)
    path = path.replace("\0", "{db}")
    if draw.random() < 0.02:
        path += draw.choice(["/", "/x", "//", "%2F", "/_x"])
        odd_of.append("path")
    headers, body = {}, None
    if body_of is not None and method in ("POST", "PUT", "PATCH", "DELETE"):
        body = body_of(draw, None)
        kind = draw.random()
        if kind < 0.12 and not isinstance(body, str):
            body = damaged(draw, body)
            odd_of.append("body")
        body = text(bound(body, identified))
        if kind > 0.95:
            body = broken_text(draw)
            odd_of.append("text")
        headers["Content-Type"] = "multipart/related; boundary=b" if "#" in route else "application/json"
        if draw.random() < 0.05:
            headers["Content-Type"] = draw.choice(CONTENT_TYPES)
            odd_of.append("content-type")
    elif method in ("POST", "PUT"):
        headers["Content-Type"] = "application/json" if draw.random() < 0.9 else draw.choice(CONTENT_TYPES)
        body = ""
    if method == "COPY" and draw.random() < 0.95:
        headers["Destination"] = draw.choice(DESTINATIONS)
    if draw.random() < 0.15:
        name = draw.choice(list(HEADERS))
        headers[name] = draw.choice(HEADERS[name])
        odd_of.append(name)
    # Settee deliberately refuses forms from other origins, so only reading requests have the header Origin.
    if "Origin" in headers and method not in ("GET", "HEAD"):
        del headers["Origin"]
    login = draw.choices(["admin", "user", "none"], [90, 5, 5])[0]
    query = [(name, bound(value, identified)) for name, value in query]
    return Request(method, route, path, query, bound(headers, identified), body, login, odd_of)
