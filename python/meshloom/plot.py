"""Plots of results with matplotlib: maps, spectra, mass functions, densities and pair counts.

matplotlib is optional: ``pip install meshloom[plot]``. Every function draws into ``ax``, or into a
new figure, and returns the Axes, so that titles, limits and further curves can be added.

Notes
-----
Functions run on the host and are not collective. On several ranks, gather the data first and plot
on one rank.

Examples
--------
>>> import meshloom
>>> run = meshloom.simulate(particles=8, box=16.0, steps=2)
>>> ax = meshloom.plot.projected_density(run.positions, run.box, cells=8)
>>> ax.get_xlabel()
'x [Mpc/h]'
"""

import numpy as np

from ._arguments import box_sides, real_number, whole_number
from ._cosmology import halo_mass_function

__all__ = [
    "correlation_function",
    "mass_function",
    "pair_counts",
    "posterior",
    "power_spectrum",
    "projected_density",
]

_TITLES = ("truth", "posterior mean", "standard deviation")


def _pyplot():
    """Return matplotlib.pyplot; raise an error with the remedy if it is not installed."""
    try:
        import matplotlib.pyplot as pyplot
    except ImportError as error:
        raise ImportError("meshloom.plot needs matplotlib; install it with: pip install meshloom[plot]") from error
    return pyplot


def _axes(ax):
    """Return the given Axes, or those of a new figure."""
    return _pyplot().subplots(figsize=(5.6, 4.2), layout="constrained")[1] if ax is None else ax


def _with_unit(label, unit):
    return f"{label} [{unit}]" if unit else label


def _values(values, name, axes):
    """Return an array with one of the given numbers of axes."""
    array = np.asarray(values, dtype=float)
    if array.ndim not in axes:
        raise ValueError(f"{name}: expected {' or '.join(map(str, axes))} axes, got shape {array.shape}")
    return array


def _label_decades(axis, subs, formatter):
    """Label these multiples of the powers of ten along a logarithmic axis, and no others."""
    ticker = _pyplot().matplotlib.ticker
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(ticker.NullFormatter())


def _map(ax, field, size, unit, label, **options):
    """Draw a map with its color bar; the first axis of the field is horizontal."""
    image = ax.imshow(field.T, origin="lower", extent=(0, size[0], 0, size[1]), interpolation="nearest", **options)
    ax.set_xlabel(_with_unit("x", unit))
    ax.set_ylabel(_with_unit("y", unit))
    ax.figure.colorbar(image, ax=ax, label=label, shrink=0.9)


def posterior(mean, std, truth=None, *, size=None, unit=None, label="value", ax=None):
    """Plot the mean and standard deviation of a posterior, and the truth if it is known.

    Parameters
    ----------
    mean, std : array_like or meshloom.Array, shape (n,) or (n0, n1)
        Results of `meshloom.inference.Samples.mean_and_std`.
    truth : array_like or meshloom.Array, optional
        True field of the same shape, such as that of a mock observation.
    size : float or sequence of float, optional
        Side lengths of the box. Default: the number of cells.
    unit : str, optional
        Unit of `size`. Default: "cells" without `size`, else none.
    label : str, default "value"
        Name of the field with its unit.
    ax : Axes or sequence of Axes, optional
        Axes of a curve, or one per map (two, or three with `truth`). Default: a new figure.

    Returns
    -------
    Axes or ndarray of Axes
        For a field of one axis, the Axes with the mean and a band of one and two standard
        deviations. For a field of two axes, the Axes of the maps of truth, mean and standard
        deviation. Truth and mean have the same color scale.

    Raises
    ------
    ValueError
        If shapes differ, or a field does not have one or two axes.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> x = np.linspace(0.0, 1.0, 16)
    >>> maps = np.sin(2 * np.pi * (x[:, None] + x))
    >>> axes = meshloom.plot.posterior(0.9 * maps, 0.1 + 0 * maps, maps, size=1.0, unit="deg")
    >>> [ax.get_title() for ax in axes]
    ['truth', 'posterior mean', 'standard deviation']
    """
    mean, std = _values(mean, "mean", (1, 2)), _values(std, "std", (1, 2))
    fields = [mean, std] if truth is None else [_values(truth, "truth", (1, 2)), mean, std]
    for field in fields:
        if field.shape != mean.shape:
            raise ValueError(f"mean, std and truth: expected the same shape, got {[field.shape for field in fields]}")
    unit = "cells" if size is None and unit is None else unit
    sides = list(map(float, mean.shape)) if size is None else box_sides(size, mean.ndim, "size")
    if mean.ndim == 1:
        ax = _axes(ax)
        x = (np.arange(len(mean)) + 0.5) * sides[0] / len(mean)
        for deviations, alpha in ((2, 0.2), (1, 0.35)):
            band = f"{deviations} standard deviation{'s' * (deviations > 1)}"
            ax.fill_between(x, mean - deviations * std, mean + deviations * std, color="C0", alpha=alpha, lw=0, label=band)
        ax.plot(x, mean, color="C0", label="posterior mean")
        if truth is not None:
            ax.plot(x, fields[0], color="black", ls="--", lw=1, label="truth")
        ax.set_xlim(0, sides[0])
        ax.set_xlabel(_with_unit("x", unit))
        ax.set_ylabel(label)
        ax.legend()
        return ax
    if ax is None:
        count = len(fields)
        axes = _pyplot().subplots(1, count, figsize=(4.2 * count, 3.6), squeeze=False, layout="constrained")[1][0]
    else:
        axes = np.atleast_1d(ax)
    if len(axes) != len(fields):
        raise ValueError(f"ax: expected {len(fields)} Axes, got {len(axes)}")
    scale = {"vmin": min(field.min() for field in fields[:-1]), "vmax": max(field.max() for field in fields[:-1])}
    for one, field, title in zip(axes, fields, _TITLES[-len(fields) :]):
        is_std = title == _TITLES[-1]
        options = {"cmap": "magma", "vmin": 0} if is_std else {"cmap": "viridis", **scale}
        _map(one, field, sides, unit, label, **options)
        one.set_title(title)
    return axes


