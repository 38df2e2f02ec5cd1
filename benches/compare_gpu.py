#!/usr/bin/env python3
"""Times of `meshloom bench` beside those of CUDA libraries, on one machine with an NVIDIA GPU.

    cargo build --release
    python3 benches/compare_gpu.py fft                # cuFFT (torch.fft): 256, 512 and 1024, both ways, complex and real
    python3 benches/compare_gpu.py sort               # CUB (torch.sort): keys of 63 and 32 bits with their order
    python3 benches/compare_gpu.py knn                # jz-tree (pip install "jztree[cuda12]"): k = 8, 16 and 30
    python3 benches/compare_gpu.py fof                # jz-tree: b = 0.2 and 0.7 in a periodic box
    python3 benches/compare_gpu.py pm                 # JaxPM (pip install jaxpm "jax[cuda12]"): a step, a particle for each cell
    python3 benches/compare_gpu.py infer              # NIFTy.re (pip install nifty "jax[cuda12]" meshloom): fits of 64^2, 128^2, 256^2 and 64^3 counts
    python3 benches/compare_gpu.py all --report R.json --save S.json   # all that `meshloom bench --all --save R.json` measured
    python3 benches/compare_gpu.py knn --cpu --size 10000    # NumPy and SciPy in place of CUDA, anywhere
    python3 benches/compare_gpu.py infer --cpu --size 64,32x32x32    # NIFTy.re on the processor

Both sides are measured one after the other on as many values or points of the same kind, each with its own numbers: medians
of warmed runs, with the device idle before and after. Trees are built within the time, on both sides. With `all`, libraries
that are not installed are named and left out, and what was compared is saved after each subject.

What differs: torch.fft divides by no number of cells here, which would be a pass of its own, and makes real transforms of three axes of two
transforms of fewer; torch.sort gives the sorted keys and an index of 64 bits, meshloom an order of 32 bits. Keys are uniform on the other side.
JaxPM paints and reads with floating-point additions and `exact` derivatives in Fourier space, at random displacements of a quarter of a cell.

`infer` times the Python packages of both sides, each fit in a process of its own (`infer_fit.py`). A first fit creates the model and compiles; the
directory of meshloom's kernels is empty before it. Further fits repeat `optimize_kl` in the same process. The model, the counts, the start, the number
of pairs and iterations, and the stopping rules are the same; random numbers differ. NIFTy.re evaluates the energies of both results in f64.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class Failed(Exception):
    """Why nothing can be compared."""


def wanted(module, how):
    """A module that has to be installed."""
    try:
        return __import__(module)
    except ImportError:
        raise Failed(f"{module} is missing; {how}, or use --cpu to try the script") from None


class Torch:
    """cuFFT and CUB through PyTorch."""

    def __init__(self):
        self.torch = torch = wanted("torch", "install it with CUDA (https://pytorch.org)")
        if not torch.cuda.is_available():
            raise Failed("PyTorch finds no CUDA device; run on a machine with an NVIDIA GPU, or use --cpu to try the script")
        if getattr(torch.version, "cuda", None) is None:
            raise Failed("this PyTorch was not built for CUDA, so what it calls is not CUDA's")
        self.device = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"

    def wait(self, _):
        self.torch.cuda.synchronize()

    def fft(self, kind, shape):
        torch, fft = self.torch, self.torch.fft
        dtype = torch.complex64 if kind == "complex" else torch.float32
        field = torch.randn(shape, dtype=dtype, device="cuda")
        if kind == "complex":
            return lambda: fft.fftn(field), lambda: fft.ifftn(field, norm="forward")
        spectrum = fft.rfftn(field)
        return lambda: fft.rfftn(field), lambda: fft.irfftn(spectrum, s=shape, norm="forward")

    def copy(self, n):
        source = self.torch.empty(n, dtype=self.torch.uint8, device="cuda")
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source)

    def sort(self, bits, n):
        torch = self.torch
        dtype, ends = (torch.int64, (0, (1 << 63) - 1)) if bits > 32 else (torch.int32, (-(1 << 31), (1 << 31) - 1))
        keys = torch.randint(*ends, (n,), dtype=dtype, device="cuda")
        return lambda: torch.sort(keys, stable=True)

    def release(self):
        self.torch.cuda.empty_cache()


class JzTree:
    """jz-tree, on points of JAX."""

    def __init__(self):
        how = 'install it with `pip install "jztree[cuda12]"` or `jztree[cuda13]`'
        self.jax = wanted("jax", how)
        wanted("jztree", how)
        if self.jax.default_backend() != "gpu":
            raise Failed("JAX finds no GPU; run on a machine with an NVIDIA GPU, or use --cpu to try the script")
        self.device = str(self.jax.devices()[0].device_kind)

    def wait(self, result):
        self.jax.block_until_ready(result)

    def points(self, n):
        return self.jax.random.uniform(self.jax.random.key(1), (n, 3), dtype="float32")

    def knn(self, k, n):
        from jztree.knn import knn

        points = self.points(n)
        search = self.jax.jit(lambda points: knn(points, k=k))
        return lambda: search(points)

    def fof(self, length, n):
        from jztree.fof import fof_labels

        points = self.points(n)
        return lambda: fof_labels.jit(points, rlink=length, boxsize=1.0, output_order="input")

    def release(self):
        self.jax.clear_caches()


class JaxPM:
    """Steps of JaxPM: a force, a kick and a drift. It needs as many particles as cells."""

    def __init__(self, any_device=False):
        how = 'install it with `pip install jaxpm "jax[cuda12]"`'
        self.jax = wanted("jax", how)
        wanted("jaxpm", how)
        if not any_device and self.jax.default_backend() != "gpu":
            raise Failed("JAX finds no GPU; run on a machine with an NVIDIA GPU, or use --cpu to try the script")
        self.device = str(self.jax.devices()[0].device_kind)

    def wait(self, result):
        self.jax.block_until_ready(result)

    def pm(self, mesh):
        from jaxpm.pm import pm_forces

        jnp, shape = self.jax.numpy, (mesh, mesh, mesh)
        lattice = jnp.stack(jnp.meshgrid(*[jnp.arange(mesh, dtype="float32")] * 3, indexing="ij"), axis=-1)
        moved = lattice + 0.25 * self.jax.random.normal(self.jax.random.key(1), (*shape, 3))

        @self.jax.jit
        def step(positions, momenta):
            momenta = momenta + 0.01 * pm_forces(positions, mesh_shape=shape)
            return positions + 0.01 * momenta, momenta

        momenta = jnp.zeros_like(moved)
        return lambda: step(moved, momenta)

    def release(self):
        self.jax.clear_caches()


class NiftyRe:
    """Fits of NIFTy.re, each in a process of its own."""

    device = None

    def __init__(self, any_device=False):
        self.options = [] if any_device else ["--gpu"]
        self.platform = {"JAX_PLATFORMS": "cpu"} if any_device else {}

    def infer(self, arguments, shape):
        result = fit(arguments, "nifty", shape, self.options, self.platform)
        self.device = f"{result['device']['name']}, NIFTy.re {result['version']}"
        return result


class Processor:
    """NumPy and SciPy, on all cores where they can use them."""

    device = "processor"

    def __init__(self):
        self.numpy = wanted("numpy", "--cpu needs it")
        self.random = self.numpy.random.default_rng(1)

    def wait(self, _):
        pass

    def fft(self, kind, shape):
        fft, numpy = self.numpy.fft, self.numpy
        field = self.random.standard_normal(shape, dtype=numpy.float32)
        if kind == "complex":
            field = field.astype(numpy.complex64)
            return lambda: fft.fftn(field), lambda: fft.ifftn(field)
        spectrum = fft.rfftn(field)
        return lambda: fft.rfftn(field), lambda: fft.irfftn(spectrum, s=shape, axes=(0, 1, 2))

    def copy(self, n):
        source, target = self.numpy.ones(n, dtype="uint8"), self.numpy.empty(n, dtype="uint8")
        return lambda: self.numpy.copyto(target, source)

    def sort(self, bits, n):
        keys = self.random.integers(0, (1 << bits) - 1, n, dtype="uint64")
        return lambda: self.numpy.argsort(keys, kind="stable")

    def knn(self, k, n):
        from scipy.spatial import cKDTree

        points = self.random.random((n, 3))
        return lambda: cKDTree(points).query(points, k=k, workers=-1)

    def fof(self, length, n):
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial import cKDTree

        points = self.random.random((n, 3))

        def groups():
            pairs = cKDTree(points, boxsize=1.0).query_pairs(length, output_type="ndarray")
            links = coo_matrix((self.numpy.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
            return connected_components(links, directed=False)

        return groups

    def release(self):
        pass


def median(side, work, runs):
    """Median seconds of one run; quick work is repeated within a run."""

    def took(repeats):
        side.wait(work())
        start = time.perf_counter()
        for _ in range(repeats):
            result = work()
        side.wait(result)
        return (time.perf_counter() - start) / repeats

    took(1)
    repeats = min(100, max(1, round(0.01 / took(1))))
    # As long as meshloom does: the clock of a GPU is slow after a pause.
    warm = time.perf_counter() + (0 if isinstance(side, Processor) else 0.4)
    while time.perf_counter() < warm:
        took(repeats)
    return statistics.median(took(repeats) for _ in range(runs))


def fit(arguments, what, shape, options=(), environment=None):
    """What `infer_fit.py` prints for this side and shape."""
    command = [sys.executable, str(Path(__file__).with_name("infer_fit.py")), what, shape, arguments.scratch]
    command += ["--iterations", str(arguments.iterations), "--runs", str(arguments.runs), "--seconds", "20", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed with exit code {done.returncode}")
    return json.loads(done.stdout)


def fits(arguments, sizes):
    """Fits of counts by meshloom's Python package, without kernels of earlier runs."""
    for module in ("meshloom", "nifty", "jax"):
        if importlib.util.find_spec(module) is None:
            raise Failed(f'{module} is missing; install meshloom (`make wheel`), nifty and "jax[cuda12]" (or jax with --cpu) for this Python')
    results = []
    for size in sizes.split(","):
        shape = size if "x" in size else f"{size}x{size}"
        environment = {"MESHLOOM_CACHE": tempfile.mkdtemp(dir=arguments.scratch), "RUST_BACKTRACE": "0"}
        if arguments.device:
            environment["MESHLOOM_DEVICE"] = arguments.device
        results.append({"shape": shape, "iterations": arguments.iterations, **fit(arguments, "meshloom", shape, environment=environment)})
        keep = Path(arguments.scratch)
        os.replace(keep / "meshloom.npz", keep / f"meshloom-{shape}.npz")
    return {"subject": "infer", "device": results[0]["device"], "results": results}


