"""The Python package beside NumPy and SciPy on the same machine: one run, warm, arrays in memory; medians in milliseconds.

    python3 benches/compare_python.py [POINTS] [RUNS]
"""

import statistics
import sys
import time

import numpy as np
import scipy
import scipy.fft
import scipy.sparse.csgraph
import scipy.spatial

import meshloom

POINTS = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 3


def measure(what, call, runs=RUNS, calls=1):
    """Prints how long one of the `calls` that `call` makes takes."""
    call()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin) / calls)
    print(f"{what:55} {statistics.median(times):10.3f} ms ({min(times):.3f} to {max(times):.3f})")


def groups_of_scipy(points, length):
    tree = scipy.spatial.cKDTree(points, boxsize=1.0)
    pairs = tree.query_pairs(length, output_type="ndarray")
    graph = scipy.sparse.coo_matrix((np.ones(len(pairs), bool), pairs.T), shape=(len(points),) * 2)
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]


rng = np.random.default_rng(1)
points = rng.random((POINTS, 3)).astype(np.float32)
small, cube = rng.random(16).astype(np.float32), rng.random((64, 64, 64)).astype(np.float32)
length = 0.2 * POINTS ** (-1 / 3)
print(f"{meshloom.devices()[0]['name']}; meshloom {meshloom.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}; median (least to greatest)")
measure("a call: fft.rfft of 16 numbers", lambda: meshloom.fft.rfft(small), 500)
there = meshloom.asarray(small)
measure("a call: fft.rfft of 16 numbers that are on the device", lambda: meshloom.fft.rfft(there), 500)
measure("fft.rfftn of 64^3 float32", lambda: meshloom.fft.rfftn(cube), 40)
on_device = meshloom.asarray(cube)


def ten_on_device():
    for _ in range(10):
        meshloom.fft.rfftn(on_device)
    there.numpy()


measure("each of ten on the device, waited for once", ten_on_device, 10, 10)
measure("to the device and 16 numbers back: 64^3 float32", lambda: (meshloom.asarray(cube), there.numpy()), 40)
measure("from the device: the same", lambda: on_device.numpy(), 40)
measure("numpy.fft.rfftn of the same", lambda: np.fft.rfftn(cube), 40)
measure("scipy.fft.rfftn of the same", lambda: scipy.fft.rfftn(cube), 40)
measure("scipy.fft.rfftn of the same, all cores", lambda: scipy.fft.rfftn(cube, workers=-1), 40)
measure(f"KDTree and query, 8 nearest of {POINTS}", lambda: meshloom.KDTree(points).query(points, k=8))
measure("scipy.spatial.cKDTree, all cores", lambda: scipy.spatial.cKDTree(points).query(points, k=8, workers=-1))
measure(f"fof of {POINTS}, b = 0.2", lambda: meshloom.fof(points, length, box=1.0))
measure("SciPy: query_pairs and connected_components", lambda: groups_of_scipy(points, length))
