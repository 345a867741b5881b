"""Values of parameters, headers and bodies: accepted ones and rejected ones, so that both outcomes of each validation are drawn."""

import json

BAD_JSON = ["", "a", '"', "{", "[", "nul", '{"a":}', "'a'", "[1,]", "\ufeff1", '"\\x"', "01", "+1", "1.", "--1", "undefined"]
INTEGERS = ["0", "1", "2", "3", "10", "1000"]
BAD_INTEGERS = ["-1", "-2", "", "a", "1.0", "1.5", "1e1", "01", "+1", " 1", "1 ", "true", "null", '"1"', "[1]", "0x1", "9" * 25, "-0", "\u0661"]
BAD_BOOLEANS = ["", "True", "TRUE", "1", "0", "yes", "null", '"true"', "[]", "t", " true", "true "]
KEYS = ['"a"', '"b"', '"d"', '"zz"', "1", "2", "1.5", "null", "true", "false", "[]", "{}", '["a"]', '["a",{}]', '["b",1]', '{"a":1}', '""', '"\u00e9"',
        '"conf"', '"att"', '"gone"', '"_design/d"', "-1"]
REVS = ["{rev}", "{rev}", "{rev}", "{old}", "{other}", "1-" + "0" * 32, "2-" + "a" * 32]
BAD_REVS = ["", "1", "1-", "-1", "a", "1-x", "x-1", "0-1", "1-1-1", "-1-abc", "1-" + "g" * 32, "1-" + "A" * 32, "1.5-abc", " 1-abc", "01-abc", "null", '"1-a"',
            "1-" + "a" * 31, "1-" + "a" * 33, "9" * 30 + "-a", "+1-abc"]
REV_LISTS = ['["{rev}"]', '["{rev}","{old}"]', '["{old}"]', '["{other}","1-' + "0" * 32 + '"]', "[]", '["{rev}","{rev}"]', '["9-abc"]']
BAD_REV_LISTS = ["", "{rev}", "[1]", '"{rev}"', '["x"]', "{}", "null", '["{rev}",1]', "[[]]", '["1-"]', '["-1"]', "[null]", "[", '[""]', '["1-g"]', "ALL", "All"]
SEQS = ["0", "now", "{seq}", "{seq}", "{last}"]
BAD_SEQS = ["", "a", "-1", "null", "[]", "{}", "1-", "1.5", "true", "9999-xyz", "Now", "{seq}x", '"', "0-", "1-g1", '[1,"x"]']
DOCUMENTS = ["a", "b", "c", "d", "e", "conf", "gone", "att", "none", "new", "_design/d", "_design/none", "_design/new", "_local/l", "_local/none",
             "_local/new", "\u00e9", "x y", "a/b", "a+b", "p:1", "p:2", "q:1"]
BAD_DOCUMENTS = ["_x", "_", "_design", "_design/", "_local/", "_all", "%", "a" * 300, "_bulk", "_Design/d", "_designx", "_local", "p:", ":1", "p:q:r", "_p:1"]

