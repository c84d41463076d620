"""Makes zones.json: what exactextract says of zones on a raster. pip install exactextract==0.3.0 numpy==2.4.6; python make_zones.py

Coordinates are in pixels, x to the right and y down, of a raster of 40 x 30 pixels whose value is
(7 * col + 13 * row + col * row) % 101, and nodata where (col + 2 * row) % 17 is 0.
"""
import json, pathlib
import numpy as np
from exactextract import exact_extract
from exactextract.raster import NumPyRasterSource

W, H = 40, 30
col, row = np.meshgrid(np.arange(W), np.arange(H))
values = ((7 * col + 13 * row + col * row) % 101).astype(float)
values[(col + 2 * row) % 17 == 0] = np.nan
random = np.random.default_rng(14)


def star(x, y, r, n):
    at = np.sort(random.uniform(0, 2 * np.pi, n))
    far = random.uniform(0.4, 1, n) * r
    return [[x + d * np.cos(a), y + d * np.sin(a)] for a, d in zip(at, far)]


def box(x0, y0, x1, y1):
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]


zones = [[[box(3, 4, 9, 11)]], [[box(3.5, 4.5, 13.5, 14.5)]], [[box(5.25, 5.25, 5.75, 5.5)]], [[box(-6.5, -3.25, 4.75, 8.5)]],
         [[box(30.2, 20.1, 55, 44)]], [[box(2, 2, 20, 20), box(4.3, 4.6, 17.2, 18.8)]], [[box(1.5, 1.5, 6, 6)], [box(8.25, 1, 12, 6.75)]],
         [[[[20, 2], [26, 8], [20, 14], [14, 8]]]]]
zones += [[[star(random.uniform(8, 32), random.uniform(8, 22), random.uniform(0.3, 7), int(random.integers(5, 24)))]] for _ in range(24)]
ops = ["count", "sum", "mean", "min", "max", "stdev", "median", "quantile(q=0.1)", "quantile(q=0.9)"]
source = NumPyRasterSource(values, xmin=0, ymin=0, xmax=W, ymax=H)
out = []
for parts in zones:
    rings = [[[[x, H - y] for x, y in r + r[:1]] for r in part] for part in parts]
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": "MultiPolygon", "coordinates": rings}}
    got = exact_extract(source, feature, ops)[0]["properties"]
    names = ["count", "sum", "mean", "min", "max", "stdev", "median", "quantile_10", "quantile_90"]
    out.append({"parts": parts, "answers": [None if np.isnan(got[n]) else float(got[n]) for n in names]})
pathlib.Path(__file__).with_name("zones.json").write_text("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
