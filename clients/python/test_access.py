"""Random requests of a hostile member of a database with per-document access.

Two databases receive the same visible documents and the same number of changes, and differ in invisible documents: their existence,
contents, revisions, attachments, deletions and errors. All answers to the member must be equal. SETTEE_SEED repeats a run,
SETTEE_PROBES sets the number of requests.
"""

import base64
import http.client
import json
import os
import random
import re
import unittest
import urllib.parse
import uuid

SERVER = urllib.parse.urlsplit(os.environ["SETTEE_URL"])
PROBES = int(os.environ.get("SETTEE_PROBES", "600"))
PROBES_BETWEEN_CHANGES = 40

MAP = """function (doc) {
  if (doc.bad) throw({forbidden: 'bad ' + doc._id});
  emit(doc._id, doc.n);
  emit(['kind', doc.kind], 1);
  if (doc.link) emit(['link'], {_id: doc.link});
  for (var i = 0; doc.big && i < 50; i++) emit(['big', i], doc._id);
}"""
JOIN = "function (keys, values, again) { return again ? [].concat.apply([], values).sort() : values.sort(); }"
LIST = "function (head, req) { send(JSON.stringify([head, req.info, req.secObj])); var r; while (r = getRow()) send(JSON.stringify(r)); }"
TEXT = "function (doc) { index('default', doc._id + ' ' + doc.kind, {store: true}); index('kind', doc.kind || 'none', {facet: true}); }"
NOUVEAU = "function (doc) { index('text', 'default', doc._id + ' ' + doc.kind); index('string', 'kind', doc.kind || 'none'); }"
DESIGN = {
    "views": {
        "v": {"map": MAP, "reduce": "_stats"},
        "c": {"map": "function (doc) { emit(doc.kind, doc.n); }", "reduce": "_count"},
        "j": {"map": "function (doc) { emit(doc.kind, doc._id); }", "reduce": JOIN},
        "a": {"map": "function (doc) { emit(doc.kind, doc._id); }", "reduce": "_approx_count_distinct"},
    },
    "validate_doc_update": "function (doc, old, ctx, sec) { if (doc.v) throw({forbidden: JSON.stringify([old, sec])}); }",
    "shows": {"s": "function (doc, req) { return {json: [doc, req.info, req.secObj, req.id]}; }"},
    "lists": {"l": LIST},
    "updates": {"u": "function (doc, req) { return [null, JSON.stringify([doc, req.info, req.id])]; }"},
    "filters": {"f": "function (doc) { return true; }"},
    "indexes": {"i": {"index": TEXT}},
    "nouveau": {"i": {"default_analyzer": "standard", "index": NOUVEAU}},
}
INDEXES = [
    {"index": {"fields": ["kind", "n"]}, "ddoc": "q", "name": "i"},
    {"index": {"fields": ["n"], "partial_filter_selector": {"kind": {"$gt": ""}}}, "ddoc": "p", "name": "i"},
]
FLAGS = [
    "conflicts=true", "deleted_conflicts=true", "revs=true", "revs_info=true", "meta=true", "local_seq=true", "attachments=true",
    "att_encoding_info=true", "latest=true",
]  # fmt: skip
LISTED = ["include_docs=true", "conflicts=true", "descending=true", "limit=3", "skip=2", "update_seq=true", "inclusive_end=false"]
ACCEPTED = ["application/json", "multipart/mixed", "multipart/related", "*/*"]


def text(value):
    return urllib.parse.quote(json.dumps(value))


class Connection:
    """Requests of one user."""

    def __init__(self, name, password="pw"):
        self.connection = http.client.HTTPConnection(SERVER.hostname, SERVER.port, timeout=60)
        self.headers = {"Content-Type": "application/json"}
        if name:
            self.headers["Authorization"] = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()

    def ask(self, method, path, body=None, headers=None):
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Accept": "application/json", **self.headers, **(headers or {})})
        answer = self.connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode(errors="replace")

    def must(self, method, path, body=None):
        status, _, answer = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return json.loads(answer)


