"""Design documents in Python (couchpy under CPython and PyPy), Erlang and CoffeeScript, configured over HTTP."""

import json
import os
import re
import shutil
import sys
import unittest

import couchdb
import test_couchdb_python

COUCHPY = os.path.join(sys.prefix, "bin", "couchpy")
PACKAGES = os.path.dirname(os.path.dirname(couchdb.__file__))
ADMIN_ONLY = "fun(_, _, {Ctx}, _) -> case lists:member(<<\"_admin\">>, couch_util:get_value(<<\"roles\">>, Ctx)) of true -> 1; _ -> throw({forbidden, <<\"admins only\">>}) end end."


def needs(program, package):
    """Skips a test class if its program is missing and SETTEE_ALLOW_MISSING is set. Without the variable its tests run and fail."""
    missing = not shutil.which(program) and "SETTEE_ALLOW_MISSING" in os.environ
    return unittest.skipIf(missing, f"{program} is missing: install the Debian package {package}")


class Configured(test_couchdb_python.Client):
    """A fresh database, and settings that are restored after each test."""

    def configure(self, section, key, value):
        resource = self.server.resource("_config", section, key)
        # put_json sends a string unchanged, so the value must be JSON.
        _, _, old = resource.put_json(body=json.dumps(value))
        self.addCleanup(lambda: resource.put_json(body=json.dumps(old)))

    def save(self, name, design):
        # A copy, because the client writes the revision into the object.
        self.db[f"_design/{name}"] = dict(design)

    def view(self, path, **options):
        return [(row.key, row.value) for row in self.db.view(path, **options)]

    def months(self):
        self.db.update([{"_id": f"doc{at}", "date": f"2016-{at % 12 + 1:02}-19", "score": at} for at in range(1200)])
        return [([2016, month + 1], sum(range(month, 1200, 12))) for month in range(12)]


class PythonTest(Configured):
    COMMAND = f"{COUCHPY} --json-module=json"

    MAP = "def scores(doc):\n    if 'date' in doc:\n        year, month, _ = doc['date'].split('-')\n        yield [int(year), int(month)], doc['score']\n"
    REDUCE = "def total(keys, values, rereduce):\n    return sum(values)\n"

    def setUp(self):
        super().setUp()
        self.configure("query_servers", "python", self.COMMAND)

    def test_map_and_reduce(self):
        expected = self.months()
        views = {"own": {"map": self.MAP, "reduce": self.REDUCE}, "sum": {"map": self.MAP, "reduce": "_sum"}}
        self.save("scores", {"language": "python", "views": views})
        self.assertEqual(self.view("scores/own", group=True), expected)
        self.assertEqual(self.view("scores/sum", group=True), expected)
        self.assertEqual(self.view("scores/own"), [(None, sum(range(1200)))])
        self.db["new"] = {"date": "2017-01-01", "score": 1}
        self.assertEqual(self.view("scores/own", group=True), [*expected, ([2017, 1], 1)])

    def test_the_example_of_the_documentation(self):
        page = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "languages.md")
        with open(page, encoding="utf-8") as file:
            example = re.search("^```python\n(def .*?)^```$", file.read(), re.DOTALL | re.MULTILINE).group(1)
        by_month, total = re.split(r"\n+(?=def )", example)
        expected = self.months()
        self.save("d", {"language": "python", "views": {"v": {"map": by_month, "reduce": total}}})
        self.assertEqual(self.view("d/v", group=True), expected)

    def test_values(self):
        value = {"é": ["ü\n", 1.5, -7, None, True, {"deep": [[]]}], "big": 123456789012345678901234567890}
        self.db["a"] = {"value": value}
        self.save("d", {"language": "python", "views": {"v": {"map": "def f(doc):\n  yield doc['_id'], doc['value']\n"}}})
        self.assertEqual(self.view("d/v"), [("a", value)])

    def test_an_exception_skips_a_document(self):
        self.db.update([{"_id": f"doc{at}", "n": at} for at in range(5)])
        self.save("d", {"language": "python", "views": {"v": {"map": "def f(doc):\n  yield 12 // doc['n'], None\n"}}})
        self.assertEqual([key for key, _ in self.view("d/v")], [3, 4, 6, 12])

    def test_a_syntax_error_is_refused(self):
        with self.assertRaises(couchdb.ServerError) as refused:
            self.save("d", {"language": "python", "views": {"v": {"map": "def f(doc) yield 1"}}})
        status, (error, reason) = refused.exception.args[0]
        self.assertEqual((status, error), (400, "compilation_error"))
        self.assertIn("Compilation of the map function in the 'v' view failed: ", reason)

    def test_validations_need_a_query_server_that_supports_them(self):
        self.save("d", {"language": "python", "validate_doc_update": "def f(new, old, context):\n  return 1\n"})
        with self.assertRaises(couchdb.ServerError) as refused:
            self.db["a"] = {}
        self.assertIn("it may support only views", str(refused.exception))


