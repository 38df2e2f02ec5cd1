"""Files of samples: npz files of NumPy without pickled objects."""

import json
import math
import os
import zipfile

import numpy as np

from . import _native
from ._comm import all_groups, gathered
from ._model import given
from ._native import Error
from ._space import Fields, Leaf, Space

_FORMAT, _VERSION = "meshloom samples", 1


def host(arrays):
    """Return arrays of the extension module in host memory."""
    return [array if isinstance(array, np.ndarray) else array.to_numpy() for array in arrays]


def made_samples(kind, domain, count, position, residuals, others):
    """Return samples of a kind for arrays of this rank, with the residuals of its group's block."""
    comm, leaves = domain._comm, domain.space._native()
    described = [(leaf, _native.leaf_shape(comm, leaf)) for leaf in leaves]

    def field(arrays):
        return given(described, dict(zip(domain, arrays)), comm)

    native = _native.NativeSamples.restored(comm, leaves, field(position), count, [field(arrays) for arrays in residuals])
    return kind(native, domain, **others)


class _NewFile:
    """A file under a temporary name until it is complete."""

    def __init__(self, path):
        self._path, self._temporary = path, f"{path}.{os.getpid()}.part"
        self._file = self._archive = self._member = None

    def open(self):
        self._file = open(self._temporary, "wb")
        self._archive = zipfile.ZipFile(self._file, "w")

    def begin(self, name, dtype, shape):
        """Begin an array; `write` adds its numbers."""
        self._member = self._archive.open(f"{name}.npy", "w", force_zip64=True)
        head = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._member, head)

    def write(self, array):
        self._member.write(np.ascontiguousarray(array).tobytes())

    def end(self):
        self._member.close()

    def publish(self):
        self._archive.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)

    def abandon(self):
        """Remove the temporary file."""
        if self._file is not None:
            self._file.close()
            if os.path.exists(self._temporary):
                os.remove(self._temporary)


def _arrays_of(samples, about):
    """Yield each array of the file: name, type, shape and rows, which are collective."""
    domain, native = samples._domain, samples._native
    yield "about", np.dtype(f"<U{len(about)}"), (), [np.array(about)]
    for name in samples._others:
        for key, array in getattr(samples, name).items():
            yield f"{name}/{key}", array.dtype, array.shape, [array]

    def rows(at):
        for number in range(len(samples)):
            yield domain._assembled(lambda: [host(native.residual(number))[at]], [at])[0]

    position = domain._assembled(lambda: host(native.position()))
    for at, (name, whole) in enumerate(zip(domain, position)):
        yield f"position/{name}", whole.dtype, whole.shape, [whole]
        yield f"residuals/{name}", whole.dtype, (len(samples), *whole.shape), rows(at)


def _described(samples):
    """Return the text that describes the samples of a file."""
    leaves = {}
    for name, leaf in samples._domain.space.leaves.items():
        if leaf._points is not None and leaf._points.numbers() is not None:
            raise ValueError(f"`{name}`: expected latent values that are not at points of `readout`; pickle the samples on one rank")
        shape = (1, leaf.shape[2], leaf.shape[2]) if leaf.kind == "points" else leaf.shape
        leaves[name] = {"kind": leaf.kind, "shape": shape, "size": leaf.size, "complex": leaf.complex, "components": leaf.components, "copies": leaf.copies}
    about = {"format": _FORMAT, "version": _VERSION, "kind": type(samples).__name__, "count": len(samples), "leaves": leaves}
    return json.dumps(about)


def write_samples(samples, path):
    """Write samples to a file. Collective over all groups; the first rank writes."""
    comm = all_groups(samples._comm)

    def check():
        return (os.fsdecode(path), _described(samples)), {"function": "save"}, None

    (path, about), _ = gathered(comm, check)
    file = _NewFile(path)

    def first(work, *arguments):
        def done():
            if comm.rank == 0:
                try:
                    work(*arguments)
                except OSError as error:
                    raise Error(f"{path}: cannot write the samples: {error}") from error
            return None, {}, None

        gathered(comm, done)

    try:
        first(file.open)
        for name, dtype, shape, rows in _arrays_of(samples, about):
            first(file.begin, name, dtype, shape)
            for row in rows:
                first(file.write, row)
            first(file.end)
        first(file.publish)
    finally:
        file.abandon()