class Pair:
    """The two databases. The member sees the same in both. Only the first one has the documents `secret-N`."""

    def __init__(self, random_):
        self.random, self.member, self.mate = random_, f"eve-{uuid.uuid4().hex}", f"ann-{uuid.uuid4().hex}"
        self.admin = Connection(SERVER.username, SERVER.password)
        self.names = [f"zq-{uuid.uuid4().hex}-qz" for _ in range(2)]
        self.chains, self.revs = {}, {}
        self.admin.ask("PUT", "/_users")
        for name, roles in [(self.member, ["team"]), (self.mate, [])]:
            account = {"name": name, "password": "pw", "roles": roles, "type": "user"}
            self.admin.must("PUT", f"/_users/org.couchdb.user:{name}", account)
        for name in self.names:
            self.admin.must("PUT", f"/{name}?access=true")
            self.admin.must("PUT", f"/{name}/_security", {"members": {"roles": ["_users"]}, "admins": {"names": ["chief"]}})
            self.admin.must("PUT", f"/{name}/_design/d", DESIGN)
            for index in INDEXES:
                self.admin.must("POST", f"/{name}/_index", index)

    def attachments(self, content):
        return {"photo.png": {"content_type": "image/png", "data": base64.b64encode(content.encode()).decode()}}

    def rev(self, generation):
        return f"{generation}-%032x" % self.random.getrandbits(128)

    def put(self, name, id_, document):
        """Writes a document, whose current revision is read before."""
        status, _, found = self.admin.ask("GET", f"/{name}/{id_}")
        current = {"_rev": json.loads(found)["_rev"]} if status == 200 else {}
        return self.admin.must("PUT", f"/{name}/{id_}", {**current, **document})["rev"]

    def force(self, id_, revs, documents):
        """Writes a revision with its ancestors, and possibly different contents in both databases."""
        history = {"start": int(revs[0].split("-")[0]), "ids": [rev.split("-")[1] for rev in revs]}
        for name, document in zip(self.names, documents):
            docs = [{"_id": id_, "_rev": revs[0], "_revisions": history, **document}]
            self.admin.must("POST", f"/{name}/_bulk_docs", {"new_edits": False, "docs": docs})
        self.revs.setdefault(id_, []).append(revs[0])

    def extend(self, id_, *documents):
        chain = self.chains.setdefault(id_, [])
        chain.insert(0, self.rev(len(chain) + 1))
        self.force(id_, chain, documents if len(documents) == 2 else documents * 2)

    def branch(self, id_, *documents):
        rev = self.rev(self.random.choice([1, 2]))
        ancestors = [self.chains[id_][-1]] if rev.startswith("2-") else []
        self.force(id_, [rev, *ancestors], documents)

    def body(self, access):
        return {"_access": access, "kind": self.random.choice("xyz"), "n": self.random.randrange(9)}

    def change_secret(self):
        """One change of an invisible document in each database."""
        id_ = f"secret-{self.random.randrange(6)}"
        document = self.body(self.random.choice([[self.mate], [self.mate, "board"], []]))
        document |= {flag: True for flag in ["bad", "big"] if self.random.random() < 0.2}
        if self.random.random() < 0.3:
            document["_attachments"] = self.attachments("hidden" * self.random.randrange(1, 300))
        status, _, found = self.admin.ask("GET", f"/{self.names[0]}/{id_}")
        if status == 200 and self.random.random() < 0.25:
            self.admin.must("DELETE", f"/{self.names[0]}/{id_}?rev={json.loads(found)['_rev']}")
        else:
            self.revs.setdefault(id_, []).append(self.put(self.names[0], id_, document))
        self.put(self.names[1], f"other-{self.rev(1)}", self.body([self.mate]))

    def change_visible(self):
        document = self.body(self.random.choice([[self.member], [self.member, self.mate], ["team"], ["_users"]]))
        if self.random.random() < 0.4:
            document["link"] = self.random.choice(["secret-1", "secret-2", "lost-1", "none"])
        if self.random.random() < 0.3:
            document["_attachments"] = self.attachments("visible")
        self.extend(f"mine-{self.random.randrange(5)}", document)

    def change_access(self):
        """A document that the member has seen is hidden, changed while it is hidden, or shown again."""
        id_ = f"lost-{self.random.randrange(4)}"
        if id_ not in self.chains or self.random.random() < 0.4:
            return self.extend(id_, {"_access": [self.member], "kind": "x", "n": 1})
        one, other = {**self.body([self.mate]), "_attachments": self.attachments("yy")}, self.body([self.mate, "board"])
        if self.random.random() < 0.3:
            one = {"_access": [self.mate], "bad": True}
        if self.random.random() < 0.2:
            one["_deleted"] = other["_deleted"] = True
        self.extend(id_, one, other)

    def change_branches(self):
        if self.chains:
            id_ = self.random.choice(list(self.chains))
            hidden = {**self.body([self.mate]), "_attachments": self.attachments("conflict")}
            visible = self.body([self.member])
            self.branch(id_, *self.random.choice([(hidden, {"_access": [], "n": 5}), (visible, visible)]))

    def delete(self):
        if self.chains:
            self.extend(self.random.choice(list(self.chains)), {"_deleted": True})

    def update_indexes(self):
        for name in self.names:
            self.admin.must("GET", f"/{name}/_design/d/_view/v?limit=0&reduce=false")
            for index in ["q", "p"]:
                selector = {"n": {"$gt": 0}, "kind": {"$gt": ""}}
                self.admin.must("POST", f"/{name}/_find", {"selector": selector, "use_index": index, "limit": 1})
            for api in ["_search", "_nouveau"]:
                self.admin.must("POST", f"/{name}/_design/d/{api}/i", {"q": "*:*", "limit": 1})

    def change(self):
        changes = [self.change_secret, self.change_visible, self.change_access, self.change_branches]
        self.random.choices([*changes, self.delete], [3, 2, 2, 2, 1])[0]()


