"""Arrays that stay on the device between calls."""

import math
import operator

import numpy as np

from . import _native
from ._array_functions import ELEMENTWISE, function_of
from ._array_reductions import Reductions
from ._comm import resolve
from ._indexing import axis_number, axis_numbers, broadcast, rows_of, strides_of, view
from ._plain import plain

_TYPES = ("bool", "float32", "float64", "complex64", "complex128")

# Operations whose results are booleans.
_TRUTHS = {"equal", "not_equal", "less", "less_equal", "isnan", "isinf", "isfinite"}

# Operations of booleans, which the device has as 0 and 1 in float32, and what they do with these.
_OF_BOOLEANS = {"add": "maximum", "multiply": "minimum"} | {name: name for name in _TRUTHS | {"copy", "maximum", "minimum", "where_true", "where_false"}}

# Operations that another one does with exchanged operands.
_EXCHANGED = {"greater": "less", "greater_equal": "less_equal"}

# Operations that compute the logical operators of booleans.
_LOGIC = {"and": "minimum", "or": "maximum", "xor": "not_equal", "not": "equal"}

# The largest exponents of powers by multiplication, by the type: others go through logarithms.
_POWERS = {"float32": 32, "float64": 1024, "complex64": 1024, "complex128": 1024}


class _Memory:
    """Device memory, all of it in one order, which reshaped arrays have in common.

    It is shared if models, their results or searches may have it, too. Arrays change it only where
    it is not: shared memory is replaced by a copy first.
    """

    __slots__ = ("native", "is_shared")

    def __init__(self, native, is_shared):
        self.native = native
        self.is_shared = is_shared

    def view(self, start=0, strides=None):
        return self.native, start, [1] if strides is None else strides


