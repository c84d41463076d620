"""One job of scripts/peers/run by async-geotiff over obstore, with their defaults."""

import asyncio
import importlib.metadata
from urllib.parse import urlsplit

import cost
from async_geotiff import GeoTIFF, Window
from obstore.store import LocalStore, S3Store


def main():
    job = cost.job()
    window = None
    if job["window"]:
        col, row, width, height = job["window"]
        window = Window(col_off=col, row_off=row, width=width, height=height)
    stores = {}

    def place(file):
        if file.startswith("/"):
            return stores.setdefault("", LocalStore()), file
        parts = urlsplit(file)
        if parts.netloc not in stores:
            stores[parts.netloc] = S3Store(
                parts.netloc,
                endpoint=job["endpoint"],
                region="ap-southeast-2",
                skip_signature=True,
                client_options={"allow_http": True},
            )
        return stores[parts.netloc], parts.path.lstrip("/")

    async def read(file):
        store, key = place(file)
        raster = await GeoTIFF.open(key, store=store)
        return (await raster.read(window=window)).data

    async def all_files():
        if job["at_once"]:
            return await asyncio.gather(*map(read, job["files"]))
        return [await read(file) for file in job["files"]]

    cost.measure(lambda: asyncio.run(all_files()), importlib.metadata.version("async-geotiff"))


main()
