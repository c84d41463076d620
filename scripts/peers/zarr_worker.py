"""Writes, reads and cuts sharded arrays with one peer, as it is told: zarr_worker.py SYSTEM

SYSTEM is zarrita, zarr-python, zarr-python-zarrs (zarr-python with the codecs of zarrs), tensorstore or
wkw. One JSON object a line comes in, and one goes out; an error is an answer like the others. Each peer
runs with the threads it takes by itself.

    {"do": "hello"}
    {"do": "write", "source": PATH, "dtype": "uint8", "shape": [..], "shard": [..], "inner": [..],
     "to": DIR, "codec": "native"}
    {"do": "read", "from": DIR, "dtype": "uint8", "shape": [..]}
    {"do": "cutout", "from": DIR, "offset": [..], "shape": [32, 32, 32], "times": 9, "fresh": true}

A source is raw: little-endian, in C order. It is read before the clock starts, and kept for the next
write. The codecs are the same for all that know them: blosc-zstd5, blosc-lz4 (level 5, the bytes of
samples of more than one byte shuffled) and zstd1. native is what the seed's benchmark has them do.
"""

import json
import os
import resource
import shutil
import sys
import time
import traceback
import zlib
from importlib.metadata import version

import numpy as np

CODECS = ["blosc-zstd5", "zstd1", "blosc-lz4"]


class Peer:
    """One system: it stores an array and opens it again. Its arrays are cut by numpy's rules."""

    def source(self, data, job):
        """Lays samples out as the system likes them best; this is not timed."""
        return data

    def write(self, data, job):
        raise NotImplementedError

    def open(self, path, job):
        raise NotImplementedError

    def read(self, array):
        return array[(slice(None),) * len(array.shape)]

    def cut(self, array, box):
        return array[box]


class ZarrPython(Peer):
    says = "sharding_indexed, bytes, blosc zstd 5"

    def __init__(self):
        import zarr

        self.zarr, self.version = zarr, zarr.__version__

    def write(self, data, job):
        array = self.zarr.create_array(
            job["to"],
            shape=data.shape,
            dtype=data.dtype,
            chunks=tuple(job["inner"]),
            shards=tuple(job["shard"]),
            compressors=self.compressor(job["codec"], data.dtype.itemsize),
            fill_value=0,
            zarr_format=3,
        )
        array[...] = data

    def compressor(self, codec, itemsize):
        if codec == "zstd1":
            return self.zarr.codecs.ZstdCodec(level=1, checksum=False)
        return self.zarr.codecs.BloscCodec(**blosc(codec, itemsize))

    def open(self, path, job):
        return self.zarr.open_array(path, mode="r", zarr_format=3)


class ZarrPythonZarrs(ZarrPython):
    def __init__(self):
        super().__init__()
        self.version += f", zarrs-python {version('zarrs')}"
        # Strict: what its codecs cannot do is an error, not done by those of zarr-python.
        self.zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})


class Tensorstore(Peer):
    says = "sharding_indexed, bytes, blosc zstd 5"

    def __init__(self):
        import tensorstore

        self.tensorstore, self.version = tensorstore, version("tensorstore")

    def spec(self, path):
        # Written to the page cache, as the others do, not to the disk.
        store = {"driver": "file", "path": os.path.abspath(path) + "/", "file_io_sync": False}
        return {"driver": "zarr3", "kvstore": store}

    def write(self, data, job):
        compressor = (
            {"name": "zstd", "configuration": {"level": 1}}
            if job["codec"] == "zstd1"
            else {"name": "blosc", "configuration": blosc(job["codec"], data.dtype.itemsize)}
        )
        sharding = {
            "chunk_shape": job["inner"],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, compressor],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        }
        metadata = {
            "shape": data.shape,
            "data_type": data.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": job["shard"]}},
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "fill_value": 0,
        }
        spec = self.spec(job["to"]) | {"metadata": metadata, "create": True}
        array = self.tensorstore.open(spec, context=self.tensorstore.Context()).result()
        array.write(data).result()

    def open(self, path, job):
        # A context of its own: nothing is left of an earlier open.
        return self.tensorstore.open(
            self.spec(path), open=True, read=True, context=self.tensorstore.Context()
        ).result()

    def read(self, array):
        return array.read(order="C").result()

    def cut(self, array, box):
        return array[box].read(order="C").result()


class Zarrita(Peer):
    says = "sharding_indexed, transpose, bytes, blosc zstd 5, not shuffled; samples in F order"

    def __init__(self):
        import zarrita
        from zarrita import codecs

        self.zarrita, self.codecs, self.version = zarrita, codecs, version("zarrita")
        self.orders = {}

    def source(self, data, job):
        return np.asfortranarray(data) if job["codec"] == "native" else data

    def write(self, data, job):
        chain = [self.codecs.bytes_codec()]
        self.orders[job["to"]] = "C"
        if job["codec"] == "native":
            self.orders[job["to"]] = "F"
            chain.insert(0, self.codecs.transpose_codec(tuple(reversed(range(data.ndim)))))
            chain.append(self.codecs.blosc_codec(typesize=data.dtype.itemsize))
        elif job["codec"] == "zstd1":
            chain.append(self.codecs.zstd_codec(level=1))
        else:
            chain.append(self.codecs.blosc_codec(**blosc(job["codec"], data.dtype.itemsize)))
        array = self.zarrita.Array.create(
            self.store(job["to"]),
            shape=data.shape,
            dtype=data.dtype,
            chunk_shape=tuple(job["shard"]),
            fill_value=0,
            codecs=[self.codecs.sharding_codec(chunk_shape=tuple(job["inner"]), codecs=chain)],
            runtime_configuration=self.order(job["to"]),
        )
        array[(slice(None),) * data.ndim] = data

    def store(self, path):
        return self.zarrita.LocalStore(os.path.abspath(path))

    def order(self, path):
        return self.zarrita.runtime_configuration(self.orders.get(path, "C"))

    def open(self, path, job):
        return self.zarrita.Array.open(self.store(path), self.order(path))


