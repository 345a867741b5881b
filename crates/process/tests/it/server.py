"""A query server for tests. Documents say what it does with them; functions are names."""

import json
import os
import sys
import time

functions = []
designs = {}
state = {"list": None}


def say(value):
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def once(path):
    """Whether this is the first time."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def act(doc):
    """Does what a document wants; answers rows, or None if it has answered already."""
    what = doc.get("do")
    if what == "die":
        print("I am dying", file=sys.stderr, flush=True)
        os._exit(3)
    if what == "die_once" and once(doc["flag"]):
        os._exit(4)
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "hang":
        time.sleep(1000)
    if what == "slow":
        time.sleep(doc["seconds"])
    if what == "close":
        os.close(1)
        time.sleep(1000)
    if what == "say":
        sys.stdout.write(doc["line"] + "\n")
        sys.stdout.flush()
        return None
    if what == "twice":
        # Comes with the answer that follows: nobody could tell a later one from the next document's.
        sys.stdout.write("[[]]\n")
    if what == "log":
        say(["log", "new form"])
        say({"log": "old form"})
        say(["log", {"a": 1}])
    if what == "stderr":
        for _ in range(doc["lines"]):
            print("x" * 99, file=sys.stderr)
        sys.stderr.flush()
    if what == "rows":
        return [[number, None] for number in range(doc["count"])]
    if what == "bytes":
        return [["x" * doc["count"], None]]
    if what == "pid":
        return [["pid", os.getpid()]]
    if what == "environment":
        return [[sorted(os.environ), sorted(os.environ.get("GIVEN", ""))]]
    if what == "files":
        links = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                links[int(name)] = os.readlink("/proc/self/fd/" + name).split(":")[0]
            except OSError:
                pass
        return [[sorted(links), sorted(set(links.values()))]]
    if what == "memory":
        try:
            return [["allocated", len(bytearray(doc["bytes"]))]]
        except MemoryError:
            return [["refused", None]]
    return [[doc["_id"], doc.get("value")]]


def map_doc(doc):
    results = []
    for function in functions:
        if function == "act":
            rows = act(doc)
            if rows is None:
                return
            results.append(rows)
        elif function == "nothing":
            results.append([])
        else:
            results.append([[[function, doc["_id"]], doc]])
    say(results)


def add_fun(source):
    if source == "42":
        say(["error", "compilation_error", "Expression does not eval to a function. (42)"])
    elif source == "old":
        say({"error": "compilation_error", "reason": "an old error"})
    elif source == "oldest":
        say({"error": {"id": "map_compilation_error", "reason": "the oldest error"}})
    elif source == "die":
        os._exit(7)
    elif source == "hang":
        time.sleep(1000)
    else:
        functions.append(source)
        say(True)


def reduce(sources, rows, rereduce):
    if sources == ["fail"]:
        return say(["error", "reduce_runtime_error", "it failed"])
    if sources == ["die"]:
        os._exit(5)
    if sources == ["strange"]:
        return say([True])
    values = rows if rereduce else [value for _, value in rows]
    keys = None if rereduce else [key for key, _ in rows]
    say([True, [{"sum": sum(values), "keys": keys} if sources == ["keys"] else sum(values)]])


def ddoc(command):
    if command[0] == "new":
        designs[command[1]] = command[2]
        return say(True)
    if command[0] not in designs:
        return say(["error", "query_protocol_error", "uncached design doc: " + command[0]])
    design, path, args = designs[command[0]], command[1], command[2]
    function = design
    for name in path:
        function = function[name]
    if function == "pid":
        return say(["resp", {"body": str(os.getpid())}])
    if function == "die":
        os._exit(6)
    if path[0] == "filters":
        return say([True, [doc["type"] == args[1]["query"]["type"] for doc in args[0]]])
    if path[0] == "views":
        return say([True, ["ok" in doc for doc in args[0]]])
    if path[0] == "lists":
        state["list"] = function
        return say(["start", ["head,"], {"headers": {"Content-Type": "text/csv"}}])
    say(function)


def main():
    for line in sys.stdin:
        command = json.loads(line)
        name = command[0]
        if name == "reset":
            functions.clear()
            say(True)
        elif name == "add_lib":
            say(True)
        elif name == "add_fun":
            add_fun(command[1])
        elif name == "map_doc":
            map_doc(command[1])
        elif name in ("reduce", "rereduce"):
            reduce(command[1], command[2], name == "rereduce")
        elif name == "ddoc":
            ddoc(command[1:])
        elif name == "list_row":
            early = state["list"] == "early" and command[1]["id"] == "b"
            say(["end" if early else "chunks", [command[1]["id"] + ","]])
        elif name == "list_end":
            say(["end", ["tail"]])
        else:
            sys.exit(8)


main()
