"""NumPy's functions of device arrays, by their methods."""

import numpy as np

# Elementwise functions by NumPy's name, with the name on the device where it differs.
ELEMENTWISE = {
    name: name
    for name in (
        "add subtract multiply divide power maximum minimum hypot arctan2 negative conjugate absolute square reciprocal "
        "sqrt sign floor ceil trunc rint exp expm1 exp2 log log1p log2 log10 sin cos tan arcsin arccos arctan "
        "sinh cosh tanh arcsinh arccosh arctanh equal not_equal less less_equal greater greater_equal isnan isinf isfinite "
        "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor"
    ).split()
}
ELEMENTWISE.update(true_divide="divide", fabs="absolute", positive="copy", conj="conjugate", invert="bitwise_not", bitwise_invert="bitwise_not")

# Functions whose result is on the host, which read arrays as NumPy does.
_READING = "allclose array_equal array_equiv save savez savez_compressed savetxt array2string array_repr array_str".split()

_FUNCTIONS: dict = {}


def implements(*names):
    """Register a function for functions of NumPy; names with a dot are those of a module."""

    def register(function):
        for name in names:
            module, _, last = name.rpartition(".")
            found = getattr(getattr(np, module) if module else np, last, None)
            if found is not None:
                _FUNCTIONS[found] = function
        return function

    return register


def function_of(numpys):
    """Return the implementation of a function of NumPy, or None."""
    return _FUNCTIONS.get(numpys)


def only(name, **options):
    """Raise an error for options that are not supported."""
    given = [option for option, value in options.items() if value is not None and value is not np._NoValue]
    if given:
        raise TypeError(f"{name}: `{given[0]}` is not supported for a meshloom.Array; use numpy.asarray(a)")


def _methods(**names):
    for name, method in names.items():
        implements(name)(lambda a, *arguments, _method=method, **options: getattr(a, _method)(*arguments, **options))


_methods(
    reshape="reshape", transpose="transpose", ravel="ravel", squeeze="squeeze", take="take", copy="copy", permute_dims="transpose",
    clip="clip", astype="astype",
)  # fmt: skip


def _reduction(method):
    def reduce(a, axis=None, dtype=None, out=None, keepdims=False, **others):
        only(method, dtype=dtype, out=out, **others)
        return getattr(a, method)(axis=axis, keepdims=keepdims is True)

    return reduce


for _method in ("sum", "prod", "mean"):
    implements(_method)(_reduction(_method))


def _extreme(method):
    def reduce(a, axis=None, out=None, keepdims=False, **others):
        only(method, out=out, **others)
        return getattr(a, method)(axis=axis, keepdims=keepdims is True)

    return reduce


for _names, _method in [(["max", "amax"], "max"), (["min", "amin"], "min"), (["any"], "any"), (["all"], "all")]:
    implements(*_names)(_extreme(_method))


def _spread(method):
    def reduce(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, **others):
        only(method, dtype=dtype, out=out, **others)
        return getattr(a, method)(axis=axis, ddof=ddof, keepdims=keepdims is True)

    return reduce


implements("var")(_spread("var"))
implements("std")(_spread("std"))

implements("shape")(lambda a: a.shape)
implements("real")(lambda val: val.real)
implements("imag")(lambda val: val.imag)
implements("iscomplexobj")(lambda x: x.dtype.kind == "c")
implements("isrealobj")(lambda x: x.dtype.kind == "f")


@implements("ndim")
def _ndim(a):
    return a.ndim


@implements("size")
def _size(a, axis=None):
    return a.size if axis is None else a.shape[axis]


@implements("angle")
def _angle(z, deg=False):
    angle = z._unary("angle")
    return angle * (180 / np.pi) if deg else angle


def _dtypes(arguments):
    return [one.dtype if hasattr(one, "_copy_part") else one for one in arguments]


@implements("result_type")
def _result_type(*arrays_and_dtypes):
    return np.result_type(*_dtypes(arrays_and_dtypes))


@implements("can_cast")
def _can_cast(from_, to, casting="safe"):
    return np.can_cast(*_dtypes([from_, to]), casting=casting)


@implements("vdot")
def _vdot(a, b):
    from_device = a if hasattr(a, "_vdot") else b
    return from_device._vdot(a, b)


@implements("dot")
def _dot(a, b, out=None):
    only("numpy.dot", out=out)
    if np.ndim(a) == np.ndim(b) == 1 and np.shape(a) != np.shape(b):
        raise ValueError(f"shapes {np.shape(a)} and {np.shape(b)} not aligned")
    if np.ndim(a) and np.ndim(b) and not np.ndim(a) == np.ndim(b) == 1:
        return np.matmul(a, b)
    product = a * b
    return product.sum() if np.ndim(a) == 1 and np.ndim(b) == 1 else product


@implements("where")
def _where(condition, *choices):
    if len(choices) != 2:
        raise TypeError("numpy.where: expected a condition and two arrays; the size of other results depends on values: use numpy.asarray(a)")
    one = next(one for one in (condition, *choices) if hasattr(one, "_chosen"))
    return one._chosen(condition, *choices)


def _place(method):
    def find(a, axis=None, out=None, *, keepdims=False):
        only(f"numpy.{method}", out=out, keepdims=None if keepdims in (False, np._NoValue) else keepdims)
        return getattr(a, method)(axis)

    return find