def ours(arguments, subject, options):
    """What `meshloom bench SUBJECT --json` prints; for `infer`, what fits by the Python package print."""
    if subject == "infer":
        return fits(arguments, options[1])
    command = [arguments.meshloom, "bench", subject, "--json", "--runs", str(arguments.runs), *options]
    if arguments.device:
        command += ["--device", arguments.device]
    if shutil.which(arguments.meshloom) is None:
        raise Failed(f"there is no program {arguments.meshloom}; build it with `cargo build --release`")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed with exit code {done.returncode}")
    return json.loads(done.stdout)


def checked(report, arguments):
    """The report, if it is of a GPU whose libraries are those compared with."""
    if not arguments.cpu and "nvidia" not in json.dumps(report["device"]).lower():
        raise Failed(f"meshloom ran on {json.dumps(report['device'])}, which is no NVIDIA GPU; choose one with --device")
    return report


class Table:
    """Rows as they are measured, printed and kept."""

    def __init__(self, subject, peer):
        self.subject, self.peer, self.rows = subject, peer, []
        print(f"\n{subject:<34} {'meshloom':>14} {peer:>14} {'ratio':>7} {'of copy':>8}", flush=True)

    def add(self, name, mine, theirs, of_copy=None, **more):
        part = "" if of_copy is None else f"{of_copy:.2f}"
        print(f"{name:<34} {mine * 1e3:>11.3f} ms {theirs * 1e3:>11.3f} ms {mine / theirs:>7.2f} {part:>8}", flush=True)
        row = {"subject": self.subject, "what": name, "meshloom": mine, "peer": self.peer, "seconds": theirs}
        self.rows.append({**row, "ratio": mine / theirs, "of_copy": of_copy, **more})


