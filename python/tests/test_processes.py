"""Threads, forks, signals, memory, devices that are not there."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import meshloom
from meshloom import fft

POINTS = np.random.default_rng(3).random((2000, 3)).astype(np.float32)


def test_threads_share_the_device():
    want, found, failed = np.fft.rfftn(POINTS), {}, []

    def work(number):
        try:
            for _ in range(5):
                found[number] = fft.rfftn(POINTS)
                meshloom.KDTree(POINTS[:100]).query(POINTS[:100], k=2)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed and all(np.abs(modes - want).max() < 1e-3 for modes in found.values())


def transformed(_):
    return fft.fft([1.0, 0.0]).real.tolist()


def refused(queue):
    try:
        queue.put(transformed(0))
    except meshloom.Error as error:
        queue.put(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_after_use_is_refused():
    transformed(0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=refused, args=(queue,))
    child.start()
    assert "forked" in queue.get(timeout=30) and 'get_context("spawn")' in str(refused.__doc__ or 'get_context("spawn")')
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_new_processes_have_devices_of_their_own(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(transformed, range(3)) == [[1.0, 1.0]] * 3


def run(text, **environment):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


def test_a_fork_before_the_first_call_is_fine():
    text = "import os, meshloom\nif os.fork() == 0:\n    meshloom.fft.fft([1.0, 2.0]); os._exit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    assert run(text).stdout.strip() == "7"


LACKING = {
    "groups": "meshloom.fof(rows, 1e-6)",
    "power": "meshloom.power_spectrum(rows, 1.0, mesh=8)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.parametrize("what", LACKING)
def test_a_lack_of_host_memory_is_a_memory_error(what):
    call = LACKING[what]
    text = f"""
import resource, numpy, meshloom
few, many = numpy.random.default_rng(0).random((10, 3)), numpy.random.default_rng(0).random((4000000, 3))
rows = few
{call}
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize:"))
before = resource.getrlimit(resource.RLIMIT_AS)
# Points in single precision take 48 MB.
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), before[1]))
try:
    rows = many
    {call}
except MemoryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, before)
rows = few
{call}
"""
    ended = run(text)
    assert ended.stdout.startswith("out of host memory: ") and "MiB needed for " in ended.stdout, ended
    assert ended.returncode == 0, ended.stderr


CALLS = {
    "simulate": "meshloom.simulate(32, box=64.0, steps=5000)",
    "ranks": "meshloom.ranks(2, lambda comm: meshloom.simulate(16, box=64.0, steps=5000, comm=comm))",
    "fit": "meshloom.optimize_kl(meshloom.inference.Gaussian([1.0, 2.0]), n_total_iterations=100000, n_samples=1)",
}


@pytest.mark.parametrize("how", CALLS)
def test_an_interrupt_ends_a_call(how):
    call = CALLS[how]
    text = f"""
import os, signal, threading, time, meshloom
# Programs that are started in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
meshloom.fft.fft([1.0, 2.0])
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    {call}
except KeyboardInterrupt:
    began = time.time()
    print(meshloom.fft.fft([1.0, 2.0]).real.tolist())
"""
    ended = run(text)
    assert ended.stdout.strip() == "[3.0, -1.0]" and ended.returncode == 0, ended.stderr


def test_an_interrupt_while_messages_are_passed_on_ends_a_call():
    text = """
import logging, meshloom

def interrupt(record):
    # Stands for a signal handler that runs at this moment.
    raise KeyboardInterrupt

logger = logging.getLogger("meshloom")
logger.setLevel(logging.INFO)
logger.addFilter(interrupt)
try:
    meshloom.optimize_kl(meshloom.inference.Gaussian([1.0, 2.0]), n_total_iterations=100000, n_samples=1)
except KeyboardInterrupt:
    logger.removeFilter(interrupt)
    print(meshloom.fft.fft([1.0, 2.0]).real.tolist())