class _Broken(Exception):
    """A reason why a file has no samples."""


class _SavedFile:
    """The arrays of a file, row by row."""

    def __init__(self, archive):
        self._archive = archive

    def rows(self, name, dtype=None, shape=None):
        """Yield the rows of an array of a known type and shape; the array if it has no axes."""
        if f"{name}.npy" not in self._archive.namelist():
            raise _Broken(f"it has no `{name}`")
        with self._archive.open(f"{name}.npy") as member:
            if np.lib.format.read_magic(member) != (1, 0):
                raise _Broken(f"`{name}` is not an array of version 1.0")
            own_shape, fortran, own_dtype = np.lib.format.read_array_header_1_0(member)
            if fortran or own_dtype.hasobject or dtype is not None and (dtype, shape) != (own_dtype, own_shape):
                raise _Broken(f"`{name}` is an array of {own_dtype} and shape {own_shape}")
            size = math.prod(own_shape[1:]) * own_dtype.itemsize
            for _ in range(own_shape[0] if own_shape else 1):
                data = member.read(size)
                if len(data) < size:
                    raise _Broken(f"`{name}` ends early")
                row = np.frombuffer(data, own_dtype).reshape(own_shape[1:])
                if row.dtype.kind in "fc" and dtype is not None and not np.isfinite(row).all():
                    raise _Broken(f"`{name}` has values that are not finite")
                yield row
            # The end has the checksum.
            if member.read(1):
                raise _Broken(f"`{name}` is longer than its shape")

    def whole(self, name):
        """Return an array of any shape."""
        return np.array(list(self.rows(name)))


def _leaf(name, about):
    shape, size = [int(n) for n in about["shape"]], [float(length) for length in about["size"]]
    if about["kind"] not in ("cells", "modes", "half_spectrum", "vector", "parameters", "points") or min(shape) < 1:
        raise _Broken(f"`{name}` is not a leaf")
    return Leaf(about["kind"], shape, size, bool(about["complex"]), int(about["components"]), copies=int(about.get("copies", 1)))


def read_samples(path, kinds, comm):
    """Read this rank's part of the samples of a file, for `made_samples`.

    Returns also the text that must be the same on all ranks.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return _read(_SavedFile(archive), path, kinds, comm)
    except (FileNotFoundError, Error):
        raise
    except (_Broken, OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, OverflowError, NotImplementedError, zipfile.BadZipFile) as error:
        raise Error(f"{path}: expected a complete file of `Samples.save`: {error}") from error


def _read(file, path, kinds, comm):
    text = str(file.whole("about")[0])
    about = json.loads(text)
    if about["format"] != _FORMAT or about["version"] != _VERSION:
        raise _Broken(f"its format is {about['format']!r} of version {about['version']}")
    kind, count = kinds[about["kind"]], int(about["count"])
    domain = Fields._of_space(Space({name: _leaf(name, one) for name, one in about["leaves"].items()}), comm)
    first, end = _native.NativeSamples.block(comm, count)
    position, residuals = [], []
    for name, leaf in domain.space.leaves.items():
        if leaf.kind == "points" and comm.size > 1:
            raise Error(f"{path}: `{name}` is at points, whose ranks a file does not have; load it on one rank")
        dtype = np.dtype(np.float64 if leaf.kind == "parameters" else np.complex64 if leaf.complex else np.float32)

        def part(whole):
            return domain._part(name, whole, [domain._counts()] * comm.size)

        whole = list(file.rows(f"position/{name}", dtype, leaf._whole()))
        position.append(part(np.concatenate([row.reshape(-1) for row in whole])))
        for number, row in enumerate(file.rows(f"residuals/{name}", dtype, (count, *leaf._whole()))):
            if number == len(residuals) + first and number < end:
                residuals.append([])
            if first <= number < end:
                residuals[number - first].append(part(row))
    others = {name: {key: file.whole(f"{name}/{key}") for key in keys} for name, keys in kind._others.items()}
    for name, arrays in others.items():
        shapes = {array.shape for array in arrays.values()}
        if [len(shape) == 2 and math.prod(shape) for shape in shapes] != [count]:
            raise _Broken(f"`{name}` is not of {count} draws")
    return (kind, domain, count, position, residuals, others), text