for _method in ("argmin", "argmax"):
    implements(_method)(_place(_method))


@implements("linalg.norm")
def _norm(x, ord=None, axis=None, keepdims=False):
    if ord is not None and not (ord == 2 and (x.ndim == 1 or isinstance(axis, int))):
        raise TypeError("numpy.linalg.norm: expected ord=None, the root of the sum of squares; use numpy.asarray(a)")
    return x._unary("squared_magnitude").sum(axis=axis, keepdims=keepdims)._unary("sqrt")


@implements("expand_dims")
def _expand_dims(a, axis):
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = a.ndim + len(axes)
    places = {place % ndim for place in axes if -ndim <= place < ndim}
    if len(places) < len(axes):
        raise ValueError(f"axis: expected different axes of {ndim}, got {axis}")
    lengths = iter(a.shape)
    return a.reshape(tuple(1 if place in places else next(lengths) for place in range(ndim)))


@implements("moveaxis")
def _moveaxis(a, source, destination):
    # NumPy's own rules, on an array of no memory.
    return a.transpose(_order(a, lambda order: np.moveaxis(order, source, destination)))


@implements("swapaxes")
def _swapaxes(a, axis1, axis2):
    return a.transpose(_order(a, lambda order: np.swapaxes(order, axis1, axis2)))


def _order(a, rearranged):
    """Return the order of axes that a function of NumPy gives."""
    lengths = np.broadcast_to(np.zeros(()), range(2, 2 + a.ndim))
    return [length - 2 for length in rearranged(lengths).shape]


@implements("flip")
def _flip(m, axis=None):
    axes = range(m.ndim) if axis is None else [one % m.ndim for one in (axis if isinstance(axis, tuple) else (axis,))]
    return m[tuple(slice(None, None, -1 if number in axes else 1) for number in range(m.ndim))]


@implements("roll")
def _roll(a, shift, axis=None):
    if axis is None:
        return _roll(a.ravel(), shift, 0).reshape(a.shape)
    for by, one in zip(*(pair.ravel().tolist() for pair in np.broadcast_arrays(shift, axis))):
        length = a.shape[one]
        by = by % length if length else 0
        part = [slice(None)] * a.ndim
        rolled = a._new(a.shape, a.dtype)
        for target, source in [(slice(by, None), slice(None, length - by)), (slice(None, by), slice(length - by, None))]:
            part[one] = target
            to = tuple(part)
            part[one] = source
            rolled._copy_part(to, a, tuple(part))
        a = rolled
    return a


@implements("concatenate")
def _concatenate(arrays, axis=0, out=None, dtype=None, **others):
    only("numpy.concatenate", out=out, dtype=dtype, **others)
    arrays = list(arrays)
    if axis is None:
        arrays, axis = [one.reshape(-1) for one in arrays], 0
    first = next(one for one in arrays if hasattr(one, "_copy_part"))
    shape = list(arrays[0].shape)
    if not shape:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {len(shape)}")
    axis %= len(shape)
    for one in arrays:
        if len(one.shape) != len(shape) or any(n != m for at, (n, m) in enumerate(zip(one.shape, shape)) if at != axis):
            raise ValueError(f"arrays: expected equal shapes except along axis {axis}, got {[tuple(one.shape) for one in arrays]}")
    shape[axis] = sum(one.shape[axis] for one in arrays)
    joined = first._new(shape, np.result_type(*_dtypes(arrays)))
    part, begin = [slice(None)] * len(shape), 0
    for one in arrays:
        part[axis] = slice(begin, begin + one.shape[axis])
        joined[tuple(part)] = one
        begin += one.shape[axis]
    return joined


@implements("stack")
def _stack(arrays, axis=0, out=None, **others):
    only("numpy.stack", out=out, **others)
    arrays = list(arrays)
    if any(one.shape != arrays[0].shape for one in arrays):
        raise ValueError(f"arrays: expected equal shapes, got {[tuple(one.shape) for one in arrays]}")
    return _concatenate([np.expand_dims(one, axis) for one in arrays], axis)


@implements("copyto")
def _copyto(dst, src, casting="same_kind", where=True):
    only("numpy.copyto", where=None if where is True else where)
    if not hasattr(dst, "_copy_part"):
        raise TypeError("numpy.copyto: the target is in host memory; use numpy.asarray(a)")
    dst[...] = src


def _like(value):
    def create(a, *fill, dtype=None, order="K", subok=True, shape=None, **others):
        only("numpy.full_like", **others)
        created = a._new(a.shape if shape is None else shape, a.dtype if dtype is None else dtype)
        of = fill[0] if fill else value
        created[...] = bool(of) if created.dtype.kind == "b" else of
        return created

    return create


implements("zeros_like")(_like(0.0))
implements("empty_like")(_like(0.0))
implements("ones_like")(_like(1.0))


@implements("full_like")
def _full_like(a, fill_value, **options):
    return _like(0.0)(a, fill_value, **options)


def _reading(function):
    def read(*arguments, **options):
        def host(value):
            return value.numpy() if hasattr(value, "_copy_part") else value

        return function(*map(host, arguments), **{name: host(value) for name, value in options.items()})

    return read


for _name in _READING:
    implements(_name)(_reading(getattr(np, _name)))
