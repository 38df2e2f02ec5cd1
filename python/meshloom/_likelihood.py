"""Likelihoods: what data say of a model."""

from typing import NamedTuple

import numpy as np

from . import _native
from ._arguments import whole_number
from ._arrays import real_array
from ._comm import resolve
from ._model import Model, given, long_axes, random, result, same_shape
from ._space import Fields, Leaf


class DataReport(NamedTuple):
    """How well a data set is met: squares of residuals over the noise's deviation have mean 1 where model and noise are right (but for
    Student's t distribution, see `StudentT`), residuals have mean 0."""

    name: str
    reduced_chi_squared: float
    mean: float
    count: int


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

    def _given(self, x):
        return given(self._native.domain, x, self._comm)

    def amend(self, model):
        """The likelihood of what a model says, as a function of what the model takes."""
        if not isinstance(model, Model):
            raise TypeError(f"a likelihood is amended with a model, not {type(model).__name__}")
        return Likelihood(self._native.amend(model._native), model._comm, max(self._axes, model._axes))

    def __add__(self, other):
        if not isinstance(other, Likelihood):
            return NotImplemented
        return Likelihood(self._native.plus(other._native), self._comm, max(self._axes, other._axes))

    def __call__(self, x):
        """The energy at `x`."""
        return self._native.energy(self._given(x))

    def value_and_grad(self, x):
        """The energy at `x` and its gradient, a field of its domain."""
        energy, gradient = self._native.gradient(self._given(x))
        return energy, result(self.domain, gradient)

    def metric(self, x, v):
        """The Fisher metric at `x` times `v`."""
        return result(self.domain, self._native.metric(self._given(x), self._given(v)))

    def report(self, x):
        """How well each data set is met at `x`: a list of `DataReport`."""
        return [DataReport(*one) for one in self._native.report(self._given(x))]

    def random(self, seed=0, scale=1.0):
        """Standard normal numbers times a scale, a field of its domain: where a fit may start."""
        return random(self._native.domain, self.domain, self._comm, seed, scale)


class _OfData(Likelihood):
    """A likelihood of data that no model says yet: where the data are is taken from the model."""

    def __init__(self, kind, data, options, components, *, name, mask, comm):
        self._kind, self._data, self._components, self._given_comm = kind, real_array(data, "data").astype(np.float64), components, comm
        if not isinstance(name, str):
            raise TypeError(f"name must be text, not {type(name).__name__}")
        self._label, self._options = name, dict(options)
        if mask is not None:
            mask = np.ascontiguousarray(mask)
            if mask.dtype != bool or mask.shape != self._data.shape:
                raise ValueError(f"mask must be of booleans, True where data count, of the shape {self._data.shape}")
            self._options["mask"] = mask.ravel()
        self._made = None

    def _each(self, name, values):
        """Options of one number, or of one for each datum."""
        if values is None:
            return
        values = real_array(values, name).astype(np.float64)
        if values.ndim and values.shape != self._data.shape:
            raise ValueError(f"{name} has the shape {values.shape}; it must be a number or have the shape {self._data.shape}")
        self._options["each"] = np.atleast_1d(values).ravel() if values.ndim or self._kind != "poisson" else np.full(self._data.size, values)

    def _of(self, leaf, shape, comm):
        """That of data where a model says something: at a leaf, of which this rank has values of a shape."""
        if leaf.components != self._components or leaf.complex:
            what = "real" if self._components == 1 else f"{self._components} components"
            raise ValueError(f"the model says {leaf} of {leaf.components} components; a likelihood of this kind takes {what}")
        if not same_shape(self._data.shape, shape):
            raise ValueError(
                f"data `{self._label}` have the shape {self._data.shape}, and the model says numbers of the shape {long_axes(shape)}: they must be the same, "
                "on several ranks those of the rank's own part"
            )
        native = _native.NativeLikelihood(comm, self._kind, self._label, leaf._place()._native(self._label), self._data, self._options)
        return Likelihood(native, comm, len(leaf.shape))

    @property
    def _own(self):
        """That of data at the cells of a grid with their shape."""
        if self._made is None:
            shape = self._data.shape
            if not 1 <= len(shape) <= 3:
                raise ValueError(f"data of the shape {shape} are amended with a model first")
            leaf = Leaf("cells", shape, [float(n) for n in shape], False, self._components)
            self._made = self._of(leaf, shape, resolve(self._given_comm))
        return self._made

    _native = property(lambda self: self._own._native)
    _comm = property(lambda self: self._own._comm)
    _axes = property(lambda self: self._own._axes)

    def amend(self, model):
        if not isinstance(model, Model):
            raise TypeError(f"a likelihood is amended with a model, not {type(model).__name__}")
        name, leaf = model.target.space._only("a likelihood of data")
        own = model.target[name]
        return self._of(leaf, own[1:] if leaf.components > 1 else own, model._comm).amend(model)