BOOLEAN = (["true", "false"], BAD_BOOLEANS)
INTEGER = (INTEGERS, BAD_INTEGERS)
KEY = (KEYS, BAD_JSON)
TYPES = {
    "bool": BOOLEAN,
    "int": INTEGER,
    "key": KEY,
    "keys": (['["a"]', '["a","b","none"]', "[]", '["b","a","b"]', "[1,null,[]]", '["gone","conf","_design/d"]', '[["a",1]]', '["a"]'],
             BAD_JSON + ["1", '"a"', "{}", "null", "true", '{"keys":["a"]}']),
    "rev": (REVS, BAD_REVS),
    "revs": (REV_LISTS + ["all"], BAD_REV_LISTS),
    "revlist": (REV_LISTS, BAD_REV_LISTS),
    "since": (SEQS, BAD_SEQS),
    "docid": (["a", "b", "zz", "", "\u00e9", '"a"'], ["%00", "_x", "[]"]),
    "update": (["true", "false", "lazy"], ["", "x", "1", "True", "LAZY", "null"]),
    "stale": (["ok", "update_after"], ["", "x", "false", "true", "OK"]),
    "feed": (["normal", "longpoll", "continuous", "eventsource"], ["", "x", "Normal", "live", "null"]),
    "style": (["main_only", "all_docs"], ["", "x", "All_docs", "true"]),
    "filter": (["d/yes", "d/odd", "_doc_ids", "_view", "_design", "_selector"], ["", "d", "d/", "d/none", "none/yes", "/", "d/yes/x", "_x", "_local", "d/throws", "_doc_id"]),
    "viewname": (["d/v", "d/pairs"], ["", "d", "d/none", "none/v", "/", "_x", "d/v/x"]),
    "doc_ids": (['["a","conf"]', "[]", '["none"]', '["_design/d"]'], BAD_JSON + ["1", '"a"', "{}", "[1]", "null"]),
    "heartbeat": (["1000", "true", "60000"], ["", "0", "-1", "a", "false", "1.5", "True", "null"]),
    "timeout": (["10", "20", "0"], ["-1", "a", "1.5", "true", "null", "infinity"]),
    "batch": (["ok"], ["", "true", "OK", "x", "false"]),
    "level": (["0", "1", "2", "3"], BAD_INTEGERS + ["exact"]),
    "quorum": (["1", "2", "3"], ["", "a", "0", "-1", "1.5", "true", "99"]),
    "partition": (["p", "q"], ["", "_p", "p:1", "p:", "none", "[]"]),
    "word": (["x", "1", "", "true"], ["[]", "%00", "\u00e9"]),
}
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "COPY", "OPTIONS", "PATCH", "TRACE"]
CONTENT_TYPES = ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx", "application/json; charset=utf-8", "APPLICATION/JSON",
                 "multipart/related", "multipart/form-data", "text/json", "application/vnd.x+json", "application/json;", " application/json"]
HEADERS = {
    "Accept": ["application/json", "*/*", "text/html", "text/plain", "multipart/mixed", "multipart/related", "text/*", "application/*", "", "x", "application/json;q=0",
               "text/html, application/json;q=0.5", "multipart/*"],
    "If-None-Match": ['"{rev}"', "{rev}", "*", '"x"', "", 'W/"{rev}"', '"x", "{rev}"', '"{md5}"'],
    "If-Match": ["{rev}", '"{rev}"', "*", "x", "", "{old}", '"{old}"', '1-' + "0" * 32],
    "X-Couch-Full-Commit": ["true", "false", "x", ""],
    "X-HTTP-Method-Override": ["GET", "PUT", "DELETE", "HEAD", "x", "COPY", "put", ""],
    "Content-Encoding": ["gzip", "identity", "x", ""],
    "Last-Event-ID": ["0", "{seq}", "now", "", "x"],
    "Origin": ["http://example.org", "null"],
    "Prefer": ["return=minimal", "x", "return=representation"],
    "X-Couch-Request-ID": ["abc", "a" * 36, "a" * 37, "a b", ""],
    "Range": ["bytes=0-1", "bytes=1-", "bytes=5-2", "bytes=0-999", "bytes=-2", "bytes=x", "bytes=0-0,2-3", "x=0-1", "bytes=99-", ""],
    "Accept-Encoding": ["gzip", "identity", "*", "gzip;q=0", "deflate", ""],
    "X-CouchDB-WWW-Authenticate": ["Basic realm=\"x\""],
}

SCALARS = [None, True, False, 0, 1, 2, -1, 3.5, "", "a", "b", "\u00e9", "x y", 1000000007, "\U0001f600", "aB", 2 ** 40]
MEMBERS = ["a", "b", "c", "n", "s", "list", "o", "type", "\u00e9", "a.b", "$x", ""]


def value(draw, depth=0):
    kind = draw.random()
    if depth > 2 or kind < 0.7:
        return draw.choice(SCALARS)
    if kind < 0.85:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(MEMBERS): value(draw, depth + 1) for _ in range(draw.randrange(4))}


ODD = [None, True, 0, -1, 1.5, "", "x", [], {}, ["x"], {"x": 1}, [1], [[]], [None], "a" * 300]


