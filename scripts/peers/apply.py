"""One picture of many dates, by this library and its peers; scripts/peers/apply calls it.

The testbed serves dates of one scene. Each system makes the NDVI of each date, the median of all, and the
median without clouds, float32 on the scenes' own grid, in memory; `rss apply` makes them as COGs. COGs of samples
that are in memory are written beside rio-cogeo. Each run is a process of its own, which is timed from the items
to the arrays, imports left out; systems take turns, another one first in each round. What they make is
compared before anything is timed, and arrays are the same in each run.
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

import numpy
import rasterio
from compare import Servers, commit

HERE = Path(__file__).parent
JOBS = {
    "ndvi": "NDVI of each date",
    "median": "median of all dates",
    "clear": "median without clouds",
    "cog-int16": "COG of int16 in memory",
    "cog-float32": "COG of float32 in memory",
}
COGS = {"cog-int16": "int16", "cog-float32": "float32"}
# How far values may be apart, as a part of them: one rounding of float32.
TOLERANCE = 1.2e-7


def main():
    parser = argparse.ArgumentParser(prog="scripts/peers/apply", description=__doc__)
    parser.add_argument("--side", type=int, default=4096, help="of a scene, in pixels")
    parser.add_argument("--dates", type=int, default=8)
    parser.add_argument("--latency", default="0,30", help="of the servers, in ms, one table for each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", default="ndvi,median,cog-int16,cog-float32", help="some of " + ", ".join(JOBS))
    parser.add_argument("--systems", help="some of the systems that are shown, by commas")
    parser.add_argument("--chunk", type=int, default=2048, help="side of dask's chunks, in pixels")
    parser.add_argument("--memory", action="store_true", help="only rss apply's median, within a budget")
    parser.add_argument("--budget", type=int, default=1024, help="of --memory, in MB")
    parser.add_argument("--json", type=Path, required=True, help="where the result goes")
    parser.add_argument("--testbed", required=True, help="the program that serves")
    parser.add_argument("--ours", required=True, help="the worker of this library")
    parser.add_argument("--rss", required=True, help="the program rss")
    args = parser.parse_args()
    jobs = args.jobs.split(",")
    for job in jobs:
        if job not in JOBS:
            parser.error(f"job {job} is not one of {', '.join(JOBS)}")
    if args.memory:
        jobs = ["median"]

    before = os.getloadavg()
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers(args.testbed, 0, f"{args.side}x{args.dates}") as servers,
    ):
        bench = Bench(args, servers, Path(folder))
        for job in jobs:
            systems = chosen(bench.systems(job), args.systems)
            if args.memory:
                systems = {"rss apply": bench.program}
            expected = bench.checked(job, systems)
            for latency in [0] if job in COGS else [int(ms) for ms in args.latency.split(",")]:
                servers.tell(f"latency {latency}")
                rows += bench.timed(job, systems, latency, expected)
            servers.tell("latency 0")
    result = {
        "side": args.side,
        "dates": args.dates,
        "rounds": args.rounds,
        "chunk": args.chunk,
        "budget_mb": args.budget if args.memory else None,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "load_before": before,
        "load_after": os.getloadavg(),
        "commit": commit(),
        "rows": rows,
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


def chosen(systems, names):
    if names is None:
        return systems
    return {name: run for name, run in systems.items() if name in names.split(",")}


class Bench:
    def __init__(self, args, servers, folder):
        self.args, self.servers, self.folder = args, servers, folder
        self.items = folder / "items.json"
        self.items.write_text(json.dumps(servers.ask("items")))
        self.env = os.environ | {
            "AWS_ENDPOINT_URL": servers.endpoint,
            "AWS_NO_SIGN_REQUEST": "YES",
            "RSS_CACHE_DIR": str(folder / "cache"),
        }

    def systems(self, job):
        """Returns what does a job: a function of the job and of where its samples go, if anywhere."""
        if job in COGS:
            return {
                "rss": self.writer(None),
                "rio-cogeo": self.writer("rio-cogeo"),
                "GDAL's COG driver": self.writer("gdal"),
            }
        systems = {
            "rss": self.worker([self.args.ours], None),
            "rss apply": self.program,
            "odc-stac": self.worker(None, "odc-stac"),
            "odc-stac + bottleneck": self.worker(None, "odc-stac", "bottleneck"),
            "stackstac": self.worker(None, "stackstac"),
            "stackstac + bottleneck": self.worker(None, "stackstac", "bottleneck"),
        }
        return {name: run for name, run in systems.items() if job != "ndvi" or "bottleneck" not in name}

    def worker(self, command, system, median="xarray"):
        def run(job, save):
            text = {
                "do": job,
                "system": system,
                "median": median,
                "chunk": self.args.chunk,
                "endpoint": self.servers.endpoint,
                "items": str(self.items),
                "save": str(save) if save else None,
            }
            return told(command or python_worker(), text)

        return run

    def program(self, job, save):
        """`rss apply`, from its start to its end: a COG with overviews and statistics."""
        to = save or self.folder / "timed.tif"
        how = {
            "ndvi": ["--expr", "ndvi=(nir-red)/(nir+red)"],
            "median": ["--bands", "nbart_red,nbart_nir_1", "--reduce", "median"],
            "clear": ["--bands", "nbart_red,nbart_nir_1", "--reduce", "median", "--mask", "clouds"],
        }[job]
        if self.args.memory:
            how += ["--budget", str(self.args.budget)]
        command = [sys.executable, "-S", HERE / "cost.py", self.args.rss, "apply", "--items", self.items]
        command += ["--raw", *how, "--output", to, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env)
        if done.returncode != 0:
            raise SystemExit(f"\npeers: rss apply: {done.stderr}")
        return json.loads(done.stdout) | {"output_bytes": to.stat().st_size}

    def writer(self, system):
        def run(job, save):
            to = save or self.folder / "timed.tif"
            text = {
                "do": "cog",
                "system": system,
                "from": self.servers.ask("files")[0]["path"],
                "dtype": COGS[job],
                "to": str(to),
            }
            cost = told(python_worker() if system else [self.args.ours], text)
            return cost | {"sha256": None, "output_bytes": to.stat().st_size}

        return run

    def checked(self, job, systems):
        """Runs each system once, compares what they made with the first's, and returns their digests."""
        digests, first = {}, None
        for name, run in systems.items():
            progress(f"{JOBS[job]}: checking {name}")
            ending = ".tif" if job in COGS or name == "rss apply" else ".bin"
            made = self.folder / f"{job}-{len(digests)}{ending}"
            digests[name] = run(job, made).get("sha256")
            if first is None:
                first = made
                continue
            said = (same_cogs if job in COGS else self.same_samples)(first, made)
            made.unlink()
            progress("")
            print(f"{JOBS[job]}: {name}: {said}", file=sys.stderr)
        first.unlink()
        return digests

    def same_samples(self, first, second):
        """Compares samples of two files, band by band."""
        far, others, bands = 0.0, 0, 0
        for a, b in zip(self.bands(first), self.bands(second), strict=True):
            with numpy.errstate(invalid="ignore"):
                other = ~((a == b) | (numpy.isnan(a) & numpy.isnan(b)))
                if other.any():
                    a, b = a[other].astype(float), b[other].astype(float)
                    apart = numpy.abs(a - b) / numpy.maximum(numpy.abs(a), numpy.abs(b))
                    far = max(far, float(numpy.nan_to_num(apart, nan=numpy.inf).max()))
            others += int(other.sum())
            bands += 1
        if far > TOLERANCE:
            raise SystemExit(f"\npeers: {second.name}: {others} samples are others, by up to {far:.3g} of them")
        return f"the same {bands} bands" if others == 0 else f"{others} samples differ, by {far:.2g} of them"

    def bands(self, path):
        if path.suffix == ".tif":
            with rasterio.open(path) as file:
                for band in file.indexes:
                    yield file.read(band)
            return
        size = (-1, self.args.side, self.args.side)
        yield from numpy.memmap(path, "<f4", "r").reshape(size)

    def timed(self, job, systems, latency, digests):
        costs = {name: [] for name in systems}
        for number in range(self.args.rounds):
            names = list(systems)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                progress(f"{JOBS[job]}, {latency} ms, {number + 1} of {self.args.rounds}: {name}")
                self.servers.ask("requests")
                cost = systems[name](job, None) | self.servers.ask("requests")
                if cost.get("sha256") != digests[name]:
                    raise SystemExit(f"\npeers: {JOBS[job]}: {name} made other samples than before")
                costs[name].append(cost)
        progress("")
        return [
            {
                "job": job,
                "latency_ms": latency,
                "system": name,
                "version": all_costs[0].get("version"),
                "wall_s": statistics.median(cost["wall_s"] for cost in all_costs),
                "wall_s_all": [cost["wall_s"] for cost in all_costs],
                "cpu_s": statistics.median(cost["cpu_s"] for cost in all_costs),
                "cpu_s_all": [cost["cpu_s"] for cost in all_costs],
                "peak_mb": statistics.median((cost["peak_bytes"] or 0) / 1e6 for cost in all_costs),
                "peak_mb_all": [(cost["peak_bytes"] or 0) / 1e6 for cost in all_costs],
                "requests": statistics.median(cost["requests"] for cost in all_costs),
                "read_mb": statistics.median(cost["bytes"] / 1e6 for cost in all_costs),
                "output_mb": all_costs[0].get("output_bytes", 0) / 1e6 or None,
            }
            for name, all_costs in costs.items()
        ]


