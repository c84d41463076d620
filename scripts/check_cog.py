"""Validates Cloud Optimized GeoTIFFs as others do: rio cogeo, and GDAL's own validator where it is installed.

    scripts/python-env scripts/check_cog.py FILE...

A file with an error or a warning fails. GDAL's validator comes with its Python module (python3-gdal of Debian),
which belongs to the system's Python and not to scripts/python-env.
"""

import argparse
import pathlib
import subprocess
import sys
from importlib.metadata import version

from rio_cogeo import cog_validate

# Runs in another Python: prints GDAL's version, and what is wrong with each file.
GDAL = """
import sys
try:
    from osgeo import gdal
    from osgeo_utils.samples import validate_cloud_optimized_geotiff as validator
except ImportError:
    sys.exit(3)
gdal.UseExceptions()
print("GDAL " + gdal.__version__)
for name in sys.argv[1:]:
    warnings, errors, _ = validator.validate(name, full_check=True)
    for message in warnings + errors:
        print(name + ": " + message)
"""


def by_rio_cogeo(names):
    """Returns what rio cogeo finds wrong with the files."""
    found = []
    for name in names:
        _, errors, warnings = cog_validate(name, strict=True, quiet=True)
        found += [f"{name}: {message}" for message in errors + warnings]
    return found


def by_gdal(names):
    """Returns the version of GDAL and what its validator finds wrong; none where there is none."""
    for python in [sys.executable, "/usr/bin/python3"]:
        if not pathlib.Path(python).exists():
            continue
        done = subprocess.run([python, "-c", GDAL, *names], capture_output=True, text=True)
        if done.returncode == 3:
            continue
        done.check_returncode()
        said, *found = done.stdout.splitlines()
        return said, found
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    names = parser.parse_args().files
    wrong = by_rio_cogeo(names)
    print(f"rio-cogeo {version('rio-cogeo')}: {len(names)} files, {len(wrong)} faults")
    gdal = by_gdal(names)
    if gdal is None:
        print("GDAL's validator: skipped, no Python has its module")
    else:
        said, found = gdal
        print(f"{said}: {len(names)} files, {len(found)} faults")
        wrong += found
    for message in wrong:
        print(message, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