class Array(Reductions):
    """An array in device memory, which stays there between calls; `asarray` creates one.

    Arithmetic, indexing, reductions and functions of NumPy give another array on the device. They
    do not wait for it. Types are bool, float32, float64, complex64 and complex128, and types of
    results are those of NumPy; beside Python's numbers, booleans count as float32. The transforms
    of `meshloom.fft`, models and searches take arrays.

    Notes
    -----
    **Memory.** ``a[...]`` and ``a.T`` are copies, unlike in NumPy; ``a.reshape(..)`` shares memory.
    A loop over an array copies each row: ``gx, gy = a``, but no loop over many numbers.
    ``a[1:3] += b``, ``a *= b`` and ``a[..] = b`` change an array. Results of models that were made
    from it do not change.

    **Host.** ``numpy.asarray(a)``, ``a.numpy()``, ``a.tolist()``, DLPack, `pickle`, and
    ``float(a)`` of an array without axes wait for the device and copy. Nothing else does: what is
    missing is a `TypeError`: integers, sorts, and most functions of complex numbers. float64 has
    ``exp``, ``log``, ``log2``, ``log10``, ``sin``, ``cos`` and ``tan``; powers with real exponents
    are ``numpy.exp(y * numpy.log(x))``. For others use ``a.astype(numpy.float32)`` or
    ``numpy.asarray(a)``. Indices are in host memory: `argmax` waits for the device, and ``a[mask]``
    is an error, since its size depends on the mask. ``a[mask] = b`` and
    ``numpy.where(mask, a, b)`` stay on the device.

    **NumPy.** Functions of each element (`numpy.sqrt`, `numpy.exp`, `numpy.arctan2`, ...), ``sum``,
    ``prod``, ``mean``, ``var``, ``std``, ``min``, ``max``, ``any``, ``all``, comparisons,
    ``where``, ``a @ b`` of vectors and matrices, ``vdot``, ``linalg.norm``, ``reshape``,
    ``transpose``, ``moveaxis``, ``roll``, ``flip``, ``take``, ``concatenate``, ``stack``, ``clip``,
    ``zeros_like`` and others take device arrays. An array in host memory as the other operand is
    copied to the device.

    **Accuracy.** Functions are within a few units in the last place; those of float64 are the
    polynomials of fdlibm. ``sin``, ``cos`` and ``tan`` are NaN beyond 2.6e7, of float64 beyond 8e5.
    Sums of float32 and complex64 carry their rounding errors. Numbers below 1.2e-38 may count as 0.

    **Ranks.** A reduction covers the array of this rank only. ``comm.allreduce(float(a.sum()))`` is
    the sum over all ranks.

    Examples
    --------
    The potential of a periodic density, without a copy in host memory:

    >>> import numpy as np, meshloom
    >>> k = 2 * np.pi * np.fft.fftfreq(16, 1 / 16)
    >>> k2 = k[:, None, None] ** 2 + k[:, None] ** 2 + k[:9] ** 2
    >>> green = meshloom.asarray(np.float32(-1 / np.where(k2 == 0, np.inf, k2)))
    >>> wave = np.cos(2 * np.pi * np.arange(16) / 16) * np.ones((16, 16, 16))
    >>> rho = meshloom.asarray(wave, dtype=np.float32)
    >>> potential = meshloom.fft.irfftn(meshloom.fft.rfftn(rho) * green)
    >>> potential
    <meshloom.Array: (16, 16, 16) of float32>
    >>> error = abs(potential + rho / (2 * np.pi) ** 2).max()
    >>> float(error) < 1e-7, f"{(rho**2).mean():.2f}"
    (True, '0.50')
    """

    def __init__(self, native, memory=None, dtype=None):
        self._memory = _Memory(native, True) if memory is None else memory
        self._shape = tuple(native.shape)
        self._dtype = np.dtype(native.dtype_name if dtype is None else dtype)

    @classmethod
    def _owning(cls, native, dtype=None):
        """Return an array of memory that nothing else has."""
        return cls(native, _Memory(native, False), dtype)

    def _numbers(self):
        """Return booleans as numbers of the same memory, other arrays as they are."""
        return Array(self._lent(), self._memory) if self._dtype.kind == "b" else self

    @property
    def _native(self):
        """The array as the extension module takes it, which may keep its memory."""
        self._memory.is_shared = True
        return self._lent()

    def _lent(self):
        """Return the array for a call of the extension module that does not keep its memory."""
        return self._memory.native.reshaped(self._shape)

    @property
    def shape(self):
        """Lengths of the axes, a tuple of int."""
        return self._shape

    @property
    def dtype(self):
        """Type of the elements, a `numpy.dtype`."""
        return self._dtype

    @property
    def comm(self):
        """The `Comm` whose device holds the array."""
        return self._memory.native.comm

    @property
    def ndim(self):
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self):
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self):
        """Size in bytes."""
        return self.size * self._dtype.itemsize

    def __len__(self):
        if not self._shape:
            raise TypeError("len() of an array without axes; use size")
        return self._shape[0]

    __hash__ = None

    def __contains__(self, value):
        return bool((self == value).any())

    def __iter__(self):
        if not self._shape:
            raise TypeError("iteration over an array without axes")
        return (self[number] for number in range(self._shape[0]))

    def __repr__(self):
        return f"<meshloom.Array: {self._shape} of {self._dtype}>"

    def __format__(self, spec):
        return format(self.item(), spec) if spec and not self._shape else format(repr(self), spec)

    # To the host.

    def numpy(self):
        """Copy the array to host memory; waits for the device.

        Returns
        -------
        ndarray
            A copy with the same shape and type.

        Examples
        --------
        >>> import meshloom
        >>> meshloom.asarray([1.0, 2.0]).numpy().tolist()
        [1.0, 2.0]
        """
        return self._lent().to_numpy().astype(self._dtype, copy=False)

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a device array cannot be converted without a copy; leave out copy=False")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Export a copy in host memory as DLPack."""
        if copy is False:
            raise BufferError("copy: expected True or None, got False; a device array is exported as a copy in host memory")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device: expected host memory, (1, 0), got {tuple(dl_device)}; copy the result to that device")
        if stream is not None:
            raise BufferError(f"stream: expected None for host memory, got {stream}")
        # NumPy before 2.1 exports the first version only, which every consumer takes.
        is_old = max_version is None or np.lib.NumpyVersion(np.__version__) < "2.1.0"
        # The array of `numpy` has no other owner: it is exported without a second copy.
        return self.numpy().__dlpack__(**({} if is_old else {"max_version": max_version}))

    def __dlpack_device__(self):
        # kDLCPU, the host memory.
        return (1, 0)

    def tolist(self):
        """Return the elements as nested lists of Python numbers; waits for the device."""
        return self.numpy().tolist()

    def item(self):
        """Return the only element as a Python number; waits for the device."""
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.numpy().item()

    def _number(self, kind):
        if self._shape:
            raise TypeError(f"expected an array without axes for {kind.__name__}(), got shape {self._shape}; reduce it, or use numpy.asarray(a)")
        return kind(self.item())

    def __float__(self):
        return self._number(float)

    def __complex__(self):
        return self._number(complex)

    def __int__(self):
        return self._number(int)

    def __bool__(self):
        return self._number(bool)

    def __reduce__(self):
        # Loaded on the device of the process that loads it.
        return asarray, (self.numpy(),)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    # Work on the device.

    def _new(self, shape, dtype):
        """Return an array with undefined elements on the same device."""
        shape = [operator.index(n) for n in shape]
        dtype = _supported(dtype)
        return Array._owning(_native.undefined(self.comm, _stored(dtype), shape), dtype)

    def _view(self):
        return self._memory.native, 0, strides_of(self._shape)

    def _run(self, name, shape, operands, out, **options):
        """Run an operation for operands that are numbers or views of arrays."""
        operands = [(one.real, one.imag) if isinstance(one, complex) else one for one in operands]
        target = _stored(out) if isinstance(out, str) else out
        found = _native.elementwise(self.comm, name, list(shape), operands, target, **options)
        return None if found is None else Array._owning(found, out)

    def _unary(self, name, exponent=1, out=None):
        return _elementwise(name, (self,), out, exponent=exponent)

    def _own(self):
        """Return memory that this array and its reshaped ones may change."""
        memory = self._memory
        if memory.is_shared:
            native = memory.native.reshaped([self.size])
            memory.native = _native.elementwise(self.comm, "copy", [self.size], [(native, 0, [1])], native.dtype_name)
            memory.is_shared = False
        return memory.native

    def _copy_part(self, to, source, part):
        """Copy a part of another array, without a copy of its own."""
        start, strides, shape, _ = view(source.shape, part)
        self._assign(to, (source._memory.native, start, strides), shape, source.dtype)

    def _assign(self, key, value, shape, dtype):
        """Copy a view or a number of a type to a part of this array."""
        start, strides, target, rows = view(self._shape, key)
        if rows is not None:
            raise IndexError("an array of integers is no index for an assignment; assign to slices, or multiply by a mask")
        _check_assigned(dtype, self._dtype)
        if isinstance(value, complex):
            operand = value
        else:
            native, first, steps = value
            extra = max(0, len(shape) - len(target))
            if any(n != 1 for n in shape[:extra]):
                raise ValueError(f"could not broadcast input array from shape {tuple(shape)} into shape {tuple(target)}")
            steps, shape = steps[extra:], shape[extra:]
            if any(n not in (1, wanted) for n, wanted in zip(shape[::-1], target[::-1])):
                raise ValueError(f"could not broadcast input array from shape {tuple(shape)} into shape {tuple(target)}")
            operand = (native, *broadcast((first, steps, shape), target))
        if 0 not in target:
            self._run("copy", target, [operand], (self._own(), start, strides))

    def __getitem__(self, key):
        start, strides, shape, rows = view(self._shape, key)
        if rows is None:
            return self._run("copy", shape, [(self._memory.native, start, strides)], self._dtype.name)
        axis, chosen = rows
        shape = [*shape[:axis], chosen.size, *shape[axis + 1 :]]
        index = (axis, chosen.ravel().astype(np.uint32))
        found = self._run("copy", shape, [(self._memory.native, start, strides)], self._dtype.name, index=index)
        return found.reshape(*shape[:axis], *chosen.shape, *shape[axis + 1 :])

    def __setitem__(self, key, value):
        if isinstance(key, Array) and key.dtype.kind == "b":
            if key.shape != self._shape:
                raise IndexError(f"expected a mask of shape {self._shape}, got {key.shape}")
            if np.ndim(value):
                raise TypeError("a mask takes one number; use numpy.where(mask, value, a)")
            key, value = ..., np.where(key, value, self)
        if _is_weak(value):
            return self._assign(key, complex(value), [], np.dtype(bool) if type(value) is bool else np.result_type(type(value), np.float32))
        if not isinstance(value, Array):
            value = np.asarray(plain(value, "value"))
            _check_assigned(value.dtype, self._dtype)
            # The device may lack the precision of the host.
            value = asarray(value.astype(self._dtype, copy=False), comm=self.comm)
        value._memory.native.belongs_to(self.comm)
        return self._assign(key, value._view(), list(value.shape), value.dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if ufunc is np.matmul and method == "__call__" and not options and out is None:
            return _matmul(*inputs)
        name = ELEMENTWISE.get(ufunc.__name__)
        reductions = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any", "logical_and": "all"}
        reduction = reductions.get(ufunc.__name__)
        if method == "reduce" and reduction and out is None and set(options) <= {"axis", "keepdims"}:
            return getattr(inputs[0], reduction)(axis=options.get("axis", 0), keepdims=options.get("keepdims", False))
        if name is None or method != "__call__" or options:
            what = ufunc.__name__ + ("" if method == "__call__" else f".{method}") + (f" with {next(iter(options))}=" if options else "")
            raise TypeError(f"numpy.{what} does not work on a meshloom.Array; use numpy.asarray(a)")
        if out is not None and not isinstance(out[0], Array):
            raise TypeError(f"numpy.{ufunc.__name__}: `out` is in host memory and an operand on the device; use numpy.asarray(a)")
        found = _elementwise(name, inputs, out[0] if out else None)
        if found is NotImplemented:
            raise TypeError(f"numpy.{ufunc.__name__}: expected numbers and arrays beside a meshloom.Array")
        return found

    def __array_function__(self, function, types, arguments, options):
        implementation = function_of(function)
        if implementation is None:
            module = getattr(function, "__module__", None) or "numpy"
            remedy = f"meshloom.fft.{function.__name__}, or numpy.asarray(a)" if module == "numpy.fft" else "numpy.asarray(a)"
            raise TypeError(f"{module}.{function.__name__} does not work on a meshloom.Array; use {remedy}")
        return implementation(*arguments, **options)

    def __neg__(self):
        return self._unary("negative")

    def __pos__(self):
        return self.copy()

    def __abs__(self):
        return self._unary("absolute")

    def __invert__(self):
        return _elementwise("bitwise_not", (self,))

    def __matmul__(self, other):
        return _matmul(self, other)

    def __rmatmul__(self, other):
        return _matmul(other, self)

    def copy(self):
        """Copy the array on the device."""
        return self._unary("copy")

    def conj(self):
        """Return the complex conjugate of each element."""
        return self._unary("conjugate")

    conjugate = conj

    @property
    def real(self):
        """Real part: a copy, or the array itself if it is real."""
        return self._unary("real") if self._dtype.kind == "c" else self

    @property
    def imag(self):
        """Imaginary part, a copy."""
        return self._unary("imag") if self._dtype.kind == "c" else np.zeros_like(self)

    def astype(self, dtype, copy=True):
        """Convert the elements to another type.

        Parameters
        ----------
        dtype : dtype
            bool, float32, float64, complex64 or complex128.
        copy : bool, optional
            Whether an array that has the type already is copied.

        Returns
        -------
        Array

        Raises
        ------
        TypeError
            For another type, and for a real type if elements are complex.
        """
        dtype = _supported(dtype)
        if dtype == self._dtype:
            return self.copy() if copy else self
        if dtype.kind == "b":
            return _elementwise("not_equal", (self, 0.0))
        if not np.can_cast(self._dtype, dtype, casting="same_kind"):
            raise TypeError(f"expected a complex type for {self._dtype}, got {dtype}; use .real or abs()")
        return self._run("copy", self._shape, [self._view()], dtype.name)

    def reshape(self, *shape):
        """Return the same memory with another shape.

        Parameters
        ----------
        *shape : int or sequence of int
            New lengths; one of them may be -1 and follows from the others.

        Returns
        -------
        Array
            An array that shares the memory.

        Raises
        ------
        ValueError
            If the number of elements differs.

        Examples
        --------
        >>> import meshloom
        >>> meshloom.asarray([1.0, 2.0, 3.0, 4.0]).reshape(2, -1).shape
        (2, 2)
        """
        shape = list(shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape)
        shape = [operator.index(n) for n in shape]
        if shape.count(-1) == 1:
            rest = -math.prod(shape)
            shape[shape.index(-1)] = self.size // rest if rest else 0
        if min(shape, default=0) < 0 or math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return Array(self._memory.native.reshaped(shape), self._memory, self._dtype)

    def ravel(self):
        """Return the same memory with one axis."""
        return self.reshape(-1) if self.size else self.reshape(0)

    def flatten(self):
        """Copy the array to one with one axis."""
        return self.copy().ravel()

    def squeeze(self, axis=None):
        """Return the same memory without axes of length 1.

        Parameters
        ----------
        axis : int or tuple of int, optional
            Axes that are left out. Default: all axes of length 1.

        Returns
        -------
        Array
            An array that shares the memory.
        """
        axes = [at for at, n in enumerate(self._shape) if n == 1] if axis is None else axis_numbers(axis, self.ndim)
        if any(self._shape[at] != 1 for at in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
        return self.reshape([n for at, n in enumerate(self._shape) if at not in axes])

    def transpose(self, *axes):
        """Copy the array with its axes in another order.

        Parameters
        ----------
        *axes : int or sequence of int, optional
            The new order. Default: reversed.

        Returns
        -------
        Array

        Examples
        --------
        >>> import numpy as np, meshloom
        >>> meshloom.asarray(np.zeros((2, 3, 4))).transpose(2, 0, 1).shape
        (4, 2, 3)
        """
        axes = axes[0] if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])) else axes
        axes = axis_numbers(tuple(axes), self.ndim) if axes else tuple(range(self.ndim))[::-1]
        if len(axes) != self.ndim:
            raise ValueError("axes don't match array")
        native, _, strides = self._view()
        return self._run("copy", [self._shape[at] for at in axes], [(native, 0, [strides[at] for at in axes])], self._dtype.name)

    @property
    def T(self):
        """The array with its axes reversed, a copy."""
        return self.transpose()

    def take(self, indices, axis=None):
        """Copy the elements at integer indices along an axis.

        Parameters
        ----------
        indices : array_like of int
            Indices in host memory; below 0 they count from the end.
        axis : int, optional
            Axis. Default: the flat array.

        Returns
        -------
        Array

        Examples
        --------
        >>> import meshloom
        >>> meshloom.asarray([1.0, 2.0, 3.0]).take([2, 0]).tolist()
        [3.0, 1.0]
        """
        if axis is None:
            return self.ravel().take(indices, 0)
        axis = axis_number(axis, self.ndim)
        rows = rows_of(indices, self._shape[axis], axis)
        found = self[(slice(None),) * axis + (rows.reshape(-1),)]
        return found.reshape(*self._shape[:axis], *rows.shape, *self._shape[axis + 1 :])

    def clip(self, min=None, max=None):
        """Limit the elements to a range.

        Parameters
        ----------
        min, max : float or array_like, optional
            Least and greatest value. Default: no limit.

        Returns
        -------
        Array
        """
        found = self if min is None else np.maximum(self, min)
        found = found if max is None else np.minimum(found, max)
        return found.copy() if found is self else found

    def _chosen(self, condition, x, y):
        return _choose(condition, x, y)

    def _vdot(self, a, b):
        a, b = (one if isinstance(one, Array) else asarray(one, comm=self.comm) for one in (a, b))
        if a.size != b.size:
            raise ValueError(f"vdot: expected arrays of one size, got {a.size} and {b.size}")
        return _elementwise("conjugate_multiply", (a.ravel(), b.ravel())).sum()


