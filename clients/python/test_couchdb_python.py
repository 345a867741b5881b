"""couchdb-python, which older scripts still use. Its last release was in 2018."""

import base64
import faulthandler
import io
import os
import unittest
import uuid

import couchdb
from couchdb.design import ViewDefinition
from couchdb.http import PreconditionFailed, ResourceConflict, ResourceNotFound, ServerError, Session, Unauthorized
from couchdb.mapping import Document, IntegerField, ListField, TextField, ViewField

# Tests that are expected to fail, with reasons. A listed test that passes fails the run.
NOT_YET = {}

TEXT = "Grüße aus 東京\n".encode()
BINARY = bytes((at * 11 + (at >> 8)) % 256 for at in range(50_000))
# So that a feed without rows fails only its own test.
TIMEOUT_S = 30

faulthandler.dump_traceback_later(240, exit=True)


def connect(url=os.environ["SETTEE_URL"]):
    return couchdb.Server(url, session=Session(timeout=TIMEOUT_S))


class Client(unittest.TestCase):
    """Creates a fresh database in `self.db`."""

    def setUp(self):
        self.server = connect()
        self.name = f"python-{uuid.uuid4().hex}"
        self.db = self.server.create(self.name)

    def fill(self, count=10):
        rows = self.db.update([{"_id": f"doc{at}", "at": at, "kind": "odd" if at % 2 else "even"} for at in range(count)])
        self.assertTrue(all(ok for ok, _, _ in rows))


class ServerTest(Client):
    def test_server(self):
        self.assertTrue(self.server)
        self.assertEqual(self.server.version_info()[0], 3)
        self.assertIn(self.name, self.server)
        self.assertIn(self.name, list(self.server))
        self.assertNotIn("never", self.server)
        self.assertGreaterEqual(len(self.server), 1)
        self.assertEqual(len(set(self.server.uuids(3))), 3)
        self.assertEqual(self.server.tasks(), [])

    def test_databases(self):
        with self.assertRaises(PreconditionFailed):
            self.server.create(self.name)
        self.assertEqual(self.server[self.name].info()["db_name"], self.name)
        self.server.delete(self.name)
        with self.assertRaises(ResourceNotFound):
            self.server[self.name]
        with self.assertRaises(ResourceNotFound):
            del self.server[self.name]
        with self.assertRaises(ServerError):
            self.server.create("UPPER")

    def test_wrong_password(self):
        with self.assertRaises(Unauthorized):
            list(connect(os.environ["SETTEE_URL"].replace("admin:", "admin:not")))

    def test_config(self):
        self.assertIn("couchdb", self.server.config())
        config = self.server.resource("_node", "_local", "_config", "clients", "some_key")
        config.put_json(body='"some value"')
        self.assertEqual(config.get_json()[2], "some value")
        self.assertEqual(self.server.config()["clients"]["some_key"], "some value")
        config.delete_json()
        with self.assertRaises(ResourceNotFound):
            config.get_json()

    def test_replicate(self):
        self.fill()
        target = self.server.create(f"{self.name}-target")
        url = os.environ["SETTEE_URL"]
        self.assertTrue(self.server.replicate(f"{url}/{self.name}", f"{url}/{self.name}-target")["ok"])
        self.assertEqual(len(target), 10)

    def test_users(self):
        if "_users" not in self.server:
            self.server.create("_users")
        user = self.name
        self.server.add_user(user, "secret", roles=["reader"])
        session = connect(os.environ["SETTEE_URL"].replace("admin:pw@", f"{user}:secret@")).resource("_session")
        self.assertEqual(session.get_json()[2]["userCtx"]["name"], user)
        self.server.remove_user(user)


