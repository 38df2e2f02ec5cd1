"""Optimizers of SciPy for likelihoods and models."""

from ._comm import exchanged, gathered, in_words
from ._likelihood import Likelihood
from ._model import Model, scipy_module

# Methods of scipy.optimize.minimize that take products with the Hessian, and those without slopes.
_WITH_PRODUCTS = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
_WITHOUT_SLOPES = ("nelder-mead", "powell", "cobyla", "cobyqa")
# The status by which line searches and trust regions tell that no step lowers the value.
_NO_STEP_FOUND = 2
# Relative distance of neighboring float32 values.
_RESOLUTION = 2.0**-23
# Most products with the metric to find out if a result is a minimum.
_PRODUCTS = 200


def _driven(comm, tasks, run):
    """Return the result of `run` on the first rank, which the other ranks help.

    `run` takes functions of vectors that do collective `tasks`. Only one rank runs the optimizer:
    its steps may depend on the bits of a host's linear algebra. Any exception reaches all ranks.
    """
    failures = []

    def ordered(name):
        def call(*vectors):
            if not failures:
                try:
                    if comm.size > 1:
                        exchanged(comm, (name, vectors))
                    return tasks[name](*vectors)
                except StopIteration:
                    raise
                except BaseException as failure:
                    failures.append(failure)
            # All ranks have this error, even if the optimizer catches it.
            raise failures[0]

        return call

    if comm.rank > 0:
        return _served(comm, tasks)
    try:
        found = run(**{name: ordered(name) for name in tasks})
    except BaseException as failure:
        if comm.size > 1 and not failures:
            exchanged(comm, ("error", in_words(failure)))
            failure._not_to_be_told = comm._number
        raise
    if failures:
        raise failures[0]
    if comm.size > 1:
        exchanged(comm, ("result", found))
    return found


def _served(comm, tasks):
    """Do the tasks that the first rank orders until it has a result, and return that."""
    while True:
        name, value = exchanged(comm, None)[0]
        if name == "result":
            return value
        if name == "error":
            kind, text = value
            failure = kind(f"rank 0: {text}")
            failure._not_to_be_told = comm._number
            raise failure
        try:
            tasks[name](*value)
        except StopIteration:
            pass


def minimize(function, position, *, method="L-BFGS-B", callback=None, **kwargs):
    """Minimize the energy of a posterior, or a model of one number, by an optimizer of SciPy.

    Parameters
    ----------
    function : Likelihood or Model
        A likelihood of standard normal latent values, whose energy with the prior ``x . x / 2`` is
        minimized: the most probable position. Or a model of one number, such as a loss.
    position : array_like, Array or dict of them
        Start, a field of the domain.
    method : str or callable, default "L-BFGS-B"
        As in `scipy.optimize.minimize`. Methods that multiply with the Hessian ("Newton-CG",
        "trust-ncg", "trust-krylov", "trust-constr") take the metric of a likelihood plus 1.
    callback : callable, optional
        Called as ``callback(position)`` on all ranks after each iteration, with a field of float64.
        A true result ends the search.
    **kwargs
        Other arguments of `scipy.optimize.minimize`, such as `tol`, `bounds` and `options`; those
        of rank 0 count.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As SciPy returns it, for vectors of ``domain.flatten``; also ``position``, the field of
        ``x``.

    Raises
    ------
    ImportError
        If SciPy is not installed.
    ValueError
        If the model gives more than one number, or an option is invalid.
    TypeError
        If `function` is neither a likelihood nor a model.

    Notes
    -----
    Collective with the model's `comm`. The optimizer runs on rank 0 and all ranks compute with it;
    results have the same bits on any number of ranks. It takes vectors of all values in host memory
    and in float64. Values of fields are float32 on the device, so a relative tolerance below 1e-7
    is not reached. A search that finds no lower value has succeeded if a Newton step would lower
    the value by less than float32 resolves.

    Examples
    --------
    >>> import numpy as np
    >>> from meshloom import inference as mi, operators as op
    >>> likelihood = mi.Gaussian([2.0, 4.0]).amend(op.diagonal(op.cells(2), [1.0, 1.0]))
    >>> found = mi.minimize(likelihood, np.zeros(2))
    >>> found.position.round(3).tolist()
    [1.0, 2.0]
    """
    if not isinstance(function, (Likelihood, Model)):
        raise TypeError(f"function: expected a likelihood or a model, got {type(function).__name__}")
    comm, domain = function._comm, function.domain
    name = method.lower() if isinstance(method, str) else "custom"

    def check():
        if isinstance(function, Model) and function.target.size != 1:
            raise ValueError(f"function: expected a model of one number, got {dict(function.target)}")
        if name == "tnc" or name == "newton-cg" and isinstance(function, Model) and not {"hess", "hessp"} & set(kwargs):
            raise ValueError(f"method: {method} takes differences of gradients, which float32 does not resolve; choose L-BFGS-B")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback: expected a function of a field, got {type(callback).__name__}")
        optimize = scipy_module("optimize", "minimize")
        return optimize, {"function": "minimize", "method": name}, callback is not None

    optimize, callbacks = gathered(comm, check)
    start = domain.flatten(position)

    def value_and_grad(x):
        if isinstance(function, Likelihood):
            energy, gradient = function.value_and_grad(domain.restore(x))
            return energy + 0.5 * float(x @ x), domain.flatten(gradient) + x
        at = function.at(domain.restore(x))
        return float(function.target.flatten(at.value)[0]), domain.flatten(at.vjp(function.target.restore([1.0])))

    def value(x):
        if isinstance(function, Likelihood):
            return function(domain.restore(x)) + 0.5 * float(x @ x)
        return float(function.target.flatten(function(domain.restore(x)))[0])

    def metric(x, v):
        return domain.flatten(function.metric(domain.restore(x), domain.restore(v))) + v

    def told(x):
        field = domain.restore(x)
        if any(gathered(comm, lambda: (None, {}, callback is not None and bool(callback(field))))[1]):
            raise StopIteration

    def run(value_and_grad, value, metric, told):
        options, last = {"method": method, **kwargs}, []

        def after(x, *_):
            last[:] = [x]
            told(x)

        if any(callbacks):
            options["callback"] = after
        if isinstance(function, Likelihood) and name in _WITH_PRODUCTS and not {"hess", "hessp"} & set(kwargs):
            options["hessp"] = metric
        try:
            if name in _WITHOUT_SLOPES:
                return optimize.minimize(value, start, **options)
            found = optimize.minimize(value_and_grad, start, jac=True, **options)
        except StopIteration:
            # Some methods of SciPy do not catch it.
            return optimize.OptimizeResult(x=last[0], fun=value(last[0]), success=False, status=99, message="`callback` raised `StopIteration`.")
        if isinstance(method, str) and not found.success and found.status == _NO_STEP_FOUND:
            _, slope = value_and_grad(found.x)
            step = _newton_step(found, slope, metric if isinstance(function, Likelihood) else None)
            if step is not None and 0.5 * float(slope @ step) <= _RESOLUTION * max(abs(float(found.fun)), 1.0):
                found.success, found.status = True, 0
                found.message = "CONVERGENCE: NO STEP LOWERS THE VALUE BY MORE THAN FLOAT32 RESOLVES"
        return found

    found = _driven(comm, {"value_and_grad": value_and_grad, "value": value, "metric": metric, "told": told}, run)
    found.position = domain.restore(found.x)
    return found


