"""One tile from each of many files, by rss gather and by rasterio; scripts/peers/gather calls it.

Each run is a process of its own. They take turns (A B C, A B C, ..), so that a busy moment of the
machine hits all alike. The servers are those of `rss-bench gather`. The pixels of all must be the same.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# The centre of three by three tiles.
TILE = [512, 512, 512, 512]


def main():
    parser = argparse.ArgumentParser(prog="scripts/peers/gather", description=__doc__)
    parser.add_argument("--files", type=int, default=1278)
    parser.add_argument("--latency", type=int, default=30, help="of the servers, in ms")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", default="8,32,64", help="tiles under way, one run for each")
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    parser.add_argument("--rss", required=True, help="the program rss")
    parser.add_argument("--bench", required=True, help="the program rss-bench, whose servers are read")
    args = parser.parse_args()
    numbers = [int(number) for number in args.at_once.split(",")]

    with Servers(args) as servers, tempfile.TemporaryDirectory() as folder:
        files = [f"s3://bench/{key(number)}" for number in range(args.files)]
        listed = Path(folder, "files.txt")
        listed.write_text("\n".join(files) + "\n")
        index = Path(folder, "index.parquet")
        rss = Rss(args.rss, servers.endpoint, listed, index)
        built = rss.run("index", "build", listed, "-o", index)
        print(f"index: {built['requests']} requests for {built['files']} files, "
              f"{built['files'] / built['wall_s']:.0f} headers/s, "
              f"{built['output_bytes'] / built['files']:.0f} bytes a file", file=sys.stderr)
        ways = {("rss gather, index", "adaptive"): lambda: rss.gather("--index", index)}
        for n in numbers:
            at_once = ["--concurrency", n]
            ways[("rss gather, index", n)] = lambda at=at_once: rss.gather("--index", index, *at)
            ways[("rss gather", n)] = lambda at=at_once: rss.gather("--backend", "cog", *at)
            ways[("rss gather, GDAL", n)] = lambda at=at_once: rss.gather("--backend", "gdal", *at)
            # With GDAL's defaults more threads make it no faster, and it takes a minute.
            for reader in ["tuned", "default"] if n == numbers[0] else ["tuned"]:
                ways[(f"rasterio, {reader}", n)] = lambda n=n, reader=reader: rasterio(
                    servers.endpoint, files, reader, n
                )
        costs = {way: [] for way in ways}
        for number in range(args.rounds):
            for way, run in ways.items():
                if sys.stderr.isatty():
                    print(f"\r{number + 1} of {args.rounds}: {way}" + " " * 20, end="", file=sys.stderr)
                servers.asked()
                costs[way].append(run() | servers.asked())
    if sys.stderr.isatty():
        print("\r" + " " * 100 + "\r", end="", file=sys.stderr)
    digest = next(iter(costs.values()))[0]["sha256"]
    rows = [row(way, all_costs, args.files, digest) for way, all_costs in costs.items()]
    result = {
        "files": args.files,
        "latency_ms": args.latency,
        "rounds": args.rounds,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "commit": commit(),
        "index": built,
        "rows": rows,
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    show(rows, args)


class Servers:
    """The servers of rss-bench gather, in a process of their own."""

    def __init__(self, args):
        stock = json.dumps({"Gather": {"files": args.files, "latency_ms": args.latency}})
        self.process = subprocess.Popen(
            [args.bench, "serve", stock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.endpoint = json.loads(self.process.stdout.readline())[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def asked(self):
        """Returns what they were asked since the last time."""
        self.process.stdin.write("0\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Rss:
    def __init__(self, program, endpoint, listed, index):
        self.program, self.listed, self.index = program, listed, index
        self.env = os.environ | {"AWS_ENDPOINT_URL": endpoint, "AWS_NO_SIGN_REQUEST": "YES"}

    def run(self, *args):
        command = [self.program, *(str(arg) for arg in args), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env)
        if done.returncode != 0:
            raise SystemExit(f"\npeers: {command}: {done.stderr}")
        return json.loads(done.stdout)

    def gather(self, *args):
        said = self.run("gather", self.listed, *args)
        keys = ["wall_s", "cpu_s", "sha256", "concurrency"]
        return {key: said[key] for key in keys}


def rasterio(endpoint, files, reader, at_once):
    job = {
        "reader": reader,
        "endpoint": endpoint,
        "files": files,
        "window": TILE,
        "at_once": at_once,
    }
    command = [sys.executable, HERE / "with_rasterio.py"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"\npeers: rasterio: {done.stderr}")
    return json.loads(done.stdout)


def key(file):
    """The keys of rss-bench gather: the bands of a scene share a folder."""
    scene, band = file // 9, file % 9 + 1
    name = f"LC08_L1TP_106{scene:03}_T1"
    return f"c1/L8/106/{scene:03}/{name}/{name}_B{band}.TIF"


def row(way, costs, files, digest):
    rates = [files / cost["wall_s"] for cost in costs]
    return {
        "reader": way[0],
        "at_once": way[1],
        "requests_per_tile": statistics.median(cost["requests"] for cost in costs) / files,
        "tiles_per_s": statistics.median(rates),
        "tiles_per_s_all": rates,
        "cpu_ms_per_tile": statistics.median(cost["cpu_s"] for cost in costs) * 1e3 / files,
        "same_pixels": all(cost["sha256"] == digest for cost in costs),
        "version": costs[0].get("version"),
    }


def commit():
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return said.stdout.strip() or None


def show(rows, args):
    print(f"{args.files} files, {args.latency} ms, median of {args.rounds} rounds [least, most]\n")
    print("| reader | at once | requests a tile | tiles/s | ratio | CPU ms a tile |\n|---|---|---|---|---|---|")
    base = rows[0]["tiles_per_s"]
    for row in sorted(rows, key=lambda row: -row["tiles_per_s"]):
        rates = row["tiles_per_s_all"]
        version = f" {row['version']}" if row["version"] else ""
        print(
            f"| {row['reader']}{version}{'' if row['same_pixels'] else ' (OTHER PIXELS)'} "
            f"| {row['at_once']} "
            f"| {row['requests_per_tile']:.2f} "
            f"| {row['tiles_per_s']:.0f} [{min(rates):.0f}, {max(rates):.0f}] "
            f"| {row['tiles_per_s'] / base:.2f} "
            f"| {row['cpu_ms_per_tile']:.2f} |"
        )
    if not all(row["same_pixels"] for row in rows):
        raise SystemExit("peers: the pixels differ")


main()