class DocumentsTest(Client):
    def test_save_update_delete(self):
        doc = {"_id": "a", "text": "é\u2028", "number": 12345678901234567890}
        doc_id, rev = self.db.save(doc)
        self.assertEqual((doc_id, rev), ("a", doc["_rev"]))
        self.assertEqual(self.db["a"], doc)
        old = dict(doc)
        doc["text"] = "changed"
        self.db["a"] = doc
        self.assertTrue(self.db["a"].rev.startswith("2-"))
        with self.assertRaises(ResourceConflict):
            self.db.save(old)
        with self.assertRaises(ResourceConflict):
            self.db.delete(old)
        self.db.delete(doc)
        self.assertNotIn("a", self.db)
        self.assertIsNone(self.db.get("a"))
        with self.assertRaises(ResourceNotFound):
            self.db["a"]

    def test_ids_of_the_server(self):
        doc_id, _ = self.db.save({"value": 1})
        self.assertEqual(self.db[doc_id]["value"], 1)
        self.db.save({"_id": "soon"}, batch="ok")

    def test_dictionary(self):
        self.db["a/b c"] = {"value": 1}
        self.db["ü+?&=#"] = {"value": 2}
        self.db["_design/d"] = {"value": 3}
        self.assertEqual(len(self.db), 3)
        self.assertEqual(set(self.db), {"a/b c", "ü+?&=#", "_design/d"})
        del self.db["a/b c"]
        self.assertNotIn("a/b c", self.db)
        self.assertEqual(self.db["_design/d"]["value"], 3)

    def test_etags(self):
        """The client caches responses and revalidates them with If-None-Match."""
        self.db["a"] = {"value": 1}
        first = self.db["a"]
        self.assertEqual(self.db["a"], first)
        self.db["a"] = dict(first, value=2)
        self.assertEqual(self.db["a"]["value"], 2)

    def test_bulk(self):
        self.fill()
        docs = [row.doc for row in self.db.view("_all_docs", include_docs=True)]
        for doc in docs:
            doc["at"] += 100
        stale = dict(docs[0], _rev=f"1-{'0' * 32}")
        docs[1]["_deleted"] = True
        results = self.db.update([stale, *docs[1:]])
        self.assertEqual([ok for ok, _, _ in results], [False] + [True] * 9)
        self.assertIsInstance(results[0][2], ResourceConflict)
        self.assertEqual(len(self.db), 9)
        self.assertEqual(self.db["doc2"]["at"], 102)

    def test_revisions(self):
        doc = {"_id": "a"}
        for value in range(4):
            doc["value"] = value
            self.db.save(doc)
        self.assertEqual([revision["value"] for revision in self.db.revisions("a")], [3, 2, 1, 0])
        self.assertEqual(len(self.db.get("a", revs=True)["_revisions"]["ids"]), 4)

    def test_copy(self):
        self.db["a"] = {"value": 1}
        self.db["b"] = {"value": 2}
        self.db.copy("a", "new")
        self.assertEqual(self.db["new"]["value"], 1)
        rev = self.db.copy(self.db["a"], self.db["b"])
        self.assertTrue(rev.startswith("2-"))
        self.assertEqual(self.db["b"]["value"], 1)
        with self.assertRaises(ResourceConflict):
            self.db.copy("a", "b")

    def test_local_documents(self):
        self.db.save({"_id": "_local/a", "value": 1})
        self.assertEqual(self.db["_local/a"]["value"], 1)
        self.assertEqual(len(self.db), 0)

    def test_commit(self):
        self.assertTrue(self.db.commit()["ok"])

    def test_compact(self):
        self.assertTrue(self.db.compact())

    def test_cleanup(self):
        self.assertTrue(self.db.cleanup())

    def test_purge(self):
        self.fill(2)
        doc = self.db["doc0"]
        self.assertEqual(self.db.purge([doc])["purged"], {"doc0": [doc.rev]})
        self.assertEqual(len(self.db), 1)

    def test_security(self):
        self.assertIn("admins", self.db.security)
        self.db.security = {"admins": {"names": ["a"], "roles": []}, "members": {"names": [], "roles": []}}
        self.assertEqual(self.db.security["admins"]["names"], ["a"])