def _is_weak(value):
    """Return True for Python's numbers, which have no type of NumPy's."""
    return type(value) in (bool, int, float, complex)


def _supported(dtype):
    dtype = np.dtype(dtype)
    if dtype.name not in _TYPES:
        raise TypeError(f"expected one of {', '.join(_TYPES)}, got {dtype}")
    return dtype


def _stored(dtype):
    """Return the name of the type that the device has for a type."""
    return "float32" if dtype == "bool" else np.dtype(dtype).name


def _check_assigned(dtype, to):
    if not np.can_cast(dtype, to, casting="same_kind"):
        raise TypeError(f"cannot assign {dtype} to an array of {to}; use .real or abs()" if dtype.kind == "c" else f"cannot assign {dtype}")


def _operand(value, beside):
    """Return an operand as a device array, or None if it is not an array."""
    if isinstance(value, Array):
        return value
    if not isinstance(value, (np.ndarray, np.generic, list, tuple)) or getattr(value, "__array_ufunc__", True) is None:
        return None
    value = np.asarray(plain(value, "operand"))
    if value.dtype.kind in "iu" or value.dtype == np.float16:
        # Small integers do not make an array of single precision a double one.
        is_single = np.result_type(value.dtype, beside.dtype) in (np.float32, np.complex64)
        value = value.astype(np.float32 if is_single else np.float64)
    return asarray(value, comm=beside.comm)


