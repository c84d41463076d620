"""Compares formulas with numexpr: generated ones, over pixels of three bands.

    scripts/oracles/python scripts/check_formulas.py --rss target/debug/rss [--count N] [--seed N]
    scripts/oracles/python scripts/check_formulas.py --write crates/rss_core/tests/data/formulas/numexpr.json

A formula is generated as a text, not as a tree that is printed: who binds tighter is for numexpr and this library to
say. Both get the same words but for those that numexpr lacks: `^` is `**` there, `min` `minimum`, `and` an `&` of
comparisons in brackets. numexpr computes in float64; rss apply computes in float32, so what is allowed there is four times what
numpy loses in float32 over the same formula, or what a rounding of the bands changes, and a part in a million.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numexpr
import numpy

BANDS = ("a", "b", "c")
# Of each kind: whole, fractional, negative, small, large, equal in two bands.
PIXELS = {
    "a": [3.0, -2.5, 0.125, 7.0, 1.0, -7.0, 0.75, 250.0],
    "b": [2.0, 4.0, 0.5, -3.0, 1.0, 2.0, -0.25, 3000.0],
    "c": [0.5, -1.0, 6.0, 2.5, 1.0, 3.0, 0.0625, -12.0],
}
SAFE = ("sqrt", "log", "log2", "log10", "log1p", "exp", "expm1")
ANY = ("abs", "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "floor", "ceil", "trunc", "round", "sign")
UNIT = ("arcsin", "arccos", "arctanh")


class Generator:
    """Pairs of one formula: as this library reads it, and as numexpr does."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        # The parts whose value decides more than their own: each must be finite for all pixels.
        self.parts = []

    def formula(self):
        self.parts = []
        chain = self.chain if self.random.random() < 0.75 else self.choice
        ours, theirs = chain(self.random.choice([1, 2, 2, 3]))
        return ours, theirs, self.parts

    def part(self, pair):
        self.parts.append(pair[1])
        return pair

    def chain(self, depth):
        """Values joined by operators without brackets, some of them with signs."""
        ours, theirs = last = self.signed(depth)
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            op = self.random.choice(["+", "-", "*", "/", "+", "-", "*", "^", "**", "%", "//"])
            right = self.signed(depth)
            if op in ("^", "**"):
                # What is missing is so to the power of 0, too, which is 1 in numpy.
                self.part(last)
                self.part(right)
            last = right
            space = self.random.choice(["", " "])
            ours += space + op + space + right[0]
            theirs += " " + ("**" if op == "^" else op) + " " + right[1]
        return ours, theirs

    def signed(self, depth):
        sign = self.random.choice(["", "", "", "-", "-", "+", "--"])
        ours, theirs = self.value(depth)
        return sign + ours, sign + theirs

    def value(self, depth):
        kind = self.random.random()
        if depth == 0 or kind < 0.35:
            band = self.random.choice(BANDS)
            return band, band
        if kind < 0.55:
            return self.random.choice(
                [("2", "2.0"), ("3", "3.0"), ("0.5", "0.5"), ("1e-1", "0.1"), (".25", "0.25"), ("1.5E1", "15.0"), ("2.", "2.0")]
            )
        if kind < 0.75:
            ours, theirs = self.part(self.chain(depth - 1))
            return f"({ours})", f"({theirs})"
        if kind < 0.8:
            return self.choice(depth - 1)
        if kind < 0.88:
            name = self.random.choice(["min", "max"])
            count = self.random.choice([2, 2, 3])
            them = [self.part(self.chain(depth - 1)) for _ in range(count)]
            theirs = them[0][1]
            for other in them[1:]:
                theirs = f"{name}imum({theirs}, {other[1]})"
            return f"{name}({', '.join(one[0] for one in them)})", theirs
        if kind < 0.92:
            value = self.part(self.chain(depth - 1))
            return f"clip({value[0]}, -1, 2)", f"minimum(maximum({value[1]}, -1.0), 2.0)"
        inner = self.part(self.chain(depth - 1))
        kind = self.random.random()
        if kind < 0.6:
            name = self.random.choice(ANY)
            return f"{name}({inner[0]})", f"{name}({inner[1]})"
        if kind < 0.75:
            name = self.random.choice(UNIT)
            return f"{name}(tanh({inner[0]})/2)", f"{name}(tanh({inner[1]})/2.0)"
        if kind < 0.85:
            other = self.part(self.chain(depth - 1))
            name = self.random.choice(["arctan2", "hypot"])
            return f"{name}({inner[0]}, {other[0]})", f"{name}({inner[1]}, {other[1]})"
        name = self.random.choice(SAFE)
        return f"{name}(abs({inner[0]}))", f"{name}(abs({inner[1]}))"

    def choice(self, depth):
        if depth <= 0:
            return self.value(0)
        condition = self.condition(depth - 1)
        a, b = self.chain(depth - 1), self.chain(depth - 1)
        return f"where({condition[0]}, {a[0]}, {b[0]})", f"where({condition[1]}, {a[1]}, {b[1]})"

    def comparison(self, depth):
        op = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        a, b = self.part(self.chain(depth)), self.part(self.chain(depth))
        return f"{a[0]} {op} {b[0]}", f"(({a[1]}) {op} ({b[1]}))"

    def condition(self, depth):
        """In words, which bind less tightly than comparisons, or with symbols, which do not."""
        ours, theirs = self.comparison(depth)
        for _ in range(self.random.choice([0, 0, 1, 2])):
            other = self.comparison(depth)
            kind = self.random.choice(["and", "or", "not", "&", "|", "~", "&&", "||"])
            if kind in ("and", "&&"):
                # Tighter than what was joined by `or` before, as in Python.
                ours, theirs = f"({ours}) {kind} {other[0]}", f"(({theirs}) & {other[1]})"
            elif kind in ("or", "||"):
                ours, theirs = f"{ours} {kind} {other[0]}", f"(({theirs}) | {other[1]})"
            elif kind == "not":
                ours, theirs = f"not {other[0]} and ({ours})", f"(~{other[1]} & ({theirs}))"
            elif kind == "~":
                ours, theirs = f"~({other[0]}) | ({ours})", f"(~{other[1]} | ({theirs}))"
            else:
                ours, theirs = f"({ours}) {kind} ({other[0]})", f"(({theirs}) {kind} {other[1]})"
        return ours, theirs