class ViewsTest(Client):
    BY_KIND = "function(doc) { if (doc.kind) emit([doc.kind, doc.at], doc.at); }"

    def test_temporary(self):
        self.fill()
        results = self.db.query(self.BY_KIND)
        self.assertEqual((len(results), results.total_rows, results.offset), (10, 10, 0))
        odd = results[["odd"] : ["odd", {}]]
        self.assertEqual([row.value for row in odd], [1, 3, 5, 7, 9])
        self.assertEqual([row.id for row in results[["even", 4]]], ["doc4"])
        total = self.db.query(self.BY_KIND, "_sum", group_level=1)
        self.assertEqual({row.key[0]: row.value for row in total}, {"even": 20, "odd": 25})
        self.assertEqual(len(self.db.query("function(doc) { emit(doc.at); }", keys=[1, 2, 50])), 2)

    def test_all_docs(self):
        self.fill()
        view = self.db.view("_all_docs", include_docs=True)
        self.assertEqual([row.doc["at"] for row in view["doc3":"doc5"]], [3, 4, 5])
        rows = self.db.view("_all_docs", keys=["doc9", "never", "doc1"]).rows
        self.assertEqual([row.id for row in rows], ["doc9", None, "doc1"])
        self.assertEqual(rows[1].error, "not_found")

    def test_permanent(self):
        self.fill()
        self.db["_design/d"] = {"views": {"kind": {"map": self.BY_KIND, "reduce": "_count"}}}
        self.assertEqual(self.db.view("d/kind").rows[0].value, 10)
        grouped = self.db.view("d/kind", group=True, group_level=1)
        self.assertEqual([(row.key, row.value) for row in grouped], [(["even"], 5), (["odd"], 5)])
        rows = self.db.view("d/kind", reduce=False, descending=True, limit=3, skip=1, include_docs=True).rows
        self.assertEqual([row.doc["at"] for row in rows], [7, 5, 3])
        self.assertEqual(len(self.db.view("d/kind", reduce=False, keys=[["odd", 1], ["even", 1]])), 1)
        self.assertEqual(self.db.view("d/kind", reduce=False, wrapper=lambda row: row["id"]).rows[0], "doc0")
        self.assertIn("view_index", self.db.info("d"))
        with self.assertRaises(ResourceNotFound):
            self.db.view("d/never").rows

    def test_iterview(self):
        self.fill(25)
        self.db["_design/d"] = {"views": {"kind": {"map": "function(doc) { emit(doc.kind, doc.at); }"}}}
        for batch in (1, 4, 25, 100):
            seen = [row.id for row in self.db.iterview("d/kind", batch)]
            self.assertEqual(seen, [row.id for row in self.db.view("d/kind")], batch)
        self.assertEqual(len(list(self.db.iterview("d/kind", 4, limit=10))), 10)
        self.assertEqual(len(list(self.db.iterview("_all_docs", 7))), 26)

    def test_view_definitions(self):
        self.fill()
        one = ViewDefinition("d", "kind", self.BY_KIND, "_sum")
        other = ViewDefinition("d", "at", "function(doc) { emit(doc.at); }")
        ViewDefinition.sync_many(self.db, [one, other])
        rev = self.db["_design/d"].rev
        self.assertEqual(ViewDefinition.sync_many(self.db, [one, other]), [])
        self.assertEqual(self.db["_design/d"].rev, rev)
        self.assertEqual(one(self.db).rows[0].value, 45)
        self.assertEqual(len(other(self.db)[5:]), 5)
        ViewDefinition.sync_many(self.db, [one], remove_missing=True)
        self.assertEqual(list(self.db["_design/d"]["views"]), ["kind"])

    def test_mapping(self):
        class Person(Document):
            name = TextField()
            age = IntegerField()
            tags = ListField(TextField())
            by_age = ViewField("people", "function(doc) { if (doc.age) emit(doc.age, doc); }")

        Person.by_age.sync(self.db)
        for name, age in (("Ada", 36), ("Grace", 85), ("Linus", 54)):
            Person(name=name, age=age, tags=[name.lower()]).store(self.db)
        self.assertEqual([person.name for person in Person.by_age(self.db)], ["Ada", "Linus", "Grace"])
        person = Person.by_age(self.db, key=85).rows[0]
        person.age += 1
        person.store(self.db)
        loaded = Person.load(self.db, person.id)
        self.assertEqual((loaded.name, loaded.age, list(loaded.tags)), ("Grace", 86, ["grace"]))

    def test_find(self):
        self.fill()
        index = self.db.index()
        index["d", "by-at"] = [{"at": "asc"}]
        found = self.db.find({"selector": {"at": {"$gt": 6}}, "fields": ["at"], "sort": [{"at": "desc"}]})
        self.assertEqual([doc["at"] for doc in found], [9, 8, 7])
        self.assertEqual(self.db.explain({"selector": {"at": 1}})["index"]["name"], "by-at")
        self.assertEqual(len(list(index)), 2)
        del index["d", "by-at"]
        self.assertEqual(len(list(index)), 1)

    def test_design_functions(self):
        self.fill(3)
        self.db["_design/d"] = {
            "views": {"at": {"map": "function(doc) { emit(doc.at); }"}},
            "shows": {"at": "function(doc, req) { return 'at ' + doc.at + ' ' + req.query.a; }"},
            "lists": {
                "ids": """function(head, req) {
                    start({headers: {"Content-Type": "text/plain"}});
                    var row;
                    while (row = getRow()) send(row.id + ";");
                }"""
            },
            "updates": {"set": "function(doc, req) { doc.set = req.query.to; return [doc, 'set']; }"},
        }
        self.assertEqual(self.db.show("d/at", "doc1", a="b")[1].read(), b"at 1 b")
        self.assertEqual(self.db.list("d/ids", "d/at")[1].read(), b"doc0;doc1;doc2;")
        self.assertEqual(self.db.update_doc("d/set", "doc2", to="x")[1].read(), b"set")
        self.assertEqual(self.db["doc2"]["set"], "x")


