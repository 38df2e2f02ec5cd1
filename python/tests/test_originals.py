"""The suites of NumPy and SciPy with our functions in the place of theirs; `pytest -s` prints the counts."""

import pytest

import originals

FFT = """
import numpy as np, meshloom.fft as ours
for name in {names}:
    setattr(np.fft, name, getattr(ours, name))
"""

BACKEND = """
import numpy, pytest, scipy.fft, meshloom.fft
scipy.fft.set_global_backend(meshloom.fft)
# SciPy's own had its place, and comes after it.
scipy.fft.register_backend("scipy")

@pytest.fixture
def xp():
    return numpy

"""


def test_numpy_fft(tmp_path):
    names = [name + kind for kind in ("fft", "fft2", "fftn") for name in ("", "i", "r", "ir")] + ["hfft", "ihfft"]
    # Each length compiles kernels of its own: 15 lengths show what 511 would.
    text = originals.changed(originals.source("numpy.fft.tests.test_pocketfft"), [(r"maxlen = 512", "maxlen = 16")])
    result, said = originals.run(tmp_path, "numpy_fft", FFT.format(names=names) + text)
    exceptions = {r"longdouble\]$": "devices compute in 64 bits at most"}
    originals.compare("numpy.fft", result, said, exceptions, 146)


def test_scipy_kdtree(tmp_path):
    pytest.importorskip("scipy")
    changes = [
        (r"from scipy.spatial import KDTree, Rectangle, distance_matrix, cKDTree",
         "from scipy.spatial import Rectangle, distance_matrix\nfrom meshloom import KDTree\ncKDTree = KDTree"),
        # Both of SciPy's trees are ours; one of each test is enough.
        (r"for tree in \(KDTree, cKDTree\):", "for tree in (KDTree,):"),
        (r"params=\[KDTree, cKDTree\]", "params=[KDTree]"),
        # Points of three axes and not of four or five.
        (r"rand(n?)\((\d+), 4\)", r"rand\1(\2, 3)"),
        (r"\bm = [45]\b", "m = 3"),
        (r"for p in \[1, 2, 3.0, np.inf\]|for p in \[1, 2, np.inf\]", "for p in [2]"),
        (r"(?<!\.)\bk = 4\b", "k = 3"),
    ]
    text = originals.changed(originals.source("scipy.spatial.tests.test_kdtree"), changes)
    result, said = originals.run(tmp_path, "scipy_kdtree", text)
    rounding = "distances are computed in single precision"
    other_norms, parts = "distances are Euclidean", "the tree has no nodes to look at"
    exceptions = {
        r"Test_random(_far)?_KDTree::test_nearest|Test_random_far_KDTree::test_m_nearest": rounding,
        r"Test_small(_nonleaf)?_KDTree::test_nearest(_two)?$": rounding,
        r"Test_sparse_distance_matrix_KDTree::test_(consistency|ckdtree)": rounding,
        r"_l1|_linf|largep": other_norms,
        r"test_kdtree_comparisons|ckdtree_view|duplicated_inputs|tree_access|test_kdtree_weights": parts,
        r"test_ckdtree_parallel": "there are no workers to count",
        r"test_kdtree_attributes": "points are copied, and the tree's are not the array that was given",
        r"Test_vectorization_cKDTree::test_single_query$": "KDTree's index is one of NumPy's, as here; cKDTree's is none",
    }
    originals.compare("scipy.spatial.KDTree", result, said, exceptions, 99)


def test_scipy_fft(tmp_path):
    pytest.importorskip("scipy")
    text = originals.changed(originals.source("scipy.fft.tests.test_basic"), [(r"for i in range\(1, maxlen\)", "for i in range(1, 16)")])
    result, said = originals.run(tmp_path, "scipy_fft", BACKEND + text)
    # What is left to SciPy passes too: long doubles, hfft2 and its like.
    exceptions = {r"test_multiprocess": "a forked process cannot use the device of its parent, and says so"}
    originals.compare("scipy.fft", result, said, exceptions, 167)