def python_worker():
    return [sys.executable, HERE / "apply_worker.py"]


def told(command, job):
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"\npeers: {job['do']}, {job['system'] or 'rss'}: {done.stderr}")
    return json.loads(done.stdout)


def same_cogs(first, second):
    """Compares two COGs: the same samples, and overviews that differ by rounding alone."""
    with rasterio.open(first) as a, rasterio.open(second) as b:
        sizes = a.overviews(1)
        if sizes != b.overviews(1):
            raise SystemExit(f"\npeers: {second.name}: overviews {b.overviews(1)}, expected {sizes}")
        if not numpy.array_equal(a.read(1), b.read(1)):
            raise SystemExit(f"\npeers: {second.name}: other samples")
        rounding = 1.0 if numpy.dtype(a.dtypes[0]).kind == "i" else 1e-6
    far = 0.0
    for level in range(len(sizes)):
        with (
            rasterio.open(first, overview_level=level) as a,
            rasterio.open(second, overview_level=level) as b,
        ):
            far = max(far, float(numpy.abs(a.read(1).astype(float) - b.read(1)).max()))
    if far > rounding:
        raise SystemExit(f"\npeers: {second.name}: overviews differ by {far:g}")
    return f"the same samples, overviews by {far:.2g}"


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:<100}\r", end="", file=sys.stderr, flush=True)


