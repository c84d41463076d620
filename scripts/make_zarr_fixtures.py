"""Writes the small Zarr arrays of others that the tests read, and truth.json with their samples' CRC-32.

    target/peers-zarr-venv/bin/python scripts/make_zarr_fixtures.py [--to DIR]

scripts/peers/zarr makes that environment, of scripts/peers/zarr-requirements.txt. The samples are made
here, from fixed seeds: truth.json says what was given to the writers. What they wrote is read again by
zarr-python and tensorstore, where they know the codecs, before the truth is written.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import shutil
import types
import warnings
import zlib
from importlib.metadata import version

import numpy as np
import tensorstore
import zarr
import zarrita
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarrita import codecs as zarrita_codecs

FOLDER = pathlib.Path(__file__).parent.parent / "crates/rss_core/tests/data/zarr/others"
LITTLE, BIG = BytesCodec(endian="little"), BytesCodec(endian="big")
MOST_BYTES_OF_ONE = 20_000
MOST_BYTES = 300_000

warnings.filterwarnings("ignore", message="Combining a `sharding_indexed` codec")
zarr.config.set({"json_indent": None})
# A gzip stream holds the time it was made at.
gzip.time = types.SimpleNamespace(time=lambda: 0)


def smooth(shape, dtype, seed=1):
    """Returns samples that compress well, but not to nothing."""
    kind = np.dtype(dtype)
    random = np.random.default_rng(seed)
    places = np.meshgrid(*[np.arange(size) for size in shape], indexing="ij")
    ramp = sum(place * (3 + 4 * axis) for axis, place in enumerate(places)) + random.integers(0, 3, shape)
    if kind.kind == "b":
        return (ramp % 5 < 2).astype(kind)
    if kind.kind == "c":
        return (np.sin(ramp / 9) * 100 + 1j * ramp).astype(kind)
    if kind.kind == "f":
        return (np.sin(ramp / 9) * 100).astype(kind)
    info = np.iinfo(kind)
    middle = 0 if kind.kind == "i" else info.max // 2
    return (ramp % 100 - 50 + middle if kind.kind == "i" else ramp % 100 + middle).astype(kind)


def steps(shape, dtype):
    """Returns samples that compress to nearly nothing, in plateaus of 8 x 4."""
    row, col = np.indices(shape)
    return ((row // 8 * 7 + col // 4) % 50).astype(dtype)


def noise(shape, dtype, seed=2):
    """Returns samples that no codec makes smaller."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape)) * kind.itemsize
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).view(kind).reshape(shape)


