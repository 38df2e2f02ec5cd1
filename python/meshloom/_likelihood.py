"""Likelihoods of data given a model."""

from typing import NamedTuple

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array
from ._comm import agreed, check_parts, gathered, given_or_not, is_alone, resolve, together
from ._model import Model, long_axes, of_given, random, result, same_shape
from ._recipe import Recorded, check_alone, plain_reduce
from ._space import Fields, Leaf, Space, both_axes


class DataReport(NamedTuple):
    """Residuals of one data set, an element of `Likelihood.report`.

    Attributes
    ----------
    name : str
        Name of the data set.
    reduced_chi_squared : float
        Mean squared residual in units of the noise. 1 is expected if model and noise are right; see
        `StudentT` for its value.
    mean : float
        Mean residual in units of the noise. 0 is expected.
    n_data : int
        Number of data that count.
    """

    name: str
    reduced_chi_squared: float
    mean: float
    n_data: int


class Likelihood(Recorded):
    """The energy ``-ln p(data | x)`` of data, up to a constant.

    `Gaussian` and other functions create likelihoods of data. `amend` composes one with a model.
    ``a + b`` is the likelihood of two independent data sets.

    Notes
    -----
    Likelihoods of models are collective with the `comm` of the model, and so are their methods.
    They pickle as models do.

    Examples
    --------
    >>> from meshloom import inference as mi, operators as op
    >>> double = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", op.cells(2), "y")
    >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(double)
    >>> likelihood([1.0, 1.0])
    2.0
    """

    def __init__(self, native, comm, axes):
        self._native, self._comm, self._axes = native, comm, axes

    @property
    def domain(self):
        """Names and shapes of the fields that it is a function of, a dict."""
        return Fields(self._native.domain, self._axes, self._comm)

    @property
    def name(self):
        """Names of its data sets, joined by " + "."""
        return self._native.name

    @property
    def degrees_of_freedom(self):
        """Number of data that count, on all ranks."""
        return self._native.degrees_of_freedom()

    def __repr__(self):
        return f"<meshloom.Likelihood of {self.name}: {dict(self.domain)}>"

    def _at(self, function, call, *fields):
        return of_given(self._comm, function, [(self._native.domain, x) for x in fields], call)

    def amend(self, model):
        """Compose the likelihood with a model that predicts the data.

        Parameters
        ----------
        model : Model
            In a sum of likelihoods each data set takes the leaf of the model's target with its
            name, and the model runs once for all. A single data set takes the only leaf, whatever
            its name.

        Returns
        -------
        Likelihood
            A function of the domain of `model`.

        Raises
        ------
        ValueError
            If shapes or names do not fit.
        TypeError
            If `model` is not a model.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi, operators as op
        >>> double = op.pointwise("fn f(x: f32) -> f32 { return 2.0 * x; }", "f", op.cells(2), "y")
        >>> mi.Gaussian([2.0, 4.0]).amend(double).domain
        {'x': (2,)}
        """

        def amended():
            _check_model(model)
            return Likelihood(self._native.amend(model._native), model._comm, both_axes(self._axes, model._axes))

        return agreed(self._comm, amended)

    def __add__(self, other):
        """Return the likelihood of two independent data sets."""
        def added():
            if not isinstance(other, Likelihood):
                raise TypeError(f"expected a likelihood to add, not {type(other).__name__}")
            return _Sum(self, other) if isinstance(self, _Unplaced) or isinstance(other, _Unplaced) else _plus(self, other)

        comm = self._known_comm()
        return added() if comm is None else agreed(comm, added)

    def _takes(self):
        """Return the names of the fields that it is a function of."""
        return list(self.domain)

    def _titles(self):
        """Return the names of its data sets, one by one if known."""
        return [self.name]

    def _known_comm(self):
        """Return its ranks; None until a model defines them."""
        return self._comm

    def __call__(self, x):
        """Compute the energy at `x`, a float.

        Parameters
        ----------
        x : array_like, Array or dict of them
            A field of the domain.
        """
        return self._at("a likelihood", self._native.energy, x)

    def value_and_grad(self, x):
        """Compute the energy and its gradient at `x`.

        Parameters
        ----------
        x : array_like, Array or dict of them
            A field of the domain.

        Returns
        -------
        energy : float
        gradient : Array, ndarray or dict of them
            A field of the domain.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> energy, gradient = mi.Gaussian([1.0, 3.0]).value_and_grad([1.0, 1.0])
        >>> energy, gradient.numpy().tolist()
        (2.0, [0.0, -2.0])
        """
        energy, gradient = self._at("value_and_grad", self._native.gradient, x)
        return energy, result(self.domain, gradient)

    def metric(self, x, v):
        """Multiply the Fisher metric at `x` with `v`.

        Parameters
        ----------
        x, v : array_like, Array or dict of them
            Fields of the domain.

        Returns
        -------
        Array, ndarray or dict of them
            A field of the domain.

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> mi.Gaussian([1.0, 3.0], 0.5).metric([1.0, 1.0], [1.0, 0.0]).numpy().tolist()
        [4.0, 0.0]
        """
        return result(self.domain, self._at("metric", self._native.metric, x, v))

    def report(self, x):
        """Report how well each data set is fitted at `x`.

        Parameters
        ----------
        x : array_like, Array or dict of them
            A field of the domain.

        Returns
        -------
        list of DataReport

        Notes
        -----
        Collective with the model's `comm`.

        Examples
        --------
        >>> from meshloom import inference as mi
        >>> mi.Gaussian([1.0, 3.0]).report([1.0, 1.0])[0].reduced_chi_squared
        2.0
        """
        return [DataReport(*one) for one in self._at("report", self._native.report, x)]

    def random(self, seed=0, scale=1.0):
        """Draw a random field of the domain, for example as the start of a fit.

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
        >>> from meshloom import inference as mi
        >>> mi.Gaussian([1.0, 3.0]).random(seed=1).shape
        (2,)
        """
        return random(self._native.domain, self.domain, self._comm, seed, scale)


