"""What a job of scripts/peers costs the process that does it: wall, processor, memory, pixels.

As a program it runs another, `cost.py PROGRAM ARGS`, and prints what that cost from start to end.
"""

import hashlib
import json
import os
import sys
import time


def job():
    """Returns the job that standard input holds."""
    return json.load(sys.stdin)


def measure(work, version, save=None):
    """Does `work`, which returns arrays in the order of the files, and prints what it cost.

    Their bytes go to the file `save`, if it is named, when they have been timed.
    """
    wall, processor = time.perf_counter(), time.process_time()
    arrays = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = _peak_bytes()
    digest = hashlib.sha256()
    with open(save or os.devnull, "wb") as file:
        for array in arrays:
            if array.dtype.kind == "f":
                # A NaN has many patterns of bits, and means the same.
                array[array != array] = float("nan")
            data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            digest.update(data)
            file.write(data)
    json.dump(
        {
            "wall_s": wall,
            "cpu_s": processor,
            "peak_bytes": peak,
            "sha256": digest.hexdigest(),
            "version": version,
        },
        sys.stdout,
    )


def run(command):
    """Runs a program and prints what it cost. This process is small: a child's peak begins with it."""
    wall = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - wall
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise SystemExit(f"{command[0]} ended with {code}")
    cost = {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
    json.dump(cost, sys.stdout)


def _peak_bytes():
    try:
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    run(sys.argv[1:])
