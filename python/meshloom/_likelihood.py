"""Likelihoods of data given a model."""

from typing import NamedTuple

import numpy as np

from . import _native
from ._arguments import real_number, whole_number
from ._arrays import real_array
from ._comm import agreed, check_parts, gathered, given_or_not, is_alone, resolve, together
from ._model import Model, long_axes, of_given, random, result, same_shape
from ._space import Fields, Leaf


class DataReport(NamedTuple):
    """How well a data set is met: squares of residuals over the noise's deviation have mean 1 where model and noise are right (but for
    Student's t distribution, see `StudentT`), residuals have mean 0."""

    name: str
    reduced_chi_squared: float
    mean: float
    n_data: int


class Likelihood:
    """``-ln p(data | x)`` up to a constant. `Gaussian` and others make one of data; `amend` makes it that of a model; ``+`` joins independent data.

    Attributes
    ----------
    domain : dict
        Names and shapes of the fields that it is a function of.
    name : str
        The names of its data sets.
    degrees_of_freedom : int
        Data that count.
    """

    def __init__(self, native, comm, axes):
        self._native, self._comm, self._axes = native, comm, axes

    @property
    def domain(self):
        return Fields(self._native.domain, self._axes)

    @property
    def name(self):
        return self._native.name

    @property
    def degrees_of_freedom(self):
        return self._native.degrees_of_freedom()

    def __repr__(self):
        return f"<meshloom.Likelihood of {self.name}: {dict(self.domain)}>"

    def _at(self, function, call, *fields):
        return of_given(self._comm, function, [(self._native.domain, x) for x in fields], call)

    def amend(self, model):
        """Likelihood as a function of the inputs of `model`, which predicts the data.

        In a sum of likelihoods each data set takes the leaf of the model that has its name.
        """

        def amended():
            _check_model(model)
            return Likelihood(self._native.amend(model._native), model._comm, max(self._axes, model._axes))

        return agreed(self._comm, amended)

    def __add__(self, other):
        def added():
            if not isinstance(other, Likelihood):
                raise TypeError(f"a likelihood is added to likelihoods, not {type(other).__name__}")
            return _Sum(self, other) if isinstance(self, _Unplaced) or isinstance(other, _Unplaced) else _plus(self, other)

        comm = self._known_comm()
        return added() if comm is None else agreed(comm, added)

    def _takes(self):
        """The names of what it is a function of."""
        return list(self.domain)

    def _titles(self):
        """The names of its data sets, as far as they are known one by one."""
        return [self.name]

    def _known_comm(self):
        """The ranks that it is of; none where a model will say."""
        return self._comm

    def __call__(self, x):
        """The energy at `x`."""
        return self._at("a likelihood", self._native.energy, x)

    def value_and_grad(self, x):
        """The energy at `x` and its gradient, a field of its domain."""
        energy, gradient = self._at("value_and_grad", self._native.gradient, x)
        return energy, result(self.domain, gradient)

    def metric(self, x, v):
        """The Fisher metric at `x` times `v`."""
        return result(self.domain, self._at("metric", self._native.metric, x, v))

    def report(self, x):
        """How well each data set is met at `x`: a list of `DataReport`."""
        return [DataReport(*one) for one in self._at("report", self._native.report, x)]

    def random(self, seed=0, scale=1.0):
        """Standard normal numbers times a scale, a field of its domain: where a fit may start."""
        return random(self._native.domain, self.domain, self._comm, seed, scale)


def _check_model(model):
    if not isinstance(model, Model):
        raise TypeError(f"a likelihood is amended with a model, not {type(model).__name__}")


def _plus(one, other):
    """The sum of two likelihoods. Ranks agree on it."""
    return Likelihood(one._native.plus(other._native), one._comm, max(one._axes, other._axes))


class _Unplaced(Likelihood):
    """A likelihood of data that no model says yet: where the data are is taken from the model, or else `_own` is that of data at the cells of a grid."""

    _native = property(lambda self: self._own._native)
    _comm = property(lambda self: self._own._comm)
    _axes = property(lambda self: self._own._axes)
    name = property(lambda self: " + ".join(self._titles()))

    def __repr__(self):
        return f"<meshloom.Likelihood of {self.name}>"