def fft(side, arguments, report, table):
    size = 1 << (26 if arguments.cpu else 30)
    copied = median(side, side.copy(size), arguments.runs)
    side.release()
    # As many bytes as the other side's, at the speed that meshloom measured; read and written both count.
    table.add(f"copy of {size >> 20} MiB", 2 * size / report["copy"]["bytes_per_second"], copied)
    for result in report["results"]:
        shape, kind = result["shape"], result["values"]
        for direction, work in zip(("forward", "inverse"), side.fft(kind, tuple(shape))):
            mine = result[direction]
            name = f"{'x'.join(map(str, shape))} {kind} {direction}"
            table.add(name, mine["seconds"]["median"], median(side, work, arguments.runs), mine["of_copy"])
        side.release()


def sort(side, arguments, report, table):
    for result in report["results"]:
        n, bits = result["size"], result["bits"]
        theirs = median(side, side.sort(bits, n), arguments.runs)
        table.add(f"{n} {result['keys']} keys of {bits} bits", result["seconds"]["median"], theirs, result["of_copy"])
        side.release()


def knn(side, arguments, report, table):
    for result in report["results"]:
        n, k = result["size"], result["k"]
        theirs = median(side, side.knn(k, n), arguments.runs)
        table.add(f"{n} points, k = {k}", result["seconds"]["median"], theirs)
        side.release()


