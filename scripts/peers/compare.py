"""The same reads by this library and by its peers, each in a fresh process; scripts/peers/run calls it.

Readers take turns (A B C, A B C, ..), so that a busy moment of the machine hits all alike. The pixels
of all must be the same.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TILE = [0, 0, 512, 512]
WINDOW = [300, 300, 2048, 2048]


def main():
    parser = argparse.ArgumentParser(prog="scripts/peers/run", description=__doc__)
    parser.add_argument("--latency", type=int, default=30, help="of the servers, in ms")
    parser.add_argument("--scenes", choices=["small", "full"], default="full")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    parser.add_argument("--testbed", required=True, help="the program that serves")
    parser.add_argument("--ours", required=True, help="the program that reads")
    args = parser.parse_args()

    python = sys.executable
    readers = {
        "rss, COG reader": ([args.ours], "cog"),
        "rss, GDAL": ([args.ours], "gdal"),
        "rasterio, default": ([python, HERE / "with_rasterio.py"], "default"),
        "rasterio, tuned": ([python, HERE / "with_rasterio.py"], "tuned"),
        "async-geotiff": ([python, HERE / "with_async_geotiff.py"], "default"),
    }
    with Servers(args.testbed, args.latency, args.scenes) as servers:
        files = servers.ask("files")
        remote = [f"s3://{file['bucket']}/{file['key']}" for file in files]
        window = WINDOW if args.scenes == "full" else [300, 300, 800, 800]
        jobs = {
            "cold tile, 8 files one after the other": (remote[:8], TILE, False),
            "cold tile, 5 files at once": (remote[:5], TILE, True),
            f"cold window of {window[2]} x {window[3]}, 3 files": (remote[:3], window, False),
            "whole band from disk": ([files[0]["path"]], None, False),
        }
        # The page cache holds the band before anyone is timed.
        Path(files[0]["path"]).read_bytes()
        rows = []
        for job, (paths, part, at_once) in jobs.items():
            rows += compare(servers, readers, job, paths, part, at_once, args.rounds)
    result = {
        "latency_ms": args.latency,
        "scenes": args.scenes,
        "rounds": args.rounds,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "commit": commit(),
        "rows": rows,
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    show(rows, args)


class Servers:
    """The testbed, in a process of its own."""

    def __init__(self, program, latency, scenes):
        self.process = subprocess.Popen(
            [program, str(latency), scenes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.endpoint = None

    def __enter__(self):
        for line in self.process.stderr:
            if line.startswith("export AWS_ENDPOINT_URL="):
                self.endpoint = line.split("=", 1)[1].split()[0]
                return self
        raise SystemExit("peers: the testbed did not start")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, what):
        self.tell(what)
        return json.loads(self.process.stdout.readline())

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()


def compare(servers, readers, job, files, window, at_once, rounds):
    costs = {name: [] for name in readers}
    for number in range(rounds):
        for name, (command, reader) in readers.items():
            if sys.stderr.isatty():
                print(f"\r{job}, {number + 1} of {rounds}: {name:<24}", end="", file=sys.stderr)
            text = json.dumps(
                {
                    "reader": reader,
                    "endpoint": servers.endpoint,
                    "files": files,
                    "window": window,
                    "at_once": at_once,
                }
            )
            servers.ask("requests")
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"\npeers: {name}: {done.stderr}")
            costs[name].append(json.loads(done.stdout) | servers.ask("requests"))
    if sys.stderr.isatty():
        print("\r" + " " * 100 + "\r", end="", file=sys.stderr)
    first = next(iter(costs.values()))[0]["sha256"]
    # One after the other, a cost is of one file.
    per = 1 if at_once else len(files)
    rows = []
    for name, all_costs in costs.items():
        walls = [cost["wall_s"] * 1e3 / per for cost in all_costs]
        rows.append(
            {
                "job": job,
                "reader": name,
                "version": all_costs[0]["version"],
                "requests_per_file": all_costs[0]["requests"] / len(files),
                "wall_ms": statistics.median(walls),
                "wall_ms_all": walls,
                "cpu_ms_per_file": statistics.median(c["cpu_s"] for c in all_costs)
                * 1e3
                / len(files),
                "peak_mb": max((c["peak_bytes"] or 0) for c in all_costs) / 1e6,
                "same_pixels": all(c["sha256"] == first for c in all_costs),
            }
        )
    return rows


def commit():
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return said.stdout.strip() or None


def show(rows, args):
    print(f"{args.latency} ms, {args.scenes} scenes, median of {args.rounds} rounds [least, most]")
    last = None
    for row in rows:
        if row["job"] != last:
            last, base = row["job"], row
            print(f"\n| {last} | requests | ms | ratio | CPU ms | peak MB |\n|---|---|---|---|---|---|")
        walls = row["wall_ms_all"]
        name = row["reader"] if row["reader"].startswith("rss") else f"{row['reader']} {row['version']}"
        print(
            f"| {name}{'' if row['same_pixels'] else ' (OTHER PIXELS)'} "
            f"| {row['requests_per_file']:.1f} "
            f"| {row['wall_ms']:.1f} [{min(walls):.1f}, {max(walls):.1f}] "
            f"| {row['wall_ms'] / base['wall_ms']:.2f} "
            f"| {row['cpu_ms_per_file']:.1f} "
            f"| {row['peak_mb']:.0f} |"
        )
    if not all(row["same_pixels"] for row in rows):
        raise SystemExit("peers: the pixels differ")


if __name__ == "__main__":
    main()