def _check_model(model):
    if not isinstance(model, Model):
        remedy = "; make one by operators.from_jax or operators.custom" if callable(model) else ""
        raise TypeError(f"model: expected a model, not {type(model).__name__}{remedy}")


def _plus(one, other):
    """Return the sum of two likelihoods."""
    return Likelihood(one._native.plus(other._native), one._comm, both_axes(one._axes, other._axes))


class _Unplaced(Likelihood):
    """A likelihood of data without a model.

    The model defines the place of the data; until then, `_own` has them at the cells of a grid.
    """

    _native = property(lambda self: self._own._native)
    _comm = property(lambda self: self._own._comm)
    _axes = property(lambda self: self._own._axes)
    name = property(lambda self: " + ".join(self._titles()))

    def __repr__(self):
        return f"<meshloom.Likelihood of {self.name}>"

    def __reduce__(self):
        check_alone(self, self._known_comm())
        return plain_reduce(self, _made=None, _given_comm=None)


class _Sum(_Unplaced):
    """A sum of likelihoods of which at least one has no model yet."""

    def __init__(self, one, other):
        for name in one._titles():
            if name in other._titles():
                raise ValueError(f"data `{name}`: two data sets have this name; choose different names")
        self._parts = one, other
        self._made = None

    def _titles(self):
        return [name for part in self._parts for name in part._titles()]

    def _takes(self):
        return list(dict.fromkeys(name for part in self._parts for name in part._takes()))

    def _known_comm(self):
        known = (part._known_comm() for part in self._parts)
        return next((comm for comm in known if comm is not None), None)

    @property
    def _own(self):
        if self._made is None:
            one, other = self._parts
            self._made = agreed(one._comm, lambda: _plus(one, other))
        return self._made

    def amend(self, model):
        _check_model(model)

        def same():
            if sorted(self._takes()) != sorted(model.target):
                raise ValueError(f"the model gives {', '.join(model.target)}; the data sets are of {', '.join(self._takes())}")

        agreed(model._comm, same)
        one, other = (part.amend(model.giving(*part._takes())) for part in self._parts)
        return one + other


