"""What ranks tell each other: collectives of NumPy arrays, and errors that all of them get."""

import sys
import threading
import time

import numpy as np
import pytest

import meshloom


def told(count, call):
    """The type and the text of the error that so many ranks get from ``call(comm)``: one, the same on all."""

    def body(comm):
        with pytest.raises(Exception) as caught:
            call(comm)
        return caught.type, str(caught.value)

    found = set(meshloom.ranks(count, body))
    assert len(found) == 1, found
    return found.pop()


RANKS = 3
PARTS = np.random.default_rng(8).standard_normal((RANKS, 4, 2)) * 10.0 ** np.arange(0, 12, 4)[:, None, None]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int8", "uint16", "bool", ">f4"])
def test_arrays_are_reduced_as_numpy_does_in_the_order_of_the_ranks(dtype):
    parts = (PARTS % 100 if np.dtype(dtype).kind in "iub" else PARTS).astype(dtype)
    for op, numpys in [("sum", np.sum), ("min", np.min), ("max", np.max)]:
        found = meshloom.ranks(RANKS, lambda comm: comm.allreduce(parts[comm.rank], op))
        want = numpys(parts, axis=0)
        if op == "sum" and np.dtype(dtype).kind in "fc":
            want = (parts[0] + parts[1]) + parts[2]
        for one in found:
            assert one.dtype == want.dtype and np.array_equal(one, want), op


def test_numbers_and_one_rank():
    assert meshloom.ranks(3, lambda comm: comm.allreduce(comm.rank, op="max")) == [2, 2, 2]
    assert np.isnan(meshloom.ranks(2, lambda comm: comm.allreduce([np.nan, 1.0][comm.rank], "min"))).all()
    own = np.arange(3, dtype=np.int8)
    found = meshloom.ranks(1, lambda comm: (comm.allreduce(own), comm.bcast(own), comm.barrier()))[0]
    assert found[0].dtype == np.int64 and found[0] is not own and found[2] is None
    assert np.array_equal(found[0], own) and np.array_equal(found[1], own)


def test_a_value_of_one_rank_comes_to_all():
    def body(comm):
        value = {"field": np.arange(3.0), "name": "a"} if comm.rank == 1 else lambda: "cannot be sent, and need not"
        return comm.bcast(value, root=1)

    for found in meshloom.ranks(3, body):
        assert found["name"] == "a" and found["field"].tolist() == [0.0, 1.0, 2.0]


def test_a_barrier_waits_for_all():
    came, lock = [], threading.Lock()

    def body(comm):
        time.sleep(0.05 * comm.rank)
        with lock:
            came.append(comm.rank)
        comm.barrier()
        return len(came)

    assert meshloom.ranks(3, body) == [3, 3, 3]


@pytest.mark.parametrize(
    "error, text, call",
    [
        (ValueError, "shape differs: (2,) on rank 0, (3,) on rank 2", lambda comm: comm.allreduce(np.zeros(2 + (comm.rank == 2)))),
        (ValueError, "type differs: float64 on rank 0, float32 on rank 1", lambda comm: comm.allreduce(np.zeros(2, "f8" if comm.rank == 0 else "f4"))),
        (ValueError, "op differs: max on rank 0, min on rank 1", lambda comm: comm.allreduce(1.0, "max" if comm.rank == 0 else "min")),
        (ValueError, 'rank 1: op: expected "sum", "min" or "max"', lambda comm: comm.allreduce(1.0, "mean" if comm.rank == 1 else "sum")),
        (ValueError, "got 'mean'", lambda comm: comm.allreduce(1.0, "mean")),
        (TypeError, "rank 2: array: expected real or complex numbers, got <U1", lambda comm: comm.allreduce("a" if comm.rank == 2 else 1.0)),
        (ValueError, "root differs: 0 on rank 0, 1 on rank 1", lambda comm: comm.bcast(1, root=min(comm.rank, 1))),
        (ValueError, "root: expected 0 to 2, got 3", lambda comm: comm.bcast(1, root=3)),
        (TypeError, "root: expected an integer", lambda comm: comm.bcast(1, root=0.5)),
        (Exception, "rank 0: ", lambda comm: comm.bcast(lambda: 0)),
        (ValueError, "function differs: allreduce on rank 0, bcast on rank 1", lambda comm: comm.bcast(1) if comm.rank == 1 else comm.allreduce(1)),
        (ValueError, "function differs: barrier on rank 0, map_items on rank 2", lambda comm: meshloom.map_items(lambda n: n, 2, comm=comm) if comm.rank == 2 else comm.barrier()),
    ],
)
def test_what_one_rank_does_otherwise_is_the_same_error_of_all(error, text, call):
    kind, said = told(3, call)
    assert issubclass(kind, error) and text in said


class Unusual(Exception):
    """An error that is not made of a text alone."""

    def __init__(self, number, text):
        super().__init__(number, text)


def test_errors_that_others_cannot_raise_come_as_errors_of_the_package():
    def fails(n):
        raise Unusual(3, "odd")

    assert told(2, lambda comm: meshloom.map_items(fails, 1, comm=comm)) == (meshloom.Error, "rank 0: Unusual: (3, 'odd')")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
def test_an_error_of_one_rank_says_which():
    with pytest.raises(ZeroDivisionError) as caught:
        meshloom.ranks(3, lambda comm: 1 / (comm.rank - 1))
    assert caught.value.__notes__ == ["raised on rank 1 of 3"]


def test_unequal_shares_are_refused_on_several_ranks(monkeypatch):
    monkeypatch.setenv("MESHLOOM_SHARES", "3,1")
    with pytest.raises(ValueError, match="MESHLOOM_SHARES: expected `equal`"):
        meshloom.ranks(2, lambda comm: comm.rank)
    assert meshloom.ranks(1, lambda comm: comm.size) == [1]
    monkeypatch.setenv("MESHLOOM_SHARES", "equal")
    assert meshloom.ranks(2, lambda comm: comm.rank) == [0, 1]