def by_numexpr(text, bands):
    made = numexpr.evaluate(text, local_dict=bands, global_dict={}, truediv=True)
    return numpy.broadcast_to(numpy.asarray(made, dtype="float64"), bands["a"].shape)


def generated(count, seed, bands):
    """Returns formulas as (ours, theirs, values), with a band each, and all their parts finite."""
    made, generator = {}, Generator(seed)
    while len(made) < count:
        ours, theirs, parts = generator.formula()
        if len(ours) < 6 or len(ours) > 160 or ours in made or not any(band in theirs for band in BANDS):
            continue
        with numpy.errstate(all="ignore"):
            try:
                if not all(numpy.isfinite(by_numexpr(part, bands)).all() for part in parts):
                    continue
                values = by_numexpr(theirs, bands)
            except (TypeError, NotImplementedError, OverflowError, ZeroDivisionError):
                # numexpr computes parts of numbers alone in Python, which refuses what is no real number.
                continue
        if numpy.isfinite(values).sum() * 2 < values.size or (numpy.abs(values) > 1e15).any():
            continue
        # What rounding decides (a remainder of 1e28, the floor of nearly 1) says nothing of a formula.
        exact = by_numpy(theirs, bands, "longdouble")
        with numpy.errstate(invalid="ignore"):
            if (numpy.abs(exact - values) > 1e-12 * numpy.maximum(numpy.abs(values), 1e-3)).any():
                continue
        made[ours] = (ours, theirs, values)
    return list(made.values())


def uses_bands(text):
    words = "".join(char if char.isalnum() or char == "_" else " " for char in text).split()
    return any(word in BANDS for word in words)


