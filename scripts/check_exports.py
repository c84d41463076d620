"""Opens what `rss index export` writes with zarr-python, xarray and GDAL, and compares every pixel.

    scripts/python-env scripts/check_exports.py --rss RSS --manifest MANIFEST [--scenes SCENES.json]

Three sets of files: those of a manifest, whose truth are SHA-256 of samples by GDAL and tifffile; those
that GDAL writes here, one for each way a GeoTIFF can be laid out; and scenes that a server hands out by
byte ranges. Prints one line for each check, and ends with 1 if one failed.
"""

import argparse
import base64
import hashlib
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import fsspec
import imagecodecs.numcodecs
import numpy as np
import rasterio
import xarray as xr
import zarr
from fsspec.implementations.reference import LazyReferenceMapper
from rasterio.windows import Window

imagecodecs.numcodecs.register_codecs(verbose=False)
warnings.filterwarnings("ignore", category=rasterio.errors.NotGeoreferencedWarning)
warnings.filterwarnings("ignore", message=".*(codec|Numcodecs|consolidated).*")

failures = []


def check(what, ok, detail=""):
    if not ok:
        failures.append(what)
        print(f"FAILED {what} {detail}")
    return ok


class Rss:
    """The command line."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.not_indexed = set()

    def run(self, *args):
        done = subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True)
        # Some files of an index may fail; it is written all the same.
        if done.returncode != 0 and not (args[1] == "build" and done.stdout):
            raise SystemExit(f"rss {' '.join(map(str, args))}: {done.stderr}")
        return json.loads(done.stdout)

    def read(self, path):
        """Reads all samples of a file."""
        out = self.folder / "read.npy"
        self.run("read", path, "-o", out, "--json")
        return np.load(out)

    def index(self, name, paths):
        """Indexes local files; each is an item of its own."""
        index, names = self.folder / f"{name}.parquet", self.folder / f"{name}.txt"
        names.write_text("".join(f"{path}\n" for path in paths))
        built = self.run("index", "build", names, "-o", index, "--json")
        self.not_indexed = {pathlib.Path(one["location"]).stem for one in built["failed"]}
        return index

    def export(self, index, kind, *more):
        ending = {"vrt": "vrt", "vrt-stack": "vrt", "gti": "gti"}.get(kind, "parq" if kind.endswith("parquet") else "json")
        out = index.with_suffix(f".{kind}.{ending}")
        return out, self.run("index", "export", index, "--format", kind, "-o", out, "--json", *more)


class References:
    """References on disk; data may be local or behind HTTP."""

    def __init__(self, path):
        self.path = str(path)
        self.refs = json.loads(path.read_text())["refs"]
        urls = [value[0] for value in self.refs.values() if isinstance(value, list)]
        protocol = urls[0].split("://")[0] if urls else "file"
        self.options = {"fo": self.path, "remote_protocol": protocol}
        if protocol != "file":
            # zarr-python reads by async file systems.
            self.options["remote_options"] = {"asynchronous": True}
        fs = fsspec.filesystem("reference", asynchronous=True, **self.options)
        self.store = zarr.storage.FsspecStore(fs, read_only=True, path="")

    def expand(self):
        """Returns what each key stands for: JSON, bytes, or a byte range."""
        for key, value in self.refs.items():
            if isinstance(value, str) and value.startswith("base64:"):
                value = base64.b64decode(value.removeprefix("base64:"))
            elif isinstance(value, str):
                value = json.loads(value)
            yield key, value

    def array(self, path):
        return zarr.open_array(self.store, mode="r", path=path, zarr_format=2)

    def groups(self, path):
        """Lists the groups right below one."""
        inside = (key.removeprefix(f"{path}/").split("/") for key in self.refs if key.startswith(f"{path}/"))
        return sorted({parts[0] for parts in inside if len(parts) == 2 and parts[1] == ".zgroup"})

    def dataset(self, path, **options):
        """Opens a group with xarray, as one line does."""
        url = f"reference://{path}"
        return xr.open_zarr(url, storage_options=self.options, consolidated=False, zarr_format=2, **options)

    def is_dataset(self, path, name):
        """Returns true if xarray finds one variable and its grid there."""
        data = self.dataset(path)
        return set(data.data_vars) == {name} and "spatial_ref" in data.coords and data[name].values.size > 0


def same_references(rss, index, kind, *more):
    """Exports references as Parquet; returns where, and compares them with the JSON: each key, and no others."""
    refs, _ = rss.export(index, kind, *more)
    folder, _ = rss.export(index, f"{kind}-parquet", *more)
    mapper = LazyReferenceMapper(str(folder), fsspec.filesystem("file"))
    wanted = dict(References(refs).expand())
    for key, value in wanted.items():
        found = mapper[key]
        if isinstance(value, dict):
            found = json.loads(found)
        elif isinstance(value, list):
            found = [found[0], *map(int, found[1:])]
        if not check(f"{kind} as Parquet", found == value, f"{key}: {found}, expected {value}"):
            break
    # Chunks that are not stored have rows, too, and no file.
    fields = {key.removesuffix("/.zarray") for key in wanted if key.endswith("/.zarray")}
    stored = {f"{field}/{chunk}" for field in fields for chunk in chunks(mapper, field)}
    check(f"{kind} as Parquet", stored == {key for key, value in wanted.items() if not isinstance(value, dict)}, "other chunks")
    check(f"{kind} as Parquet", set(mapper.zmetadata) == {key for key, value in wanted.items() if isinstance(value, dict)})
    return folder


def chunks(mapper, field):
    """Yields the keys of the chunks of an array that are stored."""
    sides = mapper._get_chunk_sizes(field)
    for place in itertools.product(*map(range, sides)):
        key = ".".join(map(str, place))
        try:
            mapper[f"{field}/{key}"]
        except KeyError:
            continue
        yield key


def bands_first(array):
    """Returns the samples of an array of a file as (band, y, x)."""
    dims = array.attrs["_ARRAY_DIMENSIONS"]
    data = array[...]
    if dims == ["y", "x"]:
        return data[None]
    return data if dims[0] == "band" else np.moveaxis(data, -1, 0)


def same(a, b):
    """Returns true if arrays hold the same numbers; which NaN it is does not count."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


