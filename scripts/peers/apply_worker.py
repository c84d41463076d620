"""One job of scripts/peers/apply by a peer, as apply.rs does it by this library: odc-stac and stackstac, both
with dask on threads, rio-cogeo, and GDAL's COG driver through rasterio.
"""

import json
import os
import sys
from importlib.metadata import version
from urllib.parse import urlsplit

import cost

BANDS = ["nbart_red", "nbart_nir_1"]
MASK = "oa_fmask"
NODATA = -999
# fmask's cloud and shadow, and 0 where it says nothing.
CLOUDS = [0, 2, 3]


def main():
    job = cost.job()
    if job["do"] == "cog":
        cog(job)
        return
    # GDAL finds them here whatever thread asks.
    os.environ |= {
        "AWS_S3_ENDPOINT": urlsplit(job["endpoint"]).netloc,
        "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE",
        "AWS_NO_SIGN_REQUEST": "YES",
        "AWS_REGION": "ap-southeast-2",
    }
    if job["median"] == "bottleneck":
        # Known before anything is timed.
        import bottleneck  # noqa: F401
    work, says = {"odc-stac": odc_stac, "stackstac": stackstac}[job["system"]](job)
    if job["median"] == "bottleneck":
        says += f", bottleneck {version('bottleneck')}"
    cost.measure(work, f"{says}, dask {version('dask')}", job["save"])


def items(job):
    with open(job["items"]) as file:
        return json.load(file)["features"]


def odc_stac(job):
    import dask.array
    import odc.stac
    import pystac

    def work():
        odc.stac.configure_rio(cloud_defaults=True)
        side = job["chunk"]
        loaded = odc.stac.load(
            [pystac.Item.from_dict(item) for item in items(job)],
            bands=BANDS + ([MASK] if job["do"] == "clear" else []),
            chunks={"x": side, "y": side},
            groupby="solar_day",
            # What the items do not say.
            stac_cfg={
                "*": {
                    "assets": {
                        "*": {"data_type": "int16", "nodata": NODATA},
                        MASK: {"data_type": "uint8", "nodata": 0},
                    }
                }
            },
        )
        bands = [loaded[band].where(loaded[band] != NODATA) for band in BANDS]
        if job["do"] == "clear":
            is_clear = ~loaded[MASK].isin(CLOUDS)
            bands = [band.where(is_clear) for band in bands]
        return list(dask.compute(*(made.data for made in pictures(job, *bands))))

    return work, version("odc-stac")


def stackstac(job):
    import dask.array
    import numpy
    import stackstac

    def work():
        stack = stackstac.stack(
            items(job),
            assets=BANDS + ([MASK] if job["do"] == "clear" else []),
            epsg=32756,
            resolution=10,
            chunksize=job["chunk"],
            dtype=numpy.dtype("float32"),
            fill_value=numpy.float32("nan"),
            rescale=False,
            xy_coords=False,
        )
        bands = [stack.isel(band=place, drop=True) for place in range(2)]
        if job["do"] == "clear":
            mask = stack.isel(band=2, drop=True)
            is_clear = mask.notnull() & ~mask.isin(CLOUDS)
            bands = [band.where(is_clear) for band in bands]
        return list(dask.compute(*(made.data for made in pictures(job, *bands))))

    return work, version("stackstac")


def pictures(job, red, nir):
    """Makes arrays that are not computed yet: (time, y, x), or (y, x) of each band."""
    if job["do"] == "ndvi":
        return [(nir - red) / (nir + red)]
    if job["median"] == "bottleneck":
        return [by_bottleneck(band) for band in (red, nir)]
    return [band.median("time") for band in (red, nir)]


def by_bottleneck(band):
    """A median in compiled code, which dask and xarray do not use by themselves."""
    import bottleneck

    chunks = band.data.rechunk({0: -1})
    made = chunks.map_blocks(lambda block: bottleneck.nanmedian(block, axis=0), drop_axis=0, dtype="float32")
    return band.isel(time=0, drop=True).copy(data=made)


def cog(job):
    """Writes samples that are in memory as a COG, as apply.rs does: DEFLATE 6, tiles of 512, all processors."""
    import numpy
    import rasterio
    import rasterio.shutil
    from rasterio.io import MemoryFile
    from rio_cogeo import cog_profiles, cog_translate

    with rasterio.open(job["from"]) as source:
        samples, profile = source.read(), source.profile
    if job["dtype"] == "float32":
        scaled = samples.astype("float32") * numpy.float32(1e-4)
        samples = numpy.where(samples == NODATA, numpy.float32(NODATA), scaled)
    predictor = 3 if job["dtype"] == "float32" else 2
    kept = ("width", "height", "crs", "transform", "nodata")
    options = {key: profile[key] for key in kept} | {"count": 1, "dtype": job["dtype"]}

    def rio_cogeo(source):
        made = cog_profiles.get("deflate") | {"predictor": predictor, "zlevel": 6}
        cog_translate(
            source,
            job["to"],
            made,
            overview_resampling="average",
            in_memory=True,
            config={"GDAL_NUM_THREADS": "ALL_CPUS", "GDAL_TIFF_OVR_BLOCKSIZE": "512"},
            quiet=True,
        )

    def gdal(source):
        rasterio.shutil.copy(
            source,
            job["to"],
            driver="COG",
            compress="DEFLATE",
            level=6,
            predictor="YES",
            blocksize=512,
            overview_resampling="AVERAGE",
            num_threads="ALL_CPUS",
        )

    write = {"rio-cogeo": rio_cogeo, "gdal": gdal}[job["system"]]
    says = version("rio-cogeo") + ", GDAL " if job["system"] == "rio-cogeo" else ""
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", **options) as source:
            source.write(samples)
        with memory.open() as source:
            cost.measure(lambda: write(source) or [], says + rasterio.__gdal_version__)


if __name__ == "__main__":
    sys.exit(main())