class SimplejsonTest(PythonTest):
    COMMAND = f"{COUCHPY} --json-module=simplejson"


@needs("pypy3", "pypy3")
class PypyTest(PythonTest):
    COMMAND = f"env PYTHONPATH='{PACKAGES}' pypy3 {COUCHPY} --json-module=json"


class ConfigurationTest(Configured):
    DESIGN = {"language": "snake", "views": {"v": {"map": PythonTest.MAP}}}

    def test_an_unknown_language_is_stored_and_not_run(self):
        self.save("d", self.DESIGN)
        with self.assertRaises(couchdb.ServerError) as refused:
            self.view("d/v")
        self.assertEqual(refused.exception.args[0], (500, ("unknown_query_language", "snake")))

    def test_a_missing_interpreter_is_reported_when_saving(self):
        self.configure("query_servers", "snake", "/does/not/exist/python couchpy")
        with self.assertRaises(couchdb.ServerError) as refused:
            self.save("d", self.DESIGN)
        self.assertIn("/does/not/exist/python: not found", str(refused.exception))

    def test_a_change_applies_at_once(self):
        self.db["a"] = {"date": "2016-12-19", "score": 7}
        self.save("d", self.DESIGN)
        self.configure("query_servers", "snake", PythonTest.COMMAND)
        self.assertEqual(self.view("d/v"), [([2016, 12], 7)])
        self.configure("query_servers", "snake", "false")
        self.db["b"] = {}
        with self.assertRaises(couchdb.ServerError):
            self.view("d/v")
        self.configure("query_servers", "snake", PythonTest.COMMAND)
        self.assertEqual(self.view("d/v"), [([2016, 12], 7)])


