"""Models: differentiable functions of fields, and their composition."""

import collections.abc
import importlib
from typing import NamedTuple, Optional

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._comm import agreed, together
from ._device_array import Array, asarray
from ._recipe import Recorded
from ._plain import plain
from ._space import Fields, both_axes, long_axes, same_shape


def given(described, values, comm):
    """Return the arrays of a field for these leaves, in the order of their names, on the device."""
    names = [native[0] for native, _ in described]
    if not isinstance(values, collections.abc.Mapping):
        if len(names) != 1:
            raise TypeError(f"field: expected a dictionary of {names}, got one array")
        values = {names[0]: values}
    if not set(names) <= set(values):
        raise ValueError(f"field: expected the leaves {names}, got {sorted(values)}")
    return [_given_one(native, shape, values[native[0]], comm) for native, shape in described]


def _given_one(native, shape, value, comm):
    name, kind, is_complex = native[0], native[1], native[4]
    if kind == "parameters":
        array = np.ascontiguousarray(np.asarray(value, dtype=np.float64))
    elif isinstance(value, Array):
        value._native.belongs_to(comm)
        wanted = np.dtype(np.complex64 if is_complex else np.float32)
        if value.dtype != wanted:
            raise ValueError(f"`{name}`: expected {wanted} on the device, got {value.dtype}; models compute in single precision")
        array = value
    else:
        array = asarray(value, np.complex64 if is_complex else np.float32, comm)
    if not same_shape(array.shape, shape):
        # Optimizers work with flat vectors.
        if array.ndim != 1 or array.size != np.prod(shape):
            raise ValueError(f"`{name}`: expected shape {long_axes(shape)} or a flat vector of {np.prod(shape)} numbers, got {array.shape}")
        array = array.reshape(tuple(int(n) for n in shape))
    return array.ravel() if kind == "parameters" else array._native


def check_finite(values, name):
    """Raise an error if a number is not finite in float32."""
    array = values.numpy() if isinstance(values, Array) else np.asarray(values)
    # float64 numbers beyond the range of float32 become infinite.
    with np.errstate(over="ignore"):
        rounded = array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)
    wrong = ~np.isfinite(rounded)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        rule = "numbers within the range of float32" if np.isfinite(array[at]) else "finite numbers"
        raise ValueError(f"{name}: expected {rule}, got {array[at]:g} at index {at}")


def of_given(comm, function, fields, call, finite=()):
    """Return the result of a function of fields. Collective.

    `fields` has the leaves and values of each argument. Values of the leaves named in `finite` must
    be finite.
    """

    def check():
        own = [given(described, values, comm) for described, values in fields]
        for name in finite:
            for _, values in fields:
                check_finite(values[name] if isinstance(values, collections.abc.Mapping) else values, f"`{name}`")
        return own, {"function": function}, None

    return together(comm, check, lambda own, _: call(*own))


def result(fields, arrays):
    """Return a result of the extension module: an array, or a dictionary for several leaves."""
    found = {
        name: array if isinstance(array, np.ndarray) else Array(array).reshape(shape)
        for (name, shape), array in zip(fields.items(), arrays)
    }
    return next(iter(found.values())) if len(found) == 1 else found


def _check_grids(gives, takes):
    """Raise an error for grids of other shapes or sizes than a model gives, naming both."""

    def long_sides(leaf):
        return [side for n, side in zip(leaf.shape, leaf.size) if n != 1]

    pairs = zip(gives.items(), takes.values()) if len(gives) == len(takes) == 1 else (((name, gives[name]), leaf) for name, leaf in takes.items() if name in gives)
    for (name, one), other in pairs:
        if one.size and other.size and (long_axes(one.shape), long_sides(one)) != (long_axes(other.shape), long_sides(other)):
            said = [f"{leaf} with sides {leaf.size}" for leaf in (one, other)]
            raise ValueError(f"`{name}`: the model gives {said[0]}, the next one takes {said[1]}; create both on one space, such as `model.target`")


