"""Reads an index as others do: scripts/peers/index.py INDEX

pyarrow reads the columns, tifffile says where the tiles of local files lie; duckdb, geopandas, rustac
and stac-geoparquet query it where they are installed.
"""

import json
import sys

import numpy
import pyarrow.parquet

path = sys.argv[1]
file = pyarrow.parquet.ParquetFile(path)
said = {key.decode(): json.loads(value) for key, value in file.metadata.metadata.items() if key != b"ARROW:schema"}
assert said["stac-geoparquet"]["version"] == "1.0.0", said
assert said["geo"]["primary_column"] == "geometry" and said["rss:index"]["version"] == 1, said
table = file.read()
print(f"pyarrow: {table.num_rows} rows, {len(table.column_names)} columns, {file.metadata.num_columns} leaves")


def offsets(level):
    """What docs/INDEX.md says: all gaps so far, and all sizes before."""
    sizes = numpy.array(level["byte_counts"], dtype="int64")
    places = numpy.cumsum(numpy.array(level["gaps"], dtype="int64")) + numpy.cumsum(sizes) - sizes
    return numpy.where(sizes == 0, 0, places).tolist(), sizes.tolist()


compared = skipped = 0
for name in table.column_names:
    if not name.startswith("index:"):
        continue
    key = name.removeprefix("index:")
    for assets, entry in zip(table["assets"].to_pylist(), table[name].to_pylist()):
        if entry is None or "://" in assets[key]["href"]:
            continue
        try:
            import tifffile

            with tifffile.TiffFile(assets[key]["href"]) as tiff:
                page = tiff.pages[0]
                theirs = [list(page.dataoffsets), list(page.databytecounts)]
        except Exception:  # damaged on purpose
            skipped += 1
            continue
        ours = offsets(entry["levels"][0])
        both = [(0, 0) if 0 in pair else pair for pair in zip(*theirs)]
        mine = [(0, 0) if 0 in pair else pair for pair in zip(*ours)]
        if mine != both[: len(mine)]:
            print(f"differs: {assets[key]['href']}: {mine[:3]} {both[:3]}")
        compared += 1
print(f"tifffile: {compared} files compared, {skipped} it cannot read")


def attempt(name, run):
    try:
        print(f"{name}: {run()}")
    except ImportError:
        print(f"{name}: not installed")
    except Exception as err:
        print(f"{name}: {type(err).__name__}: {err}")


def duck():
    import duckdb

    key = next(name for name in table.column_names if name.startswith("index:"))
    return duckdb.sql(
        f"""
        WITH levels AS (
            SELECT id, unnest("{key}".levels) AS level FROM '{path}' WHERE "{key}" IS NOT NULL
        )
        SELECT count(*), sum(len(level.byte_counts)), sum(list_sum(level.byte_counts))::BIGINT,
               max(list_sum(level.gaps) + list_sum(level.byte_counts))::BIGINT AS end_of_last_tile
        FROM levels
        """
    ).fetchall()


def geo():
    import geopandas

    frame = geopandas.read_parquet(path)
    return f"{len(frame)} rows, {frame.crs.to_string()}, bounds {frame.total_bounds.tolist()}"


def rust():
    import asyncio

    import rustac

    async def read():
        return await rustac.read(path)

    items = asyncio.run(read())
    return f"{len(items['features'])} items, first {items['features'][0]['id']}"


def stac():
    import stac_geoparquet.arrow

    columns = [name for name in table.column_names if not name.startswith("index:")]
    items = list(stac_geoparquet.arrow.stac_table_to_items(table.select(columns)))
    return f"{len(items)} items, first {items[0]['id']}"


for name, run in [("duckdb", duck), ("geopandas", geo), ("rustac", rust), ("stac-geoparquet", stac)]:
    attempt(name, run)