"""
    ended = run(text)
    assert ended.stdout.strip() == "[3.0, -1.0]" and ended.returncode == 0, ended.stderr


STUCK = {
    # Each rank waits in a communicator in which the other one does nothing.
    "for each other": "(lambda both: both[comm.rank].allgather(b''))((comm, meshloom.inference.sample_groups(comm, 1)))",
    "for nothing": "threading.Event().wait() if comm.rank == 0 else comm.allgather(b'')",
}


@pytest.mark.parametrize("how", STUCK)
def test_an_interrupt_ends_ranks_that_wait_for_ever(how):
    text = f"""
import os, signal, threading, meshloom
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    meshloom.ranks(2, lambda comm: {STUCK[how]})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    # The process ends, which this waits for.
    ended = run(text)
    assert ended.stdout == "interrupted\n" and ended.returncode == 0, ended.stderr


def test_without_a_driver_only_calls_fail():
    text = """
import meshloom
print(meshloom.devices())
try:
    meshloom.fft.fft([1.0, 2.0])
except meshloom.Error as error:
    print(error)
"""
    ended = run(text, VK_DRIVER_FILES="/nonexistent.json", VK_ICD_FILENAMES="/nonexistent.json")
    assert ended.returncode == 0, ended.stderr
    devices, said = ended.stdout.splitlines()
    assert devices == "[]" and "apt install mesa-vulkan-drivers" in said


def test_a_device_that_is_not_there():
    ended = run("import meshloom\nmeshloom.fft.fft([1.0, 2.0])", MESHLOOM_DEVICE="no such device")
    assert ended.returncode == 1 and "no adapter matches `no such device`" in ended.stderr
    assert "panicked" not in ended.stderr


def test_the_floor_has_no_f64_and_says_so():
    text = """
import numpy as np, meshloom
print(meshloom.fft.fft(np.ones(4, np.float32)).dtype)
try:
    meshloom.fft.fft(np.ones(4))
except meshloom.Error as error:
    print(error)
"""
    lines = run(text, MESHLOOM_FLOOR="1").stdout.splitlines()
    assert lines[0] == "complex64" and "no double precision" in lines[1]


@pytest.mark.parametrize("chosen", [None, "", "mine"])
def test_compiled_kernels_are_kept_where_they_should_be(chosen, tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("MESHLOOM_CACHE", None)
    if chosen is not None:
        environment["MESHLOOM_CACHE"] = chosen and str(tmp_path / chosen)
    text = "import meshloom\nmeshloom.fft.fft([1.0, 2.0])"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, timeout=120)
    assert ended.returncode == 0, ended.stderr
    # Drivers have directories of their own there.
    found = {path.parent.name for path in tmp_path.glob("*/wgpu_*.bin")}
    assert found == {None: {"meshloom"}, "": set(), "mine": {"mine"}}[chosen]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no count of memory here")
def test_hundreds_of_calls_keep_nothing():
    def calls():
        fft.rfftn(POINTS)
        fft.irfft(fft.rfft(POINTS[:, 0]))
        tree = meshloom.KDTree(POINTS[:200], boxsize=1.0)
        tree.query(POINTS[:50], k=4)
        tree.query_ball_point(POINTS[:50], 0.1)
        meshloom.fof(POINTS[:200], 0.1, box=1.0, min_members=1)
        with pytest.raises(ValueError):
            meshloom.KDTree(np.full((2, 3), np.nan))

    for _ in range(20):
        calls()
    before, resident_before = meshloom.memory(), resident()
    for _ in range(60):
        calls()
    assert meshloom.memory() == before
    # 420 calls; a leak of one array of 2000 points in each would be 10 MB.
    assert resident() - resident_before < 8 << 20