class _Sum(_Unplaced):
    """A sum of likelihoods, one of which at least is unplaced."""

    def __init__(self, one, other):
        for name in one._titles():
            if name in other._titles():
                raise ValueError(f"data `{name}`: two data sets have this name; give each its own")
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
            raise TypeError(f"name must be text, not {type(name).__name__}")
        self._label, self._options = name, {}
        for option, number in options.items():
            self._options["number"] = whole_number(number, option, 2) if option == "classes" else real_number(number, option)
        if mask is not None:
            mask = np.array(mask, order="C")
            if mask.dtype != bool or mask.shape != self._data.shape:
                raise ValueError(f"mask must be of booleans, True where data count, of the shape {self._data.shape}")
            self._options["mask"] = mask.ravel()
        # What must be the same on all ranks.
        self._alike = {"kind of likelihood": self._kind, "name": name, "mask": given_or_not(mask), **options}
        self._take_each(name_of_each, each)
        # Ranks that were not given here check together, where the model is.
        if self._given_comm is not None or is_alone():
            self._check_values(name_of_each)

    def _check_values(self, name_of_each):
        """Refuses what no likelihood of this kind takes, before a model is at hand."""
        counts = self._options.get("mask", True)
        data = self._data.ravel()
        wrong = ~np.isfinite(data)
        rule = "finite numbers within the range of float32"
        if self._kind == "poisson":
            wrong |= (data < 0) | (data != np.floor(data))
            rule = "counts, whole numbers that are not negative"
        elif self._kind == "categorical":
            classes = self._options["number"]
            wrong |= (data < 0) | (data >= classes) | (data != np.floor(data))
            rule = f"classes, whole numbers below {classes}"
        wrong |= np.abs(data) > np.finfo(np.float32).max
        if (wrong & counts).any():
            at = np.unravel_index(np.argmax(wrong & counts), self._data.shape)
            raise ValueError(f"data must be {rule}; element {tuple(int(i) for i in at)} is {self._data[at]:g}; repair it, or give a mask that is False there")
        dof = self._options.get("number", 1)
        if self._kind.startswith("student_t") and not 0 < dof < np.inf:
            raise ValueError(f"dof must be positive and finite, got {dof:g}")
        noise = np.atleast_1d(self._options.get("noise", self._options.get("each", 1.0)))
        bad = ~(noise >= 0 if self._kind == "poisson" else noise > 0) | ~np.isfinite(noise)
        bad &= counts if noise.size == data.size else True
        if bad.any():
            rule = "not negative" if self._kind == "poisson" else "positive"
            raise ValueError(f"{name_of_each} must be {rule} and finite, got {noise[np.argmax(bad)]:g}")

    def _take_each(self, name, values):
        """An option of one number, or of one for each datum."""
        if values is None:
            return
        values = real_array(values, name).astype(np.float64)
        if values.ndim and values.shape != self._data.shape:
            raise ValueError(f"{name} has the shape {values.shape}; it must be a number or have the shape {self._data.shape}")
        self._alike[name] = "one for each datum" if values.ndim else float(values)
        if values.ndim:
            self._options["each"] = values.ravel()
        elif self._kind == "poisson":
            self._options["each"] = np.full(self._data.size, values)
        else:
            self._options["noise"] = float(values)

    def _of(self, where, comm):
        """That of data where a model says something: `where` gives a leaf, and the shape of the values that this rank has of it."""

        def check():
            leaf, shape = where()
            self._check_place(leaf, shape)
            return leaf, {"function": "amend", **self._alike}, None

        def make(leaf, _):
            native = _native.NativeLikelihood(comm, self._kind, self._label, leaf._place()._native(self._label), self._data, self._options)
            return Likelihood(native, comm, len(leaf.shape))

        return together(comm, check, make)

    def _check_place(self, leaf, shape):
        if leaf.components != self._components or leaf.complex:
            what = "real" if self._components == 1 else f"{self._components} components"
            raise ValueError(f"the model says {leaf} of {leaf.components} components; a likelihood of this kind takes {what}")
        if not same_shape(self._data.shape, shape):
            raise ValueError(
                f"data `{self._label}` have the shape {self._data.shape}, and the model says numbers of the shape {long_axes(shape)}: they must be the same, "
                "on several ranks those of the rank's own part"
            )

    @property
    def _own(self):
        """That of data at the cells of a grid, of which each rank's are a part."""
        if self._made is None:
            comm = resolve(self._given_comm)
            leaf = self._cells(comm)
            self._made = self._of(lambda: (leaf, self._data.shape), comm)
        return self._made

    def _cells(self, comm):
        """The grid whose rows along the first axis ranks have one after the other. All ranks call it."""
        shape = self._data.shape

        def check():
            if not 1 <= len(shape) <= 3:
                raise ValueError(f"data of the shape {shape} are amended with a model first")
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
            return leaf, own[1:] if leaf.components > 1 else own

        return self._of(where, model._comm).amend(model)