def scipy_module(name, call):
    """Return a module of SciPy, which is optional."""
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError as error:
        raise ImportError(f"{call} needs the package scipy: pip install scipy") from error


class AdjointCheck(NamedTuple):
    """Result of `Model.check_adjoint`. The products are equal up to rounding.

    Attributes
    ----------
    forward : float
        Product ``<J dx, dy>`` with the derivative J.
    reverse : float
        Product ``<dx, J^T dy>``.
    tolerance : float
        Largest difference that is allowed.
    """

    forward: float
    reverse: float
    tolerance: float

    @property
    def difference(self):
        """Absolute difference of the products."""
        return abs(self.forward - self.reverse)


class DerivativeCheck(NamedTuple):
    """Result of `Model.check_derivative`: remainders of Taylor's formula.

    Attributes
    ----------
    remainders : list of tuple of float
        Steps h along a direction dx with the norms of ``f(x + h dx) - f(x) - h J dx``.
    rounding : float
        Rounding error of a remainder.
    order : float or None
        Order with which remainders fall with the step: about 2. None if the model is linear up to
        rounding.
    """

    remainders: list[tuple[float, float]]
    rounding: float
    order: Optional[float]


class Linearization:
    """A model linearized at a point, the result of `Model.at`.

    Attributes
    ----------
    value : Array, ndarray or dict of them
        Value of the model at the point.

    Notes
    -----
    Its methods are collective with the model's `comm`.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    >>> at = square.at([1.0, 3.0])
    >>> np.asarray(at.value).tolist(), np.asarray(at.jvp([1.0, 1.0])).tolist()
    ([1.0, 9.0], [2.0, 6.0])
    """

    def __init__(self, model, value, native):
        self._model, self.value, self._native = model, value, native

    def jvp(self, tangent):
        """Multiply the derivative with a tangent (Jacobian-vector product).

        Parameters
        ----------
        tangent : array_like, Array or dict of them
            A field of the domain of the model.

        Returns
        -------
        Array, ndarray or dict of them
            A field of the target of the model.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> np.asarray(square.at([1.0, 3.0]).jvp([1.0, 0.0])).tolist()
        [2.0, 0.0]
        """
        model = self._model
        return result(model.target, of_given(model._comm, "jvp", [(model._native.domain, tangent)], self._native.jvp))

    def as_linear_operator(self):
        """Return the derivative as an operator of SciPy, for `lsqr`, `lsmr`, `svds` and others.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator
            Its vectors are those of ``flatten`` of the domain and the target of the model.

        Raises
        ------
        ImportError
            If SciPy is not installed.

        Notes
        -----
        Products are collective with the model's `comm`: every rank must compute with the same
        vectors.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> line = op.matrix([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> operator = line.at([0.0, 0.0]).as_linear_operator()
        >>> (operator @ np.array([1.0, 2.0])).tolist()
        [1.0, 3.0, 5.0]
        """
        linalg = scipy_module("sparse.linalg", "as_linear_operator")
        domain, target = self._model.domain, self._model.target

        def product(v):
            return target.flatten(self.jvp(domain.restore(v.ravel())))

        def adjoint(v):
            return domain.flatten(self.vjp(target.restore(v.ravel())))

        return linalg.LinearOperator((target.size, domain.size), matvec=product, rmatvec=adjoint, dtype=np.float64)

    def vjp(self, cotangent):
        """Multiply the adjoint of the derivative with a cotangent (vector-Jacobian product).

        Parameters
        ----------
        cotangent : array_like, Array or dict of them
            A field of the target of the model.

        Returns
        -------
        Array, ndarray or dict of them
            A field of the domain of the model.

        Notes
        -----
        Collective with the model's `comm`. The inner product treats real and imaginary parts as two
        real numbers. For complex values the result is the conjugate of JAX's `vjp` of the conjugate
        cotangent.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> np.asarray(square.at([1.0, 3.0]).vjp([1.0, 1.0])).tolist()
        [2.0, 6.0]
        """
        model = self._model
        return result(model.domain, of_given(model._comm, "vjp", [(model._native.target, cotangent)], self._native.vjp))

    def jacobian(self, chunk=None, *, memory=1 << 28, gather=True):
        """Compute the derivative as a matrix in host memory.

        Parameters
        ----------
        chunk : int, optional
            Number of unit vectors per batch, 1 or more. Default: as many as `memory` holds.
        memory : int, default 2**28
            Bytes of device memory that a batch may take, measured while it runs. Ranks that share a
            device share them. Not used with `chunk`.
        gather : bool, default True
            Return all rows on all ranks. If False, each rank returns the rows of its own part of
            the value, in the order of that part, and holds no others.

        Returns
        -------
        ndarray of float64, shape (m, n)
            Rows are the m numbers of the target, columns the n numbers of the domain: leaf by leaf
            in alphabetical order, each in the order of its whole array. Complex numbers count as
            two.

        Raises
        ------
        ValueError
            If host memory lacks room for the matrix.
        Error
            If one unit vector takes more than `memory`.

        Notes
        -----
        Collective with the model's `comm`. It multiplies the derivative with unit vectors of the
        domain or of the target, whichever are fewer. The model is linearized once. The matrix has
        the same bits for any chunk and number of ranks.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> square.at([1.0, 3.0]).jacobian().tolist()
        [[2.0, 0.0], [0.0, 6.0]]
        """

        def check():
            size = (whole_number(memory, "memory", 1), True) if chunk is None else (whole_number(chunk, "chunk", 1), False)
            return size, {"function": "jacobian", "chunk": chunk, "memory": memory, "gather": bool(gather)}, None

        def rows(size, _):
            block = (0, self._native.extents()[0]) if gather else None
            return self._native.jacobian(size, block)

        return _matrix(together(self._model._comm, check, rows))

    def jacobian_blocks(self, rows=None, chunk=None, *, memory=1 << 28):
        """Iterate over blocks of rows of the derivative's matrix, which is never whole in memory.

        Parameters
        ----------
        rows : int, optional
            Rows of a block, 1 or more; the last block may have fewer. Default: as many as fill
            `memory` in host memory.
        chunk : int, optional
            Number of unit vectors per batch, as for `jacobian`.
        memory : int, default 2**28
            Bytes of host memory for a block, and of device memory for a batch, as for `jacobian`.

        Yields
        ------
        ndarray of float64, shape (rows, n)
            The next rows of `jacobian`, on all ranks.

        Raises
        ------
        Error
            If one unit vector takes more than `memory`.

        Notes
        -----
        Collective with the model's `comm`, at each step. A block takes as many products as it has
        rows or columns, whichever are fewer. A block of more rows than columns takes products with
        all columns: give it many rows.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(3), "y")
        >>> at = square.at([1.0, 2.0, 3.0])
        >>> sum(block.T @ block for block in at.jacobian_blocks(rows=2)).tolist()
        [[4.0, 0.0, 0.0], [0.0, 16.0, 0.0], [0.0, 0.0, 36.0]]
        """

        def check():
            size = (whole_number(memory, "memory", 1), True) if chunk is None else (whole_number(chunk, "chunk", 1), False)
            step = None if rows is None else whole_number(rows, "rows", 1)
            alike = {"function": "jacobian_blocks", "rows": rows, "chunk": chunk, "memory": memory}
            return (size, step), alike, None

        comm = self._model._comm
        (size, step), (count, width) = together(comm, check, lambda own, _: (own, self._native.extents()))
        step = max(1, memory // (8 * width)) if step is None else step
        return (_matrix(agreed(comm, self._native.jacobian, size, (first, min(first + step, count)))) for first in range(0, count, step))


def _matrix(native):
    """Return a matrix of the extension module as an array of two axes."""
    values, rows, columns = native
    return values.reshape(rows, columns)


class Model(Recorded):
    """A differentiable function of fields.

    Functions of `meshloom.operators` and `meshloom.inference` create models; the methods compose
    them. ``+ - * / **`` and ``abs`` compute with models, numbers and arrays, place by place. Models
    of one leaf each may have leaves of different names: the result has that of the first one. A
    vector of length 1 counts for all places.

    Attributes
    ----------
    domain, target : Fields
        Names and shapes of the fields that the model takes and gives, on this rank: a dict that can
        be passed as a space, ``hartley(model.target)``, and converts fields to vectors.
    own_cosmology : ndarray of shape (7,)
        Only for `simulation`: omega_m, omega_b, h, n_s, A_s or sigma8, w0 and wa of its
        cosmology.
    variance : float
        Only for `linear_density`.

    Notes
    -----
    A field is an array, or a dictionary of arrays by name, which may have leaves of other models
    too. Axes of length 1 may be left out, and a flat array of the right length is accepted. Models
    compute in float32 on the device; their results are `meshloom.Array`. All methods are collective
    with the `comm` of the model.

    Models do not change, so `copy` returns the model itself. Models on one rank pickle, as the
    calls that made them: loading compiles them on the device of the process, with the same bits.
    Functions of `custom` must pickle too.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import operators as op
    >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
    >>> np.asarray((square + square)([1.0, 3.0])).tolist()
    [2.0, 18.0]
    """

    # Names of leaves whose values must be finite.
    _finite = ()
    _derived = ["_comm", "domain", "target"]

    def __init__(self, native, comm, axes):
        self._native, self._comm, self._axes = native, comm, axes
        self.domain, self.target = Fields(native.domain, axes, comm), Fields(native.target, axes, comm)

    def __repr__(self):
        return f"<meshloom.Model {self._native.name}: {dict(self.domain)} -> {dict(self.target)}>"

    def __call__(self, x):
        """Compute the value at `x`.

        Parameters
        ----------
        x : array_like, Array or dict of them
            A field of the domain.

        Returns
        -------
        Array, ndarray or dict of them
            A field of the target.

        Raises
        ------
        ValueError
            If names, shapes or types of fields do not fit.
        """
        return result(self.target, of_given(self._comm, "a model", [(self._native.domain, x)], self._native.value, self._finite))

    def at(self, x):
        """Compute the value and the derivative at `x`.

        Parameters
        ----------
        x : array_like, Array or dict of them
            A field of the domain.

        Returns
        -------
        Linearization

        Raises
        ------
        ValueError
            If names, shapes or types of fields do not fit.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> square.at([1.0, 3.0]).value
        <meshloom.Array: (2,) of float32>
        """
        found, derivative = of_given(self._comm, "at", [(self._native.domain, x)], self._native.at, self._finite)
        return Linearization(self, result(self.target, found), derivative)

    def random(self, seed=0, scale=1.0):
        """Draw a random field of the domain.

        Parameters
        ----------
        seed : int, default 0
            Seed of the random numbers, 0 or more.
        scale : float, default 1.0
            Standard deviation.

        Returns
        -------
        Array, ndarray or dict of them
            Normal numbers of mean 0, the same for a seed on any number of ranks.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> square.random(seed=1).shape
        (2,)
        """
        return random(self._native.domain, self.domain, self._comm, seed, scale)

    def check_derivative(self, x=None, *, seed=0):
        """Compare the derivative with differences of values.

        Parameters
        ----------
        x : array_like, Array or dict of them, optional
            Point. Default: 0.1 times standard normal numbers of the seed.
        seed : int, default 0
            Seed of the random direction, whose numbers are in [-1, 1]; 0 or more.

        Returns
        -------
        DerivativeCheck

        Raises
        ------
        Error
            If the value and `jvp` disagree. The message has all remainders.

        Notes
        -----
        Collective with the model's `comm`. The model must be smooth between `x` and `x` plus the
        direction.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> round(square.check_derivative().order, 1)
        2.0
        """
        steps, rounding, order = self._checked("check_derivative", x, seed, lambda x, seed: self._native.check_derivative(x, seed))
        return DerivativeCheck([tuple(step) for step in steps], rounding, order)

    def check_adjoint(self, x=None, *, seed=0):
        """Compare `jvp` and `vjp` for a random tangent and cotangent.

        Parameters
        ----------
        x : array_like, Array or dict of them, optional
            Point. Default: 0.1 times standard normal numbers of the seed.
        seed : int, default 0
            Seed of the point, 0 or more.

        Returns
        -------
        AdjointCheck

        Raises
        ------
        Error
            If `jvp` and `vjp` disagree by more than rounding. The message has both products, and
            says which is wrong if differences of values decide it.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> check = square.check_adjoint()
        >>> check.difference <= check.tolerance
        True
        """
        return AdjointCheck(*self._checked("check_adjoint", x, seed, lambda x, _: self._native.check_adjoint(x)))

    def _checked(self, function, x, seed, call):
        """Return the result of a check at a point, or at a random one."""

        def check():
            number = whole_number(seed, "seed")
            own = None if x is None else given(self._native.domain, x, self._comm)
            return (own, number), {"function": function, "seed": number, "x": "not given" if x is None else "given"}, None

        def work(own, _):
            point, number = own
            if point is None:
                point = _native.white_noise(self._comm, [native for native, _ in self._native.domain], number, 0.1, 0)
            return call(point, number)

        return together(self._comm, check, work)

    def _joined(self, other, how, check=lambda other: None):
        def join():
            if not isinstance(other, Model):
                raise TypeError(f"expected a model, not {type(other).__name__}")
            check(other)
            return Model(how(other._native), self._comm, both_axes(self._axes, other._axes))

        return agreed(self._comm, join)

    def then(self, next):
        """Compose the model with another one of its result.

        Parameters
        ----------
        next : Model
            Its domain has the leaves of this model's target. If both have one leaf, names may
            differ.

        Returns
        -------
        Model
            ``next(self(x))``.

        Raises
        ------
        ValueError
            If leaves, grids or sizes do not fit.
        TypeError
            If `next` is not a model.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> np.asarray(square.then(op.diagonal(square.target, [1.0, 10.0]))([1.0, 3.0])).tolist()
        [1.0, 90.0]
        """
        return self._joined(next, self._native.then, lambda next: _check_grids(self.target.space.leaves, next.domain.space.leaves))

    def substitute(self, model):
        """Replace arguments by the results of another model.

        Parameters
        ----------
        model : Model
            Its target has leaves of this model's domain.

        Returns
        -------
        Model
            A function of the leaves of `model` and of this model's other leaves.

        Raises
        ------
        ValueError
            If this model has no such leaf, or grids or sizes do not fit.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> import numpy as np
        >>> from meshloom import operators as op
        >>> text = "fn f(a: f32, b: f32) -> f32 { return a / b; }"
        >>> both = op.Space(a=op.cells(2), b=op.cells(2))
        >>> divisor = op.diagonal(op.Space(x=op.cells(2)), [2.0, 4.0]).rename({"x": "b"})
        >>> model = op.pointwise(text, "f", both, "y").substitute(divisor)
        >>> np.asarray(model({"a": [8.0, 8.0], "x": [1.0, 1.0]})).tolist()
        [4.0, 2.0]
        """


        def check(model):
            taken = {name: leaf for name, leaf in self.domain.space.leaves.items() if name in model.target}
            _check_grids(model.target.space.leaves, taken)

        return self._joined(model, self._native.substitute, check)

    def zip(self, other):
        """Combine two models side by side.

        Parameters
        ----------
        other : Model
            Its target has other leaf names.

        Returns
        -------
        Model
            A function of the leaves of both that gives the leaves of both. Leaves of the same name
            in both domains are one leaf.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> space = op.Space(x=op.cells(2))
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", space, "y")
        >>> cube = op.pointwise("fn f(x: f32) -> f32 { return x * x * x; }", "f", space, "z")
        >>> square.zip(cube).target
        {'y': (2,), 'z': (2,)}
        """
        return self._joined(other, self._native.zip)

    def giving(self, *names):
        """Return the same model with some leaves of its target only.

        Parameters
        ----------
        *names : str
            Names of the leaves to keep. Models side by side that give none of them are removed.

        Returns
        -------
        Model

        Raises
        ------
        ValueError
            If a name is not in the target, or no name is given.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> space = op.Space(x=op.cells(2))
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", space, "y")
        >>> both = square.zip(op.pointwise("fn f(x: f32) -> f32 { return -x; }", "f", space, "z"))
        >>> both.giving("z").target
        {'z': (2,)}
        """

        def part():
            for name in names:
                if name not in self.target:
                    raise ValueError(f"the model gives {', '.join(self.target)}, and not {name!r}")
            if not names:
                raise ValueError("names: expected one leaf or more, got none")
            return Model(self._native.giving(list(names)), self._comm, self._axes)

        return agreed(self._comm, part)

    def rename(self, target=None, domain=None):
        """Return the same model with other names of leaves.

        Parameters
        ----------
        target, domain : dict of str to str, optional
            New name of each leaf to rename, by its present name.

        Returns
        -------
        Model

        Raises
        ------
        ValueError
            If no leaf has a present name, or two leaves get the same name.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import operators as op
        >>> square = op.pointwise("fn f(x: f32) -> f32 { return x * x; }", "f", op.cells(2), "y")
        >>> square.rename({"y": "power"}, domain={"x": "field"})
        <meshloom.Model f: {'field': (2,)} -> {'power': (2,)}>
        """

        def renamed():
            for pairs, what in ((domain, "domain"), (target, "target")):
                if not isinstance(pairs, (collections.abc.Mapping, type(None))):
                    raise TypeError(f'{what}: expected new names by present ones, such as {{"x": "field"}}, got {pairs!r}')
            sides = [list((pairs or {}).items()) for pairs in (domain, target)]
            for old, new in [*sides[0], *sides[1]]:
                if not isinstance(old, str) or not isinstance(new, str):
                    raise TypeError(f"expected names, got {old!r}: {new!r}")
            return Model(self._native.renamed(*sides), self._comm, self._axes)

        return agreed(self._comm, renamed)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """Compute ``array * model`` and other operators; functions of NumPy are errors."""
        reflected = _REFLECTED.get(ufunc)
        if reflected and method == "__call__" and not options and isinstance(inputs[1], Model):
            return getattr(inputs[1], reflected)(inputs[0])
        raise TypeError(f"numpy.{ufunc.__name__} takes no model; use the functions of meshloom.operators, such as operators.exp(model)")

    def _operand(self, name, other, number, reflected=False):
        """Return an operation with a model, a number or an array.

        `number` gives the model for a number.
        """
        if isinstance(other, Model):
            return self._joined(other, lambda native: self._native.combined(name, native))
        try:
            ndim = np.ndim(other) if not isinstance(other, collections.abc.Mapping) else 1
        except ValueError:
            return NotImplemented
        if ndim == 0:
            try:
                value = real_number(other, "operand")
            except TypeError:
                return NotImplemented
            return together(self._comm, lambda: (None, {"operation": name, "number": value}, None), lambda *_: Model(number(value), self._comm, self._axes))
        made = agreed(self._comm, lambda: self._with_array(name, other, reflected))
        return Model(made, self._comm, self._axes)

    def _with_array(self, name, values, reflected):
        """Return the native model of an operation with an array."""
        leaves = self.target.space.leaves
        check_finite_each(values)
        if len(leaves) == 1:
            label, leaf = next(iter(leaves.items()))
            if leaf.copies > 1:
                values = for_copies(self.target[label], values)
            place = leaf._place(leaf.complex, leaf.copies)
            native = place._native(label)
            described = [(native, _native.leaf_shape(self._comm, native))]
            if leaf.complex and name == "times" and leaf.copies == 1:
                factors = given(described, values, self._comm)[0]
                return self._native.then(_native.diagonal(self._comm, self.target.space._native(), native, factors))
            # One number for all components, or one for each.
            if leaf.components == 1 or not same_shape(np.shape(values), described[0][1]):
                described = self._native.target
        else:
            described = self._native.target
        constant = _native.constant(self._comm, [native for native, _ in described], given(described, values, self._comm))
        first, second = (constant, self._native) if reflected else (self._native, constant)
        return first.combined(name, second)

    def __add__(self, other):
        """Return the sum with a model, a number or an array."""
        return self._operand("plus", other, lambda number: self._native.with_number("shifted", number))

    __radd__ = __add__

    def __sub__(self, other):
        """Return the difference to a model, a number or an array."""
        return self._operand("minus", other, lambda number: self._native.with_number("shifted", -number))

    def __rsub__(self, other):
        """Return a number or an array less the model."""
        return self._operand("minus", other, lambda number: (-self)._native.with_number("shifted", number), True)

    def __mul__(self, other):
        """Return the product with a model, a number or an array, element by element."""
        return self._operand("times", other, lambda number: self._native.with_number("scaled", number))

    __rmul__ = __mul__

    def __truediv__(self, other):
        """Return the quotient by a model, a number or an array."""
        return self._operand("over", other, lambda number: self._native.with_number("scaled", _inverse(number)))

    def __rtruediv__(self, other):
        """Return a number or an array over the model."""
        return self._operand("over", other, lambda number: self._native.with_number("power", -1.0).with_number("scaled", number), True)

    def __pow__(self, exponent):
        """Return the power by a model, a number or an array; integers up to 64 take any base."""
        return self._operand("to_power", exponent, lambda number: self._native.with_number("power", number))

    def __rpow__(self, base):
        """Return a positive number or array to the power of the model."""
        return self._operand("to_power", base, lambda number: self._native.with_number("scaled", _logarithm(number)).function("exp"), True)

    def __neg__(self):
        """Return the negative of the model."""
        return self._applied(lambda: self._native.with_number("scaled", -1.0))

    def __abs__(self):
        """Return the magnitude; its derivative at 0 is 0."""
        return self._applied(lambda: self._native.function("abs"))

    def _applied(self, make):
        return agreed(self._comm, lambda: Model(make(), self._comm, self._axes))


_REFLECTED = {np.add: "__radd__", np.subtract: "__rsub__", np.multiply: "__rmul__", np.true_divide: "__rtruediv__", np.power: "__rpow__"}


def _inverse(number):
    if number == 0:
        raise ZeroDivisionError("expected a divisor other than 0, got 0")
    return 1.0 / number


def _logarithm(number):
    if not number > 0:
        raise ValueError(f"expected a positive base, got {number:g}")
    return float(np.log(number))


def for_copies(shape, values):
    """Return an array with an axis of copies, repeated along axes of length 1 as NumPy does."""
    if isinstance(values, Array) or isinstance(values, collections.abc.Mapping):
        return values
    array = np.asarray(plain(values, "operand"))
    fits = 1 < array.ndim <= len(shape) and all(n in (1, own) for n, own in zip(array.shape[::-1], shape[::-1]))
    return np.broadcast_to(array, shape) if fits else array


def check_finite_each(values):
    """Raise an error if a number of an operand is not finite in float32."""
    named = values.items() if isinstance(values, collections.abc.Mapping) else [("operand", values)]
    for name, array in named:
        check_finite(array, name)


def random(described, fields, comm, seed, scale, kind=0):
    """Draw normal numbers for these leaves; different numbers for each `kind`."""
    leaves = [native for native, _ in described]

    def check():
        own = whole_number(seed, "seed"), real_number(scale, "scale")
        return own, {"function": "random", "seed": own[0], "scale": own[1]}, None

    return result(fields, together(comm, check, lambda own, _: _native.white_noise(comm, leaves, *own, kind)))