def power_spectrum(k, power, *, quantiles=(0.16, 0.84), label=None, unit="Mpc/h", ax=None, **style):
    """Plot a power spectrum, or the median and a band of the spectra of samples.

    Parameters
    ----------
    k : array_like, shape (bins,)
        Wavenumbers, such as `PowerSpectrum.k`. Bins with ``k = 0`` are left out.
    power : array_like, shape (bins,) or (samples, bins)
        Powers of one spectrum, or one row per sample.
    quantiles : pair of float, default (0.16, 0.84)
        Lower and upper quantile of the band of samples, 0 to 1.
    label : str, optional
        Text in the legend. Default: no legend.
    unit : str, default "Mpc/h"
        Unit of length; the axes have its inverse and its cube.
    ax : Axes, optional
        Axes of earlier spectra. Default: a new figure.
    **style
        Options of the curve, such as ``color`` and ``ls``; the band has its color.

    Returns
    -------
    Axes
        Both axes are logarithmic.

    Raises
    ------
    ValueError
        If the shapes do not fit, or quantiles are not ascending from 0 to 1.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import meshloom
    >>> run = meshloom.simulate(particles=8, box=16.0, steps=2)
    >>> ax = meshloom.plot.power_spectrum(run.power.k, run.power.power, label="simulation")
    >>> linear = meshloom.linear_power(run.power.k)
    >>> ax = meshloom.plot.power_spectrum(run.power.k, linear, label="linear", ls="--", ax=ax)
    >>> [line.get_label() for line in ax.lines]
    ['simulation', 'linear']
    """
    k, power = _values(k, "k", (1,)), _values(power, "power", (1, 2))
    if power.shape[-1] != len(k):
        raise ValueError(f"power: expected {len(k)} bins as k, got shape {power.shape}")
    low, high = (real_number(quantile, "quantiles") for quantile in quantiles)
    if not 0 <= low <= high <= 1:
        raise ValueError(f"quantiles: expected 0 to 1, ascending, got {low:g} and {high:g}")
    ax = _axes(ax)
    shown = k > 0
    k, power = k[shown], power[..., shown]
    (line,) = ax.plot(k, power if power.ndim == 1 else np.median(power, axis=0), label=label, **style)
    if power.ndim == 2:
        band = np.quantile(power, [low, high], axis=0)
        ax.fill_between(k, *band, color=line.get_color(), alpha=0.3, lw=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    # Wavenumbers often cover less than two decades, so powers of ten alone are too few labels.
    _label_decades(ax.xaxis, (1, 2, 5), "{x:g}")
    ax.set_xlabel(f"wavenumber k [({unit})$^{{-1}}$]")
    ax.set_ylabel(f"power P(k) [({unit})$^3$]")
    if label is not None:
        ax.legend()
    return ax


def mass_function(masses, box, *, edges=12, models=("sheth-tormen",), a=1.0, cosmology=None, label="halos", ax=None):
    """Plot the number density of halos by mass, with error bars, and models of it.

    Parameters
    ----------
    masses : array_like, shape (halos,)
        Halo masses in Msun/h, positive.
    box : float
        Side length of the box in Mpc/h, positive.
    edges : int or array_like, default 12
        Edges of the mass bins in Msun/h, or the number of bins of equal width in ln M.
    models : sequence of str, default ("sheth-tormen",)
        Models of `meshloom.halo_mass_function` to plot.
    a : float, default 1.0
        Scale factor of the models.
    cosmology : Cosmology, optional
        Cosmology of the models. Default: ``Cosmology()``.
    label : str, default "halos"
        Text in the legend.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Both axes are logarithmic. Error bars are Poisson, ``sqrt(halos)`` of a bin; empty bins are
        left out.

    Raises
    ------
    ValueError
        If there are no masses, a mass is not positive, or `box` is not positive.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> masses = 1e12 * np.random.default_rng(1).pareto(1.0, 300) + 1e12
    >>> ax = meshloom.plot.mass_function(masses, 100.0, models=["sheth-tormen", "tinker"])
    >>> ax.get_xlabel()
    'halo mass M [Msun/h]'
    """
    masses, side = _values(masses, "masses", (1,)), real_number(box, "box")
    if len(masses) == 0 or not np.all(masses > 0):
        raise ValueError("masses: expected one or more positive numbers")
    if not side > 0:
        raise ValueError(f"box: expected a positive side length, got {side:g}")
    if np.ndim(edges) == 0:
        count = whole_number(edges, "edges", 1)
        edges = np.geomspace(masses.min() * 0.999, masses.max() * 1.001, count + 1)
    edges = _values(edges, "edges", (1,))
    halos, width = np.histogram(masses, edges)[0], np.diff(np.log(edges))
    middle, full = np.sqrt(edges[1:] * edges[:-1]), halos > 0
    ax = _axes(ax)
    for model in models:
        mass = np.geomspace(edges[0], edges[-1], 100)
        ax.plot(mass, halo_mass_function(mass, a, model, cosmology), label=model.title())
    density = 1.0 / (width * side**3)
    error = (np.sqrt(halos) * density)[full]
    ax.errorbar(middle[full], (halos * density)[full], error, fmt="o", ms=4, color="black", label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    # Error bars of bins with one halo reach 0, which would stretch a logarithmic axis.
    ax.set_ylim(bottom=0.5 * (halos * density)[full].min())
    low, high = ax.get_xlim()
    if 5 * low < high < 40 * low:
        # About one decade: matplotlib's labels of 2, 3, 4 and 6 times a power of ten overlap.
        every = _pyplot().matplotlib.ticker.LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf))
        _label_decades(ax.xaxis, (1, 2, 5), every)
    ax.set_xlabel("halo mass M [Msun/h]")
    ax.set_ylabel("number density dn/dlnM [(h/Mpc)$^3$]")
    ax.legend()
    return ax