class Probes:
    """Random requests with `DB` for the name of the database, as method, path, body and headers."""

    def __init__(self, pair):
        self.pair, self.random = pair, pair.random

    def id(self):
        secret, lost = f"secret-{self.random.randrange(6)}", f"lost-{self.random.randrange(4)}"
        return self.random.choice([secret] * 4 + [lost] * 2 + [f"mine-{self.random.randrange(5)}", "none", "_design/d"])

    def rev(self, id_):
        return self.random.choice(self.pair.revs.get(id_, []) + ["1-" + "0" * 32, "9-" + "f" * 32])

    def some(self, names):
        return "&".join(self.random.sample(names, self.random.randrange(min(5, len(names)) + 1)))

    def next(self):
        kinds = [self.document, self.attachment, self.all_docs, self.bulk, self.changes, self.view, self.find, self.search]
        return self.random.choice([*kinds, self.function, self.resource, self.write])()

    def document(self):
        id_ = self.id()
        rev = self.rev(id_)
        of_revs = ["open_revs=all", f"open_revs={text([rev, self.rev(id_)])}", f"rev={rev}", f"rev={rev}&atts_since={text([rev])}", ""]
        query = f"{self.random.choice(of_revs)}&{self.some(FLAGS)}"
        headers = {"Accept": self.random.choice(ACCEPTED), "If-None-Match": f'"{self.rev(id_)}"'}
        return self.random.choice(["GET", "HEAD"]), f"/DB/{id_}?{query}", None, headers

    def attachment(self):
        id_ = self.id()
        headers = self.random.choice([{}, {"Range": "bytes=0-2"}, {"If-None-Match": '"abc"'}])
        return self.random.choice(["GET", "HEAD"]), f"/DB/{id_}/photo.png?{self.some([f'rev={self.rev(id_)}'])}", None, headers

    def all_docs(self):
        if self.random.random() < 0.5:
            return "POST", f"/DB/_all_docs?{self.some(LISTED)}", {"keys": [self.id() for _ in range(3)]}, {}
        ranges = [f"startkey={text(self.id())}", f"endkey={text(self.id())}", f"key={text(self.id())}"]
        return self.random.choice(["GET", "HEAD"]), f"/DB/_all_docs?{self.some(LISTED + ranges)}", None, {}

    def bulk(self):
        ids = [self.id() for _ in range(3)]
        if self.random.random() < 0.3:
            path = self.random.choice(["/DB/_revs_diff", "/DB/_missing_revs"])
            return "POST", path, {id_: [self.rev(id_), self.rev(id_)] for id_ in ids}, {}
        wanted = [{"id": id_, **self.random.choice([{}, {"rev": self.rev(id_)}])} for id_ in ids]
        query = self.some(["revs=true", "latest=true", "attachments=true"])
        return "POST", f"/DB/_bulk_get?{query}", {"docs": wanted}, {"Accept": self.random.choice(ACCEPTED)}

    def changes(self):
        feeds = [f"feed={feed}&timeout=1" for feed in ["normal", "longpoll", "continuous", "eventsource"]]
        query = self.random.choice([*feeds, "descending=true", "since=5", "since=now", "seq_interval=3"])
        query += "&" + self.some(["include_docs=true", "conflicts=true", "style=all_docs", "limit=2", "attachments=true"])
        if self.random.random() < 0.5:
            filters = ["filter=_design", "filter=_view&view=d/v", "filter=d/f", f"filter=_doc_ids&doc_ids={text([self.id()])}", ""]
            return "GET", f"/DB/_changes?{query}&{self.random.choice(filters)}", None, {}
        if self.random.random() < 0.5:
            return "POST", f"/DB/_changes?{query}&filter=_doc_ids", {"doc_ids": [self.id(), self.id()]}, {}
        selector = self.random.choice([{"_id": self.id()}, {"kind": "x"}, {"_id": {"$gt": "s"}}])
        return "POST", f"/DB/_changes?{query}&filter=_selector", {"selector": selector}, {}

    def view(self):
        id_ = self.id()
        keys = [f"key={text(id_)}", f"startkey={text(id_)}", f"endkey={text(['kind', {}])}", f"keys={text([id_, ['link']])}"]
        reduced = ["group=true", "group_level=1", "reduce=false", "include_docs=true&reduce=false", "sorted=false"]
        query = self.some(LISTED + keys + reduced + ["update=false", "update=lazy", f"startkey_docid={id_}"])
        if self.random.random() < 0.2:
            queries = [{"keys": [id_], "reduce": False, "include_docs": True}, {"group": True, "key": id_}, {"reduce": True}]
            return "POST", "/DB/_design/d/_view/v/queries", {"queries": queries}, {}
        return self.random.choice(["GET", "HEAD"]), f"/DB/_design/d/_view/{self.random.choice('vcja')}?{query}", None, {}

    def find(self):
        ranges = [{"kind": {"$in": ["x", "y"]}, "n": {"$gt": 1}}, {"n": {"$gt": 2}, "kind": {"$gt": ""}}, {"_id": {"$gte": self.id()}}]
        single = [{"_id": self.id()}, {"kind": "x"}, {"$or": [{"kind": "x"}, {"_id": self.id()}]}, {"$not": {"kind": "x"}}, {}]
        options = [{}, {"sort": ["kind", "n"]}, {"use_index": "q"}, {"use_index": "p"}, {"limit": 2}, {"skip": 1}, {"fields": ["_id"]}]
        options += [{"conflicts": True}, {"execution_stats": True}, {"update": False}]
        query = {"selector": self.random.choice(ranges + single), **self.random.choice(options)}
        return "POST", self.random.choice(["/DB/_find", "/DB/_find", "/DB/_explain"]), query, {}

    def search(self):
        id_ = self.id()
        terms = ["*:*", f'"{id_}"', f"{id_.split('-')[0]}*", "kind:x", "-kind:x AND *:*", "secrt~", "*cre*", "kind:x OR kind:y"]
        options = [{}, {"counts": ["kind"]}, {"include_docs": True}, {"limit": 1}]
        api, more = self.random.choice([("_search", [{"group_field": "kind"}, {"stale": "ok"}]), ("_nouveau", [{"update": False}])])
        query = {"q": self.random.choice(terms), **self.random.choice(options + more)}
        return "POST", f"/DB/_design/d/{api}/i", query, {}

    def function(self):
        id_ = self.id()
        shows = [("GET", f"_show/s/{id_}"), ("POST", f"_show/s/{id_}"), ("PUT", f"_update/u/{id_}"), ("POST", f"_update/u/{id_}")]
        query = f"include_docs=true&reduce=false&{self.some(['limit=2', f'key={text(id_)}'])}"
        method, path = self.random.choice([*shows, ("GET", f"_list/l/v?{query}"), ("GET", "_list/l/_all_docs?include_docs=true")])
        return method, f"/DB/_design/d/{path}", None if method == "GET" else {}, {}

    def resource(self):
        names = "_security _revs_limit _shards _local_docs _design_docs _index _partition/secret _time_seq _auto_purge _local/secret-1"
        of_design = ["_info", "_search_info/i", "_nouveau_info/i", f"_rewrite/{self.id()}"]
        paths = [*(f"/DB/{name}" for name in names.split()), *(f"/DB/_design/d/{name}" for name in of_design), "/DB", "/DB/_design/d"]
        others = ["/_active_tasks", "/_db_updates", f"/_dbs_info?keys={text(['DB'])}", f"/DB/_shards/{self.id()}", f"/DB/{self.id()}/"]
        if self.random.random() < 0.2:
            path = self.random.choice(["_purge", "_compact", "_view_cleanup", "_ensure_full_commit", "_design/d/_view/nothing"])
            return "POST", f"/DB/{path}", self.random.choice([{}, {self.id(): ["1-a"]}]), {}
        return "GET", self.random.choice(paths + others), None, {}

    def write(self):
        """Writes that are refused for a missing document as well: they name a revision, or a list without the member."""
        id_ = f"secret-{self.random.randrange(6)}"
        rev, v = self.rev(id_), self.random.randrange(2)
        own, foreign = {"_access": [self.pair.member], "v": v}, {"_access": [self.pair.mate], "v": v}
        edits = [{"_id": id_, "_rev": rev, **own}, {"_id": id_, "_rev": rev, "_deleted": True}, {"_id": id_, **foreign}]
        stub = {"photo.png": {"stub": True, "content_type": "image/png", "length": 3, "digest": "md5-x"}}
        target = {"Destination": self.random.choice(["copied", f"{id_}?rev={rev}"])}
        return self.random.choice([
            ("PUT", f"/DB/{id_}?rev={rev}", own, {}),
            ("PUT", f"/DB/{id_}", own, {"If-Match": f'"{rev}"'}),
            ("PUT", f"/DB/{id_}{self.random.choice(['', '?batch=ok', f'?new_edits=false&rev={rev}'])}", foreign, {}),
            ("PUT", f"/DB/{id_}", {**own, "_rev": rev, "_attachments": stub}, {}),
            ("POST", "/DB", {"_id": id_, **foreign}, {}),
            ("DELETE", f"/DB/{id_}{self.random.choice(['', f'?rev={rev}'])}", None, {}),
            (self.random.choice(["PUT", "DELETE"]), f"/DB/{id_}/photo.png?rev={rev}", {}, {}),
            ("POST", "/DB/_bulk_docs", {"docs": edits}, {}),
            ("POST", "/DB/_bulk_docs", {"new_edits": False, "docs": [{"_id": id_, "_rev": rev, **foreign}]}, {}),
            ("COPY", f"/DB/{id_}{self.random.choice(['', f'?rev={rev}'])}", None, target),
        ])  # fmt: skip


