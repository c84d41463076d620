"""Measures how far this library and its peers are from exact answers, and writes the table of docs/CORRECTNESS.md.

    scripts/oracles/run [--rss PROGRAM] [--small] [--only GROUP,..] [--write docs/CORRECTNESS.md]

The exact answer of a row is computed here from the definition: positions by PROJ in float64, sums in numpy's
longdouble, optima by iteration to 1e-13. Ours is what the program rss writes over the same files; the peers are
rasterio's gdalwarp (with its default error of 0.125 pixels, and with none), odc-stac, xarray, numexpr, GDAL's
overviews, rasterio's rasterize, exactextract, scipy's trees. A row holds the largest distance over all of its pixels, in the unit of its group. It is
marked, and the run ends with 1, where ours is further from the exact answer than the best peer by more than rounding
(`ROUNDING`), unless the row has a reason, which docs/CORRECTNESS.md lists.

--small takes the first rows of each group: a few seconds, for scripts/test.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy

# One rounding of float32, of values near 1.
ROUNDING = 2e-7


class Row:
    """One comparison: distances from the exact answer by name, none where a system cannot do it."""

    def __init__(self, case, ours, peers, scale=1.0, reason=None):
        self.case, self.ours, self.peers, self.scale, self.reason = case, ours, peers, scale, reason

    def is_worse(self):
        # What a peer does only when it is told to is shown, and is not what it does.
        known = [distance for name, distance in self.peers.items() if distance is not None and not name.endswith("-et 0")]
        best = min(known, default=0.0)
        return self.reason is None and not self.ours <= best + ROUNDING * self.scale


class Work:
    """A folder of inputs, the program, and how it is run."""

    def __init__(self, rss, folder, small):
        self.rss, self.folder, self.small = rss, pathlib.Path(folder), small
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("RSS_", "AWS_", "GDAL_"))}
        self.env["RSS_CACHE_DIR"] = str(self.folder / "cache")
        self.number = 0

    def path(self, ending):
        self.number += 1
        return self.folder / f"f{self.number}{ending}"

    def some(self, many, first):
        """All of many, or as many as the small form takes."""
        return many[:first] if self.small else many

    def run(self, *args):
        done = subprocess.run([self.rss, *map(str, args)], env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"rss {' '.join(map(str, args))}\n{done.stderr}")
        return done.stdout

    def apply(self, items, *args):
        """Runs rss apply; returns its result, (band, y, x), as float64."""
        out = self.path(".npy")
        self.run("apply", "--items", items, *args, "-o", out)
        return numpy.load(out).astype("float64")

    def tiff(self, array, crs, transform, nodata=None):
        import rasterio

        path = self.path(".tif")
        with rasterio.open(
            path, "w", driver="GTiff", width=array.shape[1], height=array.shape[0], count=1, dtype=array.dtype.name,
            crs=crs, transform=transform, nodata=nodata, tiled=True, blockxsize=128, blockysize=128,
        ) as file:
            file.write(array, 1)
        return path

    def items(self, crs, transform, size, dates, collection="made"):
        """Writes items, one a date (a dict of assets); returns the file."""
        from rasterio.warp import transform_bounds

        width, height = size
        left, top = transform.c, transform.f
        box = list(transform_bounds(f"EPSG:{crs}", "EPSG:4326", left, top + height * transform.e, left + width * transform.a, top))
        w, s, e, n = box
        features = []
        for day, assets in enumerate(dates):
            features.append({
                "type": "Feature", "stac_version": "1.0.0", "id": f"d{day:02}", "collection": collection, "bbox": box,
                "stac_extensions": ["https://stac-extensions.github.io/projection/v1.1.0/schema.json"],
                "geometry": {"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]},
                "properties": {
                    "datetime": f"2021-01-{day + 1:02}T00:00:00Z", "proj:epsg": crs, "proj:shape": [height, width],
                    "proj:transform": list(transform)[:6],
                },
                "assets": {
                    name: {"href": str(path), "type": "image/tiff; application=geotiff", "roles": ["data"],
                           "raster:bands": [{"data_type": dtype, **({} if nodata is None else {"nodata": nodata})}]}
                    for name, (path, dtype, nodata) in assets.items()
                },
                "links": [],
            })
        path = self.path(".json")
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        return path


def farthest(made, exact, where=None):
    """The largest distance; infinite where a value is missing that should be there."""
    made, exact = numpy.asarray(made, dtype="longdouble"), numpy.asarray(exact, dtype="longdouble")
    where = numpy.isfinite(exact) if where is None else where & numpy.isfinite(exact)
    if not where.any():
        return 0.0
    apart = numpy.abs(made[where] - exact[where])
    return float(numpy.nan_to_num(apart, nan=numpy.inf).max())


def scene(shape, dtype, seed, gaps):
    """Hills, fields and noise; gaps in a share of pixels and in a disk. Returns samples, nodata and what is valid."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[: shape[0], : shape[1]]
    value = 0.4 + 0.2 * numpy.sin(x / 9.0) * numpy.cos(y / 7.0) + 0.2 * ((x // 17 + y // 13) % 3 == 0) + 0.1 * random.random(shape)
    scale, nodata = {"uint8": (220, 0), "uint16": (9000, 0), "int16": (9000, -999), "float32": (1, -9999.0)}[dtype]
    samples = (value * scale).astype(dtype)
    valid = numpy.ones(shape, dtype=bool)
    if gaps:
        valid = (random.random(shape) > 0.01) & ((x - shape[1] / 2) ** 2 + (y - shape[0] / 2) ** 2 > 15**2)
        samples[~valid] = nodata
    return samples, (nodata if gaps else None), valid


# ---- warps

PAIRS = [
    (32755, 32755, (149.1, -35.3)), (32755, 3577, (149.1, -35.3)), (32755, 32756, (149.99, -33.0)),
    (32633, 4326, (13.4, 52.5)), (32755, 3857, (144.9, -37.8)), (3577, 32755, (145.2, -17.1)),
]
TYPES = [("uint8", False), ("uint8", True), ("int16", False), ("int16", True), ("float32", False), ("float32", True)]


def taps(kernel, position):
    """The first pixel and the weights along an axis, by the definition of the kernel."""
    start = position - 0.5
    first = numpy.floor(start).astype(int)
    part = start - first
    if kernel == "bilinear":
        return first, [1 - part, part]
    if kernel == "lanczos":
        # Three lobes, normalised, as gdalwarp does.
        weights = [numpy.sinc(part - k) * numpy.sinc((part - k) / 3) for k in range(-2, 4)]
        total = sum(weights)
        return first - 2, [weight / total for weight in weights]
    if kernel == "cubicspline":
        near = lambda t: (4 - 6 * t**2 + 3 * t**3) / 6
        far = lambda t: (2 - t) ** 3 / 6
        return first - 1, [far(1 + part), near(part), near(1 - part), far(2 - part)]
    a = -0.5
    inner = [(a + 2) * t**3 - (a + 3) * t**2 + 1 for t in (part, 1 - part)]
    outer = [a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a for t in (1 + part, 2 - part)]
    return first - 1, [outer[0], inner[0], inner[1], outer[1]]


def interpolated(samples, valid, cols, rows, kernel):
    """The exact values at positions, and where all samples of the kernel are valid."""
    if kernel == "nearest":
        at = numpy.floor(rows).astype(int), numpy.floor(cols).astype(int)
        return samples[at].astype("longdouble"), valid[at]
    (x, across), (y, down) = taps(kernel, cols.astype("longdouble")), taps(kernel, rows.astype("longdouble"))
    total, whole = numpy.zeros(cols.shape, dtype="longdouble"), numpy.ones(cols.shape, dtype=bool)
    for j, b in enumerate(down):
        for i, a in enumerate(across):
            total += samples[y + j, x + i] * a * b
            whole &= valid[y + j, x + i]
    return total, whole


# Where rasterio and odc-stac have another name for a method of GDAL.
RASTERIO_NAMES = {"cubicspline": "cubic_spline"}


def by_gdalwarp(path, target, kernel, tolerance):
    """rasterio's gdalwarp of a file onto (crs, transform, shape)."""
    import rasterio
    from rasterio.enums import Resampling
    from rasterio.warp import reproject

    with rasterio.open(path) as file:
        nodata = file.nodata
        out = numpy.zeros(target[2], dtype=file.dtypes[0])
        reproject(
            rasterio.band(file, 1), out, dst_crs=f"EPSG:{target[0]}", dst_transform=target[1], src_nodata=nodata,
            dst_nodata=nodata, resampling=Resampling[RASTERIO_NAMES.get(kernel, kernel)], tolerance=tolerance,
        )
    made = out.astype("float64")
    return numpy.where(made == nodata, numpy.nan, made) if nodata is not None else made


def by_odc(items, names, target, kernel):
    import odc.stac
    import pystac
    from odc.geo.geobox import GeoBox

    found = pystac.ItemCollection.from_dict(json.loads(pathlib.Path(items).read_text()))
    box = GeoBox(target[2], target[1], f"EPSG:{target[0]}")
    loaded = odc.stac.load(found.items, bands=names, geobox=box, resampling=RASTERIO_NAMES.get(kernel, kernel))
    made = {}
    for name in names:
        band = loaded[name]
        values = band.values[0].astype("float64")
        nodata = band.attrs.get("nodata")
        made[name] = values if nodata is None else numpy.where(values == nodata, numpy.nan, values)
    return made


def warps(work):
    """kernel x CRS pair x type x nodata, on pixels of about the source's size."""
    from pyproj import Transformer
    from rasterio.transform import Affine, from_origin

    side, size = 1300, 700
    for source, target_crs, place in work.some(PAIRS, 2):
        x, y = Transformer.from_crs(4326, source, always_xy=True).transform(*place)
        transform = from_origin(round(x, -1) - 5 * side, round(y, -1) + 5 * side, 10, 10)
        assets, data = {}, {}
        for number, (dtype, gaps) in enumerate(work.some(TYPES, 2)):
            name = f"{dtype}{'_gaps' if gaps else ''}"
            samples, nodata, valid = scene((side, side), dtype, number, gaps)
            assets[name] = (work.tiff(samples, f"EPSG:{source}", transform, nodata), dtype, nodata)
            data[name] = samples, nodata, valid
        items = work.items(source, transform, (side, side), [assets])
        # Not on the source's pixels, and inside of it in any projection.
        ahead = Transformer.from_crs(source, target_crs, always_xy=True)
        centre = ahead.transform(x, y)
        step = 10.0 / 111_320 if target_crs == 4326 else 10.0
        target_transform = Affine(step, 0, centre[0] - (size / 2 + 0.37) * step, 0, -step, centre[1] + (size / 2 + 0.61) * step)
        shape = (size, size)
        target = (target_crs, target_transform, shape)
        grid = work.tiff(numpy.zeros(shape, dtype="uint8"), f"EPSG:{target_crs}", target_transform)
        rows, cols = numpy.mgrid[: shape[0], : shape[1]] + 0.5
        there = target_transform * (cols, rows)
        back = Transformer.from_crs(target_crs, source, always_xy=True).transform(*there)
        at = ~transform * (numpy.asarray(back[0]), numpy.asarray(back[1]))
        for kernel in work.some(["nearest", "bilinear", "cubic", "cubicspline", "lanczos"], 3):
            names = list(assets)
            ours = work.apply(items, "--bands", ",".join(names), "--raw", "--by", "item", "--grid", grid, "--resampling", kernel)
            odc = by_odc(items, names, target, kernel)
            for band, name in enumerate(names):
                samples, nodata, valid = data[name]
                exact, whole = interpolated(samples, valid, *at, kernel)
                path = assets[name][0]
                # A class or a DN of the next pixel is as wrong as any other: of nearest, the share is told.
                count = lambda made: share(made, exact, whole) if kernel == "nearest" else farthest(made, exact, whole)
                yield Row(
                    f"{kernel}, {source} to {target_crs}, {name.replace('_', ' with ')}",
                    count(ours[band]),
                    {
                        "gdalwarp": count(by_gdalwarp(path, target, kernel, 0.125)),
                        "gdalwarp -et 0": count(by_gdalwarp(path, target, kernel, 0.0)),
                        "odc-stac": count(odc[name]),
                    },
                    scale=float(numpy.abs(samples[valid].astype("float64")).max()),
                )


def share(made, exact, where):
    differs = ~(numpy.asarray(made, dtype="longdouble") == exact) & where
    return float(differs.sum() / where.sum())


def parts(first, ratio, size, side):
    """How much of each of `side` pixels each of `size` pixels covers, along an axis: (size, side)."""
    low = first + ratio * numpy.arange(size, dtype="longdouble")[:, None]
    at = numpy.arange(side, dtype="longdouble")[None]
    return numpy.clip(numpy.minimum(low + ratio, at + 1) - numpy.maximum(low, at), 0, 1)


QUARTERS = {"q1": 1, "med": 2, "q3": 3}


def over_area(kernel, samples, valid, rows, cols):
    """A statistic of the part of the source that each pixel covers, by its definition."""
    values = numpy.where(valid, samples.astype("longdouble"), 0)
    weigh = lambda array: rows @ array @ cols.T
    with numpy.errstate(invalid="ignore", divide="ignore"):
        if kernel in ("average", "rms", "sum"):
            weight = weigh(valid.astype("longdouble"))
            sums = weigh(values**2 if kernel == "rms" else values)
            made = {"average": sums / weight, "rms": numpy.sqrt(sums / weight), "sum": sums}[kernel]
            return numpy.where(weight > 0, made, numpy.nan)
    # Each pixel of which a part is covered counts whole.
    exact = numpy.full((len(rows), len(cols)), numpy.nan, dtype="longdouble")
    ends = lambda weights: [(numpy.flatnonzero(line > 1e-9)[0], numpy.flatnonzero(line > 1e-9)[-1] + 1) for line in weights]
    rows, cols = ends(rows), ends(cols)
    for y, (top, bottom) in enumerate(rows):
        for x, (left, right) in enumerate(cols):
            window = numpy.sort(values[top:bottom, left:right][valid[top:bottom, left:right]])
            if not len(window):
                continue
            if kernel in QUARTERS:
                exact[y, x] = window[-(-len(window) * QUARTERS[kernel] // 4) - 1]
            else:
                exact[y, x] = window[0] if kernel == "min" else window[-1]
    return exact


def less_frequent(made, samples, valid, rows, cols):
    """The share of pixels that are not among the most frequent samples that they cover; of several each is as right."""
    wrong = 0
    best = numpy.zeros(made.shape)
    of_made = numpy.zeros(made.shape)
    for value in numpy.unique(samples[valid]):
        count = (rows > 1e-9) @ ((samples == value) & valid).astype(float) @ (cols > 1e-9).T
        best = numpy.maximum(best, count)
        of_made = numpy.where(made == value, count, of_made)
    wrong = (of_made < best) | (numpy.isfinite(made) & (best == 0))
    return float(wrong.mean())


def areas(work):
    """Statistics of the area of a pixel: of whole blocks of the source's, and of parts of its pixels."""
    from rasterio.transform import Affine, from_origin

    side = 180
    transform = from_origin(500_000, 6_000_000, 10, 10)
    assets, data = {}, {}
    for number, (dtype, gaps) in enumerate(work.some(TYPES[1:4] + TYPES[5:], 2)):
        name = f"{dtype}{'_gaps' if gaps else ''}"
        samples, nodata, valid = scene((side, side), dtype, number, gaps)
        assets[name] = (work.tiff(samples, "EPSG:32755", transform, nodata), dtype, nodata)
        data[name] = samples, nodata, valid
    classes = {}
    for gaps in (False, True):
        # Few values, so that one is the most frequent. 0 is no class.
        samples, nodata, valid = scene((side, side), "uint8", 9, gaps)
        samples = numpy.where(valid, samples // 25 + 1, 0).astype("uint8")
        name = f"classes{'_gaps' if gaps else ''}"
        classes[name] = samples, nodata, valid
        assets[name] = (work.tiff(samples, "EPSG:32755", transform, nodata), "uint8", nodata)
        data[name] = classes[name]
    items = work.items(32755, transform, (side, side), [assets])
    # The ratio of the pixels, and where the first one begins, in pixels of the source.
    for ratio, first in work.some([(2, 0), (3.7, 10.2), (5, 0), (10, 0), (1.6, 3.3), (2.5, 0)], 2):
        size = int((side - first) // ratio)
        target = (32755, transform * Affine.translation(first, first) * Affine.scale(ratio), (size, size))
        grid = work.tiff(numpy.zeros((size, size), dtype="uint8"), "EPSG:32755", target[1])
        weights = parts(numpy.longdouble(first), numpy.longdouble(ratio), size, side)
        for kernel in ("average", "rms", "sum", "min", "max", "q1", "med", "q3", "mode"):
            names = list(classes if kernel == "mode" else [name for name in assets if name not in classes])
            ours = work.apply(items, "--bands", ",".join(names), "--raw", "--by", "item", "--grid", grid, "--resampling", ",".join([kernel, *(f"{name}={kernel}" for name in names)]))
            odc = by_odc(items, names, target, kernel)
            for band, name in enumerate(names):
                samples, nodata, valid = data[name]
                if kernel == "mode":
                    made = numpy.where(ours[band] == 0, numpy.nan, ours[band])
                    apart = lambda found: less_frequent(found, samples, valid, weights, weights)
                    scale = 1.0
                else:
                    made, exact = ours[band], over_area(kernel, samples, valid, weights, weights)
                    apart = lambda found: farthest(found, exact)
                    scale = float(numpy.nanmax(numpy.abs(exact)))
                yield Row(
                    f"{kernel} of {ratio} x {ratio}, {name.replace('_', ' with ')}",
                    apart(made),
                    {"gdalwarp": apart(by_gdalwarp(assets[name][0], target, kernel, 0.125)), "odc-stac": apart(odc[name])},
                    scale=scale,
                )


# ---- reducers

def optimum(points):
    """The geometric median of points (observation, band), to 1e-13 of their spread."""
    points = points[numpy.isfinite(points).all(axis=1)].astype("longdouble")
    if len(points) == 0:
        return numpy.full(points.shape[1], numpy.nan)
    mean = points.mean(axis=0)
    if len(points) <= 2:
        return mean
    for point in points:
        away = numpy.sqrt(((points - point) ** 2).sum(axis=1))
        other = away > 0
        pull = ((points[other] - point) / away[other, None]).sum(axis=0)
        if numpy.sqrt((pull**2).sum()) <= (~other).sum():
            return point
    spread = numpy.sqrt(((points - mean) ** 2).sum(axis=1).mean())
    at = mean
    for _ in range(100_000):
        weights = 1 / numpy.maximum(numpy.sqrt(((points - at) ** 2).sum(axis=1)), 1e-300)
        after = (points * weights[:, None]).sum(axis=0) / weights.sum()
        moved = numpy.sqrt(((after - at) ** 2).sum())
        at = after
        if moved < 1e-13 * spread:
            break
    return at


def weiszfeld(points, eps=1e-7, most=1000):
    """Weiszfeld's iteration from the mean until a step is shorter than eps: what hdstats does, in float32."""
    points = points[numpy.isfinite(points).all(axis=1)].astype("float32")
    if len(points) == 0:
        return numpy.full(points.shape[1], numpy.nan)
    at = points.mean(axis=0)
    for _ in range(most):
        away = numpy.sqrt(((points - at) ** 2).sum(axis=1))
        weights = 1 / numpy.maximum(away, numpy.float32(1e-12))
        after = (points * weights[:, None]).sum(axis=0) / weights.sum()
        moved = numpy.sqrt(((after - at) ** 2).sum())
        at = after
        if moved < eps:
            break
    return at


def reducers(work):
    """Over nine dates, each band by itself; and the geometric median of all bands."""
    from rasterio.transform import from_origin

    side, dates = 40, 9
    transform = from_origin(500_000, 6_000_000, 10, 10)
    types = work.some(["uint8", "uint16", "int16", "float32"], 1)
    stacks, days = {}, []
    for day in range(dates):
        assets = {}
        for number, dtype in enumerate(types):
            samples, nodata, valid = scene((side, side), dtype, 100 * number + day, True)
            # Another third of each date is missing, so that counts differ.
            valid &= numpy.random.default_rng(day).random((side, side)) > 0.3
            samples[~valid] = nodata
            stacks.setdefault(dtype, []).append(numpy.where(valid, samples.astype("longdouble"), numpy.nan))
            assets[dtype] = (work.tiff(samples, "EPSG:32755", transform, nodata), dtype, nodata)
        days.append(assets)
    items = work.items(32755, transform, (side, side), days)
    first = lambda stack: numpy.take_along_axis(stack, numpy.isfinite(stack).argmax(axis=0)[None], axis=0)[0]
    exactly = {
        "median": lambda s: numpy.nanmedian(s, axis=0), "mean": lambda s: numpy.nanmean(s, axis=0),
        "min": lambda s: numpy.nanmin(s, axis=0), "max": lambda s: numpy.nanmax(s, axis=0),
        "sum": lambda s: numpy.where(numpy.isfinite(s).any(axis=0), numpy.nansum(s, axis=0), numpy.nan),
        "std": lambda s: numpy.nanstd(s, axis=0), "count": lambda s: numpy.isfinite(s).sum(axis=0),
        "p10": lambda s: numpy.nanpercentile(s, 10, axis=0), "p90": lambda s: numpy.nanpercentile(s, 90, axis=0),
        "first": first, "last": lambda s: first(s[::-1]),
    }
    for name, reduce in exactly.items():
        # By default first and last take all bands of a pixel from one date.
        fill = ["--fill", "band"] if name in ("first", "last") else []
        ours = work.apply(items, "--bands", ",".join(types), "--raw", "--by", "item", "--reduce", name, *fill)
        for band, dtype in enumerate(types):
            stack = numpy.array(stacks[dtype])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                exact = reduce(stack)
                # As odc-stac and xarray reduce: a stack of float32 with NaN.
                peer = reduce(stack.astype("float32"))
            scale = float(numpy.nanmax(numpy.abs(exact)))
            yield Row(f"{name} of {dtype}", farthest(ours[band], exact), {"numpy, float32": farthest(peer, exact)}, scale=scale)
    ours = work.apply(items, "--bands", ",".join(types), "--raw", "--by", "item", "--reduce", "geomedian") if len(types) > 1 else None
    for count in (2, 3) if ours is not None else ():
        chosen = types[:count]
        made = work.apply(items, "--bands", ",".join(chosen), "--raw", "--by", "item", "--reduce", "geomedian")
        stack = numpy.array([stacks[dtype] for dtype in chosen]).transpose(1, 0, 2, 3)[:, :, ::4, ::4]
        made = made[:, ::4, ::4]
        exact, peer = numpy.zeros(made.shape, dtype="longdouble"), numpy.zeros(made.shape)
        for y, x in numpy.ndindex(made.shape[1:]):
            exact[:, y, x] = optimum(stack[:, :, y, x])
            peer[:, y, x] = weiszfeld(stack[:, :, y, x])
        scale = float(numpy.nanmax(numpy.abs(exact)))
        yield Row(f"geomedian of {count} bands", farthest(made, exact), {"Weiszfeld in float32, eps 1e-7": farthest(peer, exact)}, scale=scale)
    if work.small:
        return
    # Past 2^24, where float32 has no odd numbers.
    base, days, stacks = 1_000_000_000, [], []
    for day in range(dates):
        assets, bands = {}, []
        for number in range(2):
            samples, _, valid = (part[:10, :10] if hasattr(part, "shape") else part for part in scene((80, 80), "int16", 300 + 100 * number + day, True))
            wide = numpy.where(valid, base + samples.astype("int64"), -999).astype("int32")
            bands.append(numpy.where(valid, samples.astype("longdouble"), numpy.nan))
            assets[f"b{number}"] = (work.tiff(wide, "EPSG:32755", transform, -999), "int32", -999)
        days.append(assets)
        stacks.append(bands)
    made = work.apply(work.items(32755, transform, (10, 10), days), "--bands", "b0,b1", "--raw", "--by", "item", "--reduce", "geomedian")
    stack = numpy.array(stacks)
    exact, peer = numpy.zeros(made.shape, dtype="longdouble"), numpy.zeros(made.shape)
    for y, x in numpy.ndindex(made.shape[1:]):
        exact[:, y, x] = optimum(stack[:, :, y, x]) + base
        peer[:, y, x] = weiszfeld(stack[:, :, y, x] + base)
    # Of float64 beside 10^9.
    yield Row("geomedian of 2 bands of int32 past 10^9", farthest(made, exact), {"Weiszfeld in float32, eps 1e-7": farthest(peer, exact)})


# ---- formulas

FORMULAS = [
    ("(nir-red)/(nir+red)",) * 2,
    ("2.5*(nir-red)/(nir+6*red-7.5*blue+1)",) * 2,
    ("(1-exp(-(nir-red)^2/(2*0.15^2)))/(1+exp(-(nir-red)^2/(2*0.15^2)))", "(1-exp(-(nir-red)**2/(2*0.15**2)))/(1+exp(-(nir-red)**2/(2*0.15**2)))"),
    ("sqrt(nir^2+red^2)", "sqrt(nir**2+red**2)"),
    ("1.5*(nir-red)/(nir+red+0.5)",) * 2,
    ("(2*nir+1-sqrt((2*nir+1)^2-8*(nir-red)))/2", "(2*nir+1-sqrt((2*nir+1)**2-8*(nir-red)))/2"),
    ("where((nir-red)/(nir+red) > 0.2, nir, -red)",) * 2,
    ("log(nir/red)",) * 2,
    ("log10(1+blue)*1e-4",) * 2,
    ("-red^2+2^-blue", "-red**2+2**-blue"),
    ("blue % 0.125 + nir // 0.25",) * 2,
    ("clip(nir/red, 1, 3)", "minimum(maximum(nir/red, 1), 3)"),
    ("max(red, nir, blue) - min(red, nir, blue)", "maximum(maximum(red, nir), blue) - minimum(minimum(red, nir), blue)"),
    ("(red > 0.3) & (nir < 0.6) | ~(blue == red)",) * 2,
    ("abs(sin(10*red)) + arctan2(nir, red)",) * 2,
]


def formulas(work):
    """Indices of float32 bands: relative to the largest value."""
    import numexpr
    from rasterio.transform import from_origin

    transform = from_origin(500_000, 6_000_000, 10, 10)
    bands, assets = {}, {}
    for number, name in enumerate(["red", "nir", "blue"]):
        samples, _, _ = scene((60, 60), "float32", number, False)
        bands[name] = samples
        assets[name] = (work.tiff(samples, "EPSG:32755", transform), "float32", None)
    items = work.items(32755, transform, (60, 60), [assets])
    chosen = work.some(FORMULAS, 6)
    args = [word for number, (ours, _) in enumerate(chosen) for word in ("--expr", f"f{number}={ours}")]
    made = work.apply(items, "--bands", "red,nir,blue", "--raw", "--by", "item", *args)
    names = ("sqrt", "exp", "log", "log10", "where", "minimum", "maximum", "abs", "sin", "arctan2")
    functions = {name: getattr(numpy, name) for name in names}
    for (text, theirs), ours in zip(chosen, made, strict=True):
        long = {name: values.astype("longdouble") for name, values in bands.items()}
        exact = numpy.asarray(eval(theirs, {"__builtins__": {}}, functions | long), dtype="longdouble")  # noqa: S307
        small = eval(theirs, {"__builtins__": {}}, functions | bands)  # noqa: S307
        wide = numexpr.evaluate(theirs, local_dict=bands, global_dict={}, truediv=True)
        scale = float(numpy.abs(exact).max())
        near = lambda values: farthest(numpy.asarray(values).astype("float32"), exact) / scale
        yield Row(f"`{text}`".replace("|", "\\|"), near(ours), {"numpy, float32": near(small), "numexpr, float64": near(wide)}, reason="float32" if near(ours) <= near(small) + ROUNDING else None)


# ---- masks

def masks(work):
    """Pixels masked otherwise than by morphology's definition: a disk of a radius, after an opening by one."""
    from rasterio.transform import from_origin
    from scipy import ndimage

    side = 120
    transform = from_origin(500_000, 6_000_000, 10, 10)
    random = numpy.random.default_rng(5)
    y, x = numpy.mgrid[:side, :side]
    cloud = (numpy.hypot(x - 40, y - 50) < 13) | (numpy.hypot(x - 100, y - 20) < 4) | (random.random((side, side)) < 0.004)
    red = numpy.full((side, side), 1000, dtype="uint16")
    scl = numpy.where(cloud, 9, 4).astype("uint8")
    assets = {"red": (work.tiff(red, "EPSG:32755", transform, 0), "uint16", 0), "scl": (work.tiff(scl, "EPSG:32755", transform, 0), "uint8", 0)}
    items = work.items(32755, transform, (side, side), [assets], collection="sentinel-2-l2a")

    def disk(radius):
        b, a = numpy.mgrid[-radius : radius + 1, -radius : radius + 1]
        return a * a + b * b <= radius * radius

    def exactly(mask, radius, by):
        """By the definition, pixel by pixel of the disk; beyond the edge is no cloud."""
        out = numpy.zeros_like(mask) if by == "dilate" else numpy.ones_like(mask)
        wide = numpy.pad(mask, radius, constant_values=by == "erode")
        for b, a in numpy.argwhere(disk(radius)):
            moved = wide[b : b + side, a : a + side]
            out = out | moved if by == "dilate" else out & moved
        return out

    for opening in work.some([0, 1, 2], 1):
        for radius in work.some([0, 1, 2, 3, 5, 10], 3):
            made = work.apply(items, "--bands", "red", "--raw", "--by", "item", "--mask", "clouds", "--dilate", radius, "--opening", opening)
            exact = cloud
            peer = cloud
            if opening:
                exact = exactly(exactly(exact, opening, "erode"), opening, "dilate")
                peer = ndimage.binary_dilation(ndimage.binary_erosion(peer, disk(opening), border_value=1), disk(opening))
            if radius:
                exact = exactly(exact, radius, "dilate")
                peer = ndimage.binary_dilation(peer, disk(radius))
            yield Row(f"opening {opening}, dilation {radius}", float(((made[0] == 0) != exact).sum()), {"scipy": float((peer != exact).sum())})


# ---- zones and points

def zones(work):
    """Statistics of the pixels whose centre is in a polygon, or which touch it: relative to the largest sample."""
    import rasterio.features
    import shapely
    from rasterio.transform import from_origin

    side = 90
    transform = from_origin(500_000, 6_000_000, 10, 10)
    random = numpy.random.default_rng(3)
    shapes = {
        "triangle": shapely.Polygon([(500_101, 5_999_803), (500_603, 5_999_507), (500_207, 5_999_309)]),
        "concave": shapely.Polygon([(500_050, 5_999_950), (500_850, 5_999_930), (500_420, 5_999_610), (500_830, 5_999_130), (500_070, 5_999_180)]),
        "hole": shapely.Point(500_451, 5_999_553).buffer(333).difference(shapely.Point(500_401, 5_999_503).buffer(101)),
        "two parts": shapely.MultiPolygon([shapely.Point(500_203, 5_999_703).buffer(77), shapely.box(500_503, 5_999_203, 500_707, 5_999_404)]),
        "sliver": shapely.Polygon([(500_100, 5_999_900), (500_800, 5_999_203), (500_803, 5_999_200), (500_103, 5_999_903)]),
        "across the edge": shapely.box(499_803, 5_999_803, 500_156, 6_000_204),
    }
    types = work.some([("uint16", True), ("float32", True), ("float32", False)], 1)
    for dtype, gaps in types:
        samples, nodata, valid = scene((side, side), dtype, int(random.integers(99)), gaps)
        assets = {"b": (work.tiff(samples, "EPSG:32755", transform, nodata), dtype, nodata)}
        items = work.items(32755, transform, (side, side), [assets])
        features = [{"type": "Feature", "id": name, "properties": {}, "geometry": json.loads(shapely.to_geojson(shape))} for name, shape in shapes.items()]
        path = work.path(".geojson")
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        for touched in (False, True):
            table = json.loads(work.run(
                "sample", "--items", items, "--bands", "b", "--raw", "--zones", path, "--crs", 32755, "--json",
                "--stats", "count,mean,min,max,std,median,p90", *(["--all-touched"] if touched else []),
            ))
            rows = {row["id"]: row for row in table["rows"]}
            y, x = numpy.mgrid[:side, :side]
            for name, shape in work.some(list(shapes.items()), 3):
                centres = shapely.points(500_005 + 10 * x, 5_999_995 - 10 * y)
                # A polygon that enters a pixel by less than a thousandth of its side does not touch it (docs/SAMPLE.md).
                cells = shapely.box(500_000.01 + 10 * x, 5_999_990.01 - 10 * y, 500_009.99 + 10 * x, 5_999_999.99 - 10 * y)
                inside = shapely.area(shapely.intersection(cells, shape)) > 0 if touched else shapely.contains(shape, centres)
                burnt = rasterio.features.geometry_mask([shape], (side, side), transform, invert=True, all_touched=touched)
                scale = float(numpy.abs(samples[valid].astype("float64")).max())

                def apart(values):
                    wanted = samples[inside & valid].astype("longdouble")
                    if not len(wanted):
                        return 0.0 if values[0] == 0 else numpy.inf
                    exact = [len(wanted), wanted.mean(), wanted.min(), wanted.max(), wanted.std(), numpy.median(wanted), numpy.percentile(wanted, 90)]
                    return float(max(abs(a - b) for a, b in zip(values, exact, strict=True))) / scale

                row = rows.get(name, {"count": numpy.inf})
                ours = [row.get(key, numpy.inf) for key in ("count", "mean", "min", "max", "std", "median", "p90")]
                theirs = samples[burnt & valid].astype("float64")
                peer = [0] if not len(theirs) else [
                    len(theirs), theirs.mean(), theirs.min(), theirs.max(), theirs.std(), numpy.median(theirs),
                    numpy.percentile(theirs, 90),
                ]
                yield Row(
                    f"{name}, {'touched' if touched else 'centres'}, {dtype}{' with gaps' if gaps else ''}",
                    apart(ours), {"rasterio's rasterize and numpy": apart(peer)}, scale=1e-3,
                )


def weighed(work):
    """Statistics of the pixels that a polygon covers, each by the part of it that is covered: beside exactextract."""
    import exactextract
    import shapely
    from rasterio.transform import from_origin

    side = 90
    transform = from_origin(500_000, 6_000_000, 10, 10)
    y, x = numpy.mgrid[:side, :side]
    cells = shapely.box(500_000 + 10 * x, 5_999_990 - 10 * y, 500_010 + 10 * x, 6_000_000 - 10 * y)
    shapes = {
        "triangle": shapely.Polygon([(500_101, 5_999_803), (500_603, 5_999_507), (500_207, 5_999_309)]),
        "hole": shapely.Point(500_451, 5_999_553).buffer(333).difference(shapely.Point(500_401, 5_999_503).buffer(101)),
        "two parts": shapely.MultiPolygon([shapely.Point(500_203, 5_999_703).buffer(77), shapely.box(500_503, 5_999_203, 500_707, 5_999_404)]),
        "sliver": shapely.Polygon([(500_100, 5_999_900), (500_800, 5_999_203), (500_803, 5_999_200), (500_103, 5_999_903)]),
        "within a pixel": shapely.Point(500_333, 5_999_555).buffer(1.5),
        "across the edge": shapely.box(499_803, 5_999_803, 500_156, 6_000_204),
    }
    columns = ["count", "mean", "min", "max", "std", "sum", "median"]
    for dtype, gaps in work.some([("uint16", False), ("uint16", True), ("float32", True)], 1):
        samples, nodata, valid = scene((side, side), dtype, 5, gaps)
        path = work.tiff(samples, "EPSG:32755", transform, nodata)
        items = work.items(32755, transform, (side, side), [{"b": (path, dtype, nodata)}])
        features = [{"type": "Feature", "id": name, "properties": {"zone": name}, "geometry": json.loads(shapely.to_geojson(shape))} for name, shape in shapes.items()]
        given = work.path(".geojson")
        given.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        table = json.loads(work.run(
            "sample", "--items", items, "--bands", "b", "--raw", "--zones", given, "--crs", 32755, "--json", "--weights",
            "--stats", ",".join(columns),
        ))
        rows = {row["id"]: row for row in table["rows"]}
        theirs = exactextract.exact_extract(str(path), features, ["stdev" if name == "std" else name for name in columns], include_cols=["zone"])
        theirs = {one["properties"]["zone"]: one["properties"] for one in theirs}
        for name, shape in shapes.items():
            part = numpy.where(valid, shapely.area(shapely.intersection(cells, shape)) / 100, 0)
            chosen, weight = samples[part > 0].astype("longdouble"), part[part > 0].astype("longdouble")
            if not len(chosen):
                # Without a valid pixel the count is 0, and there is no mean.
                empty = lambda row: 0.0 if row["count"] == 0 and not numpy.isfinite(numpy.float64(row["mean"] or numpy.nan)) else numpy.inf
                yield Row(f"{name}, {dtype}{' with gaps' if gaps else ''}", empty(rows[name]), {"exactextract": empty(theirs[name])})
                continue
            mean = (chosen * weight).sum() / weight.sum()
            # The rule of exactextract for quantiles (docs/SAMPLE.md).
            distinct, index = numpy.unique(chosen, return_inverse=True)
            sums = numpy.bincount(index, weights=weight.astype(float)).astype("longdouble")
            count = len(distinct)
            stands = numpy.arange(count) * sums + (count - 1) * (numpy.cumsum(sums) - sums)
            median = distinct[0] if count == 1 else numpy.interp(float(stands[-1] / 2), stands.astype(float), distinct.astype(float))
            exact = [weight.sum(), mean, chosen.min(), chosen.max(), numpy.sqrt((weight * (chosen - mean) ** 2).sum() / weight.sum()), (chosen * weight).sum(), median]

            def apart(values):
                # Of counts and sums a share, as they grow with the zone.
                known = zip(values, exact, strict=True)
                return float(max(abs(a - b) / max(abs(b), 1e-12) if a is not None else numpy.inf for a, b in known))

            ours = [rows[name][key] for key in columns]
            peer = [theirs[name]["stdev" if key == "std" else key] for key in columns]
            yield Row(f"{name}, {dtype}{' with gaps' if gaps else ''}", apart(ours), {"exactextract": apart(peer)}, scale=5.0)


def nearest(work):
    """The nearest valid pixel within a distance on the ground, beside a tree of the pixels on the map."""
    import scipy.spatial
    from pyproj import Geod, Transformer
    from rasterio.transform import from_origin

    side, geod = 120, Geod(ellps="WGS84")
    for crs, place, metres in work.some([(32755, (149.1, -35.3), 60.0), (3577, (145.2, -17.1), 60.0), (3857, (10.7, 59.9), 40.0), (4326, (13.4, 52.5), 60.0)], 2):
        to_degrees = Transformer.from_crs(crs, 4326, always_xy=True)
        x, y = Transformer.from_crs(4326, crs, always_xy=True).transform(*place)
        step = 1e-4 if crs == 4326 else 10
        transform = from_origin(x - side / 2 * step, y + side / 2 * step, step, step)
        random = numpy.random.default_rng(21)
        samples = numpy.arange(side * side, dtype="float32").reshape(side, side)
        rows, cols = numpy.mgrid[:side, :side]
        valid = (random.random((side, side)) > 0.5) & (numpy.hypot(rows - 40, cols - 70) > 25)
        samples[~valid] = -9999
        path = work.tiff(samples, f"EPSG:{crs}", transform, -9999)
        items = work.items(crs, transform, (side, side), [{"b": (path, "float32", -9999)}])
        # Some lie beside the image.
        given = numpy.array(transform * tuple(random.random((2, 400)) * (side + 8) - 4)).T
        features = [{"type": "Feature", "id": number, "properties": {}, "geometry": {"type": "Point", "coordinates": list(map(float, point))}} for number, point in enumerate(given)]
        shapes = work.path(".geojson")
        shapes.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        table = json.loads(work.run(
            "sample", "--items", items, "--bands", "b", "--raw", "--points", shapes, "--crs", crs, "--json", "--nearest", metres,
        ))
        ours = {int(row["id"]): (row["value"], row["distance"]) for row in table["rows"]}
        centres = numpy.array(transform * (cols[valid] + 0.5, rows[valid] + 0.5)).T
        values = samples[valid]
        lon, lat = to_degrees.transform(*centres.T)
        tree = scipy.spatial.cKDTree(centres)
        exact, theirs = [], []
        for point in given:
            col, row = (int(numpy.floor(part)) for part in ~transform * tuple(point))
            if 0 <= col < side and 0 <= row < side and valid[row, col]:
                own = float(samples[row, col]), 0.0
                exact.append(own)
                theirs.append(own)
                continue
            at = to_degrees.transform(*point)
            apart = geod.inv(numpy.full(len(lon), at[0]), numpy.full(len(lon), at[1]), lon, lat)[2]
            best = int(apart.argmin())
            exact.append((float(values[best]), float(apart[best])) if apart[best] <= metres else (None, None))
            # A metre of the map for one of the ground, and a degree for 111.32 km.
            unit = 111_320.0 if crs == 4326 else 1.0
            distance, best = tree.query(point, distance_upper_bound=metres / unit)
            theirs.append((float(values[best]), float(distance * unit)) if numpy.isfinite(distance) else (None, None))
        made = [ours.get(number, (None, None)) for number in range(len(given))]
        share = lambda found: float(numpy.mean([a[0] != b[0] for a, b in zip(found, exact, strict=True)]))
        off = lambda found: max((abs(a[1] - b[1]) for a, b in zip(found, exact, strict=True) if None not in (a[1], b[1])), default=0.0)
        name = f"within {metres:.0f} m, {crs}"
        yield Row(f"{name}: points with another sample", share(made), {"scipy's cKDTree on the map": share(theirs)})
        yield Row(f"{name}: the distance, in metres", off(made), {"scipy's cKDTree on the map": off(theirs)}, scale=100.0)


def points(work):
    """Points of other CRSs: the share that has another pixel's sample."""
    import rasterio
    from pyproj import Transformer
    from rasterio.transform import from_origin

    side = 200
    for crs, point_crs, place in work.some(PAIRS, 2):
        x, y = Transformer.from_crs(4326, crs, always_xy=True).transform(*place)
        transform = from_origin(round(x, -1) - 5 * side, round(y, -1) + 5 * side, 10, 10)
        samples = numpy.arange(side * side, dtype="float32").reshape(side, side)
        path = work.tiff(samples, f"EPSG:{crs}", transform)
        items = work.items(crs, transform, (side, side), [{"b": (path, "float32", None)}])
        random = numpy.random.default_rng(8)
        there = transform * tuple(random.random((2, 400)) * (side - 4) + 2)
        given = numpy.array(Transformer.from_crs(crs, point_crs, always_xy=True).transform(*there)).T
        features = [{"type": "Feature", "id": number, "properties": {}, "geometry": {"type": "Point", "coordinates": list(map(float, point))}} for number, point in enumerate(given)]
        shapes = work.path(".geojson")
        shapes.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        table = json.loads(work.run("sample", "--items", items, "--bands", "b", "--raw", "--points", shapes, "--crs", point_crs, "--json"))
        ours = {int(row["id"]): row["value"] for row in table["rows"]}
        back = numpy.array(Transformer.from_crs(point_crs, crs, always_xy=True).transform(*given.T))
        col, line = ~transform * tuple(back)
        exact = samples[numpy.floor(line).astype(int), numpy.floor(col).astype(int)]
        with rasterio.open(path) as file:
            theirs = [value[0] for value in file.sample(zip(*back, strict=True))]
        yield Row(
            f"400 points of {point_crs} in {crs}",
            float(numpy.mean([ours.get(number) != value for number, value in enumerate(exact)])),
            {"rasterio": float(numpy.mean([a != b for a, b in zip(theirs, exact, strict=True)]))},
        )


# ---- overviews

def overviews(work):
    """A ramp: how far each level's values lie from where its pixels are, in pixels of the level."""
    import rasterio
    from rasterio.enums import Resampling
    from rasterio.transform import from_origin

    for width, height in work.some([(512, 512), (1024, 1024), (1023, 1023), (701, 1333), (2049, 1025), (1537, 1537)], 3):
        transform = from_origin(500_000, 6_000_000, 10, 10)
        for axis in ("x", "y"):
            y, x = numpy.mgrid[:height, :width]
            samples = ((x if axis == "x" else y) + 0.5).astype("float32")
            path = work.tiff(samples, "EPSG:32755", transform)
            items = work.items(32755, transform, (width, height), [{"b": (path, "float32", None)}])
            out, peer = work.path(".tif"), work.path(".tif")
            work.run("apply", "--items", items, "--bands", "b", "--raw", "--by", "item", "-o", out)
            with rasterio.open(out) as file:
                factors = file.overviews(1)
            with rasterio.open(peer, "w", driver="GTiff", width=width, height=height, count=1, dtype="float32", crs="EPSG:32755", transform=transform) as file:
                file.write(samples, 1)
            with rasterio.open(peer, "r+") as file:
                file.build_overviews(factors, Resampling.average)

            def drift(name):
                worst = 0.0
                for level in range(len(factors)):
                    with rasterio.open(name, overview_level=level) as file:
                        made = file.read(1).astype("float64")
                    length, full = (made.shape[1], width) if axis == "x" else (made.shape[0], height)
                    ratio = full / length
                    centres = (numpy.arange(length) + 0.5) * ratio
                    line = made.mean(axis=0) if axis == "x" else made.mean(axis=1)
                    # The outermost pixels have less to average at the edge by GDAL's rule of sizes.
                    worst = max(worst, float(numpy.abs(line - centres).max() / ratio))
                return worst

            if factors:
                yield Row(f"{width} x {height}, along {axis}, {len(factors)} levels", drift(out), {"GDAL": drift(peer)}, scale=1e4)


GROUPS = {
    "warps": (warps, "Warps at one pixel of the source a pixel, onto 700 x 700 pixels", "units of the samples; of nearest, the share of pixels with another sample"),
    "areas": (areas, "Warps over the area of a pixel", "units of the samples; of mode, the share of pixels with a sample that is not the most frequent"),
    "reducers": (reducers, "Reducers over nine dates", "units of the samples"),
    "formulas": (formulas, "Formulas", "a share of the largest value"),
    "masks": (masks, "Masks", "pixels that differ, of 14,400"),
    "zones": (zones, "Zones", "the worst of count, mean, min, max, std, median, p90, as a share of the largest sample"),
    "weighed": (weighed, "Zones by the fractions of pixels (`--weights`)", "the worst of count, mean, min, max, std, sum and median, as a share of each"),
    "nearest": (nearest, "The nearest valid pixel of a point (`--nearest`)", "the share of points with another pixel's sample; metres"),
    "points": (points, "Points", "the share of points with another pixel's sample"),
    "overviews": (overviews, "Overviews of the COGs that are written", "pixels of the level"),
}


def shown(distance):
    if distance is None:
        return ""
    return "0" if distance == 0 else "missing" if distance == float("inf") else f"{distance:.2g}"


def table(rows):
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    lines = ["| | rss | " + " | ".join(peers) + " |", "|" + "---|" * (2 + len(peers))]
    for row in rows:
        mark = " (!)" if row.is_worse() else ""
        cells = [shown(row.peers.get(name)) for name in peers]
        lines.append(f"| {row.case} | {shown(row.ours)}{mark} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="scripts/oracles/run", description=__doc__.splitlines()[0])
    parser.add_argument("--rss", default="target/debug/rss", help="the program to measure")
    parser.add_argument("--small", action="store_true", help="only the first rows of each group")
    parser.add_argument("--only", help="some of " + ", ".join(GROUPS))
    parser.add_argument("--write", type=pathlib.Path, help="the page whose table is replaced")
    args = parser.parse_args()
    parts, worse, count = [], [], 0
    for name, (rows_of, title, unit) in GROUPS.items():
        if args.only and name not in args.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows = list(rows_of(Work(args.rss, folder, args.small)))
        bad = [row for row in rows if row.is_worse()]
        print(f"{name}: {len(rows)} rows, {len(bad)} further from the exact answer than the best peer", flush=True)
        for row in bad:
            print(f"  {row.case}: {shown(row.ours)}; " + ", ".join(f"{k} {shown(v)}" for k, v in row.peers.items()), flush=True)
        count += len(rows)
        worse += bad
        parts.append(f"### {title}\n\nIn {unit}.\n\n{table(rows)}\n")
    print(f"{count} rows, {len(worse)} marked")
    if args.write:
        from importlib.metadata import version

        import rasterio

        version_of = subprocess.run([args.rss, "--version"], capture_output=True, text=True).stdout.strip()
        names = ("numpy", "scipy", "pyproj", "odc-stac", "numexpr", "exactextract", "rasterio")
        versions = ", ".join(f"{name} {version(name)}" for name in names)
        head = f"{count} rows, {len(worse)} marked; {version_of}; {versions} with GDAL {rasterio.__gdal_version__}.\n\n"
        page = args.write.read_text()
        begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
        before, rest = page.split(begin)
        args.write.write_text(before + begin + "\n" + head + "\n".join(parts) + "\n" + end + rest.split(end)[1])
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