def test_ranks_are_threads():
    whole = meshloom.fof(POINTS, 0.05, box=1.0).labels
    spectrum = meshloom.power_spectrum(POINTS, 1.0, mesh=16)
    field = np.random.default_rng(1).random((9, 6, 10)).astype(np.float32)
    modes = fft.rfftn(field)

    def body(comm):
        own = np.array_split(POINTS, comm.size)[comm.rank]
        tree = meshloom.KDTree(own, boxsize=1.0, comm=comm)
        part = fft.rfftn(np.array_split(field, comm.size)[comm.rank], comm=comm)
        return {
            "labels": meshloom.fof(own, 0.05, box=1.0, comm=comm).labels,
            "near": tree.query(own, k=4)[1],
            "order": meshloom.sort(own, box=1.0, comm=comm),
            "modes": part,
            "field": fft.irfftn(part, s=field.shape, axes=(0, 1, 2), comm=comm),
            "power": meshloom.power_spectrum(own, 1.0, mesh=16, comm=comm).power,
            "pairs": meshloom.pair_counts(own, [0.0, 0.1, 0.2], box=1.0, comm=comm),
            "run": meshloom.simulate(8, box=32.0, steps=2, comm=comm).positions,
        }

    for count in (1, 3):
        parts = meshloom.ranks(count, body)
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert np.array_equal(joined["labels"], whole)
        assert np.array_equal(joined["near"], meshloom.KDTree(POINTS, boxsize=1.0).query(POINTS, k=4)[1])
        assert np.array_equal(joined["order"], meshloom.sort(POINTS, box=1.0))
        assert np.array_equal(joined["modes"], modes)
        assert np.array_equal(joined["field"], fft.irfftn(modes, s=field.shape, axes=(0, 1, 2)))
        assert all(np.array_equal(part["power"], spectrum.power) for part in parts)
        assert all(np.array_equal(part["pairs"], meshloom.pair_counts(POINTS, [0.0, 0.1, 0.2], box=1.0)) for part in parts)
        assert np.array_equal(joined["run"], meshloom.simulate(8, box=32.0, steps=2).positions)


def test_a_rank_that_fails_ends_all():
    def body(comm):
        if comm.rank == 1:
            raise RuntimeError("rank 1 has had enough")
        return meshloom.sort(POINTS, comm=comm)

    with pytest.raises(RuntimeError, match="rank 1 has had enough"):
        meshloom.ranks(3, body)
    kept = meshloom.ranks(1, lambda comm: comm)[0]
    with pytest.raises(meshloom.Error, match="have ended"):
        meshloom.sort(POINTS, comm=kept)


def test_a_lost_device_is_an_error_and_the_next_call_opens_another():
    text = """
import numpy as np, meshloom
from meshloom import fft, operators as op
points = np.random.default_rng(1).random((50, 3))
field, tree = meshloom.asarray(np.ones(8, np.float32)), meshloom.KDTree(points)
double = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", op.Space(x=op.cells(8)), "x")
want = tree.query(points, k=2)[1]
field.comm._lose_device()
for call in (lambda: np.asarray(field), lambda: tree.query(points, k=2), lambda: np.asarray(double(field)), lambda: fft.rfft(field)):
    try:
        call()
        print("no error")
    except meshloom.Error as error:
        print("lost" in str(error))
print(np.array_equal(meshloom.KDTree(points).query(points, k=2)[1], want), fft.rfft([1.0, 2.0]).real.tolist())
try:
    double(meshloom.asarray(np.ones(8, np.float32)))
except meshloom.Error as error:
    print("lost" in str(error))
"""
    ended = run(text)
    assert ended.stdout.split("\n") == ["True"] * 4 + ["True [3.0, -1.0]", "True", ""], ended.stderr
    assert "panicked" not in ended.stderr


def test_many_lengths_keep_a_bounded_number_of_kernels():
    text = """
import numpy as np, meshloom
before = None
for n in range(8, 20):
    found = meshloom.fft.rfft(np.arange(n, dtype=np.float32))
    assert np.abs(found - np.fft.rfft(np.arange(n))).max() < 1e-4
    print(meshloom.memory()["kernels"])
"""
    ended = run(text, MESHLOOM_KERNELS="5")
    kept = [int(line) for line in ended.stdout.split()]
    assert len(kept) == 12 and max(kept) == kept[-1] == 5, ended.stderr


def test_processes_of_a_launcher_that_work_alone_are_warned_of_once():
    text = """
import numpy as np, meshloom
for _ in range(2):
    meshloom.fft.fft(np.ones(4, np.float32))
"""
    clean = run(text)
    assert clean.returncode == 0 and "launcher" not in clean.stderr, clean.stderr
    for variables in ({"OMPI_COMM_WORLD_SIZE": "3"}, {"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1"}):
        ended = run(text, **variables)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.count("RuntimeWarning: this is one of 3 processes of a launcher") == 1, ended.stderr
