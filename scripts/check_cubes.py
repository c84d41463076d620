"""Opens a cube of ours with zarr-python, xarray, tensorstore and GDAL, and compares all that it says.

    scripts/python-env scripts/check_cubes.py DIR EXPECT.json [--icechunk BRANCH]

EXPECT.json is the truth of one cube, by the path of each group that has arrays ("" is the root):

    {"groups": {"": {
        "crs": "EPSG:32756",                          or WKT, or null for none
        "transform": [10, 0, 300000, 0, -10, 6100000],    x = 10 col + 300000, y = -10 row + 6100000; or null
        "coordinates": {                              variables of one axis, by name; x and y come of the transform
          "time": ["2021-01-02T00:00:00.024Z"],       ISO, if xarray reads times
          "time_bnds": [["2021-01-02T00:00:00.024Z", "2021-01-03T00:00:00.024Z"]],     (time, 2): then `time` has bounds
          "band": ["red", "nir"],                     strings and numbers as they are
          "item": ["S2B_56HLH_20210102"]},
        "arrays": {"red": {
          "dims": ["time", "y", "x"], "shape": [1, 64, 96], "dtype": "int16",
          "crc32": 123,                               of the samples as stored: little-endian, in C order
          "nodata": -999,                             or "NaN", or null for none
          "scale": 0.0001, "offset": 0}}}},           left out: none
     "levels": ["0", "1"],       the paths in `multiscales`, full resolution first; left out: no `multiscales`
     "datatree": true}           xarray opens all groups as one tree; left out: not tried

With --icechunk DIR is a repository of Icechunk, of which zarr-python and xarray read a branch by Icechunk's own
library; tensorstore and GDAL know none.

Prints one line for each reader, and ends with 1 if a check failed. A reader that cannot read a cube at all
(GDAL before 3.13 knows no shards) is named as such; it is no failure.
"""

import argparse
import json
import math
import pathlib
import sys
import time
import warnings
import zlib
from importlib.metadata import version

import numpy as np
import rasterio
import rioxarray
import tensorstore
import xarray as xr
import zarr
from rasterio.crs import CRS

failures = []


def check(what, ok, detail=""):
    if not ok:
        failures.append(what)
        print(f"FAILED {what} {detail}")
    return ok


def equal(what, found, expected):
    return check(what, found == expected, f"{found}, expected {expected}")