# The files of a manifest.


def corpus(rss, manifest, sample):
    said = json.loads(manifest.read_text())["files"]
    said = [one for one in said if one["grade"] == "A"][::sample]
    paths = {pathlib.Path(one["file"]).stem: one for one in said}
    places = [manifest.parent / one["file"] for one in said]
    index = rss.index("corpus", places)
    refs, exported = rss.export(index, "kerchunk")
    whole = {one["item"]: one["error"] for one in exported["left_out"] if one["level"] is None}
    parts = {(one["item"], one["level"]) for one in exported["left_out"]}
    root = References(refs)
    counts = {"exact": 0, "near": 0, "refused": 0, "left out": len(whole) + len(rss.not_indexed)}
    for item, one in paths.items():
        if item in whole or item in rss.not_indexed:
            continue
        truth = one["truth"]
        levels = (truth.get("gdal") or truth.get("tifffile"))["levels"]
        there = root.groups(f"{item}/data")
        for number, level in enumerate(levels):
            what = f"{item}, level {number}"
            if (item, number) in parts:
                continue
            if not check(what, str(number) in there, "neither written nor left out"):
                continue
            try:
                data = bands_first(root.array(f"{item}/data/{number}/data"))
            except Exception as err:
                # Some writers store no more rows of a tile than the image has; nothing says so before.
                short = isinstance(err, ValueError) and "cannot reshape" in str(err)
                counts["refused"] += short
                check(what, short, f"{type(err).__name__}: {err}"[:200])
                continue
            shape = (len(level["bands"]), level["height"], level["width"])
            if not check(what, data.shape == shape, f"{data.shape}, expected {shape}"):
                continue
            if one["compare"]["mode"] != "exact":
                counts["near"] += near(what, data, level["bands"])
                continue
            for band, expected in zip(data, level["bands"]):
                kind = np.dtype(expected["dtype"])
                # Floats of 16 bits are read as GDAL reads them; the truth may be as they are stored.
                if kind == np.float16 and band.dtype == np.float32:
                    band = band.astype(kind)
                if kind != band.dtype.newbyteorder("="):
                    check(what, False, f"{band.dtype}, expected {kind}")
                    break
                little = np.ascontiguousarray(band, dtype=kind.newbyteorder("<"))
                if not check(what, hashlib.sha256(little.tobytes()).hexdigest() == expected["sha256"], "other samples"):
                    break
            else:
                counts["exact"] += 1
    print(f"corpus: {counts['exact']} levels exact, {counts['near']} lossy and near, {counts['refused']} refused by Zarr, {counts['left out']} files left out")
    # Most of what a manifest lists is lossless: a reader that opens little is no success.
    check("corpus", counts["exact"] >= len(paths) // 2, f"{counts['exact']} levels of {len(paths)} files compared")


def near(what, data, truth):
    """Compares samples of a lossy codec with what the manifest says of them; the reader is held to the same."""
    for band, expected in zip(data, truth):
        if "mean" not in expected:
            return False
        far = max(abs(float(band[row, col]) - value) for row, col, value in expected["samples"])
        mean = abs(float(band.mean()) - expected["mean"])
        if not check(what, far <= 4 and mean <= 0.2, f"up to {far}, on average {mean} from the truth"):
            return False
    return True


# Files that GDAL writes here.

RNG = np.random.default_rng(7)
GRID = rasterio.transform.from_origin(300_000, 6_100_000, 10, 10)


def samples(dtype, count, height, width):
    kind = np.dtype(dtype)
    ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 7)[None] + np.arange(count)[:, None, None] * 11
    if kind.kind in "fc":
        data = np.sin(ramp / 50) * 1000
        data = data + 1j * ramp if kind.kind == "c" else data
    else:
        most = np.iinfo(kind).max
        data = ramp % 200 + RNG.integers(0, min(most, 50), ramp.shape)
        data = data + (most // 2 if kind.itemsize > 1 else 0)
    return data.astype(kind)


def layouts():
    """Names and options of GeoTIFFs: every compression, predictor, type and arrangement that GDAL writes."""
    whole = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
    floats = ["float32", "float64"]
    tiled = {"tiled": True, "blockxsize": 64, "blockysize": 48}
    for dtype, compress, count in itertools.product(
        whole + floats + ["complex64", "complex128"],
        [None, "deflate", "zstd", "lzw", "lzma", "packbits"],
        [1, 3],
    ):
        predictors = [1] if compress in (None, "packbits") or dtype.startswith("c") else [1, 2]
        predictors += [3] if dtype in floats and len(predictors) > 1 else []
        for predictor in predictors:
            yield dtype, count, {**tiled, "compress": compress, "predictor": predictor}
            if count > 1 and (dtype in ("int16", "float32") or compress == "deflate"):
                yield dtype, count, {**tiled, "compress": compress, "predictor": predictor, "interleave": "band"}
            if dtype in ("uint16", "float32", "float64", "complex64") and compress in (None, "deflate", "lzw"):
                yield dtype, count, {**tiled, "compress": compress, "predictor": predictor, "endianness": "big"}
    for compress, blocks in itertools.product([None, "deflate"], [7, 20, 32, 101]):
        yield "uint16", 1, {"compress": compress, "blockysize": blocks}
        yield "uint16", 3, {"compress": compress, "blockysize": blocks, "interleave": "band"}
    for bits in range(1, 16):
        if bits != 8:
            yield "uint8" if bits < 8 else "uint16", 1, {**tiled, "nbits": bits, "compress": "deflate"}
    yield "float32", 1, {**tiled, "nbits": 16, "compress": "deflate"}
    yield "float32", 3, {**tiled, "nbits": 16, "compress": "deflate", "predictor": 2}
    yield "float32", 1, {**tiled, "nbits": 16, "compress": "zstd", "predictor": 3}
    yield "float32", 1, {**tiled, "nbits": 24, "compress": "deflate"}
    for photometric, count in [("minisblack", 1), ("rgb", 3), ("ycbcr", 3), ("rgb", 4)]:
        yield "uint8", count, {**tiled, "compress": "jpeg", "photometric": photometric}
    yield "uint8", 3, {**tiled, "compress": "jpeg", "interleave": "band"}
    for count, lossless in itertools.product([3, 4], [True, False]):
        yield "uint8", count, {**tiled, "compress": "webp", "webp_lossless": lossless}
    for dtype, count in itertools.product(["uint8", "int16", "uint32", "float32"], [1, 3]):
        for compress in ["lerc", "lerc_deflate", "lerc_zstd"]:
            yield dtype, count, {**tiled, "compress": compress}
    yield "uint8", 4, {**tiled, "compress": "lerc", "photometric": "rgb"}


def made(rss, folder):
    """Every layout that GDAL writes: as it is, and with tiles that are not stored."""
    folder.mkdir()
    written = {}
    for number, (dtype, count, options) in enumerate(layouts()):
        height, width = 101, 150
        path = folder / f"{number:03}.tif"
        data = samples(dtype, count, height, width)
        if "nbits" in options and options["nbits"] < 16:
            data = (data % 2 ** options["nbits"]).astype(dtype)
        sparse = number % 2 == 0 and options.get("tiled") and np.dtype(dtype).kind != "c"
        nodata = 3 if sparse and number % 4 == 0 else None
        profile = {key: value for key, value in options.items() if value is not None}
        if "endianness" in profile:
            profile["ENDIANNESS"] = profile.pop("endianness").upper()
        what = " ".join([dtype, f"x{count}"] + [f"{key}={value}" for key, value in options.items()])
        try:
            with rasterio.open(
                path, "w", driver="GTiff", dtype=dtype, count=count, height=height, width=width,
                crs="EPSG:32756", transform=GRID, nodata=nodata, SPARSE_OK=bool(sparse), **profile,
            ) as raster:
                if sparse:
                    raster.write(data[:, :48, :128], window=Window(0, 0, 128, 48))
                else:
                    raster.write(data)
        except (rasterio.errors.RasterioError, ValueError) as err:
            print(f"skipped: GDAL does not write {what}: {str(err)[:80]}")
            continue
        written[path.stem] = (path, what, options)
    index = rss.index("made", [path for path, *_ in written.values()])
    refs, exported = rss.export(index, "kerchunk")
    left_out = {one["item"]: one["error"] for one in exported["left_out"]}
    root = References(refs)
    exact = 0
    for item, (path, what, options) in written.items():
        if item in left_out:
            reason = left_out[item]
            print(f"left out: {what}: {reason}")
            allowed = "short" in reason or "LERC of floats" in reason
            check(what, allowed, f"left out: {reason}")
            continue
        with rasterio.open(path) as raster:
            expected, nodata = raster.read(), raster.nodata
        try:
            array = root.array(f"{item}/data/0/data")
            data = bands_first(array)
        except Exception as err:
            check(what, False, f"{type(err).__name__}: {err}"[:300])
            continue
        if options.get("photometric") == "ycbcr":
            # libjpeg has more than one way to enlarge chroma, and GDALs are built with different ones.
            expected = rss.read(path)
            check(what, np.abs(data.astype(int) - expected).max() <= 4, "other samples than the reader's")
        else:
            exact += check(what, same(data, expected), f"{item}: other samples than GDAL's")
        fill = array.metadata.fill_value
        check(what, (fill is None) == (nodata is None), f"fill value {fill}, nodata {nodata}")
        if int(item) % 10 == 0:
            check(what, root.is_dataset(f"{item}/data/0", "data"), "not as xarray wants it")
    same_references(rss, index, "kerchunk")
    print(f"made: {exact} of {len(written)} layouts exact, {len(left_out)} left out")


def has_gti():
    with rasterio.Env() as env:
        return "GTI" in env.drivers()


def mosaics(rss, folder, dtype, nodata, epsg=32756, grid=GRID):
    """Virtual rasters of overlapping files, with holes in the upper ones."""
    folder.mkdir()
    files, expected = [], np.full((200, 300), nodata, dtype)
    for number, (col, row) in enumerate([(0, 0), (100, 50), (150, 80)]):
        path = folder / f"tile-{number}.tif"
        data = samples(dtype, 1, 120, 150)[0] + np.dtype(dtype).type(number)
        data[20:60, 30:90] = nodata
        transform = grid @ rasterio.Affine.translation(col, row)
        with rasterio.open(
            path, "w", driver="GTiff", dtype=dtype, count=1, height=120, width=150, crs=f"EPSG:{epsg}",
            transform=transform, nodata=nodata, tiled=True, blockxsize=64, blockysize=64, compress="deflate",
        ) as raster:
            raster.write(data, 1)
            raster.build_overviews([2], rasterio.enums.Resampling.nearest)
        part = expected[row : row + 120, col : col + 150]
        hidden = np.isnan(data) if np.isnan(nodata) else data == nodata
        part[~hidden] = data[~hidden]
        files.append(path)
    index = rss.index(f"mosaic-{folder.name}", files)
    # GDAL reads tile indexes from 3.9 on.
    kinds = ["vrt", "gti"] if has_gti() else ["vrt"]
    for kind in kinds:
        mosaic, _ = rss.export(index, kind)
        with rasterio.open(mosaic) as raster:
            check(kind, same(raster.read(1), expected), f"{dtype}: other pixels than its sources laid on each other")
            check(kind, same(raster.nodata, float(nodata)) and raster.crs.to_epsg() == epsg and raster.transform == grid)
            check(kind, raster.shape == expected.shape and raster.dtypes == (dtype,), f"{raster.profile}")
            check(kind, raster.descriptions == ("data",), f"{raster.descriptions}")
            check(kind, raster.overviews(1) == [2], f"overviews {raster.overviews(1)}")
        with rasterio.open(mosaic, overview_level=0) as coarse:
            check(kind, coarse.shape == tuple(-(-side // 2) for side in expected.shape), f"overview of {coarse.shape}")
            # Nearest overviews of files that lie on even pixels: each second pixel, by one rule.
            ways = [expected[row::2, col::2] for row in (0, 1) for col in (0, 1)]
            check(kind, any(same(coarse.read(1), way[: coarse.height, : coarse.width]) for way in ways if way.shape == coarse.shape))
    mosaic = index.with_suffix(".vrt.vrt")
    stack, _ = rss.export(index, "vrt-stack")
    with rasterio.open(stack) as raster:
        check("stack", raster.descriptions == tuple(path.stem for path in files), f"{raster.descriptions}")
        for band, path in enumerate(files, 1):
            with rasterio.open(path) as source:
                col, row = [round(place) for place in ~raster.transform * (source.transform.c, source.transform.f)]
                window = Window(col, row, source.width, source.height)
                check("stack", same(raster.read(band, window=window), source.read(1)), path.name)
    if shutil.which("gdalinfo"):
        said = subprocess.run(["gdalinfo", "-checksum", str(mosaic)], capture_output=True, text=True)
        check("gdalinfo", said.returncode == 0 and "Checksum=" in said.stdout and "ERROR" not in said.stderr, said.stderr)
        # The system's GDAL may be older than rasterio's.
        raw = folder / "mosaic.raw"
        subprocess.run(["gdal_translate", "-q", "-of", "ENVI", str(mosaic), str(raw)], check=True)
        check("gdal_translate", same(np.fromfile(raw, dtype).reshape(expected.shape), expected), dtype)
    print(f"virtual rasters of {dtype} in EPSG:{epsg}: a stack of three files, and a mosaic as {' and '.join(kinds)}")


# Scenes behind HTTP.


def scenes(rss, said):
    """References, cubes and virtual rasters over HTTP, against the files that the server has."""
    said = json.loads(said.read_text())
    index = rss.folder / "scenes.parquet"
    rss.run("index", "build", "--items", said["items"], "-o", index, "--json")
    refs, exported = rss.export(index, "kerchunk")
    check("scenes", exported["written"] == len(said["files"]), f"{exported}")
    root = References(refs)
    for one in said["files"]:
        path = f"{one['item']}/{one['asset']}"
        for number in root.groups(path):
            options = {} if number == "0" else {"OVERVIEW_LEVEL": int(number) - 1}
            with rasterio.open(one["path"], **options) as raster:
                expected = raster.read()
            data = bands_first(root.array(f"{path}/{number}/{one['asset']}"))
            check(f"scenes: {path}, level {number}", same(data, expected))
        check(path, root.is_dataset(f"{path}/0", one["asset"]), "not as xarray wants it")

    same_references(rss, index, "kerchunk")
    folder = same_references(rss, index, "kerchunk-cube")
    refs, exported = rss.export(index, "kerchunk-cube")
    check("cube", exported["written"] == len(said["files"]), f"{exported}")
    root = References(refs)
    for asset in sorted({one["asset"] for one in said["files"]}):
        of = {one["item"]: one["path"] for one in said["files"] if one["asset"] == asset}
        seen = 0
        for grid in root.groups(asset):
            cube = root.dataset(f"{asset}/{grid}/0", mask_and_scale=False)
            options = {**root.options, "fo": str(folder)}
            lazy = xr.open_zarr(
                f"reference://{asset}/{grid}/0", storage_options=options, consolidated=False, zarr_format=2, mask_and_scale=False
            )
            check(f"cube of {asset} as Parquet", lazy.identical(cube), f"{lazy}, expected {cube}")
            times = cube["time"].values
            check(f"cube of {asset}", (np.diff(times) >= np.timedelta64(0)).all(), "times in order")
            for at, item in enumerate(cube["item"].values):
                with rasterio.open(of[str(item)]) as raster:
                    check(f"cube of {asset}, {item}", same(cube[asset].values[at], raster.read(1)))
                    x, y = raster.xy(0, 0)
                    place = (float(cube["x"][0]), float(cube["y"][0]))
                    check(f"cube of {asset}", place == (x, y), f"{place}, expected {(x, y)}")
                when = np.datetime64(said["times"][str(item)].replace("Z", ""))
                check(f"cube of {asset}, {item}", times[at] == when, f"{times[at]}, expected {when}")
                seen += 1
        check(f"cube of {asset}", seen == len(of), f"{seen} of {len(of)} items")

    stack, exported = rss.export(index, "vrt-stack", "--asset", said["files"][0]["asset"])
    of = {one["item"]: one["path"] for one in said["files"] if one["asset"] == said["files"][0]["asset"]}
    with rasterio.open(stack) as raster:
        check("stack over HTTP", set(raster.descriptions) | {one["item"] for one in exported["left_out"]} == set(of))
        for band, item in enumerate(raster.descriptions, 1):
            with rasterio.open(of[item]) as source:
                col, row = [round(place) for place in ~raster.transform * (source.transform.c, source.transform.f)]
                window = Window(col, row, source.width, source.height)
                check(f"stack over HTTP, {item}", same(raster.read(band, window=window), source.read(1)))
    print(f"scenes over HTTP: {len(said['files'])} files as references, cubes and a stack")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rss", required=True, help="the binary")
    parser.add_argument("--manifest", type=pathlib.Path, help="manifest.json of a folder of TIFFs")
    parser.add_argument("--sample", type=int, default=1, help="every so many files of the manifest")
    parser.add_argument("--scenes", type=pathlib.Path, help="what the server has")
    parser.add_argument("--made", action="store_true", help="files that GDAL writes")
    args = parser.parse_args()
    if not (args.manifest or args.made or args.scenes):
        parser.error("nothing to compare: name --manifest, --made or --scenes")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rss = Rss(args.rss, folder)
        if args.manifest:
            corpus(rss, args.manifest.resolve(), args.sample)
        if args.made:
            made(rss, folder / "made")
            for dtype, nodata in [("int16", -999), ("uint32", 2**32 - 1), ("float32", np.nan), ("float64", -1e300)]:
                mosaics(rss, folder / dtype, dtype, nodata)
            # Sums of these steps are not exact.
            degrees = rasterio.transform.from_origin(150, -30, 0.001, 0.001)
            mosaics(rss, folder / "degrees", "int16", -1, 4326, degrees)
        if args.scenes:
            scenes(rss, args.scenes)
    print(f"{len(failures)} failures in {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