class _OfData(_Unplaced):
    """Data without a model."""

    def __init__(self, kind, data, options, components, *, name, mask, comm, each=("", None)):
        self._kind, self._components, self._given_comm = kind, components, comm
        self._made = None
        given = data, options, name, mask, *each
        if comm is None:
            self._take(*given)
        else:
            agreed(resolve(comm), self._take, *given)

    def _take(self, data, options, name, mask, name_of_each, each):
        if np.ma.is_masked(data):
            counts = ~np.ma.getmaskarray(data)
            mask = counts if mask is None else counts & np.asarray(mask)
            data = data.filled(0)
        self._data = real_array(data, "data").astype(np.float64)
        if not isinstance(name, str):
            raise TypeError(f"name: expected a str, got {type(name).__name__}")
        self._label, self._options = name, {}
        for option, number in options.items():
            self._options["number"] = whole_number(number, option, 2) if option == "classes" else real_number(number, option)
        if mask is not None:
            mask = np.array(mask, order="C")
            if mask.dtype != bool or mask.shape != self._data.shape:
                raise ValueError(f"mask: expected booleans of shape {self._data.shape}, True where data count")
            self._options["mask"] = mask.ravel()
        # Values that must be the same on all ranks.
        self._alike = {"kind of likelihood": self._kind, "name": name, "mask": given_or_not(mask), **options}
        self._take_each(name_of_each, each)
        # Without ranks, the ranks of the model check together in `amend`.
        if self._given_comm is not None or is_alone():
            self._check_values(name_of_each)

    def _check_values(self, name_of_each):
        """Raise an error for values that this kind of likelihood does not take."""
        counts = self._options.get("mask", True)
        data = self._data.ravel()
        wrong = ~np.isfinite(data)
        rule = "finite numbers within the range of float32"
        if self._kind == "poisson":
            wrong |= (data < 0) | (data != np.floor(data))
            rule = "counts, integers of 0 or more"
        elif self._kind == "categorical":
            classes = self._options["number"]
            wrong |= (data < 0) | (data >= classes) | (data != np.floor(data))
            rule = f"class labels, integers from 0 to {classes - 1}"
        wrong |= np.abs(data) > np.finfo(np.float32).max
        if (wrong & counts).any():
            at = np.unravel_index(np.argmax(wrong & counts), self._data.shape)
            raise ValueError(f"data: expected {rule}, got {self._data[at]:g} at index {tuple(int(i) for i in at)}; correct it or pass a mask that is False there")
        dof = self._options.get("number", 1)
        if self._kind.startswith("student_t") and not 0 < dof < np.inf:
            raise ValueError(f"dof: expected a positive finite number, got {dof:g}")
        noise = np.atleast_1d(self._options.get("noise", self._options.get("each", 1.0)))
        bad = ~(noise >= 0 if self._kind == "poisson" else noise > 0) | ~np.isfinite(noise)
        bad &= counts if noise.size == data.size else True
        if bad.any():
            rule = "0 or more" if self._kind == "poisson" else "positive"
            raise ValueError(f"{name_of_each}: expected {rule} and finite, got {noise[np.argmax(bad)]:g}")

    def _take_each(self, name, values):
        """Store an option that has one number for all data or one for each."""
        if values is None:
            return
        values = real_array(values, name).astype(np.float64)
        if values.ndim and values.shape != self._data.shape:
            raise ValueError(f"{name}: expected a number or shape {self._data.shape}, got {values.shape}")
        self._alike[name] = "one for each datum" if values.ndim else float(values)
        if values.ndim:
            self._options["each"] = values.ravel()
        elif self._kind == "poisson":
            self._options["each"] = np.full(self._data.size, values)
        else:
            self._options["noise"] = float(values)

    def _of(self, where, comm):
        """Return the likelihood of data at the place of a model.

        `where` returns a leaf and the shape of this rank's values of it.
        """

        def check():
            leaf, shape = where()
            self._check_place(leaf, shape)
            return leaf, {"function": "amend", **self._alike}, None

        def make(leaf, _):
            native = _native.likelihood(comm, self._kind, self._label, leaf._place(copies=leaf.copies)._native(self._label), self._data, self._options)
            return Likelihood(native, comm, Space(x=leaf)._axes)

        return together(comm, check, make)

    def _check_place(self, leaf, shape):
        if leaf.components != self._components or leaf.complex:
            what = "real" if self._components == 1 else f"real {self._components}-component"
            raise ValueError(f"data `{self._label}`: expected a model of {what} values, got {leaf} of {leaf.components} components")
        if not same_shape(self._data.shape, shape):
            raise ValueError(
                f"data `{self._label}`: expected shape {long_axes(shape)}, which the model predicts, got {self._data.shape}; "
                "on several ranks pass the part of this rank"
            )

    @property
    def _own(self):
        """The likelihood of data at the cells of a grid; each rank has a part of them."""
        if self._made is None:
            comm = resolve(self._given_comm)
            leaf = self._cells(comm)
            self._made = self._of(lambda: (leaf, self._data.shape), comm)
        return self._made

    def _cells(self, comm):
        """Return the grid whose rows along the first axis are those of all ranks. Collective."""
        shape = self._data.shape

        def check():
            if not 1 <= len(shape) <= 3:
                raise ValueError(f"data: expected one to three axes without a model, got shape {shape}; amend the likelihood with a model")
            return None, {"function": "a likelihood", "number of axes of data": len(shape), "shape of a row of data": shape[1:]}, shape[0]

        rows = gathered(comm, check)[1]
        check_parts(rows, len(shape))
        whole = (sum(rows), *shape[1:])
        return Leaf("cells", whole, [float(n) for n in whole], False, self._components)

    def _takes(self):
        return [self._label]

    def _titles(self):
        return [self._label]

    def _known_comm(self):
        return None if self._given_comm is None else resolve(self._given_comm)

    def amend(self, model):
        _check_model(model)

        def where():
            name, leaf = model.target.space._only("a likelihood of data")
            own = model.target[name]
            before = int(leaf.copies > 1)
            return leaf, (*own[:before], *own[before + 1 :]) if leaf.components > 1 else own

        return self._of(where, model._comm).amend(model)