def crc32(data):
    data = np.asarray(data)
    return zlib.crc32(np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<")).tobytes())


def same_samples(what, data, said):
    data = np.asarray(data)
    if equal(f"{what}, shape", list(data.shape), said["shape"]) and equal(f"{what}, dtype", data.dtype.name, said["dtype"]):
        return equal(f"{what}, CRC-32", crc32(data), said["crc32"])
    return False


def metadata(folder):
    return json.loads((folder / "zarr.json").read_text())


def number(said):
    """Returns a number, or NaN of "NaN"; nothing of null."""
    return math.nan if said == "NaN" else said


def same_number(found, expected):
    if found is None or expected is None:
        return found is expected
    return float(found) == float(expected) or (math.isnan(found) and math.isnan(expected))


def same_crs(found, said):
    if said is None:
        return found is None
    expected = CRS.from_user_input(said)
    if found is None:
        return False
    return found == expected or (found.to_epsg() is not None and found.to_epsg() == expected.to_epsg())


def quietly(what, work):
    """Does a thing that must not warn."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        done = work()
    for warning in seen:
        if warning.category is not ResourceWarning:
            check(what, False, f"warns: {warning.message}")
    return done


class Cube:
    def __init__(self, folder, truth, branch=None):
        self.folder, self.truth = folder, truth
        self.groups = truth["groups"].items()
        self.store, self.how = folder, {"chunks": None}
        if branch is not None:
            import icechunk

            repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
            self.store = repository.readonly_session(branch).store
            # Icechunk has metadata at hand; xarray is not to look for a copy of it.
            self.how["consolidated"] = False

    def arrays(self):
        for path, group in self.groups:
            for name, said in group["arrays"].items():
                yield path, group, name, said, f"{path}/{name}".strip("/")

    # Readers: each returns what it compared.

    def zarr_python(self):
        root = quietly("open_group", lambda: zarr.open_group(self.store, mode="r", zarr_format=3))
        if self.store is self.folder:
            check("consolidated metadata", root.metadata.consolidated_metadata is not None, "is missing")
            self.consolidated()
        count = 0
        for path, group, name, said, where in self.arrays():
            array = quietly(where, lambda where=where: root[where])
            count += same_samples(where, array[...], said)
            equal(f"{where}, dims", list(array.metadata.dimension_names or []), said["dims"])
            nodata = number(said.get("nodata"))
            if nodata is not None:
                # What is not stored is no data.
                check(f"{where}, fill value", same_number(array.fill_value, nodata), f"{array.fill_value}, expected {nodata}")
        for path, group in self.groups:
            attributes = dict((root[path] if path else root).attrs)
            self.conventions(path or "root", attributes, group)
        if "levels" in self.truth:
            self.multiscales(dict(root.attrs))
        return f"{count} arrays"

    def consolidated(self):
        """Compares what the root says of each node below it with what the node says."""
        said = metadata(self.folder).get("consolidated_metadata", {}).get("metadata", {})
        nodes = {place.parent for place in self.folder.rglob("zarr.json")} - {self.folder}
        equal("consolidated nodes", sorted(said), sorted(str(node.relative_to(self.folder)) for node in nodes))
        for path, one in said.items():
            if (self.folder / path) in nodes:
                apart = metadata(self.folder / path)
                same = all(one.get(key) == apart.get(key) for key in {*one, *apart} - {"consolidated_metadata"})
                check(f"{path}, consolidated", same, f"{one}, expected {apart}"[:500])

    def conventions(self, where, attributes, group):
        """Compares what the conventions `proj` and `spatial` say of a group."""
        names = {one.get("uuid") for one in attributes.get("zarr_conventions", [])}
        if group.get("crs") is not None:
            check(f"{where}, proj", PROJ in names, "is not among zarr_conventions")
            said = attributes.get("proj:code") or attributes.get("proj:wkt2") or attributes.get("proj:projjson")
            check(f"{where}, proj", said and same_crs(CRS.from_user_input(said), group["crs"]), f"{said}")
        if group.get("transform") is not None:
            check(f"{where}, spatial", SPATIAL in names, "is not among zarr_conventions")
            equal(f"{where}, spatial:transform", attributes.get("spatial:transform"), group["transform"])

    def multiscales(self, attributes):
        names = {one.get("uuid") for one in attributes.get("zarr_conventions", [])}
        check("multiscales", MULTISCALES in names, "is not among zarr_conventions")
        layout = attributes.get("multiscales", {}).get("layout", [])
        if not equal("multiscales, assets", [one.get("asset") for one in layout], self.truth["levels"]):
            return
        for one in layout:
            group = self.truth["groups"].get(one["asset"].strip("."))
            if group is not None:
                shape = next(iter(group["arrays"].values()))["shape"][-2:]
                equal(f"level {one['asset']}, spatial:shape", one.get("spatial:shape"), shape)
                equal(f"level {one['asset']}, spatial:transform", one.get("spatial:transform"), group["transform"])

    def xarray(self):
        count = 0
        for path, group in self.groups:
            open_it = {"group": path or None, **self.how}
            raw = quietly(f"{path}, open_zarr", lambda: xr.open_zarr(self.store, mask_and_scale=False, **open_it))
            scaled = quietly(f"{path}, open_zarr", lambda: xr.open_zarr(self.store, **open_it))
            everything = quietly(f"{path}, open_zarr", lambda: xr.open_zarr(self.store, decode_coords="all", **open_it))
            for name, said in group["arrays"].items():
                where = f"{path}/{name}".strip("/")
                for how, data in [("raw", raw), ("default", scaled), ("decode_coords=all", everything)]:
                    self.georeferenced(f"{where}, {how}", data[name], group)
                if same_samples(where, raw[name].values, said):
                    count += self.scaled(where, raw[name], scaled[name], said)
            for name, said in group["coordinates"].items():
                if name == "time_bnds":
                    bounds = raw["time"].attrs.get("bounds", raw["time"].encoding.get("bounds"))
                    equal(f"{path}/time, bounds", bounds, name)
                if check(f"{path}/{name}", name in raw.coords, "is no coordinate"):
                    self.coordinate(f"{path}/{name}".strip("/"), raw[name], said)
        if self.truth.get("datatree"):
            tree = quietly("open_datatree", lambda: xr.open_datatree(self.store, engine="zarr", **self.how))
            for path, group in self.groups:
                found = set(tree[path].data_vars) if path else set(tree.data_vars)
                check("open_datatree", set(group["arrays"]) <= found, f"{path}: {found}")
        return f"{count} arrays"

    def georeferenced(self, where, array, group):
        check(f"{where}, CRS", same_crs(array.rio.crs, group.get("crs")), f"{array.rio.crs}, expected {group.get('crs')}")
        if group.get("transform") is None:
            return
        found, expected = list(array.rio.transform())[:6], group["transform"]
        check(f"{where}, transform", np.allclose(found, expected, rtol=1e-12, atol=0), f"{found}, expected {expected}")
        a, b, c, d, e, f = expected
        if b == 0 and d == 0:
            for axis, first, step in [("x", c, a), ("y", f, e)]:
                centres = first + step * (np.arange(array.sizes[axis]) + 0.5)
                close = np.abs(array[axis].values - centres).max() <= 1e-9 * abs(step) + 1e-12 * np.abs(centres).max()
                check(f"{where}, {axis}", close, f"{array[axis].values[:2]}.., expected {centres[:2]}..")

    def scaled(self, where, raw, scaled, said):
        nodata, scale, offset = number(said.get("nodata")), said.get("scale"), said.get("offset")
        ok = check(f"{where}, nodata", same_number(raw.rio.nodata, nodata), f"{raw.rio.nodata}, expected {nodata}")
        found = scaled.rio.encoded_nodata
        ok &= check(f"{where}, nodata when scaled", same_number(found, nodata), f"{found}, expected {nodata}")
        for name, expected in [("scale_factor", scale), ("add_offset", offset)]:
            ok &= equal(f"{where}, {name}", scaled.encoding.get(name), expected)
        plain = raw.values.astype("float64")
        # NaN is no data by itself.
        hidden = np.isnan(plain) | (plain == nodata if nodata is not None else False)
        expected = np.where(hidden, np.nan, plain * (1 if scale is None else scale) + (0 if offset is None else offset))
        close = np.allclose(scaled.values.astype("float64"), expected, rtol=1e-6, equal_nan=True)
        return ok & check(f"{where}, scaled samples", close, "differ")

    def coordinate(self, where, found, said):
        values = found.values
        if values.dtype.kind == "M":
            plain = [[end.replace("Z", "") for end in one] if isinstance(one, list) else one.replace("Z", "") for one in said]
            expected = np.array(plain, "datetime64[ns]")
            check(where, np.array_equal(values.astype("datetime64[ns]"), expected), f"{values}, expected {said}")
        else:
            equal(where, values.tolist(), said)

    def tensorstore(self):
        count = 0
        for _, _, _, said, where in self.arrays():
            store = {"driver": "file", "path": f"{self.folder / where}/"}
            array = tensorstore.open({"driver": "zarr3", "kvstore": store}, open=True, read=True).result()
            equal(f"{where}, dims", list(array.domain.labels), said["dims"])
            count += same_samples(where, array.read(order="C").result(), said)
        return f"{count} arrays"

    def gdal(self):
        count = 0
        for path, group, name, said, where in self.arrays():
            try:
                raster = rasterio.open(f'ZARR:"{self.folder}":/{where}')
            except rasterio.errors.RasterioIOError as err:
                if "Unsupported codec" in str(err):
                    return f"does not read this cube: {err}"
                raise
            with raster:
                data = raster.read()
                # The axes before the last two are all bands.
                data = data.reshape(said["shape"]) if data.size == math.prod(said["shape"]) else data
                count += same_samples(where, data, said)
                check(f"{where}, CRS", same_crs(raster.crs, group.get("crs")), f"{raster.crs}, expected {group.get('crs')}")
                if group.get("transform") is not None:
                    found = list(raster.transform)[:6]
                    check(f"{where}, transform", np.allclose(found, group["transform"], rtol=1e-12, atol=0), f"{found}")
                nodata = number(said.get("nodata"))
                if nodata is not None:
                    check(f"{where}, nodata", same_number(raster.nodata, nodata), f"{raster.nodata}, expected {nodata}")
                equal(f"{where}, scale", raster.scales[0], said.get("scale") or 1)
                equal(f"{where}, offset", raster.offsets[0], said.get("offset") or 0)
                levels = self.truth.get("levels", [])
                if levels and path == levels[0].strip(".") and GDAL >= (3, 13):
                    equal(f"{where}, overviews", len(raster.overviews(1)), len(levels) - 1)
        return f"{count} arrays"


PROJ = "f17cb550-5864-4468-aeb7-f3180cfb622f"
SPATIAL = "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4"
MULTISCALES = "d35379db-88df-4056-af3a-620245f8e347"
GDAL = tuple(int(part) for part in rasterio.__gdal_version__.split(".")[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cube", type=pathlib.Path, help="the folder of a cube")
    parser.add_argument("expect", type=pathlib.Path, help="EXPECT.json")
    parser.add_argument("--icechunk", metavar="BRANCH", help="the folder is a repository; read this branch of it")
    args = parser.parse_args()
    start = time.monotonic()
    cube = Cube(args.cube.resolve(), json.loads(args.expect.read_text()), args.icechunk)
    readers = {
        f"zarr-python {zarr.__version__}": cube.zarr_python,
        f"xarray {xr.__version__}, rioxarray {rioxarray.__version__}": cube.xarray,
    }
    files = {
        f"tensorstore {version('tensorstore')}": cube.tensorstore,
        f"GDAL {rasterio.__gdal_version__}": cube.gdal,
    }
    for reader, read in (readers if args.icechunk else readers | files).items():
        try:
            print(f"{reader}: {read()}")
        except Exception as err:
            check(reader, False, f"{type(err).__name__}: {err}"[:500])
    print(f"{len(failures)} failures in {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