def shown(name, answer):
    """Returns the parts of an answer that may not differ: without the name of the database, and its random parts."""
    status, headers, body = answer
    kept = {key: headers[key] for key in ["content-type", "content-md5", "digest", "content-range", "location"] if key in headers}
    if re.fullmatch(r'"\d+-[0-9a-f]{32}"', headers.get("etag", "")):
        kept["etag"] = headers["etag"]
    both = json.dumps([kept, body.lstrip("\n")]).replace(name, "DB")
    for boundary in set(re.findall(r'boundary=[\\"]*([0-9a-zA-Z]+)', both)):
        both = both.replace(boundary, "BOUNDARY")
    # A sequence is a number and an opaque part.
    both = re.sub(r"\b(\d+)-g2[A-Za-z0-9_\-]{20,}", r"\1-SEQ", both)
    # A feed that takes longer than its timeout contains heartbeats.
    both = re.sub(r"event: heartbeat\\ndata: \\n", "", re.sub(r"(\\n)+", r"\\n", both))
    both = re.sub(r'\\"(instance_start_time|uuid|bookmark|purge_seq|_bookmark)\\":\s?\\"[^"\\]*', r"\1", both)
    return status, re.sub(r'\\"(execution_time_ms|update_latency)\\":[0-9.]+', r"\1", both)