def Gaussian(data, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Create a likelihood of data with Gaussian noise of known standard deviation.

    Parameters
    ----------
    data : array_like
        Data in the shape that the model predicts; with several ranks, the part of this rank.
    noise_std : float or array_like, default 1.0
        Standard deviation of the noise, positive: one for all data, or one for each.
    name : str, default "data"
        Name in reports. Data sets that are added must have different names.
    mask : array_like of bool, optional
        True where data count; other data may have any value, NaN included. A masked array sets it
        too.
    comm : Comm or mpi4py.MPI.Comm, optional
        Ranks that check their data together. It is needed only to use the likelihood without a
        model: then data are rows along the first axis, as `numpy.array_split` distributes them (of
        one axis, all on the first rank).

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        If data that count are not finite, `noise_std` is not positive and finite, or shapes differ.
    TypeError
        If data are not real numbers.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Gaussian([1.0, 3.0], noise_std=2.0)([1.0, 1.0])
    0.5
    """
    return _OfData("gaussian", data, {}, 1, name=name, mask=mask, comm=comm, each=("noise_std", noise_std))


def Poissonian(data, *, exposure=None, name="data", mask=None, comm=None):
    """Create a likelihood of Poisson counts; the model predicts their positive rate.

    Parameters
    ----------
    data : array_like
        Counts: integers of 0 or more, in the shape that the model predicts.
    exposure : float or array_like, optional
        Exposure of all data or of each, 0 or more. The model then predicts the rate for an exposure
        of 1. Default: 1.
    mask : array_like of bool, optional
        True where data count.
    name, comm
        As in `Gaussian`.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        If data are not counts, `exposure` is negative or not finite, or shapes differ.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Poissonian([0, 2])([1.0, 1.0])
    2.0
    """
    return _OfData("poisson", data, {}, 1, name=name, mask=mask, comm=comm, each=("exposure", exposure))


def StudentT(data, dof, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Create a likelihood of data with noise of Student's t distribution, which tolerates outliers.

    Parameters
    ----------
    data : array_like
        Data in the shape that the model predicts.
    dof : float
        Degrees of freedom, positive.
    noise_std : float or array_like, default 1.0
        Scale of the distribution, positive: one for all data, or one for each.
    name, mask, comm
        As in `Gaussian`.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        If `dof` or `noise_std` is not positive and finite, or as in `Gaussian`.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Residuals are those of NIFTy. Their mean square is ``(dof + 1) / (dof + 3) * dof / (dof - 2)``
    if model and noise are right: 2 for 3 degrees of freedom, 1.25 for 5, infinite for 2 or fewer.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.StudentT([1.0, 3.0], dof=3.0).name
    'data'
    """
    return _OfData("student_t", data, {"dof": dof}, 1, name=name, mask=mask, comm=comm, each=("noise_std", noise_std))


def VariableCovarianceGaussian(data, *, name="data", mask=None, comm=None):
    """Create a likelihood of data with Gaussian noise; the model predicts mean and noise.

    Parameters
    ----------
    data : array_like
        Data in the shape that the model predicts, without the axis of components.
    name, mask, comm
        As in `Gaussian`.

    Returns
    -------
    Likelihood
        It takes a leaf of two components: the mean and the inverse standard deviation.

    Raises
    ------
    ValueError
        As in `Gaussian`.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.VariableCovarianceGaussian([1.0, 3.0]).degrees_of_freedom
    2
    """
    return _OfData("gaussian_inferred", data, {}, 2, name=name, mask=mask, comm=comm)


def VariableCovarianceStudentT(data, dof, *, name="data", mask=None, comm=None):
    """Create a likelihood of data with Student's t noise; the model predicts mean and scale.

    Parameters
    ----------
    data : array_like
        Data in the shape that the model predicts, without the axis of components.
    dof : float
        Degrees of freedom, positive.
    name, mask, comm
        As in `Gaussian`.

    Returns
    -------
    Likelihood
        It takes a leaf of two components: the mean and the scale.

    Raises
    ------
    ValueError
        As in `StudentT`.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.VariableCovarianceStudentT([1.0, 3.0], dof=3.0).degrees_of_freedom
    2
    """
    return _OfData("student_t_inferred", data, {"dof": dof}, 2, name=name, mask=mask, comm=comm)


def Categorical(data, classes, *, name="data", mask=None, comm=None):
    """Create a likelihood of class labels; the model predicts logits.

    Parameters
    ----------
    data : array_like
        Labels: integers from 0 to ``classes - 1``, in the shape that the model predicts, without
        the axis of components.
    classes : int
        Number of classes, 2 or more.
    name, mask, comm
        As in `Gaussian`.

    Returns
    -------
    Likelihood
        It takes a leaf of `classes` components.

    Raises
    ------
    ValueError
        If data are not labels, or as in `Gaussian`.

    Notes
    -----
    Collective only with `comm`; `Likelihood.amend` is collective.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Categorical([0, 2, 1], classes=3).degrees_of_freedom
    3
    """
    return _OfData("categorical", data, {"classes": classes}, classes, name=name, mask=mask, comm=comm)