def projected_density(positions, box, *, cells=256, axis=2, weights=None, unit="Mpc/h", ax=None):
    """Plot the density of points projected along an axis, in units of its mean.

    Parameters
    ----------
    positions : array_like or meshloom.Array, shape (N, 2) or (N, 3)
        Points; those outside the periodic box are wrapped into it.
    box : float or sequence of float
        Side lengths of the box, positive.
    cells : int, default 256
        Number of pixels along each axis. Choose at most the square root of the number of points.
    axis : int, default 2
        Axis of the projection, 0 to 2; ignored for points of two axes.
    weights : array_like, shape (N,), optional
        Masses of the points. Default: 1.
    unit : str, default "Mpc/h"
        Unit of the positions.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A map with a logarithmic color scale. Empty pixels have the lowest color.

    Raises
    ------
    ValueError
        If there are no points, shapes do not fit, or a side is not positive.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> points = np.random.default_rng(1).random((1000, 3))
    >>> ax = meshloom.plot.projected_density(points, 1.0, cells=16, axis=0, unit="m")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('y [m]', 'z [m]')
    """
    points = _values(positions, "positions", (2,))
    if points.shape[1] not in (2, 3) or len(points) == 0:
        raise ValueError(f"positions: expected shape (N, 2) or (N, 3) with a point, got {points.shape}")
    dims = points.shape[1]
    sides = np.array(box_sides(box, dims))
    if not np.all(sides > 0):
        raise ValueError(f"box: expected positive side lengths, got {sides.tolist()}")
    axis = whole_number(axis, "axis")
    if dims == 3 and axis > 2:
        raise ValueError(f"axis: expected 0 to 2, got {axis}")
    shown = [one for one in range(dims) if dims == 2 or one != axis]
    cells = whole_number(cells, "cells", 1)
    places = (np.mod(points / sides, 1.0) * cells).astype(int)[:, shown] % cells
    flat = places[:, 0] * cells + places[:, 1]
    mass = None if weights is None else _values(weights, "weights", (1,))
    density = np.bincount(flat, mass, cells * cells).reshape(cells, cells)
    density = density / density.mean()
    pyplot, ax = _pyplot(), _axes(ax)
    norm = pyplot.matplotlib.colors.LogNorm(density[density > 0].min(), density.max(), clip=True)
    _map(ax, np.maximum(density, norm.vmin), sides[shown], unit, "projected density / mean", cmap="inferno", norm=norm)
    for set_label, one in zip((ax.set_xlabel, ax.set_ylabel), shown):
        set_label(_with_unit("xyz"[one], unit))
    return ax