class AttachmentsTest(Client):
    def test_put_get_delete(self):
        doc = {"_id": "a"}
        self.db.save(doc)
        self.db.put_attachment(doc, TEXT, "t.txt", "text/plain")
        self.db.put_attachment(doc, BINARY, "b.bin", "application/octet-stream")
        self.assertTrue(doc["_rev"].startswith("3-"))
        self.assertEqual(self.db.get_attachment("a", "t.txt").read(), TEXT)
        self.assertEqual(self.db.get_attachment(doc, "b.bin").read(), BINARY)
        self.assertIsNone(self.db.get_attachment("a", "never"))
        self.assertEqual(self.db.get_attachment("a", "never", default="x"), "x")
        stubs = self.db["a"]["_attachments"]
        self.assertEqual({name: stub["length"] for name, stub in stubs.items()}, {"t.txt": len(TEXT), "b.bin": len(BINARY)})
        self.db.delete_attachment(doc, "t.txt")
        self.assertEqual(list(self.db["a"]["_attachments"]), ["b.bin"])

    def test_files(self):
        """The client sends files in chunks, without Content-Length."""
        doc = {"_id": "a"}
        self.db.save(doc)
        self.db.put_attachment(doc, io.BytesIO(BINARY), "b.bin", "application/octet-stream")
        self.assertEqual(self.db.get_attachment("a", "b.bin").read(), BINARY)

    def test_inline(self):
        data = base64.b64encode(TEXT).decode()
        self.db["a"] = {"_attachments": {"t.txt": {"content_type": "text/plain", "data": data}}}
        self.assertEqual(self.db.get("a", attachments=True)["_attachments"]["t.txt"]["data"], data)
        doc = self.db["a"]
        doc["value"] = 1
        self.db["a"] = doc
        self.assertEqual(self.db.get_attachment("a", "t.txt").read(), TEXT)


class ChangesTest(Client):
    def test_normal(self):
        self.fill()
        changes = self.db.changes()
        self.assertEqual({row["id"] for row in changes["results"]}, {f"doc{at}" for at in range(10)})
        self.assertEqual(self.db.changes(since=changes["last_seq"])["results"], [])
        self.assertEqual(len(self.db.changes(limit=3)["results"]), 3)

    def test_continuous(self):
        """The client requires that each chunk of the response consists of complete lines."""
        self.fill()
        feed = self.db.changes(feed="continuous", heartbeat=100, include_docs=True)
        seen = [next(feed) for _ in range(10)]
        self.assertEqual({row["doc"]["at"] for row in seen}, set(range(10)))
        other = connect()[self.name]
        other.save({"_id": "later", "at": "x" * 20_000})
        change = next(feed)
        self.assertEqual((change["id"], len(change["doc"]["at"])), ("later", 20_000))
        del other["later"]
        self.assertTrue(next(feed)["deleted"])
        feed.close()

    def test_continuous_until_the_timeout(self):
        self.fill(3)
        rows = list(self.db.changes(feed="continuous", timeout=200))
        self.assertEqual(len(rows), 4)
        self.assertIn("last_seq", rows[-1])

    def test_selector(self):
        self.fill()
        changes = self.db.changes(filter="_selector", _selector={"selector": {"kind": "odd"}})
        self.assertEqual(len(changes["results"]), 5)

    def test_filter_function(self):
        self.fill()
        self.db["_design/d"] = {"filters": {"odd": "function(doc, req) { return doc.kind === req.query.kind; }"}}
        self.assertEqual(len(self.db.changes(filter="d/odd", kind="odd")["results"]), 5)


def expect_failures():
    """Marks the tests in `NOT_YET`, whose keys are `Class.test_name`."""
    for name in NOT_YET:
        case, _, test = name.partition(".")
        setattr(globals()[case], test, unittest.expectedFailure(getattr(globals()[case], test)))


expect_failures()

if __name__ == "__main__":
    unittest.main()
