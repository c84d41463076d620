"""Checks STAC Items that rss writes (--stac), without a network.

    scripts/python-env scripts/check_stac.py ITEM.json..

The core is validated by the JSON schemas of STAC 1.1 and GeoJSON that the wheel pystac-core carries. No wheel carries those of
the extensions, so the fields that rss writes of projection 2.0, processing 1.2, raster 2.0 and file 2.1 are checked here by
what their specifications say of them: each field of their prefixes must be one of these, with the right type. pyproj reads the
CRS, and places the outline. Prints one line for each item, and ends with 1 if a check failed.
"""

import hashlib
import json
import math
import pathlib
import socket
import sys

import pyproj
from pystac import STACObjectType
from pystac.validation import JsonSchemaSTACValidator

EXTENSIONS = {
    "proj": "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "processing": "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "raster": "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
    "file": "https://stac-extensions.github.io/file/v2.1.0/schema.json",
}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def numbers(*lengths):
    return lambda value: isinstance(value, list) and len(value) in lengths and all(map(is_number, value))


def is_text(value):
    return isinstance(value, str) and value != ""


def is_multihash(value):
    """SHA-256 alone is written: 12, 20, and 32 bytes."""
    return is_text(value) and len(value) == 68 and value.startswith("1220") and set(value) <= set("0123456789abcdef")


def is_expression(value):
    return isinstance(value, dict) and is_text(value.get("format")) and "expression" in value


def is_software(value):
    return isinstance(value, dict) and value and all(is_text(name) and is_text(text) for name, text in value.items())


# What the specifications say of the fields that rss writes.
FIELDS = {
    "proj:code": lambda value: value is None or (is_text(value) and ":" in value),
    "proj:wkt2": is_text,
    "proj:shape": lambda value: isinstance(value, list) and len(value) == 2 and all(map(is_whole, value)),
    "proj:transform": numbers(6, 9),
    "proj:bbox": numbers(4, 6),
    "processing:software": is_software,
    "processing:expression": is_expression,
    "raster:spatial_resolution": lambda value: is_number(value) and value > 0,
    "file:size": is_whole,
    "file:checksum": is_multihash,
}


def fields(where, of, wrong):
    for name, value in of.items():
        prefix = name.split(":")[0] if ":" in name else None
        if prefix not in EXTENSIONS:
            continue
        if name not in FIELDS:
            wrong.append(f"{where}: the field {name} is not one that is known here")
        elif not FIELDS[name](value):
            wrong.append(f"{where}: {name} is {value!r}")


def place(item, wrong):
    """Compares CRS, transform, shape, boxes and outline with each other, by PROJ."""
    said = item["properties"]
    crs = pyproj.CRS.from_user_input(said["proj:code"] or said["proj:wkt2"])
    rows, columns = said["proj:shape"]
    a, b, c, d, e, f = said["proj:transform"][:6]
    corners = [(a * x + b * y + c, d * x + e * y + f) for x, y in [(0, 0), (columns, 0), (columns, rows), (0, rows)]]
    xs, ys = zip(*corners)
    box = [min(xs), min(ys), max(xs), max(ys)]
    if not all(math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-6) for one, two in zip(said["proj:bbox"], box)):
        wrong.append(f"proj:bbox is {said['proj:bbox']}, by transform and shape {box}")
    west, south, east, north = item["bbox"]
    to_degrees = pyproj.Transformer.from_crs(crs, 4326, always_xy=True).transform
    for x, y in corners:
        lon, lat = to_degrees(x, y)
        tolerance = 1e-6 + 1e-3 * max(east - west, north - south)
        inside = south - tolerance <= lat <= north + tolerance
        inside &= any(west - tolerance <= lon + turn <= east + tolerance for turn in (-360, 0, 360)) or west > east
        if not inside:
            wrong.append(f"the corner {lon}, {lat} is outside of the bbox {item['bbox']}")
    units = {axis.unit_name for axis in crs.axis_info}
    for key, asset in item["assets"].items():
        metres = asset.get("raster:spatial_resolution")
        if metres is not None and units <= {"metre", "meter"} and not math.isclose(metres, abs(a)):
            wrong.append(f"asset {key}: {metres} metres of pixels of {abs(a)}")
        if metres is not None and "degree" in units:
            wrong.append(f"asset {key}: {metres} metres of pixels in degrees")


def check(path):
    item = json.loads(path.read_text())
    wrong = []
    try:
        JsonSchemaSTACValidator().validate_core(item, STACObjectType.ITEM, item["stac_version"], str(path))
    except Exception as err:
        wrong.append(f"the core: {err}"[:2000])
    if item["stac_version"] != "1.1.0":
        wrong.append(f"stac_version is {item['stac_version']}")
    declared = set(item["stac_extensions"])
    used = {name.split(":")[0] for of in [item["properties"], *item["assets"].values()] for name in of if ":" in name}
    for prefix, url in EXTENSIONS.items():
        if prefix in used and url not in declared:
            wrong.append(f"fields of {prefix}: are used without {url}")
    fields("properties", item["properties"], wrong)
    for key, asset in item["assets"].items():
        fields(f"asset {key}", asset, wrong)
        for band in asset.get("bands", []):
            fields(f"asset {key}, band {band.get('name')}", band, wrong)
        file = path.parent / asset["href"]
        if "file:checksum" in asset:
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest() != asset["file:checksum"][4:] or len(data) != asset["file:size"]:
                wrong.append(f"asset {key}: checksum or size are not those of {file}")
    place(item, wrong)
    return wrong


def main():
    # What is validated offline here must not be fetched in silence.
    def refused(*_):
        raise OSError("no network is used here")

    socket.socket.connect = refused
    failed = 0
    for name in sys.argv[1:]:
        wrong = check(pathlib.Path(name))
        failed += len(wrong)
        print(f"{name}: {'valid' if not wrong else ''}")
        for one in wrong:
            print(f"  FAILED {one}")
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