def _bins(edges, counts):
    edges, counts = _values(edges, "edges", (1,)), _values(counts, "counts", (1,))
    if len(edges) != len(counts) + 1:
        raise ValueError(f"counts: expected {len(edges) - 1} bins as edges, got {len(counts)}")
    return edges, counts


def pair_counts(edges, counts, *, label=None, unit="Mpc/h", ax=None):
    """Plot pair counts in bins of distance.

    Parameters
    ----------
    edges : array_like, shape (bins + 1,)
        Edges of the bins, as passed to `meshloom.pair_counts`.
    counts : array_like, shape (bins,)
        Result of `meshloom.pair_counts`.
    label : str, optional
        Text in the legend. Default: no legend.
    unit : str, default "Mpc/h"
        Unit of the distances.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A histogram; the counts are logarithmic.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> points, edges = np.random.default_rng(1).random((500, 3)), np.linspace(0.0, 0.4, 9)
    >>> counts = meshloom.pair_counts(points, edges, box=1.0)
    >>> meshloom.plot.pair_counts(edges, counts, unit="m").get_xlabel()
    'distance r [m]'
    """
    edges, counts = _bins(edges, counts)
    ax = _axes(ax)
    ax.stairs(counts, edges, label=label)
    ax.set_yscale("log")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(_with_unit("distance r", unit))
    ax.set_ylabel("ordered pairs per bin")
    if label is not None:
        ax.legend()
    return ax


def correlation_function(edges, counts, points, box, *, label=None, unit="Mpc/h", ax=None):
    """Plot the correlation function of points in a periodic box.

    It is ``xi(r) = counts / expected - 1``. The expected counts are those of as many points at
    random.

    Parameters
    ----------
    edges : array_like, shape (bins + 1,)
        Edges of the bins, as passed to `meshloom.pair_counts`; at most half of the shortest side.
    counts : array_like, shape (bins,)
        Result of `meshloom.pair_counts` without weights and without other points.
    points : int
        Number of points, 2 or more.
    box : sequence of float
        Side lengths of the periodic box, two or three. They define the number of axes.
    label : str, optional
        Text in the legend. Default: no legend.
    unit : str, default "Mpc/h"
        Unit of the distances.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Points with Poisson errors ``(1 + xi) / sqrt(pairs)``, each pair counted once. Bins without
        pairs are left out. Both axes are logarithmic if ``edges[0]`` and ``xi`` of this and of
        earlier curves are positive, else linear.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a side is not positive.
    ImportError
        If matplotlib is not installed.

    Notes
    -----
    Not collective.

    Examples
    --------
    >>> import numpy as np, meshloom
    >>> points, edges = np.random.default_rng(1).random((500, 3)), np.linspace(0.0, 0.4, 9)
    >>> counts = meshloom.pair_counts(points, edges, box=1.0)
    >>> ax = meshloom.plot.correlation_function(edges, counts, len(points), [1.0] * 3, unit="m")
    >>> len(ax.containers[0].lines[0].get_xdata())
    8
    """
    edges, counts = _bins(edges, counts)
    if np.ndim(box) != 1 or len(box) not in (2, 3):
        raise ValueError(f"box: expected two or three side lengths, got {box!r}")
    sides = np.array(box_sides(box, len(box)))
    if not np.all(sides > 0):
        raise ValueError(f"box: expected positive side lengths, got {sides.tolist()}")
    number = whole_number(points, "points", 2)
    volume = np.pi * edges**2 if len(sides) == 2 else 4 / 3 * np.pi * edges**3
    expected = number * (number - 1) * np.diff(volume) / np.prod(sides)
    found = counts > 0
    ratio = counts[found] / expected[found]
    middle = 0.5 * (edges[1:] + edges[:-1])[found]
    ax = _axes(ax)
    is_log = edges[0] > 0 and np.all(ratio > 1) and (not ax.has_data() or ax.get_yscale() == "log")
    ax.set_xscale("log" if is_log else "linear")
    ax.set_yscale("log" if is_log else "linear")
    ax.errorbar(middle, ratio - 1, ratio / np.sqrt(counts[found] / 2), fmt="o", ms=4, capsize=2, label=label)
    if is_log:
        _label_decades(ax.xaxis, (1, 2, 5), "{x:g}")
    else:
        ax.axhline(0.0, color="gray", lw=0.8)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(_with_unit("distance r", unit))
    ax.set_ylabel(r"correlation function $\xi(r)$")
    if label is not None:
        ax.legend()
    return ax


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