def fof(side, arguments, report, table):
    for result in report["results"]:
        n, b, length = result["size"], result["linking_parameter"], result["length"]
        theirs = median(side, side.fof(length, n), arguments.runs)
        table.add(f"{n} points, b = {b}", result["seconds"]["median"], theirs)
        side.release()


def pm(side, arguments, report, table):
    for result in report["results"]:
        particles, mesh = result["particles"], result["mesh"]
        if particles != mesh**3 or result["window"] != "cic":
            continue
        theirs = median(side, side.pm(mesh), arguments.runs)
        table.add(f"{mesh}^3 particles and cells, a step", result["seconds"]["median"], theirs, result["of_copy"])
        side.release()


def infer(side, arguments, report, table):
    scratch = Path(arguments.scratch)
    for mine in report["results"]:
        shape = mine["shape"]
        if not (scratch / f"meshloom-{shape}.npz").exists():
            raise Failed("fits are compared in one run: leave out --report")
        theirs = side.infer(arguments, shape)
        os.replace(scratch / f"meshloom-{shape}.npz", scratch / "meshloom.npz")
        quality = fit(arguments, "judge", shape)
        table.add(f"{shape} counts, first fit", mine["first_seconds"], theirs["first_seconds"], quality=quality, sides=[mine, theirs])
        table.add(f"{shape} counts, further fits", *[statistics.median(result["again_seconds"]) for result in (mine, theirs)])

        def both(values, form):
            return " and ".join(form.format(value) for value in values)

        def count(what):
            return both([sum(step[what] for step in result["again_iterations"]) for result in (mine, theirs)], "{}")

        def judged(what, form):
            return both([quality[name][what] for name in ("meshloom", "nifty")], form)

        print(f"    energy at the position {judged('energy_of_position', '{:.0f}')}, mean of samples {judged('mean_energy', '{:.0f}')}")
        print(f"    log rate: error {judged('error_of_log_rate', '{:.4f}')}, standard deviation {judged('std_of_log_rate', '{:.4f}')}")
        print(f"    steps of the slowest samples {count('sample_steps')}, samples that missed their target {count('unconverged')}")
        print(f"    Newton steps {count('newton_steps')}, products with the metric {count('metrics')}")
        print(f"    host memory {both([result['host_bytes'] / 1e6 for result in (mine, theirs)], '{:.0f}')} MB", flush=True)