def odd(draw):
    """Returns a value whose type most members do not accept."""
    return draw.choice(ODD)


SPECIAL = {
    "_id": ["a", "new", "", "_x", "_design/d", "_local/l", 1, None, "\u00e9", [], "p:1"],
    "_rev": ["{rev}", "{old}", "x", "", 1, None, "1-" + "0" * 32, "1-", "0-1", [], "1-x", "999-" + "a" * 32],
    "_deleted": [True, False, None, 0, 1, "true", "", []],
    "_attachments": [{}, None, [], 1, "", {"f": {"data": "aGk="}}, {"f": {"data": "aGk=", "content_type": "text/plain"}}, {"f": {"stub": True}}, {"f": {}}, {"f": 1},
                     {"f": {"data": "!"}}, {"f": {"data": 1}}, {"f": {"follows": True}}, {"_f": {"data": ""}}, {"": {"data": ""}}, {"f": {"data": "aGk", "content_type": 1}},
                     {"f": {"data": "aGk=", "revpos": 5}}, {"a.txt": {"stub": True, "revpos": 1}}, {"a.txt": {"stub": True}}, {"f": {"follows": True, "length": 2}},
                     {"f": {"data": "aGk=", "digest": "md5-x"}}, {"f": {"data": "aGk=", "encoding": "gzip"}}, {"f": None}, {"f": {"stub": False, "data": "aGk="}},
                     {"f/g": {"data": "aGk=", "content_type": "image/png"}}, {"f": {"data": "aGk=", "length": 99}}, {"a.txt": {"stub": True, "digest": "md5-x"}}],
    "_revisions": [{}, None, [], {"start": 1, "ids": ["abc"]}, {"start": 1}, {"ids": ["abc"]}, {"start": "1", "ids": ["abc"]}, {"start": 2, "ids": ["abc", "def"]}, {"start": 1, "ids": []},
                   {"start": 1, "ids": [1]}, {"start": 1, "ids": "abc"}, {"start": 1.5, "ids": ["a"]}, {"start": -1, "ids": ["a"]}, {"start": 2, "ids": ["b" * 32, "a" * 32]}],
    "_revs_info": [[], None, 1], "_local_seq": [1, None], "_conflicts": [[], None, 1], "_deleted_conflicts": [[]], "_x": [1, None], "_": [1], "_access": [[], ["a"], 1],
    "_replication_id": ["x"], "_replication_state": ["x"], "_purged": [1], "_security": [{}], "_doc": [{}],
}


def document(draw, identified=None):
    doc = {} if identified is None else {"_id": identified}
    for _ in range(draw.randrange(4)):
        doc[draw.choice(MEMBERS)] = value(draw)
    if draw.random() < 0.5:
        doc["_rev"] = draw.choice(["{rev}", "{rev}", "{rev}", "{old}", "{other}"])
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
        member = draw.choice(list(SPECIAL))
        doc[member] = draw.choice(SPECIAL[member])
    return doc


def broken_text(draw):
    return draw.choice(BAD_JSON + ["null", "1", '"a"', "[]", "[[]]", "true", "{}", '{"a":1,"a":2}', '{"_id":"a"} x', '{"a":"\\ud800"}', "{\"a\":1e999}", '{"a":"\u0000"}',
                                   "\x00", '{a:1}', '[{}]', '{"":1}', "{} {}", "NaN", '{"a":1' + "0" * 30 + "}"])


def damaged(draw, body):
    """Returns the body with one member replaced, removed or added at any depth."""
    places = []

    def walk(item):
        if isinstance(item, dict):
            places.extend((item, key) for key in item)
            for member in item.values():
                walk(member)
        elif isinstance(item, list):
            places.extend((item, index) for index in range(len(item)))
            for member in item:
                walk(member)
    walk(body)
    if not places:
        return odd(draw)
    where, key = draw.choice(places)
    kind = draw.random()
    if kind < 0.7:
        where[key] = odd(draw)
    elif kind < 0.85:
        del where[key]
    elif isinstance(where, dict):
        where[draw.choice(["x", "_x", "limit", "docs", "", "selector"])] = odd(draw)
    return body


def text(body):
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