def Gaussian(data, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Data with Gaussian noise of known standard deviation.

    Parameters
    ----------
    data : array_like
        Data, of the shape that the model predicts; with `comm` this rank's part of them.
    noise_std : float or array_like
        The standard deviation of the noise: one for all data, or one for each.
    name : str
        What reports call it. Data sets that are added have different names.
    mask : array_like of bool, optional
        True where data count; others may be anything, NaN too.
    comm : Comm or mpi4py.MPI.Comm, optional
        Of a likelihood that is used without a model, where data are those of this rank's rows along the first axis, as `numpy.array_split` cuts it (of one axis all
        are the first rank's). And the ranks that refuse together what one of them has and cannot take; without it only that one does.

    Returns
    -------
    Likelihood

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Gaussian([1.0, 3.0], noise_std=2.0)([1.0, 1.0])
    0.5
    """
    return _OfData("gaussian", data, {}, 1, name=name, mask=mask, comm=comm, each=("noise_std", noise_std))


def Poissonian(data, *, exposure=None, name="data", mask=None, comm=None):
    """Poisson counts of a positive rate, which the model predicts. See `Gaussian`.

    With `exposure`, one non-negative number for all data or one for each, the model
    predicts the rate for an exposure of 1.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Poissonian([0, 2])([1.0, 1.0])
    2.0
    """
    return _OfData("poisson", data, {}, 1, name=name, mask=mask, comm=comm, each=("exposure", exposure))


def StudentT(data, dof, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Data by Student's t distribution with `dof` degrees of freedom, which forgives outliers. See `Gaussian`.

    Its residuals are NIFTy's, whose squares have the mean ``(dof + 1) / (dof + 3) * dof / (dof - 2)`` where model and noise are right: 2 for 3 degrees of freedom,
    1.25 for 5, and infinite for 2 or fewer.
    """
    return _OfData("student_t", data, {"dof": dof}, 1, name=name, mask=mask, comm=comm, each=("noise_std", noise_std))


def VariableCovarianceGaussian(data, *, name="data", mask=None, comm=None):
    """Data with Gaussian noise whose standard deviation the model predicts. See `Gaussian`.

    The leaf of the model has two components: the mean and the inverse standard
    deviation.
    """
    return _OfData("gaussian_inferred", data, {}, 2, name=name, mask=mask, comm=comm)


def VariableCovarianceStudentT(data, dof, *, name="data", mask=None, comm=None):
    """Data by Student's t distribution whose width the model predicts. See `StudentT`.

    The leaf of the model has two components: the mean and the standard deviation.
    """
    return _OfData("student_t_inferred", data, {"dof": dof}, 2, name=name, mask=mask, comm=comm)


def Categorical(data, classes, *, name="data", mask=None, comm=None):
    """Class labels from 0 to ``classes - 1``. See `Gaussian`.

    The model predicts logits: its leaf has one component for each of `classes`.
    """
    return _OfData("categorical", data, {"classes": classes}, classes, name=name, mask=mask, comm=comm)