# How a subject is compared, its sizes, other words for meshloom, the other side, and its names with CUDA and without.
SUBJECTS = {
    "fft": (fft, "256,512,1024", [], Torch, ["torch (cuFFT)", "NumPy"]),
    "sort": (sort, "1000000,10000000,100000000", [], Torch, ["torch (CUB)", "NumPy"]),
    "knn": (knn, "1000000,10000000,30000000", ["--k", "8,16,30"], JzTree, ["jz-tree", "SciPy"]),
    "fof": (fof, "1000000,10000000", ["--box", "1", "--linking-parameter", "0.2,0.7"], JzTree, ["jz-tree", "SciPy"]),
    "pm": (pm, "128,256,512", ["--mesh-factor", "1"], JaxPM, ["JaxPM", "JaxPM"]),
    "infer": (infer, "64,128,256,64x64x64", [], NiftyRe, ["NIFTy.re", "NIFTy.re"]),
}
# Subjects that `meshloom bench --all` measures in another form than the peer has.
OTHER_FORMS = ["pm", "infer"]


def compare(subject, arguments, report):
    """The rows of one subject, whose report of meshloom is given."""
    function, _, _, library, names = SUBJECTS[subject]
    side = library() if not arguments.cpu else library(any_device=True) if library in (JaxPM, NiftyRe) else Processor()
    table = Table(subject, names[arguments.cpu])
    function(side, arguments, report, table)
    return side.device, table.rows


def compare_all(arguments, report, keep):
    """All subjects that were measured and whose peer is here; what is wrong with one does not end the others. `keep` takes what there is after each."""
    rows, absent, devices, begun = [], {}, {}, time.monotonic()
    for result in report["results"]:
        subject = result["subject"]
        if subject not in SUBJECTS or "results" not in result:
            continue
        try:
            if arguments.within and time.monotonic() - begun > arguments.within:
                raise Failed(f"more than {arguments.within} s had passed")
            if subject in OTHER_FORMS:
                _, size, options, _, _ = SUBJECTS[subject]
                result = ours(arguments, subject, ["--size", "32" if arguments.cpu else size, *options])
            devices[subject], found = compare(subject, arguments, checked(result, arguments))
            rows += found
        # Libraries that are broken or too old end in errors of any kind.
        except Exception as error:
            absent[subject] = f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else str(error)
            print(f"{subject}: not compared: {absent[subject]}", flush=True)
        keep({"devices": devices, "rows": rows, "not_compared": absent})


def run(arguments):
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    report = None

    def keep(comparison):
        if arguments.save:
            with open(f"{arguments.save}.part", "w") as file:
                json.dump({"date": begun, "meshloom": report, "comparison": comparison}, file, indent=1)
                file.write("\n")
            os.replace(f"{arguments.save}.part", arguments.save)

    if arguments.report:
        with open(arguments.report) as file:
            report = json.load(file)
    if arguments.what == "all":
        if report is None:
            report = ours(arguments, "--all", [])
        print(f"{begun}; meshloom on {report['device']}, {report['driver']} {report['driver_info']}")
        print("a ratio above 1: meshloom takes longer")
        keep({"devices": {}, "rows": [], "not_compared": {}})
        compare_all(arguments, report, keep)
    else:
        _, size, options, _, _ = SUBJECTS[arguments.what]
        report = report or ours(arguments, arguments.what, ["--size", arguments.size or size, *options])
        print(f"{begun}; meshloom on {report['device']}\na ratio above 1: meshloom takes longer")
        device, rows = compare(arguments.what, arguments, checked(report, arguments))
        keep({"devices": {arguments.what: device}, "rows": rows, "not_compared": {}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*SUBJECTS, "all"], nargs="?", default="fft")
    parser.add_argument("--size", help="cells along each axis, keys or points, with commas between")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=4, help="iterations of each fit (infer)")
    parser.add_argument("--meshloom", default="target/release/meshloom", help="the program")
    parser.add_argument("--device", help="adapter, as `meshloom devices` lists them")
    parser.add_argument("--report", help="what meshloom measured before, as `bench --json` printed it")
    parser.add_argument("--save", help="file for all that was measured, in JSON")
    parser.add_argument("--within", type=float, help="begin no subject after so many seconds")
    parser.add_argument("--cpu", action="store_true", help="NumPy and SciPy instead of CUDA")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as arguments.scratch:
            run(arguments)
    except (Failed, OSError, ValueError) as error:
        sys.exit(f"compare_gpu: {error}")


if __name__ == "__main__":
    main()
