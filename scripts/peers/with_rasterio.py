"""One job of scripts/peers/run by rasterio: with GDAL's defaults, or tuned for remote COGs."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import cost
import rasterio
from rasterio.windows import Window

TUNED = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES",
    "GDAL_NUM_THREADS": "ALL_CPUS",
}


def main():
    job = cost.job()
    options = {
        "AWS_S3_ENDPOINT": urlsplit(job["endpoint"]).netloc,
        "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": False,
        "AWS_NO_SIGN_REQUEST": "YES",
        "AWS_REGION": "ap-southeast-2",
    }
    if job["reader"] == "tuned":
        options |= TUNED
    window = Window(*job["window"]) if job["window"] else None

    def enter():
        # Options are of a thread: each enters its own, once.
        rasterio.Env(**options).__enter__()

    def read(file):
        with rasterio.open(file) as raster:
            return raster.read(window=window)

    def work():
        if not job["at_once"]:
            enter()
            return [read(file) for file in job["files"]]
        # As many threads as files, or so many.
        count = len(job["files"]) if job["at_once"] is True else job["at_once"]
        with ThreadPoolExecutor(count, initializer=enter) as threads:
            return list(threads.map(read, job["files"]))

    cost.measure(work, f"{rasterio.__version__}, GDAL {rasterio.__gdal_version__}")


main()