def show(result):
    print(
        f"{result['dates']} dates of {result['side']} x {result['side']}, median of {result['rounds']} rounds "
        f"[least, most], {result['cores']} cores, load {result['load_before'][0]:.1f} before"
    )
    last = None
    for row in result["rows"]:
        if (row["job"], row["latency_ms"]) != last:
            last, base = (row["job"], row["latency_ms"]), row
            says = JOBS[row["job"]] + ("" if row["job"] in COGS else f", {row['latency_ms']} ms")
            print(f"\n| {says} | s | ratio | CPU s | peak MB | ratio | requests | MB |")
            print("|---|---|---|---|---|---|---|---|")
        version = f" {row['version']}" if row["version"] and not row["system"].startswith("rss") else ""
        written = f"{row['output_mb']:.0f} written" if row["output_mb"] else f"{row['read_mb']:.0f} read"
        print(
            f"| {row['system']}{version} "
            f"| {spread(row['wall_s'], row['wall_s_all'], 2)} "
            f"| {row['wall_s'] / base['wall_s']:.2f} "
            f"| {row['cpu_s']:.2f} "
            f"| {spread(row['peak_mb'], row['peak_mb_all'], 0)} "
            f"| {row['peak_mb'] / base['peak_mb']:.2f} "
            f"| {row['requests']:.0f} "
            f"| {written} |"
        )


def spread(middle, values, digits):
    return f"{middle:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


if __name__ == "__main__":
    main()