@needs("escript", "erlang-base")
class ErlangTest(Configured):
    MAP = "fun({Doc}) -> <<Y:4/binary, $-, M:2/binary, _/binary>> = proplists:get_value(<<\"date\">>, Doc), Emit([binary_to_integer(Y), binary_to_integer(M)], proplists:get_value(<<\"score\">>, Doc)) end."

    def setUp(self):
        super().setUp()
        self.configure("native_query_servers", "enable_erlang_query_server", "true")

    def test_map_and_reduce(self):
        expected = self.months()
        reduce = "fun(_Keys, Values, _ReReduce) -> lists:sum(Values) end."
        views = {"own": {"map": self.MAP, "reduce": reduce}, "sum": {"map": self.MAP, "reduce": "_sum"}}
        self.save("scores", {"language": "erlang", "views": views})
        self.assertEqual(self.view("scores/own", group=True), expected)
        self.assertEqual(self.view("scores/sum", group=True), expected)

    def test_erlang_is_unknown_if_it_is_disabled(self):
        self.configure("native_query_servers", "enable_erlang_query_server", "false")
        self.save("d", {"language": "erlang", "views": {"v": {"map": self.MAP}}})
        with self.assertRaises(couchdb.ServerError) as refused:
            self.view("d/v")
        self.assertEqual(refused.exception.args[0], (500, ("unknown_query_language", "erlang")))

    def test_the_switch_of_version_1(self):
        self.configure("native_query_servers", "enable_erlang_query_server", "false")
        self.configure("native_query_servers", "erlang", "{couch_native_process, start_link, []}")
        self.save("d", {"language": "erlang", "views": {"v": {"map": self.MAP}}})
        self.assertEqual(self.view("d/v"), [])

    def test_a_syntax_error_is_refused(self):
        with self.assertRaises(couchdb.ServerError) as refused:
            self.save("d", {"language": "erlang", "views": {"v": {"map": "fun({Doc} -> ok end."}}})
        self.assertEqual(refused.exception.args[0][0], 400)
        self.assertIn("line 1: syntax error before: '->'", str(refused.exception))

    def test_the_other_functions(self):
        self.db.update([{"_id": "a", "kind": "x"}, {"_id": "b", "kind": "y"}])
        self.save("d", {
            "language": "erlang",
            "validate_doc_update": ADMIN_ONLY,
            "filters": {"x": "fun({Doc}, _) -> proplists:get_value(<<\"kind\">>, Doc) =:= <<\"x\">> end."},
            "shows": {"s": "fun({Doc}, _) -> {[{<<\"body\">>, proplists:get_value(<<\"kind\">>, Doc)}]} end."},
            "lists": {"l": "fun(_, _) -> Start({[{<<\"headers\">>, {[{<<\"Content-Type\">>, <<\"text/plain\">>}]}}]}), Send(<<\"[\">>), FoldRows(fun({Row}, N) -> Send(proplists:get_value(<<\"id\">>, Row)), {ok, N} end, 0), <<\"]\">> end."},
            "updates": {"u": "fun({Doc}, _) -> [{[{<<\"done\">>, true} | Doc]}, {[{<<\"body\">>, <<\"ok\">>}]}] end."},
            "views": {"v": {"map": "fun({Doc}) -> Emit(proplists:get_value(<<\"kind\">>, Doc), null) end."}},
        })
        self.db["c"] = {"kind": "x"}
        changes = self.db.changes(filter="d/x")
        self.assertEqual({row["id"] for row in changes["results"]}, {"a", "c"})
        self.assertEqual(self.db.show("d/s", "a")[1].read(), b"x")
        self.assertEqual(self.db.list("d/l", "d/v")[1].read(), b"[acb]")
        self.assertEqual(self.db.update_doc("d/u", "a")[1].read(), b"ok")
        self.assertEqual(self.db["a"]["done"], True)


class CoffeescriptTest(Configured):
    def test_map_and_reduce(self):
        expected = self.months()
        source = "(doc) ->\n  return unless doc.date\n  [year, month] = doc.date.split '-'\n  emit [parseInt(year, 10), parseInt(month, 10)], doc.score\n"
        views = {"own": {"map": source, "reduce": "(keys, values) -> sum values"}, "sum": {"map": source, "reduce": "_sum"}}
        self.save("scores", {"language": "coffeescript", "views": views})
        self.assertEqual(self.view("scores/own", group=True), expected)
        self.assertEqual(self.view("scores/sum", group=True), expected)

    def test_the_other_functions(self):
        self.save("d", {
            "language": "coffeescript",
            "validate_doc_update": "(doc) -> throw forbidden: 'no title' unless doc.title",
            "shows": {"s": "(doc, req) -> \"<#{doc.title}>\""},
        })
        with self.assertRaises(couchdb.http.Forbidden):
            self.db["a"] = {}
        self.db["a"] = {"title": "t"}
        self.assertEqual(self.db.show("d/s", "a")[1].read(), b"<t>")

    def test_a_syntax_error_is_refused(self):
        with self.assertRaises(couchdb.ServerError) as refused:
            self.save("d", {"language": "coffeescript", "views": {"v": {"map": "(doc) -> emit("}}})
        self.assertIn("SyntaxError: missing ) on line 1", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
