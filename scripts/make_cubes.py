"""Writes small cubes as others do, and prints what xarray reads of each as JSON.

    scripts/python-env scripts/make_cubes.py DIR

xarray with zarr-python writes them, of Zarr v3 and v2, consolidated or not, with the attributes of CF, rioxarray, odc-geo,
stackstac, GeoZarr and EOPF. The list that is printed has for each its `path`, `epsg`, `transform` (GDAL's six numbers),
`times`, and for each band `level`, `dtype`, `nodata`, `scale`, `offset`, the CRC-32 of its stored samples as (time, y, x),
and that of a window. Samples come from a fixed seed: nothing of them is of others.
"""

import json
import pathlib
import sys
import warnings
import zlib

import numcodecs
import numpy as np
import pyproj
import rioxarray  # noqa: F401
import xarray as xr
import zarr

warnings.simplefilter("ignore")
WINDOW = (3, 2, 5, 4)
random = np.random.default_rng(7)


def samples(shape, dtype="int16"):
    data = random.integers(0, 200, shape)
    return data.astype(dtype)


def crc32(data):
    data = np.asarray(data)
    if data.dtype == "float16":
        data = data.astype("float32")
    return zlib.crc32(np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<")).tobytes())


def axes(height=11, width=13, step=10.0, left=500000.0, top=7000000.0, up=False):
    """Centres of pixels."""
    x = left + (np.arange(width) + 0.5) * step
    y = top - (np.arange(height) + 0.5) * step
    return {"y": ("y", y[::-1].copy() if up else y), "x": ("x", x)}


TIMES = np.array(["2021-01-03T00:10:00", "2021-01-08T00:10:30.250", "2021-02-01"], "datetime64[ns]")


def time(count=3, **encoding):
    return {"time": ("time", TIMES[:count], {}, encoding)}


class Cubes:
    def __init__(self, folder):
        self.folder = folder
        self.truth = []

    def add(self, name, epsg, bands, group="", transform=None, steps=None, path=None, **more):
        """Opens what was written by xarray. A band is (name, variable, index of other axes, group, level)."""
        said = {"name": name, "path": str(self.folder / (path or name)), "epsg": epsg, "bands": [], **more}
        for band, variable, index, where, level in bands:
            data = xr.open_zarr(self.folder / name, group=where or None, mask_and_scale=False, consolidated=None)
            array = data[variable].isel(index)
            x, y = (next(d for d in array.dims if d in names) for names in (["x", "lon", "X"], ["y", "lat", "Y"]))
            if "time" in data.dims and "time" not in array.dims:
                array = array.expand_dims(time=data["time"])
            order = [d for d in ("time", y, x) if d in array.dims]
            values = array.transpose(*order).values
            values = values.reshape((-1, *values.shape[-2:]))
            if array.attrs.get("_Unsigned") == "true":
                values = values.view(values.dtype.str.replace("i", "u"))
            c, r, w, h = WINDOW
            scaled = xr.open_zarr(self.folder / name, group=where or None, consolidated=None)[variable]
            nodata = scaled.encoding.get("_FillValue", scaled.encoding.get("missing_value", scaled.attrs.get("nodata")))
            said["bands"].append({
                "name": band, "level": level, "shape": list(values.shape), "crc32": crc32(values),
                "dtype": "float32" if values.dtype == "float16" else values.dtype.name, "stored": values.dtype.name,
                "window": crc32(values[-1:, r:r + h, c:c + w]),
                "nodata": None if nodata is None else "NaN" if nodata != nodata else np.asarray(nodata).astype(values.dtype).item(),
                "scale": scaled.encoding.get("scale_factor"), "offset": scaled.encoding.get("add_offset"),
            })
            if level == 0 and "transform" not in said:
                gx, gy = data[x].values.astype("float64") if x in data.coords else None, data[y].values if y in data.coords else None
                if gx is not None:
                    dx, dy = (gx[-1] - gx[0]) / (len(gx) - 1), (gy[-1] - gy[0]) / (len(gy) - 1)
                    said["transform"] = [gx[0] - dx / 2, dx, 0, gy[0] - dy / 2, 0, dy]
                else:
                    said["transform"] = transform
                said["times"] = [str(t) for t in np.atleast_1d(data["time"].values)] if "time" in data.coords else steps
        self.truth.append(said)

    def write(self, name, data, group=None, **how):
        how = {"mode": "w" if group is None else "a", "zarr_format": 3, "consolidated": group is None, **how}
        data.to_zarr(self.folder / name, group=group, **how)


def main():
    folder = pathlib.Path(sys.argv[1])
    to = Cubes(folder)
    shape = (3, 11, 13)
    plain = lambda *names: [(name, name, {}, "", 0) for name in names]

    def raster(variables, coords, epsg=32755):
        data = xr.Dataset(variables, coords=coords)
        return data.rio.write_crs(epsg).rio.write_transform() if epsg else data

    red = ("time", "y", "x")
    packed = {"_FillValue": np.int16(-999), "scale_factor": 0.0001, "add_offset": -0.1}
    two = lambda: {"red": (red, samples(shape)), "nir": (red, samples(shape)), "dem": (("y", "x"), samples(shape[1:], "float32"))}
    for version in (3, 2):
        for consolidated in (True, False):
            name = f"rioxarray_v{version}_{consolidated}.zarr"
            data = raster(two(), {**time(units="days since 1970-01-01", dtype="float64", calendar="standard"), **axes()})
            chunks = {"red": {"chunks": (2, 5, 13)}, "nir": {"chunks": (1, 11, 4)}}
            data["red"].attrs.update(packed)
            to.write(name, data, zarr_format=version, consolidated=consolidated, encoding=chunks)
            to.add(name, 32755, plain("red", "nir", "dem"))
    # Longitudes and latitudes, south at the top, without a CRS.
    degrees = {"lat": ("lat", -30 + 0.25 * np.arange(11), {"units": "degrees_north", "standard_name": "latitude"}),
               "lon": ("lon", (140 + 0.25 * np.arange(13)).astype("float32"), {"units": "degrees_east", "axis": "X"})}
    for version in (3, 2):
        data = xr.Dataset({"t2m": (("time", "lat", "lon"), samples(shape, "float32"))}, coords={**time(units="hours since 1900-01-01", dtype="float64", calendar="proleptic_gregorian"), **degrees})
        data["t2m"].encoding["_FillValue"] = np.float32("nan")
        to.write(f"cf_v{version}.zarr", data, zarr_format=version)
        to.add(f"cf_v{version}.zarr", 4326, plain("t2m"))
    # In shards.
    data = raster({"red": (red, samples(shape, "uint16"))}, {**time(), **axes(up=True)})
    to.write("shards.zarr", data, encoding={"red": {"chunks": (1, 4, 4), "shards": (2, 8, 8)}})
    to.add("shards.zarr", 32755, plain("red"))
    # Bands as an axis.
    names = ["red", "nir", "swir16"]
    for version in (3, 2):
        data = raster({"reflectance": (("time", "band", "y", "x"), samples((3, 3, 11, 13), "uint8"))}, {"band": names, **time(), **axes()})
        to.write(f"bands_v{version}.zarr", data, zarr_format=version)
        to.add(f"bands_v{version}.zarr", 32755, [(name, "reflectance", {"band": at}, "", 0) for at, name in enumerate(names)])
    data = raster({"reflectance": (("time", "band", "y", "x"), samples((3, 3, 11, 13), "uint8"))}, {"band": np.array(names, object), **time(), **axes()})
    to.write("objects_v2.zarr", data, zarr_format=2, encoding={"band": {"chunks": (2,)}})
    to.add("objects_v2.zarr", 32755, [(name, "reflectance", {"band": at}, "", 0) for at, name in enumerate(names)])
    # One image of rasterio: no time, bands by number.
    data = raster({"image": (("band", "y", "x"), samples((2, 11, 13), "float64"))}, {"band": [1, 2], **axes()})
    to.write("image.zarr", data)
    to.add("image.zarr", 32755, [(f"image.{at + 1}", "image", {"band": at}, "", 0) for at in range(2)])
    # Another order of axes, and one more of length 1.
    data = raster({"red": (("y", "x", "level", "time"), samples((11, 13, 1, 3)))}, {**time(), **axes()})
    to.write("order.zarr", data)
    to.add("order.zarr", 32755, [("red", "red", {"level": 0}, "", 0)])
    # As odc-geo: the code as value of spatial_ref, nodata as attribute.
    wkt = pyproj.CRS(32755).to_wkt()
    data = xr.Dataset({"red": (red, samples(shape), {"nodata": -999, "grid_mapping": "spatial_ref", "units": "1"})}, coords={
        **time(units="seconds since 2021-01-01", dtype="float64"), **axes(),
        "spatial_ref": ((), np.int32(32755), {"spatial_ref": wkt, "grid_mapping_name": "transverse_mercator"})})
    to.write("odc.zarr", data)
    to.add("odc.zarr", 32755, plain("red"))
    # As stackstac: the code as a coordinate, ids of items.
    data = xr.Dataset({"stack": (("time", "band", "y", "x"), samples((3, 2, 11, 13), "float64"))}, coords={
        **time(), **axes(), "band": ["B04", "B08"], "epsg": ((), 32755), "id": ("time", ["a", "b,c", "d"])})
    to.write("stackstac.zarr", data)
    to.add("stackstac.zarr", 32755, [(name, "stack", {"band": at}, "", 0) for at, name in enumerate(["B04", "B08"])], items=["a", "b,c", "d"])
    # Types.
    data = raster({"half": (red, (samples(shape) / 8).astype("float16")), "large": (red, samples(shape, "int64") + 2**53), "flag": (red, samples(shape) > 100)}, {**time(), **axes()})
    data["large"].encoding["_FillValue"] = 2**53 + 1
    to.write("types.zarr", data)
    to.add("types.zarr", 32755, plain("half", "large"))
    # Integers whose stored type has the other sign.
    for version in (3, 2):
        data = raster({"red": (red, samples(shape, "int16") - 100, {"_Unsigned": "true", "_FillValue": np.int16(-1)})}, {**time(), **axes()})
        to.write(f"unsigned_v{version}.zarr", data, zarr_format=version)
        to.add(f"unsigned_v{version}.zarr", 32755, plain("red"))
    # A grid mapping by its parameters alone.
    for name, epsg, said in [("utm", 32755, 32755), ("laea", 3035, None)]:
        data = raster({"red": (red, samples(shape))}, {**time(), **axes()}, epsg)
        parameters = pyproj.CRS(epsg).to_cf()
        data["spatial_ref"].attrs = {key: parameters[key] for key in parameters if "name" not in key or key == "grid_mapping_name"}
        del data["spatial_ref"].attrs["crs_wkt"]
        to.write(f"{name}.zarr", data)
        to.add(f"{name}.zarr", said, plain("red"))
    # Filters, and the order of Fortran.
    data = raster({"red": (red, samples(shape, "int32"))}, {**time(), **axes()})
    to.write("filters_v2.zarr", data, zarr_format=2, encoding={"red": {"filters": [numcodecs.Delta("<i4"), numcodecs.Shuffle(4)], "compressors": [numcodecs.Zlib(1)], "chunks": (2, 7, 7)}})
    to.add("filters_v2.zarr", 32755, plain("red"))
    data = raster({"red": (red, np.full(shape, -1, "int32"))}, {**time(), **axes()})
    to.write("fortran_v2.zarr", data, zarr_format=2, encoding={"red": {"chunks": (2, 7, 7)}})
    root = zarr.open_group(folder / "fortran_v2.zarr", zarr_format=2, use_consolidated=False)
    attributes = dict(root["red"].attrs)
    array = root.create_array("red", shape=shape, chunks=(2, 7, 7), dtype=">i4", order="F", overwrite=True, fill_value=0, compressors=numcodecs.Zstd(1), chunk_key_encoding={"name": "v2", "separator": "/"})
    array.attrs.update(attributes)
    array[:] = samples(shape, "int32")
    zarr.consolidate_metadata(folder / "fortran_v2.zarr", zarr_format=2)
    to.add("fortran_v2.zarr", 32755, plain("red"))
    # GeoZarr: no coordinates, the grid in attributes, overviews as groups.
    levels = [(11, 13, 10.0), (6, 7, 20.0)]
    attrs = {"multiscales": {"layout": [{"asset": "0"}, {"asset": "1"}]}, "proj:code": "EPSG:32755"}
    to.write("geozarr.zarr", xr.Dataset(attrs=attrs))
    for level, (height, width, step) in enumerate(levels):
        attrs = {"spatial:dimensions": ["north", "east"], "spatial:transform": [step, 0, 500000, 0, -step, 7000000]}
        to.write("geozarr.zarr", xr.Dataset({"red": (("time", "north", "east"), samples((3, height, width)))}, coords=time(), attrs=attrs).rename(north="y", east="x").assign_attrs({"spatial:dimensions": ["y", "x"]}), group=str(level), consolidated=False)
    zarr.consolidate_metadata(folder / "geozarr.zarr")
    to.add("geozarr.zarr", 32755, [("red", "red", {}, str(level), level) for level in range(2)], transform=[500000, 10, 0, 7000000, 0, -10])
    # As the products of EOPF: groups by resolution, no axis of time, the CRS in a STAC item.
    attrs = {"stac_discovery": {"properties": {"datetime": "2021-01-03T00:10:31.024Z", "proj:epsg": 32755}}}
    for version in (2, 3):
        name = f"eopf_v{version}.zarr"
        to.write(name, xr.Dataset(attrs=attrs), zarr_format=version)
        for group, names, (height, width, step) in [("r10m", ["b02", "b04"], (12, 24, 10.0)), ("r20m", ["b02", "b11"], (6, 12, 20.0)), ("r60m", ["b01"], (2, 4, 60.0))]:
            data = xr.Dataset({name: (("y", "x"), samples((height, width), "uint16"), {"proj:epsg": 32755}) for name in names}, coords=axes(height, width, step))
            for one in names:
                data[one].encoding.update({"_FillValue": np.uint16(0), "scale_factor": 0.0001, "add_offset": -0.1, "dtype": "uint16"})
                data[one] = data[one].astype("float64").where(data[one] != 0) * 0.0001 - 0.1
                data[one].encoding.update({"_FillValue": np.uint16(0), "scale_factor": 0.0001, "add_offset": -0.1, "dtype": "uint16"})
            to.write(name, data, group=f"measurements/reflectance/{group}", zarr_format=version, consolidated=False)
        to.write(name, xr.Dataset({"sza": (("angle", "y", "x"), samples((2, 3, 3), "float64"))}, coords=axes(3, 3, 5000.0)), group="conditions/geometry", zarr_format=version, consolidated=False)
        zarr.consolidate_metadata(folder / name, zarr_format=version)
        r = "measurements/reflectance/r"
        bands = [("b02", "b02", {}, r + "10m", 0), ("b04", "b04", {}, r + "10m", 0), ("b02", "b02", {}, r + "20m", 1), ("b11", "b11", {}, r + "20m", 1), ("b01", "b01", {}, r + "60m", 2)]
        to.add(name, 32755, bands, steps=["2021-01-03T00:10:31.024"])
        to.add(name, 32755, bands[2:3] and [("b11", "b11", {}, r + "20m", 0)], path=f"{name}/{r}20m", steps=None)
    print(json.dumps(to.truth))


if __name__ == "__main__":
    main()