def _integer_exponent(name, inputs):
    """Return the exponent of a power of an array by one integer, else None."""
    if name != "power" or not isinstance(inputs[0], Array) or np.ndim(inputs[1]):
        return None
    exponent = inputs[1][()] if isinstance(inputs[1], np.ndarray) else inputs[1]
    if isinstance(exponent, (bool, int, float, np.integer, np.floating)) and abs(exponent) <= 1024 and exponent == int(exponent):
        return int(exponent)
    return None


def _elementwise(name, inputs, out=None, exponent=1):
    """Return a function of each element of arrays and numbers, `NotImplemented` for other operands.

    At least one of them, or `out`, is an `Array`.
    """
    if name in _EXCHANGED:
        name, inputs = _EXCHANGED[name], inputs[::-1]
    if name.startswith(("logical_", "bitwise_")):
        return _logic(name, inputs, out)
    first = next((one for one in inputs if isinstance(one, Array)), out)
    integer = _integer_exponent(name, inputs)
    if integer is not None:
        dtype = _common_type([first] if _is_weak(inputs[1]) else [first, inputs[1]])
        if abs(integer) <= _POWERS.get(dtype.name, 0):
            name, exponent = ("square", 1) if integer == 2 else ("integer_power", integer)
            inputs = (first.astype(dtype, copy=False),)
    elif name == "power" and type(inputs[1]) is float and inputs[1] == 0.5:
        name, inputs = "sqrt", inputs[:1]
    operands = [one if _is_weak(one) else _operand(one, first) for one in inputs]
    if any(one is None for one in operands) or all(map(_is_weak, operands)):
        return NotImplemented
    dtype = _common_type(operands)
    on_device = _OF_BOOLEANS.get(name) if dtype.kind == "b" else name
    result = on_device and _native.result_type(on_device, _stored(dtype))
    if result is None:
        raise TypeError(_missing(name, dtype))
    name, result = on_device, "bool" if name in _TRUTHS or dtype.kind == "b" else result
    try:
        shape = np.broadcast_shapes(*(one.shape for one in operands if isinstance(one, Array)))
    except ValueError:
        shapes = " ".join(str(one.shape) for one in operands if isinstance(one, Array))
        raise ValueError(f"operands could not be broadcast together with shapes {shapes}") from None
    views = []
    for one in operands:
        if isinstance(one, Array):
            one = (one._memory.native, *broadcast((0, strides_of(one.shape), one.shape), shape))
        views.append(complex(one) if _is_weak(one) else one)
    if out is None:
        return first._run(name, shape, views, result, exponent=exponent)
    if np.broadcast_shapes(shape, out.shape) != out.shape:
        raise ValueError(f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape {shape}")
    if not np.can_cast(result, out.dtype, casting="same_kind"):
        raise TypeError(f"cannot write a result of {result} to an array of {out.dtype}; write a = a + b in place of a += b")
    if result != out.dtype.name or out._memory.is_shared or shape != out.shape:
        found = first._run(name, shape, views, result, exponent=exponent)
        if found.dtype == out.dtype and found.shape == out.shape:
            out._memory.native, out._memory.is_shared = found._memory.native, False
        else:
            out[...] = found
    else:
        first._run(name, shape, views, (out._memory.native, 0, strides_of(shape)), exponent=exponent)
    return out


def _logic(name, inputs, out):
    """Return a logical operation. Bitwise operations take booleans, others any numbers."""
    first = next((one for one in inputs if isinstance(one, Array)), out)
    operands = [one if _is_weak(one) else _operand(one, first) for one in inputs]
    if any(one is None for one in operands):
        return NotImplemented
    is_boolean = [type(one) is bool if _is_weak(one) else one.dtype.kind == "b" for one in operands]
    if name.startswith("bitwise_") and not all(is_boolean):
        raise TypeError(f"numpy.{name}: expected booleans; use a != 0, or numpy.asarray(a)")
    truths = [bool(one) if _is_weak(one) else one.astype(bool, copy=False) for one in operands]
    kind = name.split("_")[1]
    return _elementwise(_LOGIC[kind], (*truths, False) if kind == "not" else truths, out)


def _choose(condition, x, y):
    """Return `x` where a condition holds and `y` elsewhere."""
    first = next(one for one in (condition, x, y) if isinstance(one, Array))
    operands = [one if _is_weak(one) else _operand(one, first) for one in (x, y)]
    if any(one is None for one in operands):
        raise TypeError("numpy.where: expected numbers and arrays")
    if all(map(_is_weak, operands)):
        dtype = np.result_type(*({bool: np.bool_, complex: np.complex64}.get(type(one), np.float32) for one in operands))
    else:
        dtype = _common_type(operands)
    x, y = (asarray(np.asarray(one, dtype), comm=first.comm) if _is_weak(one) else one for one in operands)
    mask = (asarray(condition, comm=first.comm)).astype(bool, copy=False)
    # The sum of both, each -0 where the other one counts.
    x, y = _elementwise("where_true", (x, mask)), _elementwise("where_false", (y, mask))
    return _elementwise("add", (x, y))


def _matmul(a, b):
    """Return the product of vectors and matrices."""
    first = a if isinstance(a, Array) else b
    operands = [_operand(one, first) for one in (a, b)]
    if any(one is None for one in operands):
        return NotImplemented
    dtype = _common_type(operands)
    a, b = operands
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: expected arrays with axes; multiply by numbers with *")
    if a.ndim > 2 or b.ndim > 2 or dtype.kind == "b":
        raise TypeError(f"numpy.matmul: expected vectors and matrices of numbers, got shapes {a.shape} and {b.shape} of {dtype}; use numpy.asarray(a)")
    inner = a.shape[-1]
    if inner != b.shape[0]:
        raise ValueError(f"matmul: expected as many rows of the second operand as columns of the first, got shapes {a.shape} and {b.shape}")
    shape = a.shape[:-1] + b.shape[1:]
    if not inner:
        found = first._new(shape, dtype)
        found[...] = 0.0
        return found
    a = a.astype(dtype, copy=False).reshape(a.size // inner, inner)
    b = b.astype(dtype, copy=False).reshape(inner, b.size // inner)
    return Array._owning(a._lent().times(b._lent())).reshape(shape)


def _common_type(operands):
    """Return the type of NumPy's for operands, which Python's numbers do not widen."""
    found = np.result_type(*(one.dtype for one in operands if not _is_weak(one)))
    if found.kind == "b" and any(_is_weak(one) and type(one) is not bool for one in operands):
        found = np.dtype(np.float32)
    if any(type(one) is complex for one in operands) and found.kind != "c":
        found = np.result_type(found, np.complex64)
    return found


def _missing(name, dtype):
    remedy = "numpy.asarray(a)"
    if dtype.kind == "b":
        return f"numpy.{name} of booleans does not work on a device; use & | ^ ~, a.astype(numpy.float32), or {remedy}"
    if dtype.kind == "c":
        what = f"numpy.{name} of {dtype} does not work on a device"
        remedy = f"abs(a) or a.real, or {remedy}"
    else:
        what = f"numpy.{name} of {dtype} does not work on a device, which has it in single precision"
        remedy = f"a.astype(numpy.float32), or {remedy}"
    return f"{what}; use {remedy}"


def _operators(name):
    """Return the methods of an operator: from the left, from the right and in place."""

    def forward(self, other):
        return _elementwise(name, (self, other))

    def backward(self, other):
        return _elementwise(name, (other, self))

    def in_place(self, other):
        return _elementwise(name, (self, other), self)

    return forward, backward, in_place


for _verb, _name in [("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("pow", "power"), ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor")]:
    for _prefix, _method in zip(["", "r", "i"], _operators(_name)):
        setattr(Array, f"__{_prefix}{_verb}__", _method)
for _verb, _name in [("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")]:
    setattr(Array, f"__{_verb}__", _operators(_name)[0])


def _on_host(values):
    """Return an array of NumPy for any object that NumPy converts, or that exports DLPack."""
    if not hasattr(values, "__dlpack__") or isinstance(values, np.ndarray):
        return np.asarray(values)
    # CPU, and pages that are locked for CUDA or ROCm.
    on_host, cause = values.__dlpack_device__()[0] in (1, 3, 11), None
    try:
        if hasattr(values, "__array__"):
            return np.asarray(values)
        if on_host:
            return np.from_dlpack(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        if on_host:
            raise
        cause = error
    raise TypeError(f"values: expected an array in host memory, got {type(values).__name__} on another device; pass a copy such as values.cpu()") from cause


def asarray(values, dtype=None, comm=None):
    """Copy an array to the device.

    Parameters
    ----------
    values : array_like
        Real or complex numbers; also arrays in host memory of libraries that export DLPack. A
        `meshloom.Array` is returned unchanged, or converted to `dtype`.
    dtype : dtype, optional
        bool, float32, float64, complex64 or complex128. Default: the type of `values`; integers
        become float64, float16 becomes float32.
    comm : Comm or mpi4py.MPI.Comm, optional
        Rank whose device holds the array. Default: this process alone.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        If the elements are not numbers of a supported type, or `values` has masked elements or a
        unit, or is on a device that NumPy cannot read.
    meshloom.Error
        If the device is out of memory or lacks double precision.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import meshloom
    >>> meshloom.asarray([1, 2, 3])
    <meshloom.Array: (3,) of float64>
    """
    if isinstance(values, Array):
        return values if dtype is None else values.astype(dtype, copy=False)
    array = _on_host(plain(values, "values"))
    if array.dtype.kind not in "biufc":
        raise TypeError(f"values: expected real or complex numbers, got {array.dtype}")
    if dtype is not None:
        # A requested type may drop digits but not imaginary parts.
        array = array.astype(dtype, casting="same_kind" if array.dtype.kind in "fc" else "unsafe", copy=False)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.dtype.name not in _TYPES:
        raise TypeError(f"values: expected one of {', '.join(_TYPES)}, got {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    stored = contiguous.astype(_stored(array.dtype), copy=False)
    return Array._owning(_native.DeviceArray(resolve(comm), stored), array.dtype)