class Wkw(Peer):
    """Cubes of three axes. WKW's first axis varies fastest: it sees ours the other way round."""

    says = "LZ4; samples in F order"

    def __init__(self):
        import wkw

        self.wkw, self.version = wkw, version("wkw")

    def source(self, data, job):
        if data.ndim != 3:
            raise ValueError(f"wkw stores arrays of 3 axes, this one has {data.ndim}")
        if job["codec"] != "native":
            raise ValueError(f"wkw stores with LZ4, not with {job['codec']}: ask for native")
        if len(set(job["inner"])) > 1 or len(set(job["shard"])) > 1:
            raise ValueError(f"wkw stores cubes of cubes, not {job['inner']} in {job['shard']}")
        # It writes whole files only.
        return np.pad(data, [(0, -size % file) for size, file in zip(data.shape, job["shard"])])

    def write(self, data, job):
        block, file = job["inner"][0], job["shard"][0]
        header = self.wkw.Header(
            data.dtype.type,
            block_len=block,
            file_len=file // block,
            block_type=self.wkw.Header.BLOCK_TYPE_LZ4,
        )
        with self.wkw.Dataset.create(job["to"], header) as dataset:
            dataset.write((0, 0, 0), data.T)

    def open(self, path, job):
        dataset = self.wkw.Dataset.open(path)
        # Nothing in its files says how large an array is.
        dataset.whole = job["shape"]
        return dataset

    def read(self, array):
        return self.cut(array, tuple(slice(0, size) for size in array.whole))

    def cut(self, array, box):
        first = [axis.start for axis in reversed(box)]
        shape = [axis.stop - axis.start for axis in reversed(box)]
        return array.read(first, shape)[0].T


SYSTEMS = {
    "zarrita": Zarrita,
    "zarr-python": ZarrPython,
    "zarr-python-zarrs": ZarrPythonZarrs,
    "tensorstore": Tensorstore,
    "wkw": Wkw,
}


def blosc(codec, itemsize):
    shuffle = "noshuffle" if itemsize == 1 else "shuffle"
    name = "lz4" if codec == "blosc-lz4" else "zstd"
    return {"cname": name, "clevel": 5, "shuffle": shuffle, "typesize": itemsize, "blocksize": 0}


class Worker:
    def __init__(self, system):
        self.system, self.peer = system, SYSTEMS[system]()
        self.kept = None

    def hello(self, job):
        return {"system": self.system, "version": self.peer.version, "codec": self.peer.says}

    def write(self, job):
        if job["codec"] not in [*CODECS, "native"]:
            raise ValueError(f"{job['codec']} is not one of native, {', '.join(CODECS)}")
        data = self.source(job)
        shutil.rmtree(job["to"], ignore_errors=True)
        os.makedirs(os.path.dirname(os.path.abspath(job["to"])), exist_ok=True)
        _, cost = measured(lambda: self.peer.write(data, job))
        return cost

    def source(self, job):
        seen = os.stat(job["source"])
        laid_out = [job["dtype"], job["shape"], job["shard"], job["codec"] == "native"]
        key = (job["source"], seen.st_mtime_ns, seen.st_size, laid_out)
        if self.kept is None or self.kept[0] != key:
            self.kept = None
            kind = np.dtype(job["dtype"]).newbyteorder("<")
            data = np.fromfile(job["source"], kind).reshape(job["shape"])
            self.kept = (key, self.peer.source(data, job))
        return self.kept[1]

    def read(self, job):
        # The source would only take memory.
        self.kept = None
        data, cost = measured(lambda: self.peer.read(self.peer.open(job["from"], job)))
        if list(data.shape) != job["shape"] or data.dtype != np.dtype(job["dtype"]):
            raise ValueError(f"{data.dtype} {data.shape}, expected {job['dtype']} {job['shape']}")
        return cost | {"crc32": crc32(data)}

    def cutout(self, job):
        box = tuple(slice(at, at + size) for at, size in zip(job["offset"], job["shape"], strict=True))
        array = None if job["fresh"] else self.peer.open(job["from"], job)
        seconds = []
        for _ in range(job["times"]):
            start = time.perf_counter()
            data = self.peer.cut(array if array is not None else self.peer.open(job["from"], job), box)
            seconds.append(time.perf_counter() - start)
        if list(data.shape) != job["shape"]:
            raise ValueError(f"{data.shape}, expected {job['shape']}")
        return {"seconds": seconds, "crc32": crc32(data)}


def measured(work):
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    done = work()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, {"wall_s": wall, "cpu_s": cpu}


def crc32(data):
    little = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<"))
    return zlib.crc32(little.data)


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in SYSTEMS:
        raise SystemExit(f"usage: zarr_worker.py {'|'.join(SYSTEMS)}")
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(sys.argv[1])
    tasks = {"hello": worker.hello, "write": worker.write, "read": worker.read, "cutout": worker.cutout}
    for line in sys.stdin:
        try:
            job = json.loads(line)
            answer = tasks[job["do"]](job)
        except Exception as err:
            traceback.print_exc()
            answer = {"error": f"{type(err).__name__}: {err}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