class Fixtures:
    def __init__(self, folder):
        self.folder, self.truth = folder, []

    def add(self, path, writer, data, says):
        shape = [max(1, size // 2) for size in data.shape]
        offset = [(size - part) // 2 for size, part in zip(data.shape, shape)]
        window = data[tuple(slice(at, at + size) for at, size in zip(offset, shape))]
        self.truth.append({
            "path": path,
            "writer": writer,
            "version": version({"zarr-python": "zarr"}.get(writer, writer)),
            "says": says,
            "dtype": data.dtype.name,
            "shape": list(data.shape),
            "crc32": crc32(data),
            "window": {"offset": offset, "shape": shape, "crc32": crc32(window)},
        })
        self.read_again(path, writer, data)

    def read_again(self, path, writer, data):
        place = self.folder / path
        seen = {"zarr-python": np.asarray(zarr.open_array(place, mode="r")[...])}
        driver = "zarr" if (place / ".zarray").exists() else "zarr3"
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{place}/"}}
        try:
            seen["tensorstore"] = tensorstore.open(spec, open=True).result().read().result()
        except ValueError as err:
            print(f"{path}: tensorstore does not read it: {str(err)[:150]}")
        for reader, array in seen.items():
            array = array.astype(array.dtype.newbyteorder("="))
            if array.dtype != data.dtype or crc32(array) != crc32(data):
                raise SystemExit(f"{path}: {reader} reads other samples than {writer} was given")

    # Writers.

    def zarr_python(self, name, says, data, chunk, codecs, *, parts=None, **options):
        """Writes an array, or only the parts of it that are named; the others become the fill value."""
        path = f"zarr-python/{name}"
        options = {"fill_value": 0, "zarr_format": 3} | options
        array = zarr.create(
            store=self.folder / path, shape=data.shape, chunks=chunk, dtype=data.dtype, codecs=codecs, **options
        )
        put(array, data, parts)
        self.add(path, "zarr-python", filled(data, parts, options["fill_value"]), says)

    def sharded(self, name, says, data, shard, inner, codecs, *, index=None, at="end", **options):
        index = index or [LITTLE, Crc32cCodec()]
        sharding = ShardingCodec(chunk_shape=inner, codecs=codecs, index_codecs=index, index_location=at)
        self.zarr_python(name, says, data, shard, [sharding], **options)

    def version_2(self, name, says, data, **options):
        path = f"zarr-python/v2/{name}"
        group = zarr.open_group(self.folder / "zarr-python/v2", mode="a", zarr_format=2)
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, **options)
        array[...] = data
        self.add(path, "zarr-python", data.astype(data.dtype.newbyteorder("=")), says)

    def tensorstore(self, name, says, data, chunk, codecs, *, parts=None, fill=0, **more):
        path = f"tensorstore/{name}"
        metadata = {
            "shape": data.shape,
            "data_type": data.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "codecs": codecs,
            "fill_value": fill,
        } | more
        store = {"driver": "file", "path": f"{self.folder / path}/"}
        spec = {"driver": "zarr3", "kvstore": store, "metadata": metadata, "create": True}
        array = tensorstore.open(spec).result()
        for part in parts or [()]:
            array[part].write(data[part]).result()
        self.add(path, "tensorstore", filled(data, parts, float(fill)), says)

    def zarrita(self, name, says, data, chunk, codecs):
        path = f"zarrita/{name}"
        array = zarrita.Array.create(
            zarrita.LocalStore(self.folder / path),
            shape=data.shape,
            dtype=data.dtype,
            chunk_shape=chunk,
            codecs=codecs,
        )
        array[(slice(None),) * data.ndim] = data
        self.add(path, "zarrita", data, says)


def put(array, data, parts):
    for part in parts if parts is not None else [...]:
        array[part] = data[part]


def filled(data, parts, fill):
    if parts is None:
        return data
    whole = np.full_like(data, fill)
    for part in parts:
        whole[part] = data[part]
    return whole


def crc32(data):
    little = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"))
    return zlib.crc32(little.tobytes())


def by_zarr_python(to):
    data = smooth((20, 24), "int16")
    shard, inner = (16, 16), (8, 8)
    plain = [LITTLE]
    zstd = [LITTLE, ZstdCodec(level=1, checksum=False)]

    # The index.
    for at, (kind, index) in itertools.product(
        ["end", "start"],
        {
            "crc32c": [LITTLE, Crc32cCodec()],
            "no_crc32c": [LITTLE],
            "big_endian": [BIG, Crc32cCodec()],
        }.items(),
    ):
        name = f"index_{at}_{kind}"
        to.sharded(name, f"index at the {at}, {kind}", data, shard, inner, zstd, index=index, at=at)

    # Codecs of chunks in shards, and of chunks that are objects.
    chains = {
        "bytes_little": plain,
        "bytes_big": [BIG],
        "transpose": [TransposeCodec(order=(1, 0)), LITTLE],
        "transpose_big_zstd": [TransposeCodec(order=(1, 0)), BIG, ZstdCodec(level=3, checksum=True)],
        "zstd": zstd,
        "zstd_checksum": [LITTLE, ZstdCodec(level=3, checksum=True)],
        "gzip": [LITTLE, GzipCodec(level=6)],
        "crc32c": [LITTLE, Crc32cCodec()],
        "zstd_crc32c": [LITTLE, ZstdCodec(level=1), Crc32cCodec()],
        "blosc_crc32c": [LITTLE, BloscCodec(typesize=2, cname="lz4", shuffle="shuffle"), Crc32cCodec()],
        "zstd_zstd": [LITTLE, ZstdCodec(level=1), ZstdCodec(level=1)],
    }
    for name, chain in chains.items():
        to.sharded(f"sharded_{name}", f"in shards: {name}", data, shard, inner, chain)
        to.zarr_python(f"unsharded_{name}", f"not in shards: {name}", data, (16, 16), chain)
    to.zarr_python(
        "transpose_of_3", "axes 2, 0, 1", smooth((5, 6, 7), "uint16"), (4, 4, 4),
        [TransposeCodec(order=(2, 0, 1)), LITTLE],
    )
    to.zarr_python(
        "transpose_outside", "whole shards transposed, then cut into chunks", smooth((10, 18), "int32"), (8, 16),
        [TransposeCodec(order=(1, 0)), ShardingCodec(chunk_shape=(8, 4), codecs=zstd)],
    )
    to.zarr_python(
        "shard_zstd", "whole shards compressed after they are made", data, shard,
        [ShardingCodec(chunk_shape=inner, codecs=plain), ZstdCodec(level=1)],
    )

    # Blosc: each shuffle meets each size of samples.
    kinds = ["uint8", "int16", "float32", "float64"]
    ways = itertools.product(["zstd", "lz4", "lz4hc", "blosclz", "zlib"], ["noshuffle", "shuffle", "bitshuffle"])
    for number, (cname, shuffle) in enumerate(ways):
        dtype = kinds[number % 4]
        codec = BloscCodec(typesize=np.dtype(dtype).itemsize, cname=cname, clevel=5, shuffle=shuffle)
        name = f"blosc_{cname}_{shuffle}_{dtype}"
        to.sharded(name, name, smooth((20, 24), dtype), (24, 24), (24, 12), [LITTLE, codec])
    for cname, shuffle, dtype in [("lz4", "shuffle", "int16"), ("zstd", "bitshuffle", "uint8"), ("blosclz", "noshuffle", "uint32")]:
        codec = BloscCodec(typesize=np.dtype(dtype).itemsize, cname=cname, clevel=5, shuffle=shuffle)
        to.sharded(
            f"blosc_copied_{cname}_{shuffle}", "incompressible: Blosc keeps a copy", noise((16, 16), dtype),
            (16, 16), (16, 16), [LITTLE, codec],
        )
    for cname, shuffle in itertools.product(["lz4", "zstd"], ["noshuffle", "shuffle", "bitshuffle"]):
        # Blosc makes blocks that it splits by the byte of a sample, as of LZ4, no smaller than 64 KiB.
        shape, data_of = ((150, 241), steps) if cname == "lz4" else ((31, 29), smooth)
        codec = BloscCodec(typesize=4, cname=cname, clevel=5, shuffle=shuffle, blocksize=1024)
        to.sharded(
            f"blosc_blocks_{cname}_{shuffle}", "more than one block, the last one short", data_of(shape, "int32"),
            shape, shape, [LITTLE, codec],
        )
    for shuffle in ["shuffle", "bitshuffle"]:
        codec = BloscCodec(typesize=2, cname="lz4", clevel=9, shuffle=shuffle)
        to.sharded(
            f"blosc_odd_{shuffle}", "1001 samples a chunk, not a multiple of 8", steps((3, 1001), "int16"),
            (4, 1001), (1, 1001), [LITTLE, codec],
        )
    for typesize in [1, 3, 8]:
        codec = BloscCodec(typesize=typesize, cname="lz4", clevel=5, shuffle="shuffle")
        to.sharded(
            f"blosc_typesize_{typesize}_of_int16", "Blosc's size of a sample is not that of the array", data,
            (24, 24), (24, 24), [LITTLE, codec],
        )
    half = smooth((32, 32), "int16")
    half[16:] = noise((16, 32), "int16")
    to.sharded(
        "blosc_blocks_half_copied", "some blocks of a chunk are stored by copy", half, (32, 32), (32, 32),
        [LITTLE, BloscCodec(typesize=2, cname="zstd", clevel=5, shuffle="noshuffle", blocksize=256)],
    )
    to.sharded(
        "blosc_split_half_copied", "high bytes compressed, low bytes stored by copy",
        steps((32, 32), "int16") * 256 + noise((32, 32), "uint8"), (32, 32), (32, 32),
        [LITTLE, BloscCodec(typesize=2, cname="lz4", clevel=5, shuffle="shuffle")],
    )
    to.sharded(
        "blosc_level_0", "level 0: a header and a copy", data, shard, inner,
        [LITTLE, BloscCodec(typesize=2, cname="lz4", clevel=0, shuffle="noshuffle")],
    )
    to.sharded(
        "blosc_tiny", "chunks of 8 bytes", smooth((4, 8), "int16"), (4, 8), (2, 2),
        [LITTLE, BloscCodec(typesize=2, cname="lz4", clevel=5, shuffle="shuffle")],
    )

    # Shapes, and what is not stored.
    to.sharded(
        "nested", "shards in shards", smooth((40, 36), "uint16"), (32, 32), (16, 16),
        [ShardingCodec(chunk_shape=(8, 8), codecs=zstd, index_location="start")],
    )
    to.sharded("edge_shards", "the shape is no multiple of the shard", smooth((19, 21), "uint8"), shard, inner, zstd)
    to.sharded("shard_of_one_chunk", "a shard holds one chunk", data, (16, 16), (16, 16), zstd)
    to.sharded("one_axis", "one axis", smooth((50,), "uint32"), (32,), (8,), zstd)
    to.sharded("four_axes", "time, band, y, x", smooth((3, 2, 20, 18), "int16"), (3, 1, 16, 16), (1, 1, 8, 8), zstd)
    to.sharded("not_square", "chunks of 4 x 16, shards of 12 x 32", smooth((25, 50), "int16"), (12, 32), (4, 16), zstd)
    to.zarr_python("no_axis", "a scalar", np.array(7, "int64"), (), plain)
    parts = [np.s_[0:8, 8:16], np.s_[16:20, 0:8]]
    to.sharded("missing", "shards and chunks that are not stored", data, shard, inner, zstd, parts=parts, fill_value=-999)
    to.sharded("missing_all", "nothing is stored", data, shard, inner, zstd, parts=[], fill_value=3)
    to.sharded(
        "missing_start", "chunks that are not stored, index at the start", data, shard, inner, zstd,
        parts=parts, fill_value=-999, at="start",
    )
    to.zarr_python("unsharded_missing", "chunks that are not stored", data, inner, zstd, parts=parts, fill_value=-999)
    for name, encoding in {
        "keys_default_dot": {"name": "default", "separator": "."},
        "keys_v2_dot": {"name": "v2", "separator": "."},
        "keys_v2_slash": {"name": "v2", "separator": "/"},
    }.items():
        to.sharded(name, name, data, shard, inner, zstd, chunk_key_encoding=encoding)

    # Types and their fill values, each with a shard that is not stored.
    first = [np.s_[0:8, 0:8]]
    fills = {
        "bool": True, "int8": -128, "int16": -32768, "int32": -(2**31), "int64": -(2**63),
        "uint8": 255, "uint16": 65535, "uint32": 2**32 - 1, "uint64": 2**64 - 1,
        "float16": np.nan, "float32": np.nan, "float64": np.nan, "complex64": complex(np.nan, -1.5), "complex128": 2 + 3j,
    }  # fmt: skip
    for dtype, fill in fills.items():
        to.sharded(
            f"type_{dtype}", f"{dtype}, not all stored", smooth((12, 20), dtype), (8, 16), (4, 8),
            [LITTLE if np.dtype(dtype).itemsize > 1 else BytesCodec(endian=None), ZstdCodec(level=1)],
            parts=first, fill_value=np.dtype(dtype).type(fill),
        )
    for name, dtype, fill in [("infinity", "float32", np.inf), ("minus_infinity", "float64", -np.inf), ("tenth", "float32", 0.1)]:
        to.sharded(
            f"fill_{name}", f"{dtype}, fill value {fill}", smooth((12, 20), dtype), (8, 16), (4, 8), zstd,
            parts=first, fill_value=np.dtype(dtype).type(fill),
        )
    for dtype in ["uint16", "int32", "float64", "complex64"]:
        to.sharded(f"big_{dtype}", f"big-endian {dtype}", smooth((12, 20), dtype), (8, 16), (4, 8), [BIG, ZstdCodec(level=1)])


def by_zarr_python_2(to):
    from numcodecs import Blosc, Zlib

    for order, (name, compressor) in itertools.product(
        ["C", "F"],
        {
            "plain": None,
            "zlib": Zlib(level=5),
            "blosc": Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE),
        }.items(),
    ):
        to.version_2(
            f"{name}_{order.lower()}", f"Zarr version 2, order {order}", smooth((20, 24), "int16"),
            chunks=(16, 16), order=order, compressors=compressor, fill_value=0,
        )
    to.version_2(
        "big_slash", "Zarr version 2, big-endian, keys with slashes", smooth((20, 24), "float32").astype(">f4"),
        chunks=(16, 16), compressors=Zlib(level=5), fill_value=np.nan, chunk_key_encoding={"name": "v2", "separator": "/"},
    )


def by_tensorstore(to):
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    zstd = {"name": "zstd", "configuration": {"level": 1}}
    gzip = {"name": "gzip", "configuration": {"level": 6}}
    crc = {"name": "crc32c"}

    def blosc(cname, shuffle, typesize):
        return {
            "name": "blosc",
            "configuration": {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": typesize, "blocksize": 0},
        }

    def sharding(chunk, codecs, at="end", index=(little, crc)):
        return {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": chunk, "codecs": codecs, "index_codecs": list(index), "index_location": at,
            },
        }

    data = smooth((20, 24), "int16", 3)
    shard, inner = (16, 16), (8, 8)
    for at in ["end", "start"]:
        to.tensorstore(f"index_{at}", f"index at the {at}", data, shard, [sharding(inner, [little, zstd], at)])
        to.tensorstore(
            f"index_{at}_no_crc32c", f"index at the {at}, no checksum", data, shard,
            [sharding(inner, [little, zstd], at, [little])],
        )
    chains = {
        "bytes": [little],
        "big_gzip": [big, gzip],
        "blosc_lz4": [little, blosc("lz4", "bitshuffle", 2)],
        "blosc_zstd": [little, blosc("zstd", "shuffle", 2)],
        "zstd_crc32c": [little, zstd, crc],
        "transpose": [{"name": "transpose", "configuration": {"order": [1, 0]}}, little, zstd],
    }
    for name, chain in chains.items():
        to.tensorstore(f"sharded_{name}", f"in shards: {name}", data, shard, [sharding(inner, chain)])
        to.tensorstore(f"unsharded_{name}", f"not in shards: {name}", data, shard, chain)
    to.tensorstore(
        "nested", "shards in shards", smooth((40, 36), "uint16", 3), (32, 32),
        [sharding((16, 16), [sharding((8, 8), [little, zstd], "start")])],
    )
    to.tensorstore(
        "missing", "shards and chunks that are not stored", smooth((20, 24), "float32", 3), shard,
        [sharding(inner, [little, zstd])], parts=[np.s_[0:8, 8:16]], fill="NaN",
    )
    to.tensorstore(
        "four_axes", "time, band, y, x; keys with dots", smooth((3, 2, 20, 18), "int16", 3), (3, 1, 16, 16),
        [sharding((1, 1, 8, 8), [little, zstd])],
        chunk_key_encoding={"name": "default", "configuration": {"separator": "."}},
    )


def by_zarrita(to):
    data = smooth((20, 24), "int16", 4)
    sharding, little = zarrita_codecs.sharding_codec, zarrita_codecs.bytes_codec()
    blosc = zarrita_codecs.blosc_codec(typesize=2)
    chains = {
        "transpose_blosc": [zarrita_codecs.transpose_codec((1, 0)), little, blosc],
        "big_gzip": [zarrita_codecs.bytes_codec("big"), zarrita_codecs.gzip_codec()],
        "zstd_crc32c": [little, zarrita_codecs.zstd_codec(checksum=True), zarrita_codecs.crc32c_codec()],
    }
    for name, chain in chains.items():
        to.zarrita(f"sharded_{name}", f"in shards: {name}", data, (16, 16), [sharding((8, 8), chain)])
    to.zarrita("unsharded_blosc", "not in shards: blosc", data, (16, 16), [little, blosc])
    to.zarrita(
        "volume", "as in its own benchmark", smooth((20, 16, 12), "uint8", 4), (16, 16, 16),
        [sharding((8, 8, 8), [zarrita_codecs.transpose_codec((2, 1, 0)), little, zarrita_codecs.blosc_codec(typesize=1)])],
    )


README = """# Arrays that others wrote

{count} small Zarr arrays, made by `scripts/make_zarr_fixtures.py` with zarr-python {zarr} (numcodecs {numcodecs}),
tensorstore {tensorstore} and zarrita {zarrita}. `truth.json` says of each what is special about it (`says`), its type
and shape, and the CRC-32 of its samples: of all, and of one window, as little-endian bytes in C order (a `bool` is
one byte). The samples are made by the script from fixed seeds: nothing of them is of others. Same licence as the
project: MIT or Apache-2.0, as you like.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=FOLDER, help="a folder, which is made new")
    args = parser.parse_args()
    shutil.rmtree(args.to, ignore_errors=True)
    args.to.mkdir(parents=True)
    to = Fixtures(args.to.resolve())
    by_zarr_python(to)
    by_zarr_python_2(to)
    by_tensorstore(to)
    by_zarrita(to)
    sizes = {one["path"]: size(args.to / one["path"]) for one in to.truth}
    if max(sizes.values()) > MOST_BYTES_OF_ONE or sum(sizes.values()) > MOST_BYTES:
        raise SystemExit(f"too large: {sum(sizes.values())} bytes, one has {max(sizes.values())}")
    text = ",\n".join(json.dumps(one) for one in to.truth)
    (args.to / "truth.json").write_text(f"[\n{text}\n]\n")
    versions = {name: version(name) for name in ["zarr", "numcodecs", "tensorstore", "zarrita"]}
    (args.to / "README.md").write_text(README.format(count=len(to.truth), **versions))
    print(f"{len(to.truth)} arrays, {sum(sizes.values())} bytes, the largest {max(sizes.values())}")


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
