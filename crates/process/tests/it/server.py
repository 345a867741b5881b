"""A query server for tests. Functions are Python; or they are names, and documents say what they do with them."""

import json
import os
import sys
import threading
import time

# Source and, if that is Python, the function.
functions = []
designs = {}
state = {"list": None, "more": False, "doc": None}


def say(value):
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    if not state["more"] or not has_late_answers():
        sys.stdout.flush()


def has_late_answers():
    """Whether answers are kept as long as there are commands."""
    return any(source == "late_answers" for source, _ in functions)


def once(path):
    """Whether this is the first time."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def speak(doc):
    """Answers once more when it is told to."""
    told, done = (os.path.join(doc["directory"], name) for name in ("speak", "spoken"))
    while not os.path.exists(told):
        time.sleep(0.001)
    os.remove(told)
    sys.stdout.write("[[" if doc["half"] else "[[]]\n")
    sys.stdout.flush()
    open(done, "w").close()


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
    if what == "late":
        threading.Thread(target=speak, args=(doc,), daemon=True).start()
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


def log(text):
    say(["log", text])


def compiled(source):
    """The function of a source that is Python; None if it is a name."""
    if source.startswith("lambda"):
        return eval(source, globals())
    if "(" in source:
        names = {}
        exec(source, globals(), names)
        return names.popitem()[1]


def sent():
    """For functions that want to know what they were sent."""
    return list(state["doc"])


def map_by(function, doc):
    try:
        rows = [[key, value] for key, value in function(doc)]
        json.dumps(rows)
        return rows
    except Exception as error:
        log("function raised %r with document %s" % (error, doc["_id"]))
        return []


def map_doc(doc):
    state["doc"] = doc
    results = []
    for function, python in functions:
        if python:
            results.append(map_by(python, doc))
        elif function == "act":
            rows = act(doc)
            if rows is None:
                return
            results.append(rows)
        elif function in ("nothing", "late_answers"):
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
        try:
            functions.append((source, compiled(source)))
            say(True)
        except Exception as error:
            say(["error", "compilation_error", repr(error)])


def reduce(sources, rows, rereduce):
    if sources == ["fail"]:
        return say(["error", "reduce_runtime_error", "it failed"])
    if sources == ["die"]:
        os._exit(5)
    if sources == ["strange"]:
        return say([True])
    values = rows if rereduce else [value for _, value in rows]
    keys = None if rereduce else [key for key, _ in rows]
    python = compiled(sources[0])
    if python:
        try:
            return say([True, [python(keys, values, rereduce)]])
        except Exception as error:
            return say(["error", "reduce_runtime_error", repr(error)])
    say([True, [{"sum": sum(values), "keys": keys} if sources == ["keys"] else sum(values)]])


def call(path, python, args):
    try:
        if path[0] == "filters":
            return say([True, [python(doc, args[1]) for doc in args[0]]])
        if path[0] == "views":
            return say([True, [bool(list(python(doc))) for doc in args[0]]])
        say(python(*args))
    except Exception as error:
        say(["error", "unnamed_error", repr(error)])


def ddoc(command):
    if command[0] == "new":
        designs[command[1]] = command[2]
        return say(True)
    if command[0] not in designs:
        return say(["error", "query_protocol_error", "uncached design doc: " + command[0]])
    design, path, args = designs[command[0]], command[1], command[2]
    function = design
    for name in path:
        if name not in function:
            return say(["error", "not_found", "missing function " + name])
        function = function[name]
    python = compiled(function) if isinstance(function, str) else None
    if python:
        return call(path, python, args)
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


def lines():
    rest = b""
    while chunk := os.read(0, 1 << 20):
        *whole, rest = (rest + chunk).split(b"\n")
        for number, line in enumerate(whole, 1):
            state["more"] = number < len(whole)
            yield line


def main():
    for line in lines():
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