class Member(unittest.TestCase):
    def test_answers_do_not_depend_on_invisible_documents(self):
        seed = os.environ.get("SETTEE_SEED") or uuid.uuid4().hex
        pair = Pair(random.Random(seed))
        probes, callers = Probes(pair), [Connection(pair.member), Connection(None)]
        for connection in [*callers, pair.admin]:
            self.addCleanup(connection.connection.close)
        statuses = set()
        for number in range(PROBES):
            if number % PROBES_BETWEEN_CHANGES == 0:
                for _ in range(12):
                    pair.change()
            probe, caller = probes.next(), pair.random.choices(callers, [5, 1])[0]
            answers = [self.answer(caller, name, probe) for name in pair.names]
            # Without an update by the request one of the indexes can be an older one.
            if answers[0] != answers[1] and re.search("update|stale", json.dumps(probe)):
                pair.update_indexes()
                answers = [self.answer(caller, name, probe) for name in pair.names]
            statuses.add(answers[0][0])
            self.assertEqual(answers[0], answers[1], f"{probe}, SETTEE_SEED={seed}, request {number}")
        self.assertTrue({200, 401, 403, 404, 409} <= statuses, f"{statuses}, SETTEE_SEED={seed}")

    def answer(self, caller, name, probe):
        method, path, body, headers = probe
        body = None if body is None else json.loads(json.dumps(body).replace('"DB"', f'"{name}"'))
        return shown(name, caller.ask(method, path.replace("DB", name), body, headers))


if __name__ == "__main__":
    unittest.main()