def _newton_step(found, slope, metric):
    """Return the step from a result to the minimum of its quadratic model, negated.

    `metric` multiplies a likelihood's Hessian; without one the optimizer's own estimate is taken.
    None if there is neither, or if its equations are not solved.
    """
    if metric is None:
        return found.hess_inv @ slope if "hess_inv" in found else None
    linalg = scipy_module("sparse.linalg", "minimize")
    size = slope.size
    hessian = linalg.LinearOperator((size, size), matvec=lambda v: metric(found.x, v.ravel()), dtype=float)
    step, left = linalg.cg(hessian, slope, maxiter=_PRODUCTS)
    return step if left == 0 else None


def least_squares(model, position, **kwargs):
    """Minimize half the sum of squares of a model's values by `scipy.optimize.least_squares`.

    Parameters
    ----------
    model : Model
        Residuals, such as ``(prediction - data) / noise_std`` with a model `prediction`.
    position : array_like, Array or dict of them
        Start, a field of the domain.
    **kwargs
        Other arguments of `scipy.optimize.least_squares`, such as `bounds`, `loss`, `xtol` and
        `max_nfev`; those of rank 0 count. The method "lm" is not available: it takes matrices only.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As SciPy returns it, for vectors of ``flatten`` of the domain and the target; `jac` is a
        `scipy.sparse.linalg.LinearOperator`. Also ``position``, the field of ``x``.

    Raises
    ------
    ImportError
        If SciPy is not installed.
    ValueError
        If an option is invalid.
    TypeError
        If `model` is not a model.

    Notes
    -----
    Collective with the model's `comm`, as `minimize`. The Jacobian is never a matrix: SciPy solves
    its equations by `lsmr` with ``jvp`` and ``vjp``. There is no prior.

    Examples
    --------
    >>> from meshloom import inference as mi, operators as op
    >>> residuals = op.matrix([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]) - [1.0, 3.0, 5.0]
    >>> mi.least_squares(residuals, [0.0, 0.0]).position.round(3).tolist()
    [1.0, 2.0]
    """
    if not isinstance(model, Model):
        raise TypeError(f"model: expected a model, got {type(model).__name__}")
    comm, domain, target = model._comm, model.domain, model.target
    optimize, _ = gathered(comm, lambda: (scipy_module("optimize", "least_squares"), {"function": "least_squares"}, None))
    operator = scipy_module("sparse.linalg", "least_squares").LinearOperator
    start = domain.flatten(position)
    latest = [None]

    def residuals(x):
        return target.flatten(model(domain.restore(x)))

    def linearize(x):
        latest[0] = model.at(domain.restore(x))

    def run(residuals, linearize, jvp, vjp):
        def jacobian(x):
            linearize(x)
            return operator((target.size, domain.size), matvec=lambda v: jvp(v.ravel()), rmatvec=lambda v: vjp(v.ravel()), dtype=float)

        found = optimize.least_squares(residuals, start, jac=jacobian, tr_solver=kwargs.pop("tr_solver", "lsmr"), **kwargs)
        # Functions of this rank cannot be sent to other ranks.
        found.jac = None
        return found

    tasks = {
        "residuals": residuals,
        "linearize": linearize,
        "jvp": lambda v: target.flatten(latest[0].jvp(domain.restore(v))),
        "vjp": lambda v: domain.flatten(latest[0].vjp(target.restore(v))),
    }
    found = _driven(comm, tasks, run)
    found.position = domain.restore(found.x)
    found.jac = model.at(found.position).as_linear_operator()
    return found