def Gaussian(data, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Data with Gaussian noise of known standard deviation.

    Parameters
    ----------
    data : array_like
        The data, of the shape of what a model says; with `comm` those of this rank's part.
    noise_std : float or array_like
        The standard deviation of the noise: one for all data, or one for each.
    name : str
        What reports call it. Data sets that are added have different names.
    mask : array_like of bool, optional
        True where data count; others may be anything, NaN too.
    comm : Comm or mpi4py.MPI.Comm, optional
        Of a likelihood that is used without a model.

    Returns
    -------
    Likelihood

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Gaussian([1.0, 3.0], noise_std=2.0)([1.0, 1.0])
    0.5
    """
    found = _OfData("gaussian", data, {}, 1, name=name, mask=mask, comm=comm)
    found._each("noise_std", noise_std)
    return found


def Poissonian(data, *, exposure=None, name="data", mask=None, comm=None):
    """Counts of a positive rate, which the model says; with an `exposure` of each place it says the rate for an exposure of 1. See `Gaussian`.

    Examples
    --------
    >>> from meshloom import inference as mi
    >>> mi.Poissonian([0, 2])([1.0, 1.0])
    2.0
    """
    found = _OfData("poisson", data, {}, 1, name=name, mask=mask, comm=comm)
    found._each("exposure", exposure)
    return found


def StudentT(data, dof, noise_std=1.0, *, name="data", mask=None, comm=None):
    """Data by Student's t distribution with `dof` degrees of freedom, which forgives outliers. See `Gaussian`.

    Its residuals are NIFTy's, whose squares have the mean ``(dof + 1) / (dof + 3) * dof / (dof - 2)`` where model and noise are right: 2 for 3 degrees of freedom,
    1.25 for 5, and infinite for 2 or fewer.
    """
    found = _OfData("student_t", data, {"number": float(dof)}, 1, name=name, mask=mask, comm=comm)
    found._each("noise_std", noise_std)
    return found


def VariableCovarianceGaussian(data, *, name="data", mask=None, comm=None):
    """Data with Gaussian noise that the model says, too: its leaf has two components, the mean and the inverse standard deviation. See `Gaussian`."""
    return _OfData("gaussian_inferred", data, {}, 2, name=name, mask=mask, comm=comm)


def VariableCovarianceStudentT(data, dof, *, name="data", mask=None, comm=None):
    """The same by Student's t distribution: components are the mean and the standard deviation. See `StudentT`."""
    return _OfData("student_t_inferred", data, {"number": float(dof)}, 2, name=name, mask=mask, comm=comm)


def Categorical(data, classes, *, name="data", mask=None, comm=None):
    """Classes, whole numbers from 0 on, of which the model says the logits: its leaf has a component for each of `classes`. See `Gaussian`."""
    classes = whole_number(classes, "classes", 2)
    return _OfData("categorical", data, {"number": classes}, classes, name=name, mask=mask, comm=comm)