def write(path, count, seed):
    bands = {name: numpy.array(values) for name, values in PIXELS.items()}
    rows = [
        {"formula": ours, "numexpr": theirs, "values": [v if numpy.isfinite(v) else None for v in values.tolist()]}
        for ours, theirs, values in generated(count, seed, bands)
        if uses_bands(ours)
    ]
    origin = (
        f"numexpr {numexpr.__version__} over numpy {numpy.__version__}, float64, truediv; generated by "
        f"scripts/check_formulas.py --seed {seed} --count {count}; null where the value is not finite"
    )
    with open(path, "w") as out:
        out.write('{"origin": ' + json.dumps(origin) + ',\n"bands": ' + json.dumps(PIXELS) + ',\n"formulas": [\n')
        out.write(",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    print(f"{path}: {len(rows)} formulas")


def overflows(text, bands):
    try:
        by_numpy(text, bands, "float32", over="raise")
    except FloatingPointError:
        return True
    return False


def by_numpy(text, bands, dtype, over="ignore"):
    """The formula by numpy in another type; what Python alone computes of numbers stays in float64 until then."""
    names = {name: getattr(numpy, name) for name in (*SAFE, *ANY, *UNIT, "arctan2", "hypot", "minimum", "maximum", "where")}
    others = {name: values.astype(dtype) for name, values in bands.items()}
    with numpy.errstate(all="ignore", over=over):
        made = eval(text, {"__builtins__": {}}, names | others)  # noqa: S307: a text of this script's own
    return numpy.broadcast_to(numpy.asarray(made), bands["a"].shape)


def through_rss(rss, folder, formulas, bands):
    """Runs rss apply over one image of three bands; returns (formula, y, x)."""
    import rasterio
    from rasterio.transform import from_origin

    shape = bands["a"].shape
    assets = {}
    for name, values in bands.items():
        path = folder / f"{name}.tif"
        with rasterio.open(
            path, "w", driver="GTiff", width=shape[1], height=shape[0], count=1, dtype="float32", crs="EPSG:32756",
            transform=from_origin(500000, 7000000, 10, 10),
        ) as file:
            file.write(values.astype("float32"), 1)
        assets[name] = {"href": str(path), "type": "image/tiff; application=geotiff", "roles": ["data"]}
    ring = [[153, -27.13], [153.01, -27.13], [153.01, -27.12], [153, -27.12], [153, -27.13]]
    item = {
        "type": "Feature", "stac_version": "1.0.0", "id": "one", "collection": "made", "bbox": [153, -27.13, 153.01, -27.12],
        "geometry": {"type": "Polygon", "coordinates": [ring]}, "assets": assets, "links": [],
        "properties": {"datetime": "2021-01-01T00:00:00Z", "proj:epsg": 32756},
    }
    (folder / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": [item]}))
    out = folder / "made.npy"
    command = [rss, "apply", "--items", str(folder / "items.json"), "--bands", ",".join(BANDS), "--raw", "--by", "item"]
    for number, formula in enumerate(formulas):
        command += ["--expr", f"f{number}={formula}"]
    out.unlink(missing_ok=True)
    subprocess.run([*command, "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    return numpy.load(out).astype("float64")


def check(rss, count, seed):
    random_numbers = numpy.random.default_rng(seed)
    shape = (16, 16)
    bands = {
        "a": random_numbers.integers(-20, 300, shape) / 4,
        "b": random_numbers.integers(1, 3000, shape) / 8,
        "c": random_numbers.integers(-100, 100, shape) / 16,
    }
    # Past the range of float32 each step is missing, which numpy's comparisons take as false.
    rows = generated(count, seed, bands)
    formulas = [row for row in rows if uses_bands(row[0]) and not overflows(row[1], bands)]
    # The bands moved by a rounding of float32: how much a formula makes of it.
    ways = [{name: random_numbers.choice([-1, 1], shape) for name in BANDS} for _ in range(3)]
    moves = [{name: bands[name] * (1 + way[name] * 2.0**-23) for name in BANDS} for way in ways]
    wrong, worst = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, len(formulas), 40):
            group = formulas[first : first + 40]
            made = through_rss(rss, pathlib.Path(name), [ours for ours, _, _ in group], bands)
            for (ours, theirs, exact), got in zip(group, made, strict=True):
                near = by_numpy(theirs, bands, "float32").astype("float64")
                size = numpy.maximum(numpy.abs(exact), 1e-3)
                with numpy.errstate(invalid="ignore", over="ignore"):
                    lost = numpy.abs(near - exact)
                    for moved in moves:
                        lost = numpy.maximum(lost, numpy.abs(by_numexpr(theirs, moved) - exact))
                    lost = numpy.nan_to_num(lost, nan=numpy.inf, posinf=numpy.inf)
                    apart = numpy.abs(got - exact)
                    same = numpy.abs(got - near) <= 1e-6 * numpy.maximum(numpy.abs(near), 1e-3)
                    # float32 ends at 3.4e38, and what is beyond is missing.
                    missing = numpy.isnan(got) & ~numpy.isfinite(exact + near)
                    fine = (apart <= 4 * lost + 1e-6 * size) | same | missing
                if not fine.all():
                    at = tuple(int(i) for i in numpy.argwhere(~fine)[0])
                    values = {band: float(bands[band][at]) for band in BANDS}
                    wrong.append(f"{ours}: {got[at]}, numexpr {exact[at]} for {values}")
                clear = numpy.isfinite(apart) & (lost <= 1e-6 * size)
                worst = max(worst, float((apart / size)[clear].max(initial=0)))
    print(f"{len(formulas)} formulas, {len(formulas) * shape[0] * shape[1]} pixels: {len(wrong)} formulas differ; "
          f"largest relative distance where float32 itself loses nothing: {worst:.1e}")
    for message in wrong[:20]:
        print(message, file=sys.stderr)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rss", help="the program to check")
    parser.add_argument("--write", help="where the fixture of the tests goes")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=14)
    args = parser.parse_args()
    if args.write:
        write(args.write, args.count, args.seed)
    if args.rss:
        return check(args.rss, args.count, args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
