#!/usr/bin/env python3
"""Measures the memory of many idle continuous replications.

    python3 clients/python/idle_replications.py target/release/settee [--jobs 5000] [--seconds 60] [--set replicator/max_jobs=5000]

Starts two servers on free ports with empty data directories. All sources and targets are databases of the second server, and
documents in `_replicator` of the first server replicate between them over loopback. Prints the resident memory of both servers
while the replications are idle. Each server needs one open file per job (`ulimit -n`).
"""

import argparse
import base64
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request

AUTHORIZATION = "Basic " + base64.b64encode(b"admin:pw").decode()
SOURCES = 100


class Server:
    def __init__(self, program, directory, settings):
        options = [option for setting in settings for option in ("--set", setting)]
        environment = {**os.environ, "COUCHDB_USER": "admin", "COUCHDB_PASSWORD": "pw"}
        command = [program, "serve", "--data", directory, "--port", "0", "--set", "log/level=error", *options]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://[^/\s]+", self.process.stdout.readline()).group()

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": AUTHORIZATION, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], help="a setting of the replicating server")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        peer = Server(args.program, directory + "/peer", [])
        server = Server(args.program, directory + "/server", args.set)
        try:
            for index in range(SOURCES):
                peer.ask("PUT", f"/s{index}")
                peer.ask("PUT", f"/s{index}/d", {})
            for index in range((args.jobs + SOURCES - 1) // SOURCES):
                peer.ask("PUT", f"/t{index}")
            print(f"without jobs: {server.resident_mb()} MB, peer {peer.resident_mb()} MB")
            base = peer.url.replace("http://", "http://admin:pw@")
            docs = [
                {"source": f"{base}/s{job % SOURCES}", "target": f"{base}/t{job // SOURCES}", "continuous": True}
                for job in range(args.jobs)
            ]
            for begin in range(0, args.jobs, 500):
                server.ask("POST", "/_replicator/_bulk_docs", {"docs": docs[begin : begin + 500]})
            for _ in range(0, args.seconds, 5):
                time.sleep(5)
                jobs = server.ask("GET", "/_node/_local/_stats/couch_replicator/jobs")
                counts = ", ".join(f"{jobs[kind]['value']} {kind}" for kind in ("total", "running", "crashed"))
                print(f"jobs: {counts}; {server.resident_mb()} MB, peer {peer.resident_mb()} MB", flush=True)
        finally:
            for ended in (server, peer):
                ended.process.kill()
                ended.process.wait()


if __name__ == "__main__":
    main()
