"""The initial databases of stories: documents with conflicts, deletions and attachments, design documents with each kind of function."""

import json

DESIGN = {
    "_id": "_design/d", "language": "javascript",
    "views": {"v": {"map": "function(doc){emit(doc._id,doc.n)}"},
              "pairs": {"map": "function(doc){emit([doc.type,doc.n],1);emit([doc.type],{_id:'a'})}", "reduce": "_count"},
              "stats": {"map": "function(doc){if(typeof doc.n==='number')emit(doc.type,doc.n)}", "reduce": "_stats"},
              "raw": {"map": "function(doc){emit(doc.s,null)}", "options": {"collation": "raw"}},
              "mixed": {"map": "function(doc){emit(doc.s,doc.list);emit(doc.n,doc.n);emit(doc.o,doc.o);emit(doc.list,[1,doc.n]);emit(doc.a)}", "reduce": "_sum"},
              "own": {"map": "function(doc){for(var k in doc)emit([k,typeof doc[k]],doc[k])}", "reduce": "function(keys,values,rereduce){return rereduce?sum(values):values.length}"},
              "distinct": {"map": "function(doc){emit([doc.type,doc.a],{_id:doc.a})}", "reduce": "_approx_count_distinct"},
              "fails": {"map": "function(doc){emit(doc._id,doc.n.x.y)}", "reduce": "function(keys,values){throw({a:'b'})}"},
              "lib": {"x": "exports.x=1"}},
    "filters": {"yes": "function(doc,req){return true}", "odd": "function(doc,req){return doc.n%2===1}", "throws": "function(doc,req){throw({forbidden:'no'})}",
                "slow": "function(doc,req){for(var end=new Date().getTime()+40;new Date().getTime()<end;);return doc.n>2}"},
    "shows": {"s": "function(doc,req){return doc?doc._id:'none'}", "json": "function(doc,req){return {json:{id:req.id,q:req.query,m:req.method},headers:{'X-Foo':'bar'},code:201}}",
              "throws": "function(doc,req){throw(['error','odd','reason'])}"},
    "lists": {"l": "function(head,req){var r;send('[');while(r=getRow())send(toJSON(r.key)+' ');return ']'}", "heads": "function(head,req){start({code:202,headers:{'Content-Type':'text/x'}});return toJSON(head.total_rows)}"},
    "updates": {"u": "function(doc,req){if(!doc){if(!req.id)return [null,'none'];return [{_id:req.id,a:req.body},'new']}doc.u=1;return [doc,toJSON({id:doc._id})]}",
                "null": "function(doc,req){return [null,{code:203,headers:{'X-Foo':'y'},body:req.body}]}", "bad": "function(doc,req){return 1}"},
    "rewrites": [{"from": "x", "to": "../../a", "method": "GET"}, {"from": "x/y", "to": "_show/s/a"}],
}
MANGO = {"_id": "_design/m", "language": "query",
         "views": {"byn": {"map": {"fields": {"n": "asc"}, "partial_filter_selector": {}}, "reduce": "_count", "options": {"def": {"fields": ["n"]}}},
                   "bya": {"map": {"fields": {"a": "asc", "n": "asc"}, "partial_filter_selector": {}}, "reduce": "_count", "options": {"def": {"fields": ["a", "n"]}}}}}


def documents():
    docs = [{"_id": "a", "type": "t", "n": 1, "a": "a", "s": "x", "list": [1, 2], "o": {"a": 1}}, {"_id": "b", "type": "t", "n": 2, "a": "b", "s": "B", "list": []},
            {"_id": "c", "type": "u", "n": 3.5, "a": None, "s": "\u00e9", "a.b": 1}, {"_id": "d", "type": "u", "n": 4, "s": "a b", "o": {"a": [1, {"b": 2}]}},
            {"_id": "e", "n": -1, "a": "a", "list": [{"a": 1}, "x"]}, {"_id": "\u00e9", "n": 6, "type": None}, {"_id": "x y", "n": 7}, {"_id": "a/b", "a": True}, {"_id": "a+b", "a": False},
            {"_id": "att", "_attachments": {"a.txt": {"content_type": "text/plain", "data": "aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8="}, "b.bin": {"content_type": "image/png", "data": "AAECAwQFBgcICQ=="}}},
            DESIGN, MANGO]
    replicated = [{"_id": "conf", "_rev": "2-" + "b" * 32, "_revisions": {"start": 2, "ids": ["b" * 32, "a" * 32]}, "n": 8, "a": "one"},
                  {"_id": "conf", "_rev": "2-" + "c" * 32, "_revisions": {"start": 2, "ids": ["c" * 32, "a" * 32]}, "n": 9, "a": "two"},
                  {"_id": "conf", "_rev": "3-" + "d" * 32, "_revisions": {"start": 3, "ids": ["d" * 32, "e" * 32, "a" * 32]}, "_deleted": True},
                  {"_id": "gone", "_rev": "2-" + "f" * 32, "_revisions": {"start": 2, "ids": ["f" * 32, "e" * 32]}, "_deleted": True, "why": "x"}]
    return docs, replicated


def setup(partitioned):
    """Returns the requests that create the database of a story, as (method, path, body)."""
    docs, replicated = documents()
    if partitioned:
        docs = [doc | {"_id": "p:" + doc["_id"] if not doc["_id"].startswith("_") else doc["_id"]} for doc in docs] + [{"_id": "p:1", "n": 1}, {"_id": "p:2", "n": 2, "a": "a"}, {"_id": "q:1", "n": 3}]
        replicated = [doc | {"_id": "q:" + doc["_id"]} for doc in replicated]
    return [("PUT", "/{db}?q=1" + ("&partitioned=true" if partitioned else ""), None),
            ("POST", "/{db}/_bulk_docs", json.dumps({"docs": docs})),
            ("POST", "/{db}/_bulk_docs", json.dumps({"new_edits": False, "docs": replicated})),
            ("PUT", "/{db}/_local/l", json.dumps({"a": 1})),
            ("PUT", "/{db}/" + ("p:" if partitioned else "") + "b?rev={rev:" + ("p:" if partitioned else "") + "b}", json.dumps({"type": "t", "n": 2, "a": "b2", "s": "B"}))]
